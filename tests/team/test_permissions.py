"""Permissions of single calls: who is asked, what each decision does, and that a call runs once with the input that was approved."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from protocols import AlreadyDecided, MemberEvent, Rule, RuleAction
from teams import MemberOptions, PermissionOptions, PlanOptions, ScriptedModel, TeamOptions, Tool, Touches, connect_team, open_team, tool
from teams.approvals import PermissionRequest
from teams.errors import UsageError
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, say, spoken
from teams.state.permission_commands import AddRule, AskPermission, UsePermission
from teams.state.request_commands import AnswerRequest
from teams.team import Team
from teams.testing.team import StrictModel, virtual_wall_clock, wait_for
from tests.state.driving import Desk

PLAN = {"summary": "s", "steps": ["one"], "files": ["src/**"], "commands": ["make *"]}


class Work:
    """Tools that remember what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self) -> list[Tool]:
        @tool(effect="writes", touches=Touches(asks=True))
        async def deploy(service: str) -> str:
            """Deploy."""
            await trio.lowlevel.checkpoint()
            self.done.append(f"deploy {service}")
            return f"deployed {service}"

        @tool(effect="writes", touches=Touches(paths=("path",)))
        async def write(path: str) -> str:
            """Write."""
            await trio.lowlevel.checkpoint()
            self.done.append(f"write {path}")
            return "written"

        @tool(effect="writes", touches=Touches(command="line"))
        async def run(line: str) -> str:
            """Run."""
            await trio.lowlevel.checkpoint()
            self.done.append(f"run {line}")
            return "ran"

        return [deploy, write, run]


def once(*calls: Reply) -> Callable[[ModelRequest], Reply]:
    """Answer the first message with these calls, and what comes back with its own words."""
    first = calls[0]
    for more in calls[1:]:
        first += more

    def script(request: ModelRequest) -> Reply:
        newest = request.messages[-1]
        if "begin" in spoken(newest) and not newest.tool_results:
            return first
        return say(" / ".join(str(result["content"]) for result in newest.tool_results) or "nothing")

    return script


def planned(*calls: Reply) -> Callable[[ModelRequest], Reply]:
    """Submit a plan, and make the calls once it is approved."""
    inner = once(*calls)

    def script(request: ModelRequest) -> Reply:
        newest = request.messages[-1]
        if newest.tool_results:
            return say(" / ".join(str(result["content"]) for result in newest.tool_results))
        if "is approved" in spoken(newest):
            return inner(request) if "begin" in spoken(newest) else once_more(*calls)
        return call("submit_plan", **PLAN)

    return script


def once_more(*calls: Reply) -> Reply:
    """Put calls into one reply."""
    first = calls[0]
    for more in calls[1:]:
        first += more
    return first


def last_words(model: ScriptedModel, name: str = "ann") -> str:
    """What the member was last told."""
    newest = model.last_requests[name].messages[-1]
    return " / ".join(str(result["content"]) for result in newest.tool_results)


async def decide_all(team: Team, decide: Callable[[PermissionRequest], object]) -> list[PermissionRequest]:
    """Approve every plan, and treat every permission as told; until the team is quiescent."""
    seen: list[PermissionRequest] = []
    async for request in team.requests():
        if request.kind == "plan":
            await request.approve()
        elif request.kind == "permission":
            seen.append(request)
            await decide(request)  # type: ignore[misc]  # every decider is a coroutine function
    return seen


