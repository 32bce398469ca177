"""Law 3: a shutdown goes through its stages, each within its time, and says what it left for others."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from protocols.lifecycle import MemberStatus
from teams import MemberOptions, ScriptedModel, ShutdownOptions, open_team, tool
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, fail, say, spoken
from teams.tools import ToolContext
from tests.laws.shutting import GRACE, asked, busy, hang, never, rejecting, scripted_team, seconds_to_stop

BUSY = MemberOptions(auto_claim=False)


def test_the_grace_is_the_sum_of_the_stages() -> None:
    """Each stage has its own time, which must be positive."""
    stages = ShutdownOptions(answer_seconds=1.0, drain_seconds=2.0, cancel_seconds=4.0, kill_seconds=8.0)
    assert (stages.grace_seconds, stages.end_seconds) == (15.0, 12.0)
    for name in ("answer_seconds", "drain_seconds", "cancel_seconds", "kill_seconds"):
        with pytest.raises(ValueError, match=name):
            ShutdownOptions(**{name: 0.0})


async def test_five_members_drain_side_by_side(autojump_clock: MockClock) -> None:
    """A whole team takes as long as its slowest member: five that use all their time for draining take it once."""
    script = busy(call("task_list"), lambda request_id: call("shutdown_response", request_id=request_id, approve=True) + call("hang"))
    async with scripted_team(script) as team:
        names = [f"mate{number}" for number in range(5)]
        for name in names:
            task = await team.tasks.create(f"work of {name}")
            await team.spawn(name, prompt="begin", tools=[hang], options=BUSY)
            await team.tasks.claim(task.id, name)
        began = trio.current_time()
        outcomes = await team.shutdown_all()
        assert trio.current_time() - began == GRACE.drain_seconds
        assert [(outcome.name, outcome.state) for outcome in outcomes] == [(name, "stopped_forced") for name in names]
        assert [outcome.handed_back for outcome in outcomes] == [(number,) for number in range(1, 6)]


async def test_the_slowest_decides_how_long_a_team_takes(autojump_clock: MockClock) -> None:
    """One member that never answers, one that agrees and drains, one that rejects, one that idles: all end with the first."""

    def script(request: ModelRequest) -> Reply:
        request_id = asked(request)
        if request.agent == "mute":
            return never()
        if request_id is None:
            return say("done")
        answer = call("shutdown_response", request_id=request_id, approve=request.agent == "slow", reason="no")
        return answer + call("hang") if request.agent == "slow" else answer

    async with scripted_team(script) as team:
        for name in ("mute", "slow", "stubborn", "idle"):
            await team.spawn(name, prompt="begin", tools=[hang], options=BUSY)
            if name in ("slow", "stubborn"):  # who owns something is asked
                task = await team.tasks.create("work")
                await team.tasks.claim(task.id, name)
        await trio.sleep(1)
        began = trio.current_time()
        outcomes = await team.shutdown_all()
        assert trio.current_time() - began == GRACE.answer_seconds
        assert {outcome.name: outcome.state for outcome in outcomes} == {
            "mute": "stopped_forced",
            "slow": "stopped_forced",
            "stubborn": "stopped_forced",
            "idle": "stopped",
        }
        assert next(outcome for outcome in outcomes if outcome.name == "stubborn").rejected_before == ("no",)


async def test_the_outcome_lists_what_was_handed_back(autojump_clock: MockClock) -> None:
    """What the member owned when it ended, and its unread mail: with what it claimed after it was asked, without what it completed."""

    @tool(effect="writes", time_limited=False)
    async def finish(context: ToolContext) -> str:
        """Complete the first task, claim a third one, and hang over it and the second one."""
        await team.tasks.complete(1, "done", by=context.agent)
        third = await team.tasks.create("third")
        await team.tasks.claim(third.id, context.agent)
        late.append((await team.send("ann", "you will not read this")).id)
        await trio.Event().wait()
        return ""

    late: list[str] = []
    script = busy(call("task_list"), lambda request_id: call("shutdown_response", request_id=request_id, approve=True) + call("finish"))
    async with scripted_team(script) as team:
        await team.spawn("ann", prompt="begin", tools=[finish], options=MemberOptions(auto_claim=False, task_limit=None))
        for subject in ("first", "second"):
            task = await team.tasks.create(subject)
            await team.tasks.claim(task.id, "ann")
        outcome = await team.shutdown("ann")
        assert outcome.state == "stopped_forced"
        assert outcome.handed_back == (2, 3)
        assert outcome.steps == ()
        assert late[0] in outcome.unread_mail
        assert outcome.unread == len(outcome.unread_mail)


async def test_a_tool_that_swallows_its_cancellation_holds_up_nobody_who_asked(autojump_clock: MockClock) -> None:
    """What cannot be stopped is told at the end of the grace: the member is still cancelling, and ends when its tool lets go."""
    let_go = trio.Event()

    @tool(effect="reads", time_limited=False)
    async def cling() -> str:
        """Take the cancellation badly."""
        with trio.CancelScope(shield=True):
            await let_go.wait()
        return ""

    async with scripted_team(lambda _: call("cling")) as team:
        await team.spawn("ann", prompt="begin", tools=[cling])
        await trio.sleep(1)
        try:
            with trio.fail_after(GRACE.grace_seconds):
                assert await seconds_to_stop(team) == ("cancelling", GRACE.grace_seconds - GRACE.drain_seconds)
            assert team.member("ann").status is MemberStatus.working
        finally:
            let_go.set()
        assert (await team.manager.join("ann")).status is MemberStatus.stopped


def _shown_requests(request: ModelRequest) -> Iterator[str]:
    for message in request.messages:
        text = spoken(message)
        if "shutdown_request" in text:
            yield text


async def test_a_rejection_is_remembered_with_its_reason_over_a_restart(tmp_path: Path) -> None:
    """Who asks again, also in another process, learns that it was rejected before and why; so does the member."""
    shown: list[str] = []

    def script(request: ModelRequest) -> Reply:
        request_id = asked(request)
        if request_id is not None:
            shown[:] = _shown_requests(request)
            return rejecting(f"reason {len(shown)}")(request_id)
        return call("task_list") if len(request.messages) == 1 else say("done")

    async def ask_twice(root: Path) -> None:
        async with open_team(root, model=ScriptedModel(script)) as team:
            task = await team.tasks.create("work")
            await team.spawn("ann", prompt="begin", options=BUSY)
            await team.tasks.claim(task.id, "ann")
            first, second = await team.shutdown("ann"), await team.shutdown("ann")
            assert (first.state, first.reason, first.rejected_before) == ("rejected", "reason 1", ())
            assert (second.state, second.reason, second.rejected_before) == ("rejected", "reason 2", ("reason 1",))
            raise ConnectionError  # nobody is asked when the block ends like this

    with pytest.raises(ConnectionError):
        await ask_twice(tmp_path)
    assert "rejected_before" not in shown[0]
    assert "rejected_before: once because: reason 1" in shown[1]
    async with open_team(tmp_path, model=ScriptedModel(script)) as team:
        await team.spawn("ann", prompt="begin", options=BUSY)
        await team.tasks.claim(1, "ann")
        third = await team.shutdown("ann")
        assert (third.state, third.reason, third.rejected_before) == ("rejected", "reason 3", ("reason 1", "reason 2"))
        assert "rejected_before: 2 times, the last time because: reason 2" in shown[2]
        forced = await team.shutdown("ann", force=True)
        assert (forced.state, forced.rejected_before) == ("stopped_forced", ("reason 1", "reason 2", "reason 3"))
    async with open_team(tmp_path, model=ScriptedModel(lambda _: fail(AssertionError("an idle member needs no call")))) as team:
        await team.spawn("ann", prompt="begin", options=BUSY)
        assert (await team.shutdown("ann")).rejected_before == ()
