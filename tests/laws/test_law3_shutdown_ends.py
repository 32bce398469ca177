"""Law 3: every shutdown reaches its outcome within the grace, and needs no turn of a model to end."""

import shutil
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from protocols.lifecycle import MemberStatus
from teams import MemberOptions, ScriptedModel, ShutdownOptions, TeamOptions, open_team, tool
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, fail, say
from teams.state.request_commands import RequestShutdown
from teams.testing.team import run_seeded, wait_for
from tests.laws.shutting import GRACE, asked, busy, hang, never, scripted_team, seconds_to_stop


async def test_idle_member_stops_at_once_without_a_turn(autojump_clock: MockClock) -> None:
    """The runtime approves for an idle member: no model call, no time."""
    async with scripted_team(lambda _: fail(AssertionError("no model call is needed"))) as team:
        await team.spawn("ann")
        assert await seconds_to_stop(team) == ("stopped", 0.0)
        assert team.member("ann").status is MemberStatus.stopped


async def test_blocked_model_is_cancelled_at_the_answer_deadline(autojump_clock: MockClock) -> None:
    """A model that hangs delays the end by the answer deadline and no longer."""
    async with scripted_team(lambda _: never()) as team:
        await team.spawn("ann", prompt="begin")
        await trio.sleep(1)
        assert await seconds_to_stop(team) == ("stopped_forced", GRACE.answer_seconds)
        assert team.member("ann").status is MemberStatus.stopped


async def test_hanging_tool_is_cancelled_at_the_answer_deadline(autojump_clock: MockClock) -> None:
    """A tool that hangs delays the end by the answer deadline and no longer."""
    async with scripted_team(lambda _: call("hang")) as team:
        await team.spawn("ann", prompt="begin", tools=[hang])
        await trio.sleep(1)
        assert await seconds_to_stop(team) == ("stopped_forced", GRACE.answer_seconds)


async def test_tool_that_hangs_beside_the_approval_is_cancelled_after_the_drain(autojump_clock: MockClock) -> None:
    """A model that approves and calls a hanging tool in the same reply is stopped when the drain is over."""
    script = busy(call("task_list"), lambda request_id: call("shutdown_response", request_id=request_id, approve=True) + call("hang"))
    async with scripted_team(script) as team:
        await team.tasks.create("work")
        await team.spawn("ann", prompt="begin", tools=[hang])
        assert await seconds_to_stop(team) == ("stopped_forced", GRACE.drain_seconds)


async def test_prose_is_no_answer_and_the_policy_answers(autojump_clock: MockClock) -> None:
    """A model that answers the request in prose loses its say: the runtime approves when it idles."""
    script = busy(call("task_claim", task_id=1), lambda _: say("No, I would rather go on."))
    async with scripted_team(script) as team:
        await team.tasks.create("work")
        await team.spawn("ann", prompt="begin", options=MemberOptions(auto_claim=False))
        await team.wait_quiescent()
        outcome = await team.shutdown("ann")
        assert (outcome.state, outcome.handed_back) == ("stopped", (1,))
        assert team.tasks.get(1).owner is None


async def test_rejection_is_heard_and_force_ends_it(autojump_clock: MockClock) -> None:
    """A rejected shutdown comes back with its reason, the member goes on, and force stops it at once."""

    def script(request: ModelRequest) -> Reply:
        request_id = asked(request)
        if request_id is not None:
            return call("shutdown_response", request_id=request_id, approve=False, reason="not yet")
        return call("task_claim", task_id=1) if len(request.messages) == 1 else say("done")

    async with scripted_team(script) as team:
        await team.tasks.create("work")
        await team.spawn("ann", prompt="begin", options=MemberOptions(auto_claim=False))
        await team.wait_quiescent()
        outcome = await team.shutdown("ann")
        assert (outcome.state, outcome.reason) == ("rejected", "not yet")
        assert team.member("ann").status in (MemberStatus.idle, MemberStatus.working)
        assert await seconds_to_stop(team, force=True) == ("stopped_forced", 0.0)
        assert team.tasks.get(1).owner is None


async def test_failing_model_ends_the_shutdown(autojump_clock: MockClock) -> None:
    """A model that fails while it is asked ends the member, and with it the request."""
    script = busy(call("task_claim", task_id=1), lambda _: fail(RuntimeError("out of order")))
    async with scripted_team(script) as team:
        await team.tasks.create("work")
        await team.spawn("ann", prompt="begin", options=MemberOptions(auto_claim=False))
        await team.wait_quiescent()
        assert await seconds_to_stop(team) == ("failed", 0.0)
        assert team.member("ann").status is MemberStatus.failed


async def test_two_requests_at_once_are_one(autojump_clock: MockClock) -> None:
    """Who asks while another's request is open shares its outcome."""
    async with scripted_team(lambda _: never()) as team:
        await team.spawn("ann", prompt="begin")
        states: list[str] = []

        async def stop() -> None:
            states.append((await team.shutdown("ann")).state)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            nursery.start_soon(stop)
        assert states == ["stopped_forced"] * 2
        assert team.state.requests_opened == 1


