"""Law 3: whatever has become of a member, its shutdown ends within the grace, and nothing of it is left running."""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from protocols.lifecycle import MemberStatus
from teams import MemberOptions, ScriptedModel, ShutdownOptions, Team, TeamOptions, open_team, tool
from teams.errors import ContextOverflow, ModelConnectionError, ModelError, Overloaded, QuotaExhausted, RateLimited
from teams.manager import ShutdownOutcome
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, delayed, fail, say
from tests.cli.team_on_disk import hosted_team
from tests.laws.shutting import GRACE, asked, busy, rejecting, scripted_team

OWNER = MemberOptions(auto_claim=False)


@asynccontextmanager
async def _nothing_left_of_it(team: Team) -> AsyncGenerator[None]:
    """Hold that what the block starts in the team has ended when the block ends: tasks, threads, and calls of the model."""
    await trio.testing.wait_all_tasks_blocked()
    before = trio.lowlevel.current_statistics().tasks_living
    yield
    await trio.testing.wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == before
    gateway = team._services.gateway.statistics()
    assert (gateway.running, gateway.waiting) == (0, 0)
    assert not team.state.requests.open()
    assert not team.state.tasks.owned
    calls = gateway.calls
    await trio.sleep(3_600)  # virtual: nothing that was only slow comes back
    assert team._services.gateway.statistics().calls == calls


async def _spawn_owner(team: Team, *, prompt: str = "") -> None:
    """Let ann join with a task of her own, so that it is her model that is asked."""
    task = await team.tasks.create("work")
    await team.spawn("ann", prompt=prompt, options=OWNER)
    await team.tasks.claim(task.id, "ann")
    await trio.testing.wait_all_tasks_blocked()


async def _shut_down(team: Team, *, force: bool = False) -> tuple[ShutdownOutcome, float]:
    began = trio.current_time()
    outcome = await team.shutdown("ann", force=force)
    seconds = trio.current_time() - began
    assert seconds <= GRACE.grace_seconds
    return outcome, seconds


async def test_a_tool_that_hangs(autojump_clock: MockClock) -> None:
    """It is cancelled when the time for an answer is over, and its own cleanup has run before the outcome comes."""
    ended = trio.Event()

    @tool(effect="writes", time_limited=False)
    async def hang_and_tell() -> str:
        """Never return."""
        try:
            await trio.Event().wait()
        finally:
            ended.set()
        return ""

    async with scripted_team(lambda _: call("hang_and_tell")) as team, _nothing_left_of_it(team):
        await team.spawn("ann", prompt="begin", tools=[hang_and_tell])
        await trio.testing.wait_all_tasks_blocked()
        outcome, seconds = await _shut_down(team)
        assert (outcome.state, seconds) == ("stopped_forced", GRACE.answer_seconds)
        assert ended.is_set()


STUBBORN = "trap '' TERM INT HUP; exec 9>{fifo}; (while :; do sleep 100; done) & echo $$ >&9; while :; do sleep 100; done"


async def test_a_process_that_ignores_sigterm(tmp_path: Path) -> None:
    """It has the time of the cancel stage, and is killed with all that it started within that of the kill stage; in real time."""
    stages = ShutdownOptions(answer_seconds=0.2, drain_seconds=0.2, cancel_seconds=1.0, kill_seconds=5.0)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        model = ScriptedModel([call("bash", command=STUBBORN.format(fifo=fifo))])
        options = TeamOptions(shutdown=stages, views=False)
        async with open_team(None, model=model, workdir=tmp_path, options=options) as team:
            await team.spawn("ann", prompt="begin")
            await trio.lowlevel.wait_readable(descriptor)
            pid = int(os.read(descriptor, 100))
            began = trio.current_time()
            outcome = await team.shutdown("ann")
            seconds = trio.current_time() - began
            assert outcome.state == "stopped_forced"
            assert stages.answer_seconds + stages.cancel_seconds <= seconds < stages.grace_seconds
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
            assert os.read(descriptor, 100) == b""  # nobody holds the other end any more: its child is gone as well
    finally:
        os.close(descriptor)


async def test_a_model_out_of_context(autojump_clock: MockClock) -> None:
    """No request fits any more, not even the one to stop: the member fails over it, at once, and gives back what it had."""
    script = busy(say("done"), lambda _: fail(ContextOverflow("prompt is too long")))
    async with scripted_team(script) as team, _nothing_left_of_it(team):
        await _spawn_owner(team, prompt="begin")
        outcome, seconds = await _shut_down(team)
        assert (outcome.state, seconds, outcome.handed_back) == ("failed", 0.0, (1,))
        assert "ContextOverflow" in outcome.reason


