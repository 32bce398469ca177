"""Members live under compaction: it can be asked for, hooks see it, what went out of sight is recalled, and the owner is told."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import trio

from compaction.compactor import Checkpoint, Plan
from compaction.options import CompactionOptions
from compaction.recall import recall_id
from compaction.summarizer import SummaryOptions
from teams import AgentLoop, ScriptedModel, TeamOptions, ToolDispatcher, open_team
from teams.events import ContextCompacted, ContextStuck, Event, EventHub, ModelCalled, RuntimeNotice, SessionLarge
from teams.loop import AgentConfig
from teams.models.base import ModelRequest, Usage
from teams.models.script import Reply, call, say
from teams.options import AgentOptions, CompactionHooks
from teams.testing.team import virtual_wall_clock

Script = Callable[[ModelRequest], Reply]
spent: dict[str, int] = {}
"""The output tokens that the member of the last run has spent."""
LONG = "a line of what was read\n" * 400


async def read(path: str) -> str:
    """Return a long text about a path."""
    await trio.lowlevel.checkpoint()
    return body(path)


def body(path: str) -> str:
    """Return what the tool reads."""
    return f"{path}\n{LONG}"


def text_of(request: ModelRequest) -> str:
    """Return everything that a request shows."""
    return "\n".join(message.json for message in request.messages)


def worker(rounds: int) -> Script:
    """Return a script that reads, a file a round, and ends; asked again, it does the same."""

    def script(request: ModelRequest) -> Reply:
        made = sum(len(message.tool_calls) for message in request.messages[turn_start(request) :])
        return call("read", path=f"file{made}.py") if made < rounds else say("done")

    return script


def turn_start(request: ModelRequest) -> int:
    """Return where the newest turn of a request begins."""
    return max(i for i, message in enumerate(request.messages) if message.role == "user" and not message.tool_results)


async def run_member(script: Script, options: TeamOptions, turns: int = 1, directory: Path | None = None) -> list[Event]:
    """Let one member do some turns, and return what happened."""
    seen: list[Event] = []
    dispatcher = ToolDispatcher()
    dispatcher.register("read", read)
    tool = dispatcher.get("read")
    assert tool is not None
    clock = {} if directory is not None else {"wall_clock": virtual_wall_clock}
    team_opens = open_team(directory, model=ScriptedModel({"ann": script}), options=options, **clock)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery, team_opens as team:

        async def watch(task_status: trio.TaskStatus[None]) -> None:
            async with team.events() as events:
                task_status.started()
                seen.extend([event async for event in events])

        await nursery.start(watch)
        await team.spawn("ann", role="developer", prompt="work", tools=[tool])
        for turn in range(turns):
            await team.wait_quiescent()
            await team.compact("ann")
            await team.send("ann", f"go on {turn}")
        await team.wait_quiescent()
        assert "ann" not in team.state.roster.compactions
        spent["ann"] = team.state.roster.spending["ann"].output_tokens
    return seen


async def test_a_script_asks_for_a_compaction(autojump_clock: trio.testing.MockClock) -> None:
    """What a script asks for is done before the member's next call, once, and told with its figures."""
    del autojump_clock
    seen = await run_member(worker(6), TeamOptions(), turns=1)
    (told,) = [event for event in seen if isinstance(event, ContextCompacted)]
    assert (told.name, told.trigger, told.epoch) == ("ann", "asked", 1)
    assert told.tokens_after < told.tokens_before / 2
    assert told.layers == ("digest",)


async def test_an_agent_asks_for_a_compaction_and_recalls_what_went(autojump_clock: trio.testing.MockClock) -> None:
    """The agent's own tools compact its context and bring back, by words and by id, what it does not show any more."""
    del autojump_clock
    answers: list[str] = []

    def script(request: ModelRequest) -> Reply:
        results = [block for message in request.messages for block in message.tool_results]
        said = text_of(request)
        if "is compacted before your next step" in said and "file0.py\\\\na line" not in said and len(answers) < 1:
            answers.append("asked")
            return call("recall", query="file0.py\na line")
        if answers and len(answers) < 3:
            answers.append(str(results[-1]["content"]))
            return call("recall", query=recall_id({"type": "tool_result", "content": body("file0.py")}), lines="1-2")
        if answers:
            answers.append(str(results[-1]["content"]))
            return say("done")
        made = len(results)
        return call("read", path=f"file{made}.py") if made < 8 else call("compact")

    await run_member(script, TeamOptions(), turns=0)
    assert "file0.py" in answers[1]
    assert recall_id({"type": "tool_result", "content": body("file0.py")}) in answers[1]
    assert answers[-1].endswith("file0.py\na line of what was read")