@pytest.mark.parametrize("approved", [True, False])
async def test_call_that_asks_runs_once_when_it_is_allowed(autojump_clock: MockClock, approved: bool) -> None:
    """A tool marked as asking waits for its decider; a yes lets the one call run, a no is an error result with the reason."""
    work, inner = Work(), ScriptedModel(once(call("deploy", service="web")))
    async with open_team(None, model=StrictModel(inner), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=work.tools())
        seen = await decide_all(team, lambda request: request.approve("mind it") if approved else request.reject("not today"))
        assert [(request.what, request.why) for request in seen] == [("deploy", "every call of deploy needs a permission")]
        assert work.done == (["deploy web"] if approved else [])
        assert last_words(inner) == ("deployed web" if approved else "cannot run deploy: permission r1 is rejected, by lead: not today")
        assert str(team.state.requests.get("r1").state) == ("used" if approved else "rejected")
        with pytest.raises(AlreadyDecided):
            await (seen[0].reject("late") if approved else seen[0].approve())


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (call("write", path="src/a.py"), ""),
        (call("write", path="./src//deep/a.py"), ""),
        (call("run", line="make -j test && make lint"), ""),
        (call("write", path="docs/a.md"), "docs/a.md is none of its files (src/**)"),
        (call("write", path="src/../docs/a.md"), "a path that cannot be read"),
        (call("write", path="/etc/passwd"), "a path that cannot be read"),
        (call("write", path="SRC/a.py"), "SRC/a.py is none of its files (src/**)"),
        (call("run", line="make test; rm -rf /"), "`make test; rm -rf /` is none of its commands (make *)"),
        (call("run", line="make $(rm -rf /)"), "`make $(rm -rf /)` is none of its commands (make *)"),
        (call("run", line="maker"), "`maker` is none of its commands (make *)"),
    ],
)
async def test_approved_plan_is_a_contract(autojump_clock: MockClock, made: Reply, why: str) -> None:
    """What the plan names runs; what it does not name is asked for, with the difference in words, and runs only with a yes."""
    for approve in (True, False):
        work, inner = Work(), ScriptedModel(planned(made))
        async with open_team(None, model=StrictModel(inner), wall_clock=virtual_wall_clock) as team:
            await team.spawn("ann", prompt="begin", plan="required", tools=work.tools())

            async def decide(request: PermissionRequest, *, approve: bool = approve) -> None:
                await (request.approve() if approve else request.reject("stay inside"))

            seen = await decide_all(team, decide)
            assert [request.why for request in seen] == ([f"outside of the approved plan: {why}"] if why else [])
            assert bool(work.done) is (approve or not why)


