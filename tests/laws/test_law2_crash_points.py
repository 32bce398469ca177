"""Law 2: what send returned for is on disk, and enters its recipient's transcript exactly once, wherever the process dies in between."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
import trio.testing

from teams import MemberOptions, ScriptedModel, Team, TeamOptions, open_team, tool
from teams.journal.file import open_file_journal
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, say, spoken
from teams.testing.team import StrictModel
from teams.tools.base import Tool, ToolContext
from tests.laws.crashes import CopyingJournal, Disk, injected, sent_to, transcript_lines

PLAIN = TeamOptions(views=False)
PLAN = call("submit_plan", summary="s", steps=["one"], commands=["deploy"])


class Effects:
    """A tool whose effects are counted outside of the team, and which lets the disk be copied while it runs."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.ran: list[str] = []
        self._disk = disk

    def tools(self) -> Sequence[Tool]:
        @tool(effect="writes")
        async def deploy(context: ToolContext) -> str:
            """Deploy."""
            await trio.lowlevel.checkpoint()
            self.ran.append(context.call_id)
            if self._disk is not None:
                self._disk.copy("while a tool runs")
            return "deployed"

        return [deploy]


def _answer(disk: Disk | None = None) -> ScriptedModel:
    async def answer(request: ModelRequest) -> Reply:
        if disk is not None:
            disk.copy("while the model answers")
            await trio.testing.wait_all_tasks_blocked(0.002)  # whatever may be written before the reply is written
            disk.copy("while the model still answers")
        asked = any("deploy it" in spoken(message) for message in request.messages)
        if asked and not any(block["name"] == "deploy" for message in request.messages for block in message.tool_calls):
            return call("deploy") + call("note", text="deploying")
        return say("done")

    return ScriptedModel(answer)


async def _live_once(disk: Disk) -> dict[str, int]:
    """Run a team through all kinds of mail; return after which copy each send had returned."""
    returned: dict[str, int] = {}
    disk.root.mkdir()
    for folder in ("journal", "sessions", "artifacts", "hosts"):
        (disk.root / folder).mkdir()
    (disk.root / "team.json").write_text('{"id": "x", "name": "crashing", "format": 1}')
    async with open_file_journal(disk.root / "journal") as journal:
        model = StrictModel(_answer(disk))
        async with open_team(disk.root, model=model, options=PLAIN, journal=CopyingJournal(journal, disk)) as team:
            await team.spawn("ann", prompt="hello", tools=Effects(disk).tools())
            for body, priority in (("deploy it", "tool"), ("later", "turn"), ("quick", "now")):
                receipt = await team.send("ann", body, priority=priority)
                disk.copy("after send")
                returned[receipt.id] = len(disk.points) - 1
            await team.broadcast("to all")
            await team.wait_quiescent()
            disk.copy("at rest")
    return returned


async def _reopen(copy: Path) -> Effects:
    effects, model = Effects(), StrictModel(_answer())
    async with open_team(copy, model=model, options=PLAIN) as team:
        await team.spawn("ann", prompt="hello", tools=effects.tools())
        outcome = await team.wait_quiescent()
        assert not team.state.mail.box("ann")
        assert outcome.members["ann"] == "idle"
    assert not model.refused
    return effects


async def test_mail_is_injected_exactly_once_whenever_the_machine_stops(tmp_path: Path) -> None:
    """From the disk of any moment, every stored message enters the transcript exactly once, and none that send returned for is gone."""
    disk = Disk(tmp_path / "team", tmp_path / "copies")
    returned = await _live_once(disk)
    kinds = {point.partition(" ")[0] for point, _ in disk.points}
    assert kinds == {"before", "after", "while", "at"}
    for number, (point, copy) in enumerate(disk.points):
        kept = set(sent_to(copy, "ann"))
        assert {mail_id for mail_id, at in returned.items() if at <= number} <= kept, point
        await _reopen(copy)
        counts = injected(copy, "ann")
        assert counts == dict.fromkeys(sent_to(copy, "ann"), 1), f"crash {point}"
        assert kept <= set(counts)


