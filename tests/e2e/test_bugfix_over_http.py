"""The bug-fix team over real HTTP: the real client, streaming, a strict endpoint, and the faults that an endpoint has."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from teams import AnthropicModel, ScriptedModel, Team
from teams.cli.bugfix import run_bugfix
from teams.cli.bugfix_scripts import SCRIPTS
from teams.testing.fake_anthropic import FakeAnthropic, cut_stream, open_fake_anthropic, overloaded, rate_limited, slow_stream

QUESTION = "How far are you?"


def agent_of(body: Mapping[str, Any]) -> str:
    """Tell who sent a body, by its system prompt."""
    found = re.search(r"You are (\w+),", str(body["system"]))
    assert found is not None
    return found[1]


class Interrupter:
    """Waits until a stream stands still, and interrupts the member whose stream it is by mail of priority `now`."""

    def __init__(self, server: FakeAnthropic) -> None:
        self.server = server
        self.stuck, self.never = trio.Event(), trio.Event()
        self.name = ""

    async def watch(self, team: Team) -> None:
        """Interrupt once."""
        await self.stuck.wait()
        (body,) = [request.body for request in self.server.requests if request.status == 200 and not request.completed][-1:]
        self.name = agent_of(body)
        await team.send(self.name, QUESTION, priority="now")
        await self.server.wait_until(lambda server: server.disconnects == 1)


@pytest.mark.slow
@pytest.mark.limit(90)
async def test_team_finishes_over_a_faulty_endpoint(tmp_path: Path) -> None:
    """No request breaks a rule of the endpoint; a 429, a 529, a cut stream and a cancelled one delay the team, and change nothing."""
    lines: list[str] = []
    async with open_fake_anthropic(ScriptedModel(SCRIPTS), agent_of=agent_of) as server:
        interrupter = Interrupter(server)
        stuck = slow_stream(interrupter.never, after_events=2, entered=interrupter.stuck)
        server.plan(
            None, None, None, None, rate_limited(0.05), None, None, overloaded(), None, None, cut_stream(3), None, None, None, stuck
        )
        model = AnthropicModel("claude-sonnet-4-5", api_key="test-key", base_url=server.base_url)
        try:
            code = await run_bugfix(directory=tmp_path, live_model=model, on_team=interrupter.watch, report=lines.append)
        finally:
            await model.aclose()
        await server.wait_until(lambda server: server.open_connections == 0)
        statuses = [request.status for request in server.requests]
        text = " ".join(" ".join(lines).split())
        assert (code, server.rejected) == (0, []), text
        assert {status: statuses.count(status) for status in set(statuses) - {200}} == {429: 1, 529: 1}
        assert sum(not request.completed for request in server.requests if request.status == 200) == 2  # cut, and cancelled
        assert all(request.body["stream"] for request in server.requests)
        assert {agent_of(request.body) for request in server.requests} == {"ann", "ben", "cora"}
        assert max(request.usage.cache_read_input_tokens for request in server.requests) > 0
        told = [agent_of(request.body) for request in server.requests if QUESTION in str(request.body["messages"])]
    assert set(told) == {interrupter.name}
    assert server.disconnects == 1
    assert "Done: 17 tests, all pass; before, 4 failed." in lines
    assert re.search(r"revision 1, .* is rejected by lead: .*revision 2, .* is approved by lead", text)
