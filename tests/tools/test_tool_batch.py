"""The calls of one reply: reads together, writes in order, exactly one result for each whatever happens."""

from collections.abc import Callable, Generator

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from teams.tools import ToolBatch, ToolCall, ToolContext, ToolDispatcher, ToolResult, tool

Span = tuple[float, float]


class Recorder:
    """Tools that take time, and when each call began and ended."""

    def __init__(self) -> None:
        self.spans: dict[int, Span] = {}
        self.dispatcher = ToolDispatcher()
        self.dispatcher.add(tool(effect="reads", name="read")(self.work))
        self.dispatcher.add(tool(effect="writes", name="write")(self.work))

    async def work(self, number: int, seconds: float) -> str:
        """Take so long."""
        began = trio.current_time()
        await trio.sleep(seconds)
        self.spans[number] = (began, trio.current_time())
        return f"result {number}"


def _context(call: ToolCall) -> ToolContext:
    return ToolContext(call_id=call.id)


Plan = list[tuple[str, int]]
plans: st.SearchStrategy[Plan] = st.lists(st.tuples(st.sampled_from(["read", "write", "unknown"]), st.integers(0, 5)), max_size=8)


def _calls(plan: Plan) -> list[ToolCall]:
    return [ToolCall(f"c{number}", name, {"number": number, "seconds": seconds}) for number, (name, seconds) in enumerate(plan)]


@given(plans)
def test_writes_are_alone_and_in_order(plan: Plan) -> None:
    """A write begins when everything before it has ended, and all after it wait for its end; neighbouring reads begin at once."""
    recorder = Recorder()

    async def main() -> None:
        results = await ToolBatch(recorder.dispatcher, _calls(plan), _context).run()
        assert [result.call_id for result in results] == [f"c{number}" for number in range(len(plan))]
        for number, (name, _) in enumerate(plan):
            assert results[number].is_error == (name == "unknown")

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    spans = recorder.spans
    for number, (name, _) in enumerate(plan):
        if name == "write":
            assert all(spans[earlier][1] <= spans[number][0] for earlier in spans if earlier < number)
            assert all(spans[later][0] >= spans[number][1] for later in spans if later > number)
        if name == "read" and number and plan[number - 1][0] == "read":
            assert spans[number][0] == spans[number - 1][0]


class CallAtStep(trio.abc.Instrument):
    """Calls something, once, when the run has taken so many task steps."""

    def __init__(self, step: int, action: Callable[[], None]) -> None:
        self._left, self._action = step, action

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step."""
        self._left -= 1
        if self._left == 0:
            self._action()


MIXED: Plan = [("read", 1), ("read", 2), ("write", 1), ("unknown", 0), ("write", 1), ("read", 0), ("read", 1)]


def _run_cancelled_at(step: int, *, by_batch: bool) -> tuple[tuple[ToolResult, ...], Recorder, list[str], bool]:
    recorder = Recorder()
    events: list[str] = []
    batch = ToolBatch(
        recorder.dispatcher,
        _calls(MIXED),
        _context,
        on_start=lambda call: events.append(f"start {call.id}"),
        on_end=lambda call, result: events.append(f"end {call.id}"),
    )

    async def main() -> bool:
        with trio.CancelScope() as scope:
            trio.lowlevel.add_instrument(CallAtStep(step, batch.cancel if by_batch else scope.cancel))
            await batch.run()
            return True
        return False

    finished = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return batch.results(), recorder, events, finished


@pytest.mark.parametrize("by_batch", [False, True])
def test_cancellation_at_every_step_leaves_one_result_per_call(by_batch: bool) -> None:
    """Wherever the batch is cancelled there is one result per call in order, finished ones are kept, and starts and ends pair up."""
    interrupted_counts: set[int] = set()
    for step in range(1, 200):
        results, recorder, events, finished = _run_cancelled_at(step, by_batch=by_batch)
        assert [result.call_id for result in results] == [f"c{number}" for number in range(len(MIXED))]
        for number, result in enumerate(results):
            if MIXED[number][0] != "unknown":
                assert result.interrupted == (number not in recorder.spans)
            assert result.text.startswith("interrupted: ") == result.interrupted
        assert sorted(event[6:] for event in events if event.startswith("start ")) == sorted(
            event[4:] for event in events if event.startswith("end ")
        )
        interrupted_counts.add(sum(result.interrupted for result in results))
        if finished and not any(result.interrupted for result in results):
            break
    else:
        pytest.fail("the batch never finished")
    assert {0, len(MIXED)} <= interrupted_counts
    assert len(interrupted_counts) > 2  # how many there are depends on the order in which reads run


class Ready:
    """Awaited without a checkpoint."""

    def __await__(self) -> Generator[None, None, None]:
        """End at once."""
        yield from ()


@pytest.mark.parametrize("by_batch", [False, True])
async def test_cancelled_batch_starts_no_write(by_batch: bool) -> None:
    """A write that would finish without a checkpoint is not even begun when the batch is cancelled already."""
    written: list[int] = []

    @tool(effect="writes")
    async def write(number: int) -> str:
        written.append(number)
        (batch if by_batch else scope).cancel()
        await Ready()
        return "written"

    batch = ToolBatch(ToolDispatcher([write]), [ToolCall(str(number), "write", {"number": number}) for number in range(3)], _context)
    with trio.CancelScope() as scope:
        await batch.run()
    results = batch.results()
    assert written == [0]
    assert [result.interrupted for result in results] == [False, True, True]
    assert "never started" in results[1].text


async def test_running_call_that_is_cancelled_says_so(autojump_clock: trio.testing.MockClock) -> None:
    """The results tell a call that was stopped half-way from one that never began."""
    batch = ToolBatch(Recorder().dispatcher, _calls([("write", 9), ("write", 9)]), _context)
    with trio.move_on_after(1):
        await batch.run()
    first, second = batch.results()
    assert "was stopped while it ran" in first.text
    assert "never started" in second.text
    assert first.block()["is_error"] is True


async def test_results_before_the_run_are_complete() -> None:
    """There is a result for every call at any time, and a batch cancelled beforehand runs nothing."""
    recorder = Recorder()
    batch = ToolBatch(recorder.dispatcher, _calls([("read", 1), ("write", 1)]), _context)
    assert len(batch.results()) == 2
    batch.cancel()
    assert all(result.interrupted for result in await batch.run())
    assert recorder.spans == {}


async def test_calls_of_one_id_have_each_their_result() -> None:
    """A model that repeats an id gets a result for each of its calls, by position."""
    calls = [ToolCall("same", "read", {"number": number, "seconds": 0}) for number in range(2)]
    results = await ToolBatch(Recorder().dispatcher, calls, _context).run()
    assert [result.text for result in results] == ["result 0", "result 1"]


async def test_batch_runs_once() -> None:
    """A second run would repeat side effects and is refused."""
    batch = ToolBatch(ToolDispatcher(), [], _context)
    assert await batch.run() == ()
    with pytest.raises(RuntimeError, match="a batch runs once"):
        await batch.run()