@pytest.mark.parametrize(
    "error",
    [
        Overloaded("overloaded"),
        ModelConnectionError("connection reset"),
        RateLimited("slow down", retry_after_seconds=500.0),
        QuotaExhausted("no credit", resets_in_seconds=3_000.0),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_api_that_is_down(autojump_clock: MockClock, error: ModelError) -> None:
    """The gateway would try for longer than the grace: the deadline ends its retries, and none comes later."""
    async with scripted_team(lambda _: fail(error)) as team, _nothing_left_of_it(team):
        await _spawn_owner(team)
        outcome, seconds = await _shut_down(team)
        assert (outcome.state, seconds, outcome.handed_back) == ("stopped_forced", GRACE.answer_seconds, (1,))
        assert team._services.gateway.statistics().calls > 0


@pytest.mark.parametrize("words", ["No, I would rather go on.", "Yes, I approve.", "shutdown_response(approve=false)", ""])
async def test_a_model_that_answers_in_prose(autojump_clock: MockClock, words: str) -> None:
    """Words are no answer, whatever they say: when its turn is over the runtime answers for it."""
    async with scripted_team(busy(say("done"), lambda _: say(words))) as team, _nothing_left_of_it(team):
        await _spawn_owner(team, prompt="begin")
        outcome, seconds = await _shut_down(team)
        assert (outcome.state, seconds, outcome.handed_back) == ("stopped", 0.0, (1,))


async def test_a_model_that_works_on_as_if_nobody_had_asked(autojump_clock: MockClock) -> None:
    """One that calls tool after tool, and never the one that answers, is cancelled at the deadline."""
    async with scripted_team(lambda _: delayed(7) + call("task_list")) as team, _nothing_left_of_it(team):
        await _spawn_owner(team, prompt="begin")
        outcome, seconds = await _shut_down(team)
        assert (outcome.state, seconds, outcome.handed_back) == ("stopped_forced", GRACE.answer_seconds, (1,))


async def _shut_down_the_lost(root: Path) -> None:
    stages = ShutdownOptions(answer_seconds=0.3, drain_seconds=0.2, cancel_seconds=0.2, kill_seconds=3.0)
    model = ScriptedModel(lambda _: fail(AssertionError("nobody is hosted here")))
    async with open_team(root, model=model, options=TeamOptions(shutdown=stages, views=False)) as team:
        with trio.fail_after(stages.grace_seconds):
            outcome = await team.shutdown("ann")
        assert (outcome.state, outcome.handed_back) == ("failed", (1,))
        assert outcome.reason == "its host is gone"
        assert not team.state.requests.open()
        assert team.member("ann").status is MemberStatus.failed


def test_a_member_whose_process_was_killed(tmp_path: Path) -> None:
    """After kill -9 of its host nobody is left to answer or to exit: the deadline answers, and the next host says that it is lost."""
    with hosted_team(tmp_path / "team") as host:
        host.send_signal(signal.SIGKILL)
        host.wait(20)
        trio.run(partial(_shut_down_the_lost, tmp_path / "team"))


async def test_five_rejections_and_then_force(autojump_clock: MockClock) -> None:
    """Each no is heard with its reason and those before it; force then needs no answer, and no time."""
    said: list[str] = []

    def script(request: ModelRequest) -> Reply:
        request_id = asked(request)
        if request_id is None:
            return say("done")
        said.append(f"reason {len(said) + 1}")
        return rejecting(said[-1])(request_id)

    async with scripted_team(script) as team, _nothing_left_of_it(team):
        await _spawn_owner(team, prompt="begin")
        for number in range(1, 6):
            outcome, seconds = await _shut_down(team)
            assert (outcome.state, seconds, outcome.reason) == ("rejected", 0.0, f"reason {number}")
            assert outcome.rejected_before == tuple(said[: number - 1])
            assert outcome.handed_back == ()
            assert team.state.roster.members["ann"].live
        outcome, seconds = await _shut_down(team, force=True)
        assert (outcome.state, seconds, outcome.handed_back) == ("stopped_forced", 0.0, (1,))
        assert (outcome.decided_by, outcome.rejected_before) == ("lead", tuple(said))
        assert len(said) == 5