async def _force_after(checkpoints: int) -> None:
    script = busy(call("task_list"), lambda request_id: call("shutdown_response", request_id=request_id, approve=True))
    async with scripted_team(script) as team:
        await team.spawn("ann", prompt="begin" if checkpoints % 2 else "")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(team.shutdown, "ann")
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            with trio.fail_after(1):
                outcome = await team.shutdown("ann", force=True)
        assert outcome.state in ("stopped", "stopped_forced")
        assert team.member("ann").status is MemberStatus.stopped, team.state.roster.members["ann"].reason


@pytest.mark.parametrize("seed", range(3))
def test_force_ends_a_shutdown_at_any_moment(seed: int) -> None:
    """Force at any step of a shutdown under way ends it at once, and the member is stopped, not failed."""
    for checkpoints in range(40):
        run_seeded(_force_after, checkpoints, seed=seed)


@pytest.mark.parametrize("force", [False, True])
async def test_member_that_no_model_drives_can_be_shut_down(autojump_clock: MockClock, force: bool) -> None:
    """Script and person have no child that could end, so the runtime ends them: by their answer, the deadline or force."""
    async with scripted_team(lambda _: say("")) as team:
        await team.add_member("bot")
        for name in ("bot", "user"):
            began = trio.current_time()
            with trio.fail_after(GRACE.grace_seconds):
                outcome = await team.shutdown(name, force=force)
            assert outcome.state == "stopped_forced"
            assert trio.current_time() - began == (0.0 if force else GRACE.answer_seconds)


async def test_script_that_approves_its_shutdown_stops_at_once(autojump_clock: MockClock) -> None:
    """A member whose own code approves the request has stopped: nothing has to be waited for."""
    async with scripted_team(lambda _: say("")) as team:
        await team.add_member("bot")
        await team.protocols.request_shutdown("bot")
        await team.protocols.handle_shutdown_response("bot", approved=True)
        with trio.fail_after(1):
            assert (await team.manager.join("bot")).status is MemberStatus.stopped


async def test_team_closes_though_its_own_member_was_stopped(autojump_clock: MockClock) -> None:
    """The script's own member can be stopped like any other, and the team still closes."""
    async with scripted_team(lambda _: say("")) as team:
        await team.shutdown("lead", force=True)


async def test_closing_waits_for_the_slowest_and_not_for_the_sum(autojump_clock: MockClock) -> None:
    """Five members with hanging models are stopped together, within one grace."""
    began = trio.current_time()
    async with scripted_team(lambda _: never()) as team:
        for number in range(5):
            await team.spawn(f"mate{number}", prompt="begin")
    assert trio.current_time() - began <= GRACE.grace_seconds


@pytest.mark.parametrize("force", [False, True])
async def test_shutdown_of_a_member_whose_host_died_ends(tmp_path: Path, force: bool) -> None:
    """A request that a dead process left, in whatever state, ends in the next one, whether or not the member comes back."""
    options = TeamOptions(views=False, shutdown=ShutdownOptions(answer_seconds=0.3, drain_seconds=0.2, cancel_seconds=0.2))
    root, copy = tmp_path / "team", tmp_path / "copy"
    async with open_team(root, model=ScriptedModel(lambda _: never()), options=options) as team:
        await team.spawn("ann", prompt="begin")
        shutil.copytree(root, copy)
    async with open_team(copy, model=ScriptedModel(lambda _: say("done")), options=options) as team:
        with trio.fail_after(5):
            outcome = await team.shutdown("ann", force=force)
        assert outcome.state == "failed"
        assert team.member("ann").status is MemberStatus.failed


@pytest.mark.parametrize("respawned", [False, True])
@pytest.mark.parametrize("force", [False, True], ids=["requested", "cancelling"])
async def test_shutdown_that_a_dead_process_left_open_ends(tmp_path: Path, force: bool, respawned: bool) -> None:
    """The next process ends it, also where no deadline is left; a member that is spawned again lives, since that life was asked to stop."""
    root, copy = tmp_path / "team", tmp_path / "copy"
    stuck, options = trio.Event(), TeamOptions(views=False)

    @tool(effect="reads", time_limited=False)
    async def cling() -> str:
        """Take the cancellation badly, for as long as the copy is made."""
        try:
            await trio.Event().wait()
        finally:
            with trio.CancelScope(shield=True):
                await stuck.wait()
        return ""

    async with open_team(root, model=ScriptedModel(lambda _: call("cling")), options=options) as team:
        await team.spawn("ann", prompt="begin", tools=[cling])
        await wait_for(team, lambda: team.member("ann").status is MemberStatus.working)
        await trio.testing.wait_all_tasks_blocked(0.02)
        await team._services.engine.submit(RequestShutdown("ann", "lead", 2.0, "", force=force))
        shutil.copytree(root, copy)
        stuck.set()
    async with open_team(copy, model=ScriptedModel(lambda _: say("done")), options=options) as team:
        if respawned:
            await team.spawn("ann", prompt="begin", tools=[cling])
        with trio.fail_after(5):
            outcome = await team.wait_quiescent()
        assert not team.state.requests.open()
        assert outcome.members["ann"] == ("idle" if respawned else "failed")
