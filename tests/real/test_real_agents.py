"""Agents whose model is a real one. What it says is not judged: it is far too small for that."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from compaction.request import Request
from compaction.session import load
from compaction.transcript import ModelMessage
from compaction.validity import problems
from teams import AgentConfig, AgentLoop, AgentOptions, AnthropicModel, TeamOptions, ToolDispatcher, open_team
from teams.testing.team import StrictModel
from tests.real.small_model import CallsToolFirst

pytestmark = [pytest.mark.real, pytest.mark.limit(300)]

AGENTS = ("ann", "ben")
SHORT = AgentOptions(max_rounds=2, max_reply_tokens=96, retry_reply_tokens=96)
ENVELOPE = re.compile(r'<message id="(m\d+)"')


def _broken_rules(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the rules that a transcript would break if the agent were spoken to now."""
    called = {block["name"] for message in messages for block in message.tool_calls}
    tools = [{"name": name, "description": "", "input_schema": {"type": "object"}} for name in sorted(called)]
    return [problem.rule for problem in problems(Request(messages=[*messages, ModelMessage("user", "go on")], tools=tools))]


def _transcript(directory: Path, name: str) -> Sequence[ModelMessage]:
    """Read what an agent keeps on disk."""
    with (directory / "sessions" / f"{name}.jsonl").open("rb") as lines:
        loaded = load(lines)
    assert loaded is not None
    assert loaded.damaged == ()
    return loaded.messages


def _mail_in(messages: Sequence[ModelMessage]) -> Counter[str]:
    """Count how often each message of the bus stands in a transcript."""
    blocks = [block for message in messages if message.role == "user" for block in message.content if block["type"] == "text"]
    return Counter(found[1] for block in blocks if (found := ENVELOPE.match(block["text"])))


@pytest.mark.parametrize("city", ["Paris", "Oslo", "Lima"])
async def test_real_agent_calls_its_tool_and_reads_the_result(small_model: AnthropicModel, city: str) -> None:
    """The model's call reaches the tool with an input of the schema's shape, its result goes back, and the turn ends."""
    asked: list[str] = []

    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        asked.append(city)
        return f"Sunny in {city}, 21 degrees"

    dispatcher = ToolDispatcher()
    dispatcher.register("get_weather", get_weather, effect="reads")
    model = StrictModel(CallsToolFirst(small_model))
    agent = AgentLoop(AgentConfig(model=model, system_prompt="You are a helpful assistant.", options=SHORT), dispatcher)
    response = await agent.run(f"What is the weather in {city}?")
    assert len(asked) == 1
    assert asked[0].strip()
    assert [result.is_error for result in response.tool_results] == [False]
    assert response.rounds == 2
    assert model.refused == []
    assert [message.role for message in agent.view.messages] == ["user", "assistant", "user", "assistant"]
    assert [result["content"] for result in agent.view.messages[2].tool_results] == [f"Sunny in {asked[0]}, 21 degrees"]
    assert _broken_rules(agent.view.messages) == []


async def test_real_agents_get_each_message_once(small_model: AnthropicModel, tmp_path: Path) -> None:
    """Whatever two agents with a real model say to each other, their turns end, each message is read once, and transcripts stay valid."""
    directory = tmp_path / ".team"
    model = StrictModel(CallsToolFirst(small_model, only="send_message"))
    async with open_team(directory, model=model, options=TeamOptions(agents=SHORT)) as team:
        await team.spawn("ben", prompt="You are the reviewer. Wait for what ann writes.")
        await team.spawn("ann", prompt="Send a message to ben: the build is green.")
        told = await team.send("ben", "ann will write to you soon")
        assert (await team.bus.wait_committed(told)).state == "committed"
        end = await team.wait_quiescent()
        assert [end.members[name] for name in AGENTS] == ["idle", "idle"]
        assert not any(team.state.mail.box(name) for name in AGENTS)
        assert all(team.spending[name].calls >= 2 for name in AGENTS)
    assert model.refused == []
    transcripts = {name: _transcript(directory, name) for name in AGENTS}
    read = {name: _mail_in(messages) for name, messages in transcripts.items()}
    assert {count for counts in read.values() for count in counts.values()} == {1}
    assert told.id in read["ben"]
    assert not any(_broken_rules(messages) for messages in transcripts.values())
