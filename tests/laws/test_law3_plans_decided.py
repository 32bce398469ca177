"""Law 3 for plans: every plan is decided, by who was asked or by its deadline, once, and for good."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from protocols.errors import AlreadyDecided, NotTheAnswerer, UnknownRequest
from protocols.lifecycle import MemberStatus
from teams import PlanOptions, ScriptedModel, Team, TeamOptions, open_team, tool
from teams.errors import UsageError
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, say, spoken
from teams.testing.team import StrictModel, virtual_wall_clock, wait_for

WRITTEN: list[str] = []


@tool(effect="writes")
async def deploy() -> str:
    """Deploy."""
    await trio.lowlevel.checkpoint()
    WRITTEN.append("deployed")
    return "deployed"


def _planner(request: ModelRequest) -> Reply:
    newest = spoken(request.messages[-1])
    if "plan_approval_response" in newest:
        return call("deploy")
    return call("submit_plan", summary="s", steps=["one"], commands=["deploy"]) if "begin" in newest else say("I wait")


def _approved(team: Team) -> str | None:
    return team.state.roster.members["ann"].approved_plan


@asynccontextmanager
async def _planned(options: PlanOptions) -> AsyncGenerator[Team]:
    WRITTEN.clear()
    model = StrictModel(ScriptedModel(_planner))
    async with open_team(None, model=model, options=TeamOptions(plans=options), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", plan="required", tools=[deploy])
        await wait_for(team, team.protocols.get_pending_approvals)
        yield team
        assert not model.refused


@pytest.mark.parametrize(("default", "written"), [(None, []), (False, []), (True, ["deployed"])])
async def test_plan_deadline_applies_the_default_that_the_owner_chose(
    autojump_clock: MockClock, default: bool | None, written: list[str]
) -> None:
    """At its deadline a plan counts as what the owner chose, its author is told, and only an approval opens the gate."""
    async with _planned(PlanOptions(deadline_seconds=100, default_approved=default)) as team:
        await trio.sleep(99)
        assert team.member("ann").status is MemberStatus.awaiting_plan_approval
        await trio.sleep(1.5)
        await team.wait_quiescent()
        assert team.member("ann").status is MemberStatus.idle
        assert written == WRITTEN
        with pytest.raises(AlreadyDecided, match="expired"):
            await team.protocols.handle_plan_response("r1", approved=not default)
        assert (team.state.roster.members["ann"].approved_plan == "r1") is bool(default)


@pytest.mark.parametrize("approved", [True, False])
async def test_decided_plan_never_changes(autojump_clock: MockClock, approved: bool) -> None:
    """The same decision again changes nothing, another one is refused with what was decided, and so is every other decider's."""
    async with _planned(PlanOptions()) as team:
        first = await team.protocols.handle_plan_response("r1", approved, "because")
        assert (await team.protocols.handle_plan_response("r1", approved, "because")).decision == first.decision
        with pytest.raises(AlreadyDecided):
            await team.protocols.handle_plan_response("r1", not approved, "because")
        with pytest.raises(NotTheAnswerer):
            await team.protocols.__class__(
                team._services.engine, member="ann", plans=PlanOptions(), shutdown=team._services.options.shutdown
            ).handle_plan_response("r1", approved=True)
        with pytest.raises(UnknownRequest):
            await team.protocols.handle_plan_response("r99", approved=True)
        assert team.state.requests.get("r1").decision == first.decision


async def test_decision_on_an_old_revision_does_not_touch_the_new_one(autojump_clock: MockClock) -> None:
    """An approval that was given after reading revision 1 does not approve revision 2, which came meanwhile."""

    def reviser(request: ModelRequest) -> Reply:
        newest = spoken(request.messages[-1])
        if "begin" in newest or "rejected" in newest:
            return call("submit_plan", summary=f"s{len(request.messages)}", steps=["one"])
        return say("I wait")

    model = StrictModel(ScriptedModel(reviser))
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", plan="required", tools=[deploy])
        plans = team.plan_requests()
        old = await anext(plans)
        await team.protocols.handle_plan_response("r1", approved=False, feedback="smaller")
        new = await anext(plans)
        assert (old.revision, new.revision) == (1, 2)
        with pytest.raises(AlreadyDecided, match="rejected"):
            await old.approve()
        assert _approved(team) is None
        await new.approve()
        assert _approved(team) == "r1"
    assert not model.refused


async def test_revisions_are_bounded_and_the_author_is_told(autojump_clock: MockClock) -> None:
    """After so many rejections no further revision is taken; the author reads why, and the team comes to rest."""

    def stubborn(request: ModelRequest) -> Reply:
        newest = spoken(request.messages[-1])
        again = "begin" in newest or "is rejected" in newest
        return call("submit_plan", summary="s", steps=["one"]) if again else say(f"I stop: {newest[:300]}")

    model = ScriptedModel(stubborn)
    options = TeamOptions(plans=PlanOptions(max_revisions=3))
    async with open_team(None, model=StrictModel(model), options=options, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", plan="required")
        seen: list[int] = []
        async for request in team.plan_requests():
            seen.append(request.revision)
            await request.reject("no")
        assert seen == [1, 2, 3]
        last = spoken(model.last_requests["ann"].messages[-1])
        assert "3 are allowed" in last


async def test_rejection_needs_feedback(autojump_clock: MockClock) -> None:
    """A plan cannot be sent back without a word about what must change."""
    async with _planned(PlanOptions()) as team:
        with pytest.raises(UsageError, match="feedback"):
            await team.protocols.get_pending_approvals()[0].reject("  ")
