"""Law 4: a task has at most one live owner, a stale owner can change nothing, and no task that could run is stranded."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from protocols.lifecycle import MemberStatus
from teams import MemberOptions, ScriptedModel, TaskOptions, TeamOptions, open_team
from teams.errors import ClaimLost, StaleLease
from teams.events import TaskChanged
from teams.models.base import ModelRequest
from teams.models.script import Reply, blocked, call, fail, say, spoken
from teams.state.request_commands import AnswerRequest
from teams.testing.team import cancel_at_step, run_seeded, virtual_wall_clock, wait_for

AGENTS = 8


def _worker(request: ModelRequest) -> Reply:
    newest = spoken(request.messages[-1])
    if "You have claimed task" in newest:
        return call("task_complete", task_id=int(newest.split("You have claimed task ")[1].split(":")[0]), result=request.agent)
    return say("done")


def _racer(request: ModelRequest) -> Reply:
    newest = request.messages[-1]
    if newest.tool_results:
        return say("done")
    return Reply(tuple(block for number in range(1, AGENTS + 1) for block in call("task_claim", task_id=number).blocks))


async def _claim_by_themselves() -> None:
    async with open_team(None, model=ScriptedModel(_worker), wall_clock=virtual_wall_clock) as team, team.events() as events:
        async with trio.open_nursery() as nursery:
            for number in range(AGENTS):
                nursery.start_soon(team.spawn, f"mate{number}")
            for number in range(AGENTS):
                nursery.start_soon(team.tasks.create, f"task {number}")
        outcome = await team.wait_quiescent()
        assert outcome.completed == tuple(range(1, AGENTS + 1)), outcome
        assert outcome.all_done
        claims = Counter[int]()
        while events.statistics().current_buffer_used:
            event = events.receive_nowait()
            if isinstance(event, TaskChanged) and event.status == "in_progress":
                claims[event.id] += 1
        assert claims == dict.fromkeys(range(1, AGENTS + 1), 1)


async def _all_grab_all() -> None:
    async with open_team(None, model=ScriptedModel(_racer), wall_clock=virtual_wall_clock) as team:
        for number in range(AGENTS):
            await team.tasks.create(f"task {number}")
        async with trio.open_nursery() as nursery:
            for number in range(AGENTS):
                nursery.start_soon(lambda name: team.spawn(name, prompt="grab", options=MemberOptions(auto_claim=False)), f"mate{number}")
        await team.wait_quiescent()
        owners = [team.tasks.get(number).owner for number in range(1, AGENTS + 1)]
        assert len(set(owners)) == AGENTS
        assert None not in owners
        assert all(team.tasks.get(number).fence == 1 for number in range(1, AGENTS + 1))


@pytest.mark.parametrize("race", [_claim_by_themselves, _all_grab_all])
def test_eight_agents_and_eight_tasks_over_fifty_schedules(race: object) -> None:
    """In every one of fifty schedules each task gets exactly one owner, once, and none is left over."""
    for seed in range(50):
        run_seeded(race, seed=seed)  # type: ignore[arg-type]  # the two races are coroutine functions


async def test_task_of_a_crashed_owner_is_free_for_the_next(autojump_clock: MockClock) -> None:
    """When its owner fails the task is handed back at once, and an idle mate takes it and completes it."""
    model = ScriptedModel({"bad": lambda _: fail(RuntimeError("broken")), "*": _worker})
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("bad")
        task = await team.tasks.create("work")
        await team.manager.join("bad")
        assert team.tasks.get(task.id).owner is None
        await team.spawn("good")
        assert (await team.tasks.wait(task.id)).result == "good"
        assert team.member("bad").status is MemberStatus.failed


async def test_lease_of_a_living_owner_is_renewed(autojump_clock: MockClock) -> None:
    """A turn that is ten leases long keeps its task."""
    release = trio.Event()
    model = ScriptedModel([blocked(release) + call("task_complete", task_id=1), "done"])
    async with open_team(
        None, model=model, options=TeamOptions(tasks=TaskOptions(lease_seconds=10)), wall_clock=virtual_wall_clock
    ) as team:
        await team.spawn("ann")
        await team.tasks.create("long")
        await trio.sleep(100)
        assert team.tasks.get(1).owner == "ann"
        assert team.tasks.get(1).fence == 1
        release.set()
        assert (await team.tasks.wait(1)).status == "completed"


async def test_lease_of_a_dead_host_ends_and_its_fence_is_refused(tmp_path: Path) -> None:
    """A task whose owner's process died is free when the lease ends, without its owner coming back; the old fence changes nothing."""
    root, copy = tmp_path / "team", tmp_path / "copy"
    options = TeamOptions(views=False, tasks=TaskOptions(lease_seconds=0.6))
    async with open_team(root, model=ScriptedModel(lambda _: blocked(trio.Event()) + say("")), options=options) as team:
        await team.spawn("ann")
        await team.tasks.create("work")
        await wait_for(team, lambda: team.tasks.get(1).owner)
        shutil.copytree(root, copy)
        await team.shutdown("ann", force=True)
    async with open_team(copy, model=ScriptedModel(_worker), options=options) as team:
        old = team.tasks.get(1)
        assert (old.owner, old.fence) == ("ann", 1)
        await team.spawn("ben")
        with trio.fail_after(5):
            assert (await team.tasks.wait(1)).result == "ben"
        with pytest.raises(StaleLease):
            await team.tasks.complete(1, "late", by="ann", fence=old.fence)
        with pytest.raises(StaleLease):
            await team.tasks.release(1, by="ann", fence=old.fence)
        assert team.tasks.get(1).result == "ben"