@pytest.mark.parametrize(("outside", "ran"), [("refuse", False), ("allow", True)])
async def test_what_a_plan_does_not_name_may_be_refused_or_allowed_by_option(autojump_clock: MockClock, outside: str, ran: bool) -> None:
    """With `refuse` nobody is asked and the result says how to go on; with `allow` an approval opens everything."""
    work, inner = Work(), ScriptedModel(planned(call("write", path="docs/a.md")))
    options = TeamOptions(plans=PlanOptions(outside=outside))  # type: ignore[arg-type]  # a parameter of the test
    async with open_team(None, model=StrictModel(inner), options=options, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", plan="required", tools=work.tools())
        assert not await decide_all(team, lambda request: request.approve())
        assert bool(work.done) is ran
        assert ("Stay inside the plan, or submit another one" in last_words(inner)) is not ran


async def test_permission_without_an_answer_counts_as_its_default(autojump_clock: MockClock) -> None:
    """At its deadline a permission is what the owner chose; without a choice the call is refused."""
    for default in (None, True):
        work, inner = Work(), ScriptedModel(once(call("deploy", service="web")))
        options = TeamOptions(permissions=PermissionOptions(deadline_seconds=60, default_approved=default))
        async with open_team(None, model=StrictModel(inner), options=options, wall_clock=virtual_wall_clock) as team:
            await team.spawn("ann", prompt="begin", tools=work.tools())
            began = trio.current_time()
            await team.wait_quiescent()
            assert trio.current_time() - began == pytest.approx(60, abs=2)
            assert work.done == (["deploy web"] if default else [])
            assert ("is expired, by runtime" in last_words(inner)) is not default


RULES = [
    ([Rule(RuleAction.allow, "deploy")], "deploy web", 0),
    ([Rule(RuleAction.deny, "deploy"), Rule(RuleAction.allow, "*")], "", 0),
    ([Rule(RuleAction.allow, "*"), Rule(RuleAction.deny, "deploy")], "", 0),
    ([Rule(RuleAction.allow, "deploy"), Rule(RuleAction.ask, "deploy")], "deploy web", 0),
    ([Rule(RuleAction.ask, "deploy"), Rule(RuleAction.allow, "deploy")], "deploy web", 1),
    ([Rule(RuleAction.deny, "deploy", member="ben")], "deploy web", 1),
]


@pytest.mark.parametrize(("rules", "done", "asked"), RULES)
async def test_rules_come_before_anybody_is_asked(autojump_clock: MockClock, rules: list[Rule], done: str, asked: int) -> None:
    """A denial counts first, of the others the first that fits; a rule for another member says nothing."""
    work, inner = Work(), ScriptedModel(once(call("deploy", service="web")))
    options = TeamOptions(permissions=PermissionOptions(rules=tuple(rules)))
    async with open_team(None, model=StrictModel(inner), options=options, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=work.tools())
        seen = await decide_all(team, lambda request: request.approve())
        assert (work.done, len(seen)) == ([done] if done else [], asked)


async def test_no_rule_lets_a_member_write_without_its_plan(autojump_clock: MockClock) -> None:
    """Law 6 stands above the rules."""
    work, inner = Work(), ScriptedModel(once(call("deploy", service="web")))
    options = TeamOptions(permissions=PermissionOptions(rules=(Rule(RuleAction.allow),)))
    async with open_team(None, model=StrictModel(inner), options=options, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", plan="required", tools=work.tools())
        await team.wait_quiescent()
        assert not work.done
        assert "it writes, and your plan was not submitted" in last_words(inner)


async def test_always_makes_a_rule_and_decides_what_it_covers(autojump_clock: MockClock, tmp_path: Path) -> None:
    """`always` adds a rule to the journal for this member and this very call: the same call is not asked again, also by a next life."""
    work, inner = Work(), ScriptedModel(once(call("run", line="git push"), call("run", line="git push --force")))
    rules = PermissionOptions(rules=(Rule(RuleAction.ask, "run"),))
    options = TeamOptions(permissions=rules, views=False)
    async with open_team(tmp_path / "team", model=StrictModel(inner), options=options) as team:
        await team.spawn("ann", prompt="begin", tools=work.tools())
        always = await decide_all(team, lambda request: request.approve(always="--force" not in request.what))
        assert [request.what for request in always] == ["run `git push`", "run `git push --force`"]
        await team.send("ann", "begin again")
        again = await decide_all(team, lambda request: request.reject())
        assert [request.what for request in again] == ["run `git push --force`"]
    async with open_team(tmp_path / "team", model=StrictModel(ScriptedModel(once(call("run", line="git push")))), options=options) as team:
        assert [str(rule) for rule in team.state.rules.by_id.values()] == ["allow run command git push for ann"]
        await team.spawn("ann", prompt="begin once more", tools=work.tools())
        assert not await decide_all(team, lambda request: request.reject())
        assert work.done.count("run git push") == 3


async def test_requests_for_the_same_call_are_decided_together(autojump_clock: MockClock) -> None:
    """`alike` decides every open request for the same call, whoever asks, and no other."""
    work = Work()
    scripts = {name: once(call("run", line="make" if name != "eve" else "make clean")) for name in ("ann", "ben", "eve")}
    options = TeamOptions(permissions=PermissionOptions(rules=(Rule(RuleAction.ask, "run"),)))
    async with open_team(None, model=StrictModel(ScriptedModel(scripts)), options=options, wall_clock=virtual_wall_clock) as team:
        for name in scripts:
            await team.spawn(name, prompt="begin", tools=work.tools())
        await wait_for(team, lambda: len(team.state.requests) == 3)
        request = await anext(aiter(team.requests()))
        assert isinstance(request, PermissionRequest)
        await request.approve(alike=True)
        await wait_for(team, lambda: len(work.done) == 2)
        assert [open_one.asker for open_one in team.state.requests.open()] == ["eve"]


async def test_call_that_is_cut_short_takes_its_request_back(autojump_clock: MockClock) -> None:
    """Urgent mail interrupts a call that waits: nobody decides in vain, a late yes runs nothing, and the call may be made again."""
    work, inner = Work(), ScriptedModel(once(call("deploy", service="web")))
    async with open_team(None, model=StrictModel(inner), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=work.tools())
        request = await anext(aiter(team.requests()))
        assert isinstance(request, PermissionRequest)
        await team.send("ann", "stop that", priority="now")
        await team.wait_quiescent()
        assert str(team.state.requests.get(request.id).state) == "withdrawn"
        with pytest.raises(AlreadyDecided):
            await request.approve()
        assert not work.done


async def test_member_that_nobody_decides_for_is_told_so(autojump_clock: MockClock) -> None:
    """Without an approver a call that asks is refused at once."""
    work, inner = Work(), ScriptedModel(once(call("deploy", service="web")))
    async with open_team(None, model=StrictModel(inner), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=work.tools(), options=MemberOptions(approvers=()))
        await team.wait_quiescent()
        assert "nobody is named to decide what 'ann' asks for" in last_words(inner)
        assert not work.done


@pytest.mark.parametrize("decision", ["approved", "rejected", "other input", "later"])
async def test_decision_that_comes_while_the_process_is_down_counts_once(tmp_path: Path, decision: str) -> None:
    """A call that waits at a kill goes on in the next life: allowed it runs once with the approved input, refused it does not."""
    root, copy, work = tmp_path / "team", tmp_path / "copy", Work()
    options = TeamOptions(views=False)
    async with open_team(root, model=ScriptedModel(once(call("deploy", service="web"))), options=options) as team:
        await team.spawn("ann", prompt="begin", tools=work.tools())
        await wait_for(team, lambda: len(team.state.requests) == 1)
        shutil.copytree(root, copy)
    assert not work.done
    if decision != "later":
        async with connect_team(copy) as client:
            await client.engine.submit(AnswerRequest("r1", "user", approved=decision != "rejected", feedback="so be it"))
    if decision == "other input":
        path = copy / "sessions" / "ann.jsonl"
        path.write_text(path.read_text().replace('"web"', '"bank"'))
    inner = ScriptedModel(once(call("deploy", service="never")))
    async with open_team(copy, model=StrictModel(inner), options=options) as team:
        await team.spawn("ann", prompt="begin", tools=work.tools())
        if decision == "later":
            await decide_all(team, lambda request: request.approve())
        await team.wait_quiescent()
        assert ("interrupted" in last_words(inner)) is (decision == "other input")
    assert work.done == (["deploy web"] if decision in ("approved", "later") else [])


async def test_permission_that_was_used_is_never_used_again(tmp_path: Path) -> None:
    """A kill after the use and before the result: the next life says that the call was interrupted, and does not run it again."""
    root, copy, work = tmp_path / "team", tmp_path / "copy", Work()
    options = TeamOptions(views=False)
    async with open_team(root, model=ScriptedModel(once(call("deploy", service="web"))), options=options) as team:
        await team.spawn("ann", prompt="begin", tools=work.tools())
        request = await anext(aiter(team.requests()))
        assert isinstance(request, PermissionRequest)
        shutil.copytree(root, copy)
        digest = request.body["digest"]
    async with connect_team(copy) as client:
        await client.engine.submit(AnswerRequest("r1", "user", approved=True))
        incarnation = client.state.roster.members["ann"].incarnation
        with pytest.raises(Exception, match="another input"):
            await client.engine.submit(UsePermission("r1", "ann", incarnation, "0" * 64))
        await client.engine.submit(UsePermission("r1", "ann", incarnation, digest))
        with pytest.raises(Exception, match="use"):
            await client.engine.submit(UsePermission("r1", "ann", incarnation, digest))
        assert str(client.state.requests.get("r1").state) == "used"
    inner = ScriptedModel(once(call("deploy", service="never")))
    async with open_team(copy, model=StrictModel(inner), options=options) as team:
        await team.spawn("ann", prompt="begin", tools=work.tools())
        await team.wait_quiescent()
        assert "interrupted" in last_words(inner)
    assert not work.done


async def test_no_agent_makes_a_rule(autojump_clock: MockClock) -> None:
    """Rules are made by people and scripts alone."""
    async with open_team(None, model=ScriptedModel(lambda _: say("done")), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=[])
        with pytest.raises(Exception, match="it is an agent"):
            await team._services.engine.submit(AddRule(Rule(RuleAction.allow), "ann"))


async def test_front_ends_that_race_agree_on_the_first_decision(tmp_path: Path) -> None:
    """Three processes' worth of clients decide at the same time: one decision stands, the others are told it, and the call runs by it."""
    work, inner = Work(), ScriptedModel(once(call("deploy", service="web")))
    outcomes: list[str] = []
    async with open_team(tmp_path / "team", model=StrictModel(inner), options=TeamOptions(views=False)) as team:
        await team.spawn("ann", prompt="begin", tools=work.tools())
        await wait_for(team, lambda: len(team.state.requests) == 1)

        async def front_end(approve: bool) -> None:
            async with connect_team(tmp_path / "team") as client:
                try:
                    after = await client.engine.submit(AnswerRequest("r1", client.person, approved=approve, feedback=str(approve)))
                except AlreadyDecided as error:
                    outcomes.append(error.decided)
                else:
                    outcomes.append("approved" if after.decision is not None and after.decision.approved else "rejected")

        async with trio.open_nursery() as nursery:
            for approve in (True, False, True):
                nursery.start_soon(front_end, approve)
        await team.wait_quiescent()
    assert len(set(outcomes)) == 1
    assert work.done == (["deploy web"] if outcomes[0] == "approved" else [])


@pytest.mark.parametrize(("lead", "approve"), [(True, True), (False, True), (True, False)])
async def test_agent_that_is_asked_decides_with_its_tool(autojump_clock: MockClock, lead: bool, approve: bool) -> None:
    """A lead, and any teammate that is named as an approver, gets the request as mail of the runtime and decides it by its id."""

    def boss(request: ModelRequest) -> Reply:
        newest = request.messages[-1]
        if 'type="permission_request"' not in spoken(newest):
            return say("done")
        assert "ann asks to run deploy" in spoken(newest)
        request_id = spoken(newest).split('request_id="')[1].split('"')[0]
        return call("review_permission", request_id=request_id, approve=approve, feedback="as I see it")

    work, inner = Work(), ScriptedModel({"ann": once(call("deploy", service="web")), "boss": boss})
    async with open_team(None, model=StrictModel(inner), wall_clock=virtual_wall_clock) as team:
        await team.spawn("boss", lead=lead, tools=[])
        await team.spawn("ann", prompt="begin", tools=work.tools(), options=MemberOptions(approvers=("boss",)))
        await team.wait_quiescent()
        assert work.done == (["deploy web"] if approve else [])
        assert ("as I see it" in last_words(inner)) is not approve


async def test_rule_of_one_member_decides_nothing_for_another(autojump_clock: MockClock) -> None:
    """`always` for one member leaves the same call of another one waiting."""
    work = Work()
    scripts = {name: once(call("run", line="make")) for name in ("ann", "ben")}
    options = TeamOptions(permissions=PermissionOptions(rules=(Rule(RuleAction.ask, "run"),)))
    async with open_team(None, model=StrictModel(ScriptedModel(scripts)), options=options, wall_clock=virtual_wall_clock) as team:
        for name in scripts:
            await team.spawn(name, prompt="begin", tools=work.tools())
        await wait_for(team, lambda: len(team.state.requests.open()) == 2)
        request = await anext(aiter(team.requests()))
        assert isinstance(request, PermissionRequest)
        await request.approve(always=True)
        await wait_for(team, lambda: len(work.done) == 1)
        assert len(team.state.requests.open()) == 1


async def test_call_that_only_reads_is_on_disk_before_anybody_is_asked(tmp_path: Path) -> None:
    """Also the call of a tool that reads survives a kill while it waits: the next life runs it, and asks for nothing anew."""
    ran: list[str] = []

    @tool(effect="reads", touches=Touches(asks=True))
    async def peek(secret: str) -> str:
        """Look at a secret."""
        await trio.lowlevel.checkpoint()
        ran.append(secret)
        return "seen"

    root, copy, options = tmp_path / "team", tmp_path / "copy", TeamOptions(views=False)
    async with open_team(root, model=ScriptedModel(once(call("peek", secret="key"))), options=options) as team:
        await team.spawn("ann", prompt="begin", tools=[peek])
        await wait_for(team, lambda: len(team.state.requests) == 1)
        line = (root / "sessions" / "ann.jsonl").read_text().splitlines()[-1]
        assert '"peek"' in line
        shutil.copytree(root, copy)
    async with open_team(copy, model=StrictModel(ScriptedModel(once(say("never")))), options=options) as team:
        await team.spawn("ann", prompt="begin", tools=[peek])
        await decide_all(team, lambda request: request.approve())
        assert (ran, team.state.requests_opened) == (["key"], 1)


def test_permission_of_a_member_whose_process_is_lost_is_withdrawn() -> None:
    """Who finds a host dead ends its members, and what they had asked ends with them."""
    desk = Desk()
    desk.join("ann", approvers=("user",))
    body: dict[str, object] = {"tool": "deploy", "input": {}, "what": "deploy", "why": "w", "digest": "d"}
    request = desk.do(AskPermission("ann", desk.incarnation("ann"), "c1", body, 60.0))
    desk.leave("ann", MemberEvent.lost)
    assert str(desk.state.requests.get(request.id).state) == "withdrawn"


async def test_always_is_refused_where_no_rule_can_hold_just_that_call(autojump_clock: MockClock) -> None:
    """A call that names neither a path nor a command can be allowed once; its request stays open when more is asked."""
    work = Work()
    async with open_team(
        None, model=StrictModel(ScriptedModel(once(call("deploy", service="web")))), wall_clock=virtual_wall_clock
    ) as team:
        await team.spawn("ann", prompt="begin", tools=work.tools())
        request = await anext(aiter(team.requests()))
        assert isinstance(request, PermissionRequest)
        with pytest.raises(UsageError, match="no rule can allow just this call of deploy"):
            await request.approve(always=True)
        assert not work.done
        await request.approve()
        await team.wait_quiescent()
        assert work.done == ["deploy web"]
