"""Who decides: callables, rule lists, quorums and chains that hand over."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from protocols import AlreadyDecided, MemberEvent, NotTheAnswerer, Rule, RuleAction, Stage
from teams import MemberOptions, PlanOptions, ScriptedModel, TeamOptions, at_terminal, open_team, rule_list
from teams.approvals import AnyRequest, PlanRequest
from teams.events import RuntimeNotice
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, say, spoken
from teams.state.plan_commands import SubmitPlan
from teams.state.request_commands import AnswerRequest
from teams.team import Team
from teams.testing.team import StrictModel, virtual_wall_clock, wait_for
from tests.state.driving import Desk


def planner(**plan: object) -> Callable[[ModelRequest], Reply]:
    """Submit one plan, and say what came of it."""
    submitted = call("submit_plan", **{"summary": "s", "steps": ["one"], **plan})

    def script(request: ModelRequest) -> Reply:
        newest = spoken(request.messages[-1])
        return submitted if "begin" in newest else say(newest or "waiting")

    return script


def reviewer(approve: bool) -> Callable[[ModelRequest], Reply]:
    """Decide every plan that comes as mail."""

    def script(request: ModelRequest) -> Reply:
        newest = request.messages[-1]
        if "plan_approval_request" in spoken(newest):
            request_id = spoken(newest).split('request_id="')[1].split('"')[0]
            return call("review_plan", request_id=request_id, approve=approve, feedback="as I see it")
        return say("done")

    return script


def decision(team: Team, request_id: str = "r1") -> tuple[str, str, str]:
    """What was decided: the state, by whom, and with which words."""
    request = team.state.requests.get(request_id)
    assert request.decision is not None
    return str(request.state), request.decision.by, request.decision.feedback


RULES = (Rule(RuleAction.allow, path="docs/**"), Rule(RuleAction.deny, path="secrets"), Rule(RuleAction.allow, command="make *"))


@pytest.mark.parametrize(
    ("plan", "decided"),
    [
        ({"files": ["docs/a.md"], "commands": ["make html"]}, ("approved", "policy", "by the rules")),
        ({"files": ["docs/a.md", "secrets/key"]}, ("rejected", "policy", "the rules forbid a part of it")),
        ({"files": ["Secrets/key"]}, ("rejected", "policy", "the rules forbid a part of it")),
        ({"files": ["docs/a.md", "src/a.py"]}, ("approved", "boss", "as I see it")),
        ({"files": ["**"]}, ("approved", "boss", "as I see it")),
        ({"files": ["docs/a.md"], "commands": ["make html; rm x"]}, ("approved", "boss", "as I see it")),
        ({}, ("approved", "boss", "as I see it")),
    ],
)
async def test_rules_decide_what_they_cover_and_the_lead_the_rest(
    autojump_clock: MockClock, plan: dict[str, object], decided: tuple[str, str, str]
) -> None:
    """In a chain of a rule list and a lead, a plan that the rules cover or forbid never reaches the lead; any other does at once."""
    model = StrictModel(ScriptedModel({"ann": planner(**plan), "boss": reviewer(approve=True)}))
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.add_approver("policy", rule_list(*RULES))
        await team.spawn("boss", lead=True)
        began = trio.current_time()
        await team.spawn("ann", prompt="begin", plan="required", tools=[], options=MemberOptions(approval=("policy", "boss", "user")))
        await wait_for(team, lambda: team.state.requests.get("r1").decision if "r1" in team.state.requests else None)
        assert decision(team) == decided
        assert trio.current_time() - began < 1


async def test_silent_approver_hands_over_at_its_time_and_is_too_late_after(autojump_clock: MockClock) -> None:
    """Each stage has its own time; the one after it is told, and the one before cannot decide any more."""
    stages = (Stage(("ben",), 1, 60.0), "user")
    model = StrictModel(ScriptedModel({"ann": planner(), "ben": lambda _: say("I say nothing")}))
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ben", tools=[])
        await team.spawn("ann", prompt="begin", plan="required", tools=[], options=MemberOptions(approval=stages))
        await wait_for(team, lambda: "r1" in team.state.requests)
        engine = team._services.engine
        with pytest.raises(NotTheAnswerer):
            await engine.submit(AnswerRequest("r1", "user", approved=True))
        await trio.sleep(61)
        assert team.state.requests.get("r1").answerers == ("user",)
        with pytest.raises(NotTheAnswerer):
            await engine.submit(AnswerRequest("r1", "ben", approved=True))
        await engine.submit(AnswerRequest("r1", "user", approved=True, feedback="fine"))
        assert decision(team) == ("approved", "user", "fine")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_approver_that_is_gone_hands_over(autojump_clock: MockClock, when: str) -> None:
    """An approver that ends, before or after it was asked, does not hold up the plan."""
    model = StrictModel(ScriptedModel({"ann": planner(), "ben": lambda _: say("I say nothing")}))
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ben", tools=[])
        if when == "before":
            assert (await team.shutdown("ben")).state == "stopped"
        await team.spawn("ann", prompt="begin", plan="required", tools=[], options=MemberOptions(approval=("ben", "user")))
        await wait_for(team, lambda: team.state.requests.open(asker="ann"))
        began = trio.current_time()
        if when == "after":
            await team.shutdown("ben", force=True)
        assert [request.answerers for request in team.state.requests.open(asker="ann")] == [("user",)]
        assert trio.current_time() - began < 30


@pytest.mark.parametrize(("votes", "outcome"), [((True, False, True), "approved"), ((False, True, False), "rejected")])
async def test_quorum_decides_with_enough_of_one_mind(autojump_clock: MockClock, votes: tuple[bool, ...], outcome: str) -> None:
    """Two of three: neither the first vote decides nor the first contradiction; all votes are kept with the decision."""
    names = ("ben", "cora", "dan")
    scripts = {"ann": planner(), **{name: reviewer(vote) for name, vote in zip(names, votes, strict=True)}}
    async with open_team(None, model=StrictModel(ScriptedModel(scripts)), wall_clock=virtual_wall_clock) as team:
        for name in names:
            await team.spawn(name, tools=[])
        options = MemberOptions(approval=(Stage(names, 2),))
        await team.spawn("ann", prompt="begin", plan="required", tools=[], options=options)
        await wait_for(team, lambda: team.state.requests.get("r1").decision if "r1" in team.state.requests else None)
        made = team.state.requests.get("r1").decision
        assert made is not None
        assert decision(team)[0] == outcome
        assert [vote.approved for vote in made.votes].count(outcome == "approved") == 2
        await team.wait_quiescent()
        with pytest.raises(AlreadyDecided, match=outcome):
            await team._services.engine.submit(AnswerRequest("r1", "dan", approved=outcome != "approved", feedback="no"))


async def test_approver_that_fails_is_told_and_passes_on(autojump_clock: MockClock) -> None:
    """A callable that raises has not decided: the watchers are told, and the next of the chain is asked."""

    def broken(request: AnyRequest) -> None:
        raise RuntimeError(f"no opinion on {request.id}")

    model = StrictModel(ScriptedModel({"ann": planner()}))
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team, team.events() as events:
        await team.add_approver("policy", broken)
        await team.spawn("ann", prompt="begin", plan="required", tools=[], options=MemberOptions(approval=("policy", "lead")))
        request = await anext(team.plan_requests())
        assert request.decider == "lead"
        seen = [events.receive_nowait() for _ in range(events.statistics().current_buffer_used)]
        notices = [event for event in seen if isinstance(event, RuntimeNotice)]
        assert [notice.text for notice in notices] == ["approver policy failed on r1: RuntimeError: no opinion on r1"]


async def test_revision_begins_the_chain_anew_and_says_what_changed(autojump_clock: MockClock) -> None:
    """A revised plan is asked of the first stage again, whose approver sees what changed against the revision before."""
    seen: list[tuple[int, tuple[str, ...]]] = []

    async def policy(request: AnyRequest) -> None:
        assert isinstance(request, PlanRequest)
        seen.append((request.revision, request.changes))
        if request.revision == 1:
            await request.reject("leave src alone")

    def script(request: ModelRequest) -> Reply:
        newest = spoken(request.messages[-1])
        if "is rejected" in newest:
            return call("submit_plan", summary="s", steps=["one", "two"], files=["docs/a.md"], risk="none")
        return call("submit_plan", summary="s", steps=["one"], files=["src/a.py"]) if "begin" in newest else say("waiting")

    async with open_team(None, model=StrictModel(ScriptedModel({"ann": script})), wall_clock=virtual_wall_clock) as team:
        await team.add_approver("policy", policy)
        await team.spawn("ann", prompt="begin", plan="required", tools=[], options=MemberOptions(approval=("policy", "lead")))
        await (await anext(team.plan_requests())).approve()
        changes = ("+ risk: none", "+ step: two", "- file: src/a.py", "+ file: docs/a.md")
        assert seen == [(1, ()), (2, changes)]


async def test_steps_can_become_tasks_of_the_plans_owner(autojump_clock: MockClock) -> None:
    """With the option, an approval puts the steps on the graph, each behind the one before it; done tasks are done steps."""

    def script(request: ModelRequest) -> Reply:
        newest = spoken(request.messages[-1])
        if "begin" in newest:
            return call("submit_plan", summary="s", steps=["first", "second"])
        tasks = [task for task in ("1", "2") if f'task_id="{task}"' in newest]
        if tasks and not request.messages[-1].tool_results:
            return call("task_complete", task_id=int(tasks[-1]), result="made")
        return say("waiting")

    options = TeamOptions(plans=PlanOptions(steps_as_tasks=True))
    async with open_team(None, model=StrictModel(ScriptedModel({"ann": script})), options=options, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", plan="required", tools=[])
        await (await anext(team.plan_requests())).approve()
        outcome = await team.wait_quiescent()
        assert outcome.completed == (1, 2)
        assert [(task.subject, task.assignee) for task in team.tasks.list_all()] == [("first", "ann"), ("second", "ann")]
        assert [str(status) for _, status in team.state.plan_steps("ann")] == ["done", "done"]
        assert (await team.shutdown("ann")).steps == ()


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("", ("approved", "me", "")),
        ("y", ("approved", "me", "")),
        ("smaller steps", ("rejected", "me", "smaller steps")),
        ("p", ("approved", "lead", "")),
    ],
)
async def test_person_decides_at_the_terminal(monkeypatch: pytest.MonkeyPatch, said: str, outcome: tuple[str, str, str]) -> None:
    """The prompt shows the plan; an empty line approves, words reject with them, `p` passes on; the team goes on meanwhile."""
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        return said

    monkeypatch.setattr("builtins.input", answer)
    async with open_team(None, model=StrictModel(ScriptedModel({"ann": planner(files=["docs/a.md"])}))) as team:
        await team.add_approver("me", at_terminal)
        await team.spawn("ann", prompt="begin", plan="required", tools=[], options=MemberOptions(approval=("me", "lead")))
        if said == "p":
            await (await anext(team.plan_requests())).approve()
        await wait_for(team, lambda: team.state.requests.get("r1").decision if "r1" in team.state.requests else None)
        assert decision(team) == outcome
        assert "Plan r1 of ann, revision 1" in prompts[0]
        assert "- docs/a.md" in prompts[0]


async def test_nobody_at_the_terminal_leaves_it_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the input is no decision."""

    def ended(prompt: str) -> str:
        raise EOFError(prompt)

    monkeypatch.setattr("builtins.input", ended)
    async with open_team(None, model=StrictModel(ScriptedModel({"ann": planner()}))) as team:
        await team.add_approver("me", at_terminal)
        await team.spawn("ann", prompt="begin", plan="required", tools=[], options=MemberOptions(approval=("me", "lead")))
        request = await anext(team.plan_requests())
        assert request.decider == "lead"


