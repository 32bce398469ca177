"""Steering a teammate that works: what its mail waits behind, and when each priority is seen while several calls run."""

import trio
from trio.testing import MockClock

from teams import ScriptedModel, Tool, open_team, tool
from teams.bus import Receipt
from teams.models.base import ModelRequest
from teams.models.script import Reply, blocked, call, delayed, say, spoken
from teams.testing.team import StrictModel, virtual_wall_clock


@tool(effect="reads", time_limited=False)
async def look(seconds: float) -> str:
    """Look for so many seconds."""
    await trio.sleep(seconds)
    return f"looked for {seconds:g}"


@tool(effect="writes", time_limited=False)
async def write(seconds: float) -> str:
    """Write for so many seconds."""
    await trio.sleep(seconds)
    return f"wrote for {seconds:g}"


@tool(effect="reads", time_limited=False)
async def stubborn(seconds: float) -> str:
    """Work for so many seconds, whatever is asked of it."""
    with trio.CancelScope(shield=True):
        await trio.sleep(seconds)
    return "at last"


TOOLS: list[Tool] = [look, write, stubborn]


class Ann:
    """A teammate that answers its first message by one reply of calls, later rounds by others, and then is done; its requests are kept."""

    def __init__(self, *rounds: Reply) -> None:
        self.requests: list[ModelRequest] = []
        self.times: list[float] = []

        def script(request: ModelRequest) -> Reply:
            if request.agent != "ann":
                return say("done")
            self.requests.append(request)
            self.times.append(trio.current_time())
            return rounds[len(self.requests) - 1] if len(self.requests) <= len(rounds) else say("done")

        self.model = StrictModel(ScriptedModel(script))

    def seen(self, word: str) -> float:
        """Return when a message was first shown to the model."""
        return next(at for at, request in zip(self.times, self.requests, strict=True) if f">\n{word}\n" in spoken(request.messages[-1]))

    def results(self, request: int) -> list[str]:
        """Return the results in the last message of a request: `interrupted`, or their text."""
        blocks = self.requests[request].messages[-1].tool_results
        return ["interrupted" if block.get("is_error") else block["content"] for block in blocks]


async def test_a_receipt_says_behind_what_the_message_waits(autojump_clock: MockClock) -> None:
    """A model call, then a tool, each with its age; nothing for who idles or is not hosted here, and nothing once it is seen."""
    ann = Ann(delayed(10) + call("look", seconds=100))
    async with open_team(None, model=ann.model, wall_clock=virtual_wall_clock) as team:
        await team.add_member("bot")
        await team.spawn("ann", tools=TOOLS)
        await team.wait_quiescent()
        start = trio.current_time()
        assert (await team.send("bot", "hello")).waits_behind == ""
        assert (await team.send("ann", "begin")).waits_behind == ""
        await trio.sleep(3)
        first = await team.send("ann", "first")
        assert (first.state, first.waits_behind) == ("stored", "a model call, 3 s")
        await trio.sleep(47)
        second = await team.send("ann", "second", priority="turn")
        assert second.waits_behind == "look, 40 s"
        assert team.bus.receipt(first.id, "ann") == Receipt(first.id, "ann", "stored", "look, 40 s")
        await trio.sleep(10)
        assert team.bus.receipt(second.id, "ann").waits_behind == "look, 50 s"
        await team.wait_quiescent()
        assert team.bus.receipt(first.id, "ann") == Receipt(first.id, "ann", "committed")
        assert ann.seen("first") - start == 110


async def test_the_oldest_of_several_calls_is_named(autojump_clock: MockClock) -> None:
    """Two looks run together and a write waits for them: the one that began first and still runs is told, then the write."""
    ann = Ann(call("look", seconds=20) + call("stubborn", seconds=50) + call("write", seconds=30))
    async with open_team(None, model=ann.model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=TOOLS)
        told: list[str] = []
        for _ in range(4):
            await trio.sleep(19)
            told.append((await team.send("ann", "?")).waits_behind)
    assert told[1:] == ["stubborn, 38 s", "write, 7 s", "write, 26 s"]
    assert told[0] in ("look, 19 s", "stubborn, 19 s")  # both began in one step


