"""Rest is told exactly: never while something moves or is about to, and always once nothing does."""

from random import Random

import pytest
import trio
from trio.testing import MockClock

from teams import ScriptedModel, open_team
from teams.engine import open_engine
from teams.journal.memory import MemoryJournal
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, delayed, say, spoken
from teams.state.task_commands import RenewLeases
from teams.testing.team import EPOCH_SECONDS, run_seeded, virtual_wall_clock
from teams.topics import ANYTHING

NAMES = [f"mate{number}" for number in range(4)]


def _relay(request: ModelRequest) -> Reply:
    """Pass a token on until it is used up, sometimes slowly; do tasks."""
    newest = spoken(request.messages[-1])
    if request.messages[-1].tool_results:
        return say("passed")
    if "You have claimed task" in newest:
        return delayed(0.5) + call("task_complete", task_id=int(newest.split("You have claimed task ")[1].split(":")[0]))
    tokens = [int(part.split()[0]) for part in newest.split("token ")[1:]]
    onward = [token - 1 for token in tokens if token > 0]
    if not onward:
        return delayed(0.25) + say("nothing to pass on")
    next_name = NAMES[(NAMES.index(request.agent) + 1) % len(NAMES)]
    return Reply(tuple(block for token in onward for block in call("send_message", to=next_name, content=f"token {token} ").blocks))


async def _relay_race(seed: int) -> None:
    random = Random(seed)
    model = ScriptedModel(_relay)
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        async with trio.open_nursery() as nursery:
            for name in NAMES:
                nursery.start_soon(team.spawn, name, "runner", f"token {random.randrange(6)} ")
            for number in range(random.randrange(4)):
                nursery.start_soon(team.tasks.create, f"task {number}")
        with trio.fail_after(1000):
            outcome = await team.wait_quiescent()
        calls, head = dict(model.calls), team.state.seq
        assert outcome.all_done
        assert not any(team.state.mail.box(name) for name in NAMES)
        assert not team.manager.anybody_awake
        await trio.sleep(10_000)
        assert (dict(model.calls), team.state.seq) == (calls, head)


def test_rest_is_exact_under_many_schedules() -> None:
    """In forty schedules of a token race with tasks, nothing happens after rest was told, and rest is always told."""
    for seed in range(40):
        run_seeded(_relay_race, seed, seed=seed)


async def _spawn_beside() -> None:
    model = ScriptedModel(lambda _: "done")
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team, trio.open_nursery() as nursery:
        nursery.start_soon(team.spawn, "ann", "dev", "begin")
        while "ann" not in team.state.roster.members:
            await trio.lowlevel.checkpoint()
            if "ann" in team.state.roster.members:
                break
        await team.wait_quiescent()
        assert model.calls == {"ann": 1}


async def _spawn_and_listen() -> None:
    model = ScriptedModel(lambda _: "done")
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        resting: list[bool] = []
        team._services.engine.listen(lambda records: resting.append(team.is_quiescent))
        await team.spawn("ann", prompt="begin")
        assert not any(resting)


@pytest.mark.parametrize("play", [_spawn_beside, _spawn_and_listen])
def test_spawn_under_way_is_no_rest(play: object) -> None:
    """Between the record of a new member and its first step, the team does not rest."""
    for seed in range(20):
        run_seeded(play, seed=seed)  # type: ignore[arg-type]  # both are coroutine functions


async def test_engine_tells_when_commands_that_wrote_nothing_are_done(autojump_clock: MockClock) -> None:
    """Who waits until every command is carried out is woken also when the last ones came to no record."""
    asked = 0
    async with open_engine(MemoryJournal(), wall_clock=lambda: EPOCH_SECONDS) as engine:

        def settled() -> bool | None:
            nonlocal asked
            asked += 1
            if asked == 1:
                engine.post(RenewLeases(("nobody",), 1.0))
            return engine.is_settled or None

        with trio.fail_after(10):
            await engine.wait_until(ANYTHING, settled)


async def test_plan_requests_end_when_the_team_rests(autojump_clock: MockClock) -> None:
    """The iteration gives each revision once and ends with the work, not before and not never."""

    def planner(request: ModelRequest) -> Reply:
        newest = spoken(request.messages[-1])
        if "is approved" in newest:
            return delayed(5) + say("done")
        again = "begin" in newest or "is rejected" in newest
        return delayed(1) + call("submit_plan", summary=request.agent, steps=["one"]) if again else say("I wait")

    async with open_team(None, model=ScriptedModel(planner), wall_clock=virtual_wall_clock) as team:
        for name in NAMES:
            await team.spawn(name, prompt="begin", plan="required")
        seen: list[tuple[str, int]] = []
        async for request in team.plan_requests():
            seen.append((request.author, request.revision))
            await (request.approve() if request.revision == 2 else request.reject("again"))
        assert sorted(seen) == [(name, revision) for name in NAMES for revision in (1, 2)]
        assert team.is_quiescent


async def test_stalled_tasks_are_named_with_their_reason(autojump_clock: MockClock) -> None:
    """A team that rests with open tasks says of each why nothing moves it."""
    async with open_team(None, model=ScriptedModel(lambda _: "I keep it"), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann")
        first = await team.tasks.create("kept")
        second = await team.tasks.create("behind", blocked_by=[first.id])
        third = await team.tasks.create("special", needs=["magic"])
        outcome = await team.wait_quiescent()
        assert outcome.stalled == {
            first.id: "ann owns it and is idle",
            second.id: f"blocked by {first.id}",
            third.id: "nobody idle has magic",
        }
        assert not outcome.all_done
