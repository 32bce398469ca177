"""A team whose members are compacted before every call comes to the same end: nobody forgets the team, and no request is left open."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from compaction.options import CompactionOptions
from compaction.transcript import Block, ModelMessage
from teams import TeamOptions, open_team
from teams.cli import bugfix
from teams.cli.bugfix_scripts import SCRIPTS
from teams.events import ContextCompacted, Event
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, say
from teams.models.scripted import ScriptedModel, ScriptFunction
from teams.team import Team
from teams.testing.team import virtual_wall_clock

ALWAYS = CompactionOptions(
    trigger_share=0.0003, target_share=0.0003, keep_share=0.0003, backoff_share=0.0, keep_turns=1, memory_share=0.3, gain_share=0.0
)
"""Any context that is larger than a few words is compacted, and again as soon as it has grown."""


class Recollection:
    """What a script remembers beside its context, as a model does that calls `recall`: every block that it was ever sent, once."""

    def __init__(self, script: ScriptFunction) -> None:
        self._script = script
        self._seen: dict[str, tuple[str, Block]] = {}

    def __call__(self, request: ModelRequest) -> Any:
        """Answer from everything that was ever sent."""
        for message in request.messages:
            for block in message.content:
                key = f"{block['type']} {block.get('tool_use_id') or block.get('id') or block.get('text')}"
                self._seen.setdefault(key, (message.role, block))
        whole = [ModelMessage("assistant" if role == "assistant" else "user", [block]) for role, block in self._seen.values()]
        changed = ModelRequest(
            agent=request.agent, system=request.system, messages=whole, tools=request.tools, max_tokens=request.max_tokens
        )
        return self._script(changed)


async def compactions(team: Team, found: dict[str, int], task_status: trio.TaskStatus[None]) -> None:
    """Count the compactions of each member."""
    async with team.events() as events:
        task_status.started()
        async for event in events:
            count(event, found)


def count(event: Event, found: dict[str, int]) -> None:
    """Add one compaction."""
    if isinstance(event, ContextCompacted):
        found[event.name] = found.get(event.name, 0) + 1


@pytest.mark.slow
async def test_bugfix_team_that_is_compacted_at_every_step_mends_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo, with every member compacted again and again, ends as it always does."""

    def options(**given: object) -> TeamOptions:
        return TeamOptions(compaction=ALWAYS, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(bugfix, "TeamOptions", options)
    monkeypatch.setattr(bugfix, "SCRIPTS", {name: Recollection(script) for name, script in SCRIPTS.items()})
    found: dict[str, int] = {}
    counting = trio.CancelScope()

    async def watch(team: Team) -> None:
        async with team.events() as events:
            async for event in events:
                count(event, found)

    lines: list[str] = []
    with counting:
        assert await bugfix.run_bugfix(directory=tmp_path, live_model=None, on_team=watch, report=lines.append) == 0
    text = "\n".join(lines)
    assert "r1" in text
    assert sum(found.values()) >= 6
    for member in ("ann", "ben", "cora"):
        assert text.count(f"{member}: asked by lead") == 1


FILLER = "and remember all of this as well, word for word; " * 100
MATES = {"ann": "developer", "ben": "tester"}


def lead(request: ModelRequest) -> Reply:
    """Lead by what the newest block of the runtime says and what came after it, and by nothing that was said before."""
    known = known_to(request)
    for name, role in MATES.items():
        if f"{name} ({role}" not in known and f'"name":"{name}"' not in known:
            return call("spawn_teammate", name=name, role=role, prompt="work", plan_required=True)
    waiting = re.findall(r"plan_approval (r\d+) \(revision (\d)\) of \w+ by \w+ waits for YOUR answer", known)
    waiting += re.findall(r"type=\W*plan_approval_request\W* request_id=\W*(r\d+)\W* revision=\W*(\d)", known)
    for request_id, revision in waiting:
        answered = re.findall(rf'"request_id":"{request_id}","approve":(\w+)', known)
        if answered[-1:] != ["true"] and len(answered) < int(revision):
            return call("review_plan", request_id=request_id, approve=revision == "2", feedback="" if revision == "2" else "say more")
    if "all are told" not in known:
        return call("broadcast", content="submit your plans") + call("note", text="all are told")
    return say("waiting")


def known_to(request: ModelRequest) -> str:
    """Return the newest block in which the runtime says where things stand, and everything behind it."""
    known: list[str] = []
    for message in reversed(request.messages):
        texts = [str(block.get("text", "")) for block in message.content]
        at = next((at for at, text in enumerate(texts) if text.startswith("<team_state")), None)
        if at is not None:
            return "\n".join([*texts[at:], *reversed(known)])
        known.append(message.json)
    return "\n".join(reversed(known))


def mate(name: str) -> Callable[[ModelRequest], Reply]:
    """Return a teammate that submits a plan, revises it, and ends."""

    def script(request: ModelRequest) -> Reply:
        state = known_to(request)
        plans = re.findall(r"plan (r\d+) \(revision (\d)\) is (\w+)", state, re.IGNORECASE)
        if plans and plans[-1][1:] == ("1", "rejected"):
            return call("submit_plan", summary=f"{name} again", steps=["more"])
        if not plans and "submit your plans" in state:
            return call("submit_plan", summary=f"{name} first", steps=["one"])
        return say("ready")

    return script


def scripts() -> Mapping[str, ScriptFunction]:
    """Return everybody's script."""
    return {"boss": lead, "ann": mate("ann"), "ben": mate("ben")}


async def test_lead_that_forgets_everything_at_every_step_still_knows_its_team(autojump_clock: trio.testing.MockClock) -> None:
    """From the state block alone a lead spawns each mate once, and answers every plan that waits for it."""
    del autojump_clock
    found: dict[str, int] = {}
    options = TeamOptions(compaction=ALWAYS)
    async with open_team(None, model=ScriptedModel(scripts()), options=options, wall_clock=virtual_wall_clock) as team:
        async with trio.open_nursery() as nursery:
            await nursery.start(compactions, team, found)
            await team.spawn("boss", role="lead", prompt="lead them", lead=True)
            await team.send("boss", f"begin; {FILLER}")
            with trio.fail_after(600):
                for _ in range(12):
                    await team.wait_quiescent()
                    await team.send("boss", f"go on; {FILLER}")
                    await team.wait_quiescent()
            nursery.cancel_scope.cancel()
        state = team.state
        assert sorted(state.roster.members.keys() & MATES.keys()) == ["ann", "ben"]
        assert all(state.roster.members[name].incarnation == 1 for name in MATES)
        plans = {name: state.roster.members[name].approved_plan for name in MATES}
        assert all(plans.values())
        assert not [request for request in state.requests.open() if request.is_undecided]
        assert found["boss"] >= 3
