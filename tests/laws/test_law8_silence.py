"""Law 8: no model turn without news; idle is a state, not a message."""

import shutil
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from teams import MemberOptions, ScriptedModel, TeamOptions, open_team
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, say, spoken
from teams.testing.team import StrictModel, virtual_wall_clock
from tests.laws.crashes import transcript_lines

PLAIN = TeamOptions(views=False)


async def test_turns_of_mates_without_news_start_no_turn_of_the_lead(autojump_clock: MockClock) -> None:
    """Ten turns of each of five mates leave an idle lead agent alone, and put nothing into its mailbox."""
    model = ScriptedModel(lambda _: "done")
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("boss", prompt="lead", lead=True)
        for number in range(5):
            await team.spawn(f"mate{number}")
        await team.wait_quiescent()
        sent = team.state.mail.sent
        for _ in range(10):
            for number in range(5):
                await team.send(f"mate{number}", "news for you alone")
            await team.wait_quiescent()
        assert model.calls == {"boss": 1, **{f"mate{number}": 10 for number in range(5)}}
        assert team.state.mail.sent == sent + 50


async def test_broadcast_makes_exactly_one_turn_for_each(autojump_clock: MockClock) -> None:
    """A broadcast to twenty mates costs twenty model calls."""
    model = ScriptedModel(lambda _: "done")
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        for number in range(20):
            await team.spawn(f"mate{number}")
        await team.broadcast("news")
        await team.wait_quiescent()
        assert model.calls == {f"mate{number}": 1 for number in range(20)}


def _idles(request: ModelRequest) -> Reply:
    return call("idle")


def _says(request: ModelRequest) -> Reply:
    return say("done")


def _stops(request: ModelRequest) -> Reply:
    text = spoken(request.messages[-1])
    if "shutdown_request" in text:
        return call("shutdown_response", request_id=text.partition('request_id="')[2].partition('"')[0], approve=True)
    return call("task_claim", task_id=1) if not request.messages[-1].tool_results else say("mine")


@pytest.mark.parametrize("script", [_idles, _says, _stops])
@pytest.mark.parametrize("killed", [True, False])
async def test_next_life_without_news_makes_no_call(tmp_path: Path, script: object, killed: bool) -> None:
    """However the last turn ended, and however the last process did, a member that comes back without news calls no model."""
    root, copy = tmp_path / "team", tmp_path / "copy"
    model = StrictModel(ScriptedModel(script))  # type: ignore[arg-type]  # each is a script function
    async with open_team(root, model=model, options=PLAIN) as team:
        await team.tasks.create("work")
        await team.spawn("ann", prompt="begin", options=MemberOptions(auto_claim=False))
        await team.wait_quiescent()
        if script is _stops:
            await team.shutdown("ann")
        if killed:
            shutil.copytree(root, copy)
    before = transcript_lines(copy if killed else root, "ann")
    silent = ScriptedModel(lambda _: "why?")
    async with open_team(copy if killed else root, model=silent, options=PLAIN) as team:
        await team.spawn("ann", prompt="begin", options=MemberOptions(auto_claim=False))
        await team.wait_quiescent()
    assert not silent.calls
    assert transcript_lines(copy if killed else root, "ann") == before


async def test_unfinished_task_is_asked_about_once_and_reported_once(autojump_clock: MockClock) -> None:
    """A mate that forgets its task gets one reminder, its lead one report, and then there is silence, for days."""

    def forgetful(request: ModelRequest) -> Reply:
        return say("I thought about it")

    model = StrictModel(ScriptedModel(forgetful))
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("boss", lead=True)
        await team.spawn("ann")
        await team.tasks.create("work")
        await team.wait_quiescent()
        inner = model.model
        assert isinstance(inner, ScriptedModel)
        assert inner.calls == {"ann": 2, "boss": 1}  # the assignment and the reminder; the report
        assert "still owns task 1" in spoken(inner.last_requests["boss"].messages[-1])
        await trio.sleep(3 * 24 * 3600)
        await team.send("ann", "hello")
        await team.wait_quiescent()
        assert inner.calls == {"ann": 3, "boss": 1}
        assert team.tasks.get(1).owner == "ann"


async def test_member_that_waits_for_a_plan_decision_is_not_reminded(autojump_clock: MockClock) -> None:
    """Who waits for somebody else's decision is left in peace."""

    def planner(request: ModelRequest) -> Reply:
        return call("submit_plan", summary="s", steps=["one"]) if len(request.messages) == 1 else say("I wait")

    model = ScriptedModel(planner)
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", plan="required")
        await team.tasks.create("work")
        await trio.sleep(1000)
        assert model.calls == {"ann": 2}
