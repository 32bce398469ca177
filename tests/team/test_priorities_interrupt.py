"""When mail reaches a teammate: at its next turn, at the next tool boundary, or at once; and what an interruption leaves behind."""

from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from teams import ScriptedModel, Team, TeamOptions, open_team, tool
from teams.models.base import ModelRequest
from teams.models.script import Reply, blocked, call, say, spoken
from teams.testing.team import StrictModel, run_seeded, virtual_wall_clock, wait_for
from tests.laws.residue import wait_for_file


class Gate:
    """A tool that stands still until it is let go, and says when it has been entered."""

    def __init__(self) -> None:
        self.entered, self.open = trio.Event(), trio.Event()
        self.ended = 0

        @tool(effect="reads", time_limited=False)
        async def stand() -> str:
            """Stand still."""
            self.entered.set()
            await self.open.wait()
            self.ended += 1
            return "stood"

        self.tool = stand


def _sees(request: ModelRequest, word: str) -> bool:
    return word in spoken(request.messages[-1])


async def test_turn_mail_waits_for_the_next_turn_and_tool_mail_for_the_boundary(autojump_clock: MockClock) -> None:
    """Mail of priority `tool` comes with the results of the running tool, mail of priority `turn` when the turn is over."""
    gate, seen = Gate(), list[str]()

    def script(request: ModelRequest) -> Reply:
        seen.append(",".join(word for word in ("begin", "soon", "later") if _sees(request, f">\n{word}\n")))
        return call("stand") if len(request.messages) == 1 else say("done")

    model = StrictModel(ScriptedModel(script))
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=[gate.tool])
        await gate.entered.wait()
        await team.send("ann", "later", priority="turn")
        await team.send("ann", "soon")
        gate.open.set()
        await team.wait_quiescent()
    assert seen == ["begin", "soon", "later"]
    assert not model.refused


async def test_urgent_mail_cuts_a_running_tool_short(autojump_clock: MockClock) -> None:
    """Mail of priority `now` ends the running calls; each has an interrupted result, and the next request is valid."""
    gate, requests = Gate(), list[ModelRequest]()

    def script(request: ModelRequest) -> Reply:
        requests.append(request)
        return call("stand") + call("stand") + call("note", text="n") if len(request.messages) == 1 else say("done")

    model = StrictModel(ScriptedModel(script))
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=[gate.tool])
        await gate.entered.wait()
        await team.send("ann", "stop", priority="now")
        await team.wait_quiescent()
    assert gate.ended == 0
    results = requests[1].messages[-1].tool_results
    assert len(results) == 3
    assert all(block["is_error"] and "interrupted" in block["content"] for block in results)
    assert _sees(requests[1], ">\nstop\n")
    assert not model.refused


async def test_urgent_mail_cuts_a_running_model_call_short(autojump_clock: MockClock) -> None:
    """Mail of priority `now` ends the running model call; the model is asked again with the mail, in a valid request."""

    def script(request: ModelRequest) -> Reply:
        return say("done") if _sees(request, ">\nstop\n") else blocked(trio.Event()) + say("never")

    model = StrictModel(ScriptedModel(script))
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin")
        await trio.sleep(1)
        await team.send("ann", "stop", priority="now")
        await team.wait_quiescent()
        assert trio.current_time() < 2
    assert not model.refused


async def _urgent_while_the_reply_comes(checkpoints: int) -> None:
    gate, reply = Gate(), trio.Event()

    def script(request: ModelRequest) -> Reply:
        if any("stop" in spoken(message) for message in request.messages):
            return say("done")
        return blocked(reply) + call("stand")

    model = StrictModel(ScriptedModel(script))
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team, trio.open_nursery() as nursery:
        await team.spawn("ann", prompt="begin", tools=[gate.tool])
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(lambda: team.send("ann", "stop", priority="now"))
        for _ in range(checkpoints):
            await trio.lowlevel.checkpoint()
        reply.set()
        with trio.fail_after(5):
            await team.wait_quiescent()
            await wait_for(team, lambda: team.state.mail.sent == 2 and not team.state.mail.box("ann"))
        assert gate.ended == 0
    assert not model.refused


@pytest.mark.parametrize("seed", range(5))
def test_urgent_mail_interrupts_at_whatever_step_it_comes(seed: int) -> None:
    """Between reply and tools, or while the transcript is synced, urgent mail is not left lying until a long call ends."""
    for checkpoints in range(10):
        run_seeded(_urgent_while_the_reply_comes, checkpoints, seed=seed)


async def test_urgent_mail_interrupts_a_shell_and_its_children(tmp_path: Path) -> None:
    """A running shell command ends with its children when urgent mail comes."""

    def script(request: ModelRequest) -> Reply:
        return say("done") if _sees(request, ">\nstop\n") else call("bash", command="echo up > up; sleep 100 & sleep 100; touch late")

    model = StrictModel(ScriptedModel(script))
    async with open_team(None, model=model, workdir=tmp_path) as team:
        await team.spawn("ann", prompt="begin")
        await wait_for_file(tmp_path / "up")
        await team.send("ann", "stop", priority="now")
        with trio.fail_after(5):
            await team.wait_quiescent()
    assert not (tmp_path / "late").exists()
    assert not model.refused


async def test_idle_ends_the_turn_and_mail_starts_the_next(autojump_clock: MockClock) -> None:
    """After the `idle` tool the model is not asked again until there is mail, and then in a valid request."""
    inner = ScriptedModel(lambda request: call("idle") if _sees(request, "begin") else say("done"))
    model = StrictModel(inner)
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin")
        await team.wait_quiescent()
        assert inner.calls == {"ann": 1}
        await team.send("ann", "more")
        await team.wait_quiescent()
        assert inner.calls == {"ann": 2}
    assert not model.refused


async def _unread(team: Team) -> list[str]:
    return [message.content for message in await team.bus.read_inbox("bot")]


async def test_read_inbox_takes_everything_once(autojump_clock: MockClock) -> None:
    """What a script reads from its inbox is acknowledged with it, in order, whatever the priority."""
    async with open_team(None, model=ScriptedModel([]), options=TeamOptions(), wall_clock=virtual_wall_clock) as team:
        await team.add_member("bot")
        for number, priority in enumerate(("turn", "tool", "now", "turn")):
            await team.send("bot", f"{number}", priority=priority)
        assert await _unread(team) == ["0", "1", "2", "3"]
        assert await _unread(team) == []
        assert not team.state.mail.box("bot")