async def test_loser_of_a_claim_learns_who_won(autojump_clock: MockClock) -> None:
    """A claim that comes second says who has the task."""
    async with open_team(None, model=ScriptedModel([]), wall_clock=virtual_wall_clock) as team:
        await team.add_member("a")
        await team.add_member("b")
        await team.tasks.create("work")
        await team.tasks.claim(1, "a")
        with pytest.raises(ClaimLost, match="'a' has it") as lost:
            await team.tasks.claim(1, "b")
        assert lost.value.owner == "a"


async def test_readiness_wakes_exactly_who_can_take_the_task(autojump_clock: MockClock) -> None:
    """Of ten sleepers the one with the capability works; nobody else's model is called."""
    model = ScriptedModel(_worker)
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        for number in range(9):
            await team.spawn(f"plain{number}")
        await team.spawn("painter", options=MemberOptions(capabilities=("paint",)))
        await team.wait_quiescent()
        await team.tasks.create("fence", needs=["paint"])
        assert (await team.wait_quiescent()).completed == (1,)
        assert set(model.calls) == {"painter"}


async def test_member_with_full_hands_does_not_keep_a_task_from_a_free_one(autojump_clock: MockClock) -> None:
    """A sleeper at its task limit stands first in the queue; the task still goes to the free one behind it."""

    def lazy(request: ModelRequest) -> Reply:
        return say("I keep it") if request.agent == "lazy" else _worker(request)

    async with open_team(None, model=ScriptedModel(lazy), wall_clock=virtual_wall_clock) as team:
        await team.spawn("lazy")
        await team.tasks.create("first")
        await team.wait_quiescent()
        await team.spawn("free")
        await team.wait_quiescent()
        await team.tasks.create("second")
        with trio.fail_after(10):
            assert (await team.tasks.wait(2)).result == "free"


async def test_owner_whose_task_was_taken_away_claims_again(autojump_clock: MockClock) -> None:
    """A sleeper at its limit whose task goes back to the pool is woken for what it can take now."""

    def keeps_first(request: ModelRequest) -> Reply:
        newest = spoken(request.messages[-1])
        return say("I keep it") if "claimed task 1: first" in newest and len(request.messages) == 1 else _worker(request)

    async with open_team(None, model=ScriptedModel(keeps_first), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann")
        await team.tasks.create("first")
        await team.wait_quiescent()
        await team.tasks.release(1, "somebody else's", by="ann")
        with trio.fail_after(10):
            assert (await team.tasks.wait(1)).result == "ann"


async def test_task_wakes_no_more_sleepers_than_it_needs(autojump_clock: MockClock) -> None:
    """One task among two hundred sleepers costs the steps of one of them, not of all."""
    async with open_team(None, model=ScriptedModel(_worker), wall_clock=virtual_wall_clock) as team:
        for number in range(200):
            await team.spawn(f"mate{number}")
        await team.wait_quiescent()
        with cancel_at_step(None) as counter:
            await team.tasks.create("work")
            await team.wait_quiescent()
        assert counter.steps < 150


@pytest.mark.slow
async def test_thousand_idle_claimers_share_a_hundred_tasks(autojump_clock: MockClock) -> None:
    """A hundred tasks for a thousand sleepers are done once each, and wake no more than as many sleepers as there are tasks."""
    model = ScriptedModel(_worker)
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(team.spawn, f"mate{number}")
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(team.tasks.create, f"task {number}")
        assert len((await team.wait_quiescent()).completed) == 100
        assert sum(model.calls.values()) == 200
        await team.shutdown_all()


async def test_release_of_the_plan_gate_frees_no_task(autojump_clock: MockClock) -> None:
    """Waiting for a plan decision keeps the task: it is neither handed back nor reminded of."""

    def planner(request: ModelRequest) -> Reply:
        newest = spoken(request.messages[-1])
        if "You have claimed task" in newest:
            return call("submit_plan", summary="s", steps=["one"])
        return call("task_complete", task_id=1) if "is approved" in newest else say("I wait")

    model = ScriptedModel(planner)
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", plan="required")
        await team.tasks.create("work")
        request = await anext(team.plan_requests())
        await trio.sleep(1000)
        assert model.calls["ann"] == 2
        assert team.tasks.get(1).owner == "ann"
        await team._services.engine.submit(AnswerRequest(request.id, "lead", approved=True))
        assert (await team.tasks.wait(1)).status == "completed"