async def test_hooks_are_called_around_a_compaction_and_a_failing_one_stops_nobody(autojump_clock: trio.testing.MockClock) -> None:
    """Callables see the plan and the checkpoint; what they raise is a notice."""
    del autojump_clock
    plans: list[Plan] = []

    def after(_checkpoint: Checkpoint) -> None:
        raise RuntimeError("no disk")

    hooks = CompactionHooks(pre_compact=plans.append, post_compact=after)
    seen = await run_member(worker(6), TeamOptions(compaction_hooks=hooks), turns=1)
    assert [plan.trigger.value for plan in plans] == ["asked"]
    notices = [event.text for event in seen if isinstance(event, RuntimeNotice)]
    assert "the post_compact hook failed: RuntimeError: no disk" in notices


async def test_a_command_gets_json_and_is_ended_at_its_deadline(tmp_path: Path) -> None:
    """A hook that is a command line reads its payload from its input; one that hangs is ended, with a word."""
    keep = tmp_path / "payload.json"
    writer = f'"{sys.executable}" -c "import sys; open({str(keep)!r}, \'w\').write(sys.stdin.read())"'
    hooks = CompactionHooks(pre_compact=writer, post_compact="sleep 60", deadline_seconds=1.0)
    seen = await run_member(worker(6), TeamOptions(compaction_hooks=hooks), turns=1, directory=tmp_path / ".team")
    payload = json.loads(keep.read_text(encoding="utf-8"))
    assert (payload["hook"], payload["agent"], payload["trigger"]) == ("pre_compact", "ann", "asked")
    notices = [event.text for event in seen if isinstance(event, RuntimeNotice)]
    assert any("the post_compact hook was ended after 1 s" in text for text in notices)


async def test_a_large_transcript_is_told_once(tmp_path: Path) -> None:
    """Over its size a transcript is worth a word, and one word is enough."""
    options = TeamOptions(compaction=CompactionOptions(session_warn_bytes=20_000))
    seen = await run_member(worker(3), options, turns=3, directory=tmp_path / ".team")
    (told,) = [event for event in seen if isinstance(event, SessionLarge)]
    assert told.size_bytes > 20_000
    assert told.path.endswith("ann.jsonl")


async def test_a_summary_is_made_in_the_name_of_the_agent_and_booked_to_it(autojump_clock: trio.testing.MockClock) -> None:
    """With summaries the model is asked with the agent's own prefix, and what that used is part of what the agent spent."""
    del autojump_clock
    asked: list[ModelRequest] = []
    spent.clear()

    def script(request: ModelRequest) -> Reply:
        if "Answer with the summary alone" in request.messages[-1].text:
            asked.append(request)
            return replace(say("Six files were read, file0.py to file5.py; nothing was changed so far."), usage=Usage(1_000, 50_000))
        return worker(6)(request)

    options = TeamOptions(agents=AgentOptions(summarize=True, summaries=SummaryOptions(deadline_seconds=5)))
    seen = await run_member(script, options, turns=1)
    (told,) = [event for event in seen if isinstance(event, ContextCompacted)]
    assert told.layers == ("summary",)
    assert [event.text for event in seen if isinstance(event, RuntimeNotice)] == []
    calls = [event for event in seen if isinstance(event, ModelCalled)]
    assert sum(call.output_tokens for call in calls) < 50_000 <= spent["ann"], "booked, though it is no reply of the agent"
    assert asked[0].tools
    assert asked[0].system


async def test_a_context_that_cannot_shrink_is_told_with_what_fills_it() -> None:
    """Where nothing may go, the owner learns once what fills the window, and the agent goes on."""
    model = ScriptedModel([say("well"), say("well")], context_window_tokens=12_000)
    options = AgentOptions(max_reply_tokens=1_000)
    hub = EventHub(100)
    async with hub.watch() as events:
        loop = AgentLoop(AgentConfig(model=model, options=options), events=hub)
        await loop.run("important words " * 3_000)
        hub.close()
        stuck = [event async for event in events if isinstance(event, ContextStuck)]
    found = loop.fill()
    assert [(event.name, event.window_tokens) for event in stuck] == [("agent", 12_000)]
    assert stuck[0].fills["task"] > 5_000
    assert found.used + found.free + found.reply == found.window_tokens
    assert found.largest(1).startswith("task ")