async def test_stage_that_is_gone_when_its_turn_comes_is_passed_over(autojump_clock: MockClock) -> None:
    """A deadline hands over to the next stage that can still answer, not to one whose approvers have ended."""
    model = StrictModel(ScriptedModel({"ann": planner(), "ben": lambda _: say("I say nothing"), "cora": lambda _: say("nor I")}))
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        for name in ("ben", "cora"):
            await team.spawn(name, tools=[])
        options = MemberOptions(approval=(Stage(("ben",), 1, 60.0), "cora", "user"))
        await team.spawn("ann", prompt="begin", plan="required", tools=[], options=options)
        await wait_for(team, lambda: "r1" in team.state.requests)
        await team.shutdown("cora")
        await trio.sleep(61)
        assert team.state.requests.get("r1").answerers == ("user",)


async def test_code_without_an_opinion_leaves_it_to_those_who_are_asked_with_it(autojump_clock: MockClock) -> None:
    """One of several approvers passing on hands nothing over while the others can decide."""
    model = StrictModel(ScriptedModel({"ann": planner(), "ben": lambda _: say("I am reading")}))
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.add_approver("policy", rule_list())
        await team.spawn("ben", tools=[])
        options = MemberOptions(approval=(Stage(("policy", "ben"), 1, 600.0), "user"))
        await team.spawn("ann", prompt="begin", plan="required", tools=[], options=options)
        await wait_for(team, lambda: "r1" in team.state.requests)
        await trio.sleep(300)
        assert team.state.requests.get("r1").answerers == ("policy", "ben")


def test_end_of_an_approver_skips_every_stage_that_is_left_to_it_alone() -> None:
    """Who ends in one stage and stands alone in the next does not get the request at its own end."""
    desk = Desk()
    for name in ("ben", "cora"):
        desk.join(name)
    desk.join("user", kind="person")
    stages = (Stage(("ben", "cora"), 2), Stage(("ben",)), Stage(("user",)))
    desk.join("ann", plan_required=True, approvers=("ben", "cora", "user"), approval=stages)
    request = desk.do(SubmitPlan("ann", desk.incarnation("ann"), {"summary": "s", "steps": ["one"]}, 60.0))
    desk.leave("ben", MemberEvent.exited)
    assert desk.state.requests.get(request.id).answerers == ("user",)
