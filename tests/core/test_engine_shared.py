"""Several engines on one log, as processes would be: nothing is lost, everybody is woken, and all come to the same state."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from protocols.lifecycle import MemberEvent
from protocols.requests import KEEP_CLOSED
from teams.errors import ClaimLost, HostConflict
from teams.journal import FileJournalOptions, MemoryJournal, MemoryLog, Record, open_file_journal
from teams.state.request_commands import RequestShutdown
from teams.state.roster import MemberSpec
from teams.state.roster_commands import ChangeStatus, Join
from tests.core.rig import HOST, Rig, open_rig, settled
from tests.state.driving import shown


async def _send_many(rig: Rig, who: str, count: int) -> None:
    for number in range(count):
        await rig.bus.send(who, "cat", f"{who} {number}")


async def _both_write(first: Rig, second: Rig, count: int) -> None:
    async with trio.open_nursery() as nursery:
        for rig, who in ((first, "ann"), (second, "ben")):
            nursery.start_soon(_send_many, rig, who, count)
            nursery.start_soon(rig.tasks.create, f"by {who}")
    await settled(first.engine, second.engine)
    held = list(first.engine.state.mail.box("cat").values())
    assert [message.id for message in held] == [f"m{number}" for number in range(1, 2 * count + 1)], "lost, doubled or out of order"
    for who in ("ann", "ben"):
        assert [message.content for message in held if message.sender == who] == [f"{who} {number}" for number in range(count)]
    assert sorted(task.subject for task in first.tasks.list_all()) == ["by ann", "by ben"]
    assert shown(first.engine.state) == shown(second.engine.state)


async def test_two_engines_in_memory_write_at_once(autojump_clock: MockClock) -> None:
    """Every conflict is decided again: both senders' messages are all there, in their order, and the two states are equal."""
    log = MemoryLog()
    async with open_rig(MemoryJournal(log)) as first, open_rig(MemoryJournal(log)) as second:
        await _both_write(first, second, 40)


async def test_two_engines_on_one_directory_write_at_once(tmp_path: Path) -> None:
    """The same on disk, over several segments."""
    options = FileJournalOptions(segment_bytes=4_000)
    async with AsyncExitStack() as stack:
        rigs: list[Rig] = []
        for _ in range(2):
            journal = await stack.enter_async_context(open_file_journal(tmp_path / "journal", options=options))
            rigs.append(await stack.enter_async_context(open_rig(journal, wall_clock=lambda: 1.0)))
        await _both_write(rigs[0], rigs[1], 25)


async def test_one_task_has_one_owner_whoever_asks_where(autojump_clock: MockClock) -> None:
    """Claims of the same tasks through three engines at once: each task has one winner, and the losers learn who it is."""
    log = MemoryLog()
    async with AsyncExitStack() as stack:
        rigs = [await stack.enter_async_context(open_rig(MemoryJournal(log))) for _ in range(3)]
        for number in range(10):
            await rigs[0].tasks.create(str(number))
        await settled(*[rig.engine for rig in rigs])
        won: dict[int, str] = {}
        lost: list[tuple[int, str | None]] = []

        async def claim_all(rig: Rig, name: str) -> None:
            for task_id in range(1, 11):
                try:
                    won[(await rig.tasks.claim(task_id, name)).task.id] = name
                except ClaimLost as error:
                    lost.append((task_id, error.owner))

        async with trio.open_nursery() as nursery:
            for rig, name in zip(rigs, ("ann", "ben", "cat"), strict=True):
                nursery.start_soon(claim_all, rig, name)
        assert sorted(won) == list(range(1, 11))
        assert len(lost) == 20
        assert all(owner == won[task_id] for task_id, owner in lost)


async def test_who_waits_in_one_engine_is_woken_by_the_other(autojump_clock: MockClock) -> None:
    """A receiver, a waiter for a task and a waiter for a commit see what happens in another process, and it costs no time."""
    log = MemoryLog()
    async with open_rig(MemoryJournal(log)) as here, open_rig(MemoryJournal(log)) as there, trio.open_nursery() as nursery:
        task = await here.tasks.create("x")
        done: list[str] = []

        async def receive() -> None:
            message = await here.bus.receive("ben")
            await here.bus.acknowledge("ben", message.id)
            done.append(message.content)

        async def wait() -> None:
            done.append((await here.tasks.wait(task.id)).status.value)

        nursery.start_soon(receive)
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        begin = trio.current_time()
        receipt = await there.bus.send("ann", "ben", "hello")
        await there.bus.wait_committed(receipt)
        claim = await there.tasks.claim(task.id, "cat")
        await there.tasks.complete(task.id, fence=claim.fence)
        await wait_all_tasks_blocked()
        assert done == ["hello", "completed"]
        assert trio.current_time() == begin


async def test_who_waits_is_woken_by_another_handle_on_disk(tmp_path: Path) -> None:
    """On disk the wake-up comes from the operating system."""
    async with (
        open_file_journal(tmp_path / "journal") as first,
        open_file_journal(tmp_path / "journal") as second,
        open_rig(first, wall_clock=lambda: 1.0) as here,
        open_rig(second, wall_clock=lambda: 1.0) as there,
        trio.open_nursery() as nursery,
    ):
        got: list[str] = []
        changed = trio.Event()

        async def receive() -> None:
            nonlocal changed
            for _ in range(3):
                got.append((await here.bus.receive("ben")).content)
                changed.set()
                changed = trio.Event()

        nursery.start_soon(receive)
        for number in range(3):
            await there.bus.send("ann", "ben", str(number))
            while len(got) <= number:
                await changed.wait()
        assert got == ["0", "1", "2"]


