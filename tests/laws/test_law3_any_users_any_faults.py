"""Laws 3, 6 and 9 on a running team under any users, models and faults: what the journal says afterwards is judged by rules of its own."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio
from hypothesis import given
from hypothesis import strategies as st

from protocols import Rule, RuleAction, Stage
from protocols.errors import ProtocolError
from teams import (
    MemberOptions,
    PermissionOptions,
    PlanOptions,
    QuestionOptions,
    ScriptedModel,
    Team,
    TeamOptions,
    Tool,
    Touches,
    open_team,
    tool,
)
from teams.errors import ModelError, TeamError
from teams.journal.memory import MemoryJournal
from teams.journal.records import Record
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, delayed, fail, say
from teams.state.request_commands import AnswerRequest
from teams.testing.team import StrictModel, run_seeded, virtual_wall_clock

MATES = ("ann", "ben", "cora")
PLANNERS = frozenset({"ann", "ben"})
DEADLINE = 300.0
LONG_ENOUGH = 3_600.0
CHAIN = (Stage(("rex", "user"), 2, 60.0), Stage(("ben",), 1, 60.0), Stage(("lead",)))

PLAN = call("submit_plan", summary="s", steps=["one"], files=["src"])
MOVES: dict[str, Reply] = {
    "plan": PLAN,
    "inside": call("write", path="src/a"),
    "outside": call("write", path="docs/a"),
    "asks": call("deploy", service="web"),
    "two": call("deploy", service="one") + call("deploy", service="two"),
    "question": call("ask_user", question="which?"),
    "mate": call("ask_teammate", name="cora", question="which?"),
    "mail": call("send_message", to="cora", content="approved", request_id="r1"),
    "slow": delayed(40) + say("thinking"),
    "rest": say("resting"),
    "ill": fail(ModelError("the endpoint is down")),
}


class Act(NamedTuple):
    """What somebody outside does, so many seconds after the one before."""

    after: float
    kind: str
    who: str
    approve: bool


ACTS = st.builds(
    Act,
    st.sampled_from([0.0, 1.0, 30.0, 70.0, 200.0]),
    st.sampled_from([*["decide"] * 6, "answer", "answer", "interrupt", "wake", "shutdown", "force", "respawn", "rule"]),
    st.sampled_from([*MATES, "user", "lead", "rex"]),
    st.sampled_from([True, True, True, False]),
)
WORK = ["plan", "rest", "inside", "outside", "asks", "asks", "two"]
SCRIPTS = st.one_of(
    st.lists(st.sampled_from([*sorted(MOVES), *WORK]), max_size=8),
    st.lists(st.sampled_from(WORK[2:]), min_size=4, max_size=6).map(lambda moves: ["plan", "rest", *moves]),
)


@dataclass
class Played:
    """What a run left behind: the journal, and what the tools did, each with the newest record at that time."""

    records: list[Record] = field(default_factory=list[Record])
    effects: list[tuple[str, str, str, int]] = field(default_factory=list[tuple[str, str, str, int]])


@given(st.fixed_dictionaries(dict.fromkeys(MATES, SCRIPTS)), st.lists(ACTS, min_size=6, max_size=16), st.integers(0, 10_000))
def test_every_request_ends_once_by_whom_it_was_asked(scripts: dict[str, list[str]], acts: list[Act], seed: int) -> None:
    """Nothing waits for ever, nobody decides who was not asked, nothing is decided or done twice, nothing written without a yes before."""
    played = Played()
    run_seeded(_play, scripts, acts, played, seed=seed)
    requests = _requests(played.records)
    for opened, steps in requests.values():
        _judge(opened, steps)
    _judge_effects(played, requests)


async def _play(scripts: dict[str, list[str]], acts: Sequence[Act], played: Played) -> None:
    journal = MemoryJournal()
    options = TeamOptions(
        plans=PlanOptions(deadline_seconds=DEADLINE),
        permissions=PermissionOptions(deadline_seconds=DEADLINE),
        questions=QuestionOptions(deadline_seconds=DEADLINE),
    )
    model = StrictModel(ScriptedModel({name: _script(moves) for name, moves in scripts.items()}))
    async with open_team(None, model=model, options=options, journal=journal, wall_clock=virtual_wall_clock) as team:
        await team.add_member("rex")
        tools = {name: _tools(name, team, played) for name in MATES}
        for name in reversed(MATES):
            await _spawn(team, name, tools[name])
        for act in acts:
            await trio.sleep(act.after)
            await _act(team, act, tools)
        with trio.fail_after(LONG_ENOUGH):
            await team.wait_quiescent()
    assert not model.refused
    played.records = list(await journal.read(0))


def _script(moves: list[str]) -> Callable[[ModelRequest], Reply]:
    left = list(moves)

    def script(request: ModelRequest) -> Reply:
        return MOVES[left.pop(0)] if left else say("done")

    return script


def _tools(name: str, team: Team, played: Played) -> list[Tool]:
    @tool(effect="writes", touches=Touches(paths=("path",)))
    async def write(path: str) -> str:
        """Write."""
        played.effects.append((name, "write", path, team.state.seq))
        await trio.sleep(1)
        return "written"

    @tool(effect="writes", touches=Touches(asks=True))
    async def deploy(service: str) -> str:
        """Deploy."""
        played.effects.append((name, "deploy", service, team.state.seq))
        await trio.sleep(1)
        return "deployed"

    return [write, deploy]


async def _spawn(team: Team, name: str, tools: list[Tool]) -> None:
    options = MemberOptions(approval=tuple(stage for stage in CHAIN if name not in stage.answerers), auto_claim=False)
    await team.spawn(name, prompt="begin", plan="required" if name in PLANNERS else "none", tools=tools, options=options)


async def _act(team: Team, act: Act, tools: dict[str, list[Tool]]) -> None:
    """Do what somebody does; what the team refuses was worth trying."""
    mate = act.who if act.who in MATES else "ann"
    try:
        with trio.move_on_after(100):
            if act.kind == "answer":
                for request in team.state.requests.open():
                    if request.is_undecided and request.kind != "shutdown":
                        await team._services.engine.submit(AnswerRequest(request.id, act.who, approved=act.approve, feedback="so"))
            elif act.kind == "decide":
                await _decide_all(team, act)
            elif act.kind in ("interrupt", "wake"):
                await team.send(mate, "look", priority="now" if act.kind == "interrupt" else "turn")
            elif act.kind in ("shutdown", "force"):
                await team.shutdown(mate, force=act.kind == "force")
            elif act.kind == "respawn":
                await _spawn(team, mate, tools[mate])
            else:
                from teams.state.permission_commands import AddRule

                rule = Rule(RuleAction.deny if act.approve else RuleAction.ask, "write", path="docs")
                await team._services.engine.submit(AddRule(rule, "user"))
    except (TeamError, ProtocolError):
        pass


async def _decide_all(team: Team, act: Act) -> None:
    """Let those who are asked answer, one after the other; sometimes only the first of them."""
    for request in team.state.requests.open():
        if request.kind != "shutdown" and request.is_undecided:
            for name in request.answerers[: 1 if act.who == "rex" else None]:
                await team._services.engine.submit(AnswerRequest(request.id, name, approved=act.approve, feedback="so"))


# -- the judge: it knows the records and nothing of the tables ------------------------

Steps = list[Record]


def _requests(records: Sequence[Record]) -> dict[str, tuple[Record, Steps]]:
    found: dict[str, tuple[Record, Steps]] = {}
    for record in records:
        if record.kind == "request.opened":
            assert record.fields["id"] not in found
            found[record.fields["id"]] = record, []
        elif record.kind == "request.advanced":
            found[record.fields["id"]][1].append(record)
    return found


ENDS = {
    "plan_approval": {"approved", "withdrawn", "expired", "rejected"},  # a rejected one may be revised
    "permission": {"used", "rejected", "withdrawn", "expired"},
    "question": {"answered", "rejected", "withdrawn", "expired"},
    "shutdown": {"stopped", "stopped_forced", "rejected"},
}
ANSWERED = {"approved", "rejected", "answered"}


def _judge(opened: Record, steps: Steps) -> None:
    fields: dict[str, Any] = opened.fields
    stages: list[Any] = fields.get("stages") or [[fields["answerers"], fields.get("quorum", 1), None]]
    stage, votes, answers = fields.get("stage", 0), dict[str, bool](), 0
    for step in steps:
        done = step.fields
        if "approved" in done:
            names, quorum, _ = stages[stage]
            assert done["by"] in names, (opened, step)
            assert answers == 0, (opened, steps)
            assert done["by"] not in votes
            votes[done["by"]] = done["approved"]
            count = Counter(votes.values())
            if done["state"] in ANSWERED:
                answers += 1
                needed = quorum if done["approved"] else len(names) - quorum + 1
                assert count[done["approved"]] >= needed, (opened, steps)
        elif done["event"] == "hand_over":
            stage, votes = stage + 1, {}
            assert answers == 0
        elif done["event"] == "revise":
            stage, votes, answers = 0, {}, 0
            assert done["by"] == fields["asker"]
    last = steps[-1].fields["state"] if steps else "open"
    assert last in ENDS[fields["request_kind"]], (opened, steps)


def _judge_effects(played: Played, requests: dict[str, tuple[Record, Steps]]) -> None:
    deploys = Counter(name for name, what, _, _ in played.effects if what == "deploy")
    used = Counter(
        opened.fields["asker"]
        for opened, steps in requests.values()
        if opened.fields["request_kind"] == "permission" and any(step.fields.get("event") == "use" for step in steps)
    )
    outside = Counter(name for name, what, path, _ in played.effects if what == "write" and path.startswith("docs") and name in PLANNERS)
    asked_rules = Counter(name for name, what, _, _ in played.effects if what == "write")
    for name in MATES:
        assert deploys[name] + outside[name] <= used[name], (played.effects, used)
        assert used[name] <= deploys[name] + asked_rules[name]
    for name, _, _, seq in played.effects:
        if name in PLANNERS:
            plans = [
                steps
                for opened, steps in requests.values()
                if opened.fields["request_kind"] == "plan_approval" and opened.fields["asker"] == name
            ]
            assert any(step.seq <= seq and step.fields["state"] == "approved" for steps in plans for step in steps), (name, seq)