async def test_an_agent_is_told_what_its_mail_waits_behind(autojump_clock: MockClock) -> None:
    """The results of `send_message` and `broadcast` say it, each recipient's own."""
    hold, heard = trio.Event(), list[str]()

    def script(request: ModelRequest) -> Reply:
        if request.agent == "ann":
            return call("look", seconds=1_000)
        if request.agent == "ben":
            return blocked(hold) + say("done")
        heard.append(spoken(request.messages[-1]))
        if len(request.messages) == 1:
            return call("send_message", to="ann", content="a") + call("send_message", to="ann", content="b", priority="now")
        return call("broadcast", content="c") if len(heard) == 2 else say("done")

    model = StrictModel(ScriptedModel(script))
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=TOOLS)
        await team.spawn("ben", prompt="begin")
        await trio.sleep(40)
        await team.spawn("boss", prompt="begin", lead=True)
        await trio.sleep(1)
        hold.set()
        await team.shutdown("ann", force=True)
    assert "to ann is stored; it waits behind look, 40 s\n" in heard[1]
    assert heard[1].rstrip().endswith("to ann is stored")  # what interrupts waits behind nothing
    assert "ben (waits behind a model call, 40 s)" in heard[2]


async def test_urgent_mail_leaves_one_result_for_each_of_many_calls(autojump_clock: MockClock) -> None:
    """Of calls side by side, what has ended keeps its result, what runs and what waits is interrupted, and nothing is answered twice."""
    calls = (
        call("look", seconds=1) + call("look", seconds=90) + call("look", seconds=80) + call("write", seconds=1) + call("look", seconds=1)
    )
    ann = Ann(calls)
    async with open_team(None, model=ann.model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=TOOLS)
        await trio.sleep(10)
        await team.send("ann", "later", priority="turn")
        await team.send("ann", "stop", priority="now")
        await team.wait_quiescent()
        assert ann.seen("stop") == 10
        assert ann.results(1) == ["looked for 1", "interrupted", "interrupted", "interrupted", "interrupted"]
        asked = [block["id"] for block in ann.requests[1].messages[-2].tool_calls]
        assert [block["tool_use_id"] for block in ann.requests[1].messages[-1].tool_results] == asked
        assert "never started" in spoken(ann.requests[1].messages[-1])
        assert ">\nlater\n" not in spoken(ann.requests[1].messages[-1])
        shown = [result["tool_use_id"] for message in ann.requests[-1].messages for result in message.tool_results]
        assert shown == asked
    assert not ann.model.refused


async def test_tool_mail_waits_for_all_calls_and_turn_mail_for_all_rounds(autojump_clock: MockClock) -> None:
    """Mail of priority `tool` comes once the slowest call of the reply has ended, mail of priority `turn` once the turn has."""
    ann = Ann(
        call("look", seconds=5) + call("look", seconds=50) + call("write", seconds=10), call("look", seconds=30), call("look", seconds=30)
    )
    async with open_team(None, model=ann.model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=TOOLS)
        await trio.sleep(2)
        later = await team.send("ann", "later", priority="turn")
        soon = await team.send("ann", "soon")
        await trio.sleep(60)
        assert team.bus.receipt(soon.id, "ann").state == "injected"
        assert team.bus.receipt(later.id, "ann") == Receipt(later.id, "ann", "stored", "look, 2 s")
        await team.wait_quiescent()
        assert (ann.seen("soon"), ann.seen("later")) == (60, 120)
        assert ann.results(1) == ["looked for 5", "looked for 50", "wrote for 10"]
    assert not ann.model.refused


async def test_urgent_mail_waits_behind_a_tool_that_does_not_stop(autojump_clock: MockClock) -> None:
    """A tool that swallows its cancellation holds up even urgent mail, and the receipt says so; its own result stands."""
    ann = Ann(call("stubborn", seconds=50) + call("look", seconds=90))
    async with open_team(None, model=ann.model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=TOOLS)
        await trio.sleep(10)
        sent = await team.send("ann", "stop", priority="now")
        assert sent.waits_behind == ""
        await trio.sleep(10)
        assert team.bus.receipt(sent.id, "ann") == Receipt(sent.id, "ann", "stored", "stubborn, 20 s")
        await team.wait_quiescent()
        assert ann.seen("stop") == 50
        assert ann.results(1) == ["at last", "interrupted"]
    assert not ann.model.refused


async def test_a_call_that_was_cut_short_is_not_told_any_more(autojump_clock: MockClock) -> None:
    """After urgent mail nothing of what it ended is named, neither a model call nor a tool."""
    ann = Ann(delayed(1_000), call("look", seconds=1_000), delayed(20))
    async with open_team(None, model=ann.model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=TOOLS)
        await trio.sleep(10)
        await team.send("ann", "one", priority="now")
        await trio.sleep(10)
        assert (await team.send("ann", "two")).waits_behind == "look, 10 s"
        await team.send("ann", "three", priority="now")
        await trio.sleep(5)
        assert (await team.send("ann", "four")).waits_behind == "a model call, 5 s"
        await team.wait_quiescent()
        assert (await team.send("ann", "five")).waits_behind == ""
