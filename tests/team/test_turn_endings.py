"""However a reply ends, the transcript that is kept stays one that the provider takes, and the next turn is answered."""

import pytest
import trio
from trio.testing import MockClock

from teams import AgentConfig, AgentLoop, AgentOptions, ScriptedModel, TeamOptions, open_team, tool
from teams.errors import ContextOverflow, Overloaded
from teams.loop import CUT_OFF, REFUSED, SAID_NOTHING
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, fail, say, spoken, think
from teams.testing.team import StrictModel, virtual_wall_clock

SMALL = TeamOptions(agents=AgentOptions(max_rounds=4, max_pauses=2))
RAN: list[str] = []


@tool(effect="reads")
async def look() -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    RAN.append("look")
    return "seen " * 200


async def _play(*replies: Reply, options: TeamOptions = SMALL) -> list[ModelRequest]:
    """Let a member meet these replies in its first turn, then send it one more message; every request must be valid."""
    RAN.clear()
    requests: list[ModelRequest] = []
    left = list(replies)

    def script(request: ModelRequest) -> Reply:
        requests.append(request)
        return left.pop(0) if left else say("done")

    model = StrictModel(ScriptedModel(script))
    async with open_team(None, model=model, options=options, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=[look])
        await team.wait_quiescent()
        assert team.member("ann").status == "idle", team.state.roster.members["ann"].reason
        await team.send("ann", "and now?")
        await team.wait_quiescent()
        assert "and now?" in spoken(requests[-1].messages[-1])
    assert not left
    assert not model.refused
    return requests


ENDINGS: dict[str, tuple[Reply, ...]] = {
    "empty": (Reply(),),
    "blank text": (say(" \n"),),
    "thinking alone": (think("hm"),),
    "refusal": (say("I").stopping("refusal", "safety"),),
    "refusal without a word": (Reply().stopping("refusal"),),
    "stop sequence": (say("so").stopping("stop_sequence"),),
    "paused": (say("searching").stopping("pause_turn"), say("found")),
    "paused for ever": tuple(say(f"searching {number}").stopping("pause_turn") for number in range(3)),
    "paused without a word": (Reply().stopping("pause_turn"), say("found")),
    "cut off": (say("so far").stopping("max_tokens"),) * 2,
    "cut off at nothing": (Reply().stopping("max_tokens"),) * 2,
    "cut off in thinking": (think("hm").stopping("max_tokens"),) * 2,
    "window full": (say("so far").stopping("model_context_window_exceeded"),) * 2,
    "window full in a call": (call("look").stopping("model_context_window_exceeded"),) * 2,
    "text beside calls": (say("I look") + call("look") + call("look"), say("seen")),
    "thinking beside calls": (think("hm") + call("look"), think("hm") + say("seen")),
    "unknown tool": (call("fly"), say("so be it")),
    "overloaded": (fail(Overloaded("busy")), say("late")),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_transcript_stays_valid_after_every_ending(autojump_clock: MockClock, ending: str) -> None:
    """Both sets of rules accept every request of the turn and of the one after it."""
    await _play(*ENDINGS[ending])


async def test_refused_reply_runs_no_tool(autojump_clock: MockClock) -> None:
    """A call in a reply that was refused is not run and not kept; the transcript says that there was a refusal."""
    requests = await _play((say("well") + call("look")).stopping("refusal"))
    assert not RAN
    assert requests[-1].messages[1].text == REFUSED


async def test_empty_reply_is_kept_as_words_of_the_runtime(autojump_clock: MockClock) -> None:
    """A turn that ended without a word is told apart from one that did not end."""
    requests = await _play(Reply())
    assert requests[-1].messages[1].text == SAID_NOTHING


async def test_cut_off_reply_gets_more_room_and_then_a_hint(autojump_clock: MockClock) -> None:
    """A reply that was cut off is asked for again with a larger limit; cut off again, it is kept, and the model told to go on."""
    requests = await _play(say("a").stopping("max_tokens"), say("ab").stopping("max_tokens"))
    assert requests[0].max_tokens < requests[1].max_tokens
    assert requests[1].messages == requests[0].messages
    assert [message.text for message in requests[2].messages[-2:]] == ["ab", CUT_OFF]


async def test_overflow_compacts_once_and_asks_again_once(autojump_clock: MockClock) -> None:
    """A request that does not fit is made smaller and sent again; when that does not fit either, the member fails with the reason."""
    history = [call("look") for _ in range(6)]
    options = TeamOptions(agents=AgentOptions(max_rounds=50))
    requests = await _play(*history, fail(ContextOverflow("too long")), say("fits"), options=options)
    assert sum(len(message.json) for message in requests[7].messages) < sum(len(message.json) for message in requests[6].messages)

    calls: list[int] = []

    def never_fits(request: ModelRequest) -> Reply:
        calls.append(len(request.messages))
        return fail(ContextOverflow("too long"))

    async with open_team(None, model=StrictModel(ScriptedModel(never_fits)), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin")
        assert (await team.manager.join("ann")).reason == "ContextOverflow: too long"
    assert len(calls) == 2


async def test_last_round_hands_back_a_summary_without_tools(autojump_clock: MockClock) -> None:
    """A turn that uses up its rounds is told so, and its last call may use no tool, also when the model tries."""
    requests = await _play(call("look"), call("look"), call("look"), say("half done") + call("look"))
    assert [request.tool_choice for request in requests[:4]] == [None, None, None, {"type": "none"}]
    assert "used up the rounds" in spoken(requests[3].messages[-1])
    assert RAN == ["look"] * 3
    assert requests[4].messages[-2].text == "half done"


async def test_turn_ends_when_replies_are_cut_off_again_and_again(autojump_clock: MockClock) -> None:
    """A model that never comes to an end is asked to go on three times, and then the turn is over."""
    calls = 0

    def endless(_: ModelRequest) -> Reply:
        nonlocal calls
        calls += 1
        return say("and so on").stopping("max_tokens")

    response = await AgentLoop(AgentConfig(model=ScriptedModel(endless))).run("tell me everything")
    assert response.stop_reason == "max_tokens"
    assert calls == 2 * (1 + 3)  # each with the usual limit, and again with the larger one