async def test_a_second_host_is_refused_also_when_it_has_not_yet_heard_of_the_first(autojump_clock: MockClock) -> None:
    """Two processes host one member at the same moment: one of them is refused, whatever it knew when it asked."""
    log = MemoryLog()
    outcomes: list[str] = []
    async with open_rig(MemoryJournal(log)) as first, open_rig(MemoryJournal(log)) as second:

        async def host(rig: Rig, name: str) -> None:
            try:
                await rig.engine.submit(Join(MemberSpec(name="dan"), name))
                outcomes.append(name)
            except HostConflict as error:
                outcomes.append(f"refused for {error.host}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(host, first, "one_1_1")
            nursery.start_soon(host, second, "two_2_2")
        (winner,) = [outcome for outcome in outcomes if not outcome.startswith("refused")]
        assert sorted(outcomes) == sorted([winner, f"refused for {winner}"])


async def test_listeners_hear_every_record_once_whoever_wrote_it(autojump_clock: MockClock) -> None:
    """What the own engine and another one write comes in the order of the log, each record once, when the state already shows it."""
    log = MemoryLog()
    async with open_rig(MemoryJournal(log)) as here, open_rig(MemoryJournal(log)) as there:
        await settled(here.engine, there.engine)
        first, heard = here.engine.state.seq, list[int]()

        def listen(records: Sequence[Record]) -> None:
            assert here.engine.state.seq == records[-1].seq
            heard.extend(record.seq for record in records)

        here.engine.listen(listen)
        async with trio.open_nursery() as nursery:
            for rig, who in ((here, "ann"), (there, "ben")):
                nursery.start_soon(_send_many, rig, who, 20)
        await settled(here.engine, there.engine)
        assert heard == list(range(first + 1, here.engine.state.seq + 1))


class SlowToRead(MemoryJournal):
    """A journal that is slow to catch up after a conflict."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self.go_on = trio.Event()
        self.go_on.set()

    async def read(self, after_seq: int) -> list[Record]:
        """Wait, then read."""
        await self.go_on.wait()
        return await super().read(after_seq)

    def grown(self) -> bool:
        """Say no while it is slow, so that the conflict comes as a surprise."""
        return self.go_on.is_set() and super().grown()


async def test_an_engine_is_not_settled_while_it_decides_a_second_time(autojump_clock: MockClock) -> None:
    """Between a conflict and the second append a caller still waits: whoever asks whether all is quiet must not hear yes."""
    log = MemoryLog()
    journal = SlowToRead(log)
    async with open_rig(journal) as here, open_rig(MemoryJournal(log)) as there, trio.open_nursery() as nursery:
        await settled(here.engine, there.engine)
        journal.go_on = trio.Event()
        await there.bus.send("ann", "ben", "first")
        nursery.start_soon(here.bus.send, "ann", "ben", "second")
        await wait_all_tasks_blocked()
        answered = here.engine.state.mail.sent == 2
        is_settled = here.engine.is_settled
        journal.go_on.set()
        await wait_all_tasks_blocked()
        assert [held.content for held in here.engine.state.mail.box("ben").values()] == ["first", "second"]
        assert is_settled == answered, "an engine with an unanswered command said that it was settled"


async def test_more_requests_than_are_remembered_can_close_at_once(autojump_clock: MockClock) -> None:
    """Of closed requests only the newest are kept; when more of them close in one batch, watchers and waiters are served all the same."""
    count = KEEP_CLOSED + 200
    async with open_rig(members=("ann",)) as rig, trio.open_nursery() as nursery:
        for number in range(count):
            rig.engine.post(Join(MemberSpec(name=f"w{number}", kind="script"), HOST))
            rig.engine.post(RequestShutdown(f"w{number}", "ann", 60.0))
        await rig.join("zoe", kind="script")
        nursery.start_soon(rig.bus.receive, "ann")
        await wait_all_tasks_blocked()
        for number in range(count):
            rig.engine.post(ChangeStatus(f"w{number}", MemberEvent.exited, None))
        await rig.engine.submit(ChangeStatus("zoe", MemberEvent.exited, None))
        assert len(rig.engine.state.requests) == 0
        await rig.bus.send("zoe", "ann", "still here")


class Rung(MemoryJournal):
    """A journal that says it has grown when the test rings."""

    def __init__(self) -> None:
        super().__init__()
        self.bell = trio.Event()

    async def wait_grown(self, after_seq: int) -> None:
        """Wait for the bell."""
        await self.bell.wait()


async def test_an_append_of_another_in_the_moment_of_the_close_is_no_error(autojump_clock: MockClock) -> None:
    """Growth that is noticed while the engine closes ends the watch, and does not end the block with an error."""
    journal = Rung()
    async with open_rig(journal):
        await wait_all_tasks_blocked()
        journal.bell.set()