async def test_tool_call_that_a_crash_interrupted_is_answered_and_not_run_again(tmp_path: Path) -> None:
    """A call that ran when the process died gets an interrupted result in the next life, and its handler does not run there."""
    disk = Disk(tmp_path / "team", tmp_path / "copies")
    await _live_once(disk)
    copies = [copy for point, copy in disk.points if point == "while a tool runs"]
    assert copies
    for copy in copies:
        before = transcript_lines(copy, "ann")
        assert before[-1]["role"] == "assistant"
        effects = await _reopen(copy)
        assert not effects.ran
        after = transcript_lines(copy, "ann")[len(before)]
        results = [block for block in after["content"] if block["type"] == "tool_result"]
        assert [block["tool_use_id"] for block in results] == [b["id"] for b in before[-1]["content"] if b["type"] == "tool_use"]
        assert all(block["is_error"] and "interrupted" in str(block["content"]) for block in results)


@pytest.mark.parametrize("torn", [b"", b'{"type":"session","ver'])
async def test_member_comes_up_again_from_a_transcript_that_never_began(tmp_path: Path, torn: bytes) -> None:
    """A transcript whose first line a crash cut counts as not begun: the member comes up, and its mail reaches it."""
    async with open_team(tmp_path / "team", model=_answer(), options=PLAIN):
        pass
    (tmp_path / "team" / "sessions" / "ann.jsonl").write_bytes(torn)
    await _reopen(tmp_path / "team")
    assert injected(tmp_path / "team", "ann") == dict.fromkeys(sent_to(tmp_path / "team", "ann"), 1)


async def _until_killed(root: Path, disk: Disk) -> None:
    def answer(request: ModelRequest) -> Reply:
        newest = spoken(request.messages[-1])
        if "begin" in newest:
            return call("task_claim", task_id=1) + call("note", text="the port is 8080") + PLAN
        return say("I wait")

    def second(request: ModelRequest) -> Reply:
        return call("submit_plan", summary="of ben", steps=["two"]) if "begin" in spoken(request.messages[-1]) else say("I wait")

    model = StrictModel(ScriptedModel({"ann": answer, "ben": second}))
    async with open_team(root, model=model, options=PLAIN) as team:
        await team.tasks.create("Build")
        await team.spawn("ann", prompt="begin", plan="required", tools=Effects().tools(), options=MemberOptions(auto_claim=False))
        async for request in team.plan_requests():
            await request.approve()
            break
        await team.wait_quiescent()
        await team.spawn("ben", prompt="begin", plan="required", tools=Effects().tools())
        while not team.protocols.get_pending_approvals() or team.member("ben").status == "working":
            await team.bus.send("ben", "lead", "tick")
        disk.copy("killed")


async def _next_life(team: Team, before_fence: int, effects: Effects) -> None:
    state = team.state
    assert state.tasks.by_id[1].owner == "ann"
    assert state.tasks.by_id[1].fence == before_fence
    assert state.roster.notes["ann"] == ("the port is 8080",)
    assert state.roster.spending["ann"].turns >= 1
    await team.spawn("ann", prompt="begin", plan="required", tools=effects.tools(), options=MemberOptions(auto_claim=False))
    await team.spawn("ben", prompt="begin", plan="required", tools=effects.tools())
    pending = team.protocols.get_pending_approvals()
    assert [(request.author, request.plan.summary) for request in pending] == [("ben", "of ben")]
    await pending[0].approve()
    await team.send("ann", "deploy it")
    await team.wait_quiescent()


async def test_next_life_goes_on_where_the_last_one_was_killed(tmp_path: Path) -> None:
    """After a kill a member has its transcript, task, approved plan, notes and spending; an open plan can still be decided."""
    disk = Disk(tmp_path / "team", tmp_path / "copies")
    await _until_killed(disk.root, disk)
    copy = disk.points[-1][1]
    before = transcript_lines(copy, "ann")
    effects, inner = Effects(), _answer()
    async with open_team(copy, model=StrictModel(inner), options=PLAIN) as team:
        spent = team.state.roster.spending["ann"].total_tokens
        await _next_life(team, team.state.tasks.by_id[1].fence, effects)
        assert len(effects.ran) == 1
        assert team.spending["ann"].total_tokens > spent
        assert team.state.roster.members["ben"].approved_plan is not None
    assert transcript_lines(copy, "ann")[: len(before)] == before
    assert list(inner.last_requests["ann"].messages[0].content) == before[1]["content"]
