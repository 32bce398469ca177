"""The scripted model: it reads what the agent was sent, and notices every departure from its script."""

import pytest
import trio
from trio.testing import MockClock

from compaction.transcript import ModelMessage
from teams.errors import Overloaded, ScriptMismatch
from teams.models import ModelRequest, ScriptedModel, ToolDefinition, Usage, blocked, call, delayed, expect, fail, say, think
from teams.models.script import Expectation


def request(*messages: ModelMessage | str, agent: str = "ann", system: str = "") -> ModelRequest:
    """A request; texts are user messages."""
    built = [ModelMessage("user", one) if isinstance(one, str) else one for one in messages or ("go",)]
    return ModelRequest(
        agent=agent, messages=built, max_tokens=100, system=system, tools=[ToolDefinition("ls", "List.", {"type": "object"})]
    )


def results(text: str, call_id: str = "toolu_000001") -> ModelMessage:
    """A message with one tool result."""
    block = {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": text}]}
    return ModelMessage("user", [block])


async def test_function_script_decides_from_the_request() -> None:
    """The reply depends on what the agent was sent; functions may be async and may return text."""

    async def script(asked: ModelRequest) -> str:
        await trio.lowlevel.checkpoint()
        return f"you said {asked.messages[-1].text}"

    pieces: list[str] = []
    reply = await ScriptedModel(script).complete(request("hello"), on_text=pieces.append)
    assert (reply.text, reply.stop_reason, pieces) == ("you said hello", "end_turn", ["you said hello"])


async def test_reply_of_several_blocks_has_unique_ids_and_tool_use() -> None:
    """Thinking, text and two calls in one reply; ids never repeat, over agents and calls."""
    both = think("hm") + say("On it.") + call("ls", path="a") + call("ls", name="b")
    model = ScriptedModel([both, both])
    replies = [await model.complete(request(agent=agent)) for agent in ("ann", "ben", "ann")]
    assert [block["type"] for block in replies[0].content] == ["thinking", "text", "tool_use", "tool_use"]
    assert replies[0].stop_reason == "tool_use"
    assert replies[0].tool_calls[1]["input"] == {"name": "b"}
    ids = [block["id"] for reply in replies for block in reply.tool_calls]
    assert ids == [f"toolu_{number:06d}" for number in range(1, 7)]


async def test_ids_go_on_after_those_of_an_earlier_process() -> None:
    """A history that another model object made holds ids that are not given out again."""
    first = await ScriptedModel([call("ls")]).complete(request())
    again = await ScriptedModel([call("ls")]).complete(request("go", first.message, results("x")))
    assert again.tool_calls[0]["id"] != first.tool_calls[0]["id"]


async def test_steps_check_what_they_expect() -> None:
    """A step with an expectation is played only for a request that meets it."""
    model = ScriptedModel(
        [
            expect(contains="hello", system="You are", tools=("ls",)).then(call("ls")),
            expect(tool_result=("a.py", "b.py")).then(say("two files")),
            expect(where=lambda asked: len(asked.messages) == 1).then(say("end")),
        ]
    )
    with model:
        await model.complete(request("hello there", system="You are Ann."))
        assert (await model.complete(request(results("a.py\nb.py")))).text == "two files"
        await model.complete(request())


@pytest.mark.parametrize(
    ("expectation", "words"),
    [
        (expect(contains="bye"), "step 1 of 'ann' expected the last message to contain 'bye'; the last user message was 'hello'"),
        (expect(tool_result="hello"), "expected a tool result of the last message to contain 'hello'"),
        (expect(system="Ben"), "expected the system prompt to contain 'Ben'"),
        (expect(tools=("rm",)), r"expected a tool named 'rm' among \['ls'\]"),
        (expect(where=lambda asked: asked.max_tokens > 100), "expected the request to satisfy"),
    ],
)
async def test_unmet_expectation_says_what_was_expected_and_what_came(expectation: Expectation, words: str) -> None:
    """The mismatch names step, agent, expectation and the last user message, and stays visible when it was swallowed."""
    model = ScriptedModel([expectation.then(say("never"))])
    with pytest.raises(ScriptMismatch, match=words):
        await model.complete(request("hello", system="You are Ann."))
    with pytest.raises(ScriptMismatch, match="expected"):
        model.verify()


async def test_extra_call_is_a_mismatch() -> None:
    """A call after the last step fails, by agent."""
    model = ScriptedModel({"ann": [say("one")], "*": [say("x")]})
    await model.complete(request())
    with pytest.raises(ScriptMismatch, match=r"extra call: the script of 'ann' has 1 steps and this is call 2; .* 'more'"):
        await model.complete(request("more"))
    assert (await model.complete(request(agent="ben"))).text == "x"


async def test_agent_without_a_script_is_a_mismatch() -> None:
    """A mapping without this agent says whose scripts there are."""
    with pytest.raises(ScriptMismatch, match="no script for agent 'ben'; there are scripts for ann"):
        await ScriptedModel({"ann": [say("x")]}).complete(request(agent="ben"))


async def test_unused_steps_are_a_mismatch_on_leaving() -> None:
    """A script that was not played to its end fails; an error of the body's goes first."""
    left = "'ann' used 1 of 2 steps; 'ben' never called"
    with pytest.raises(ScriptMismatch, match=left), ScriptedModel({"ann": [say("a"), say("b")], "ben": [say("c")]}) as model:
        await model.complete(request())
    with pytest.raises(ScriptMismatch, match="nobody ever called"), ScriptedModel([say("a")]):
        pass
    with pytest.raises(LookupError), ScriptedModel([say("a")]):
        raise LookupError


async def test_steps_can_block_wait_and_fail(autojump_clock: MockClock) -> None:
    """A step waits for an event, for a time of the clock, or raises; the parts join with +."""
    gate, entered = trio.Event(), trio.Event()
    model = ScriptedModel([blocked(gate, entered=entered) + say("free"), delayed(30) + say("late"), fail(Overloaded("busy"))])
    async with trio.open_nursery() as nursery:

        async def first() -> None:
            assert (await model.complete(request())).text == "free"

        nursery.start_soon(first)
        await entered.wait()
        gate.set()
    start = trio.current_time()
    await model.complete(request())
    assert trio.current_time() - start == 30
    with pytest.raises(Overloaded, match="busy"):
        await model.complete(request())


async def test_usage_is_reported_or_estimated_from_what_is_new() -> None:
    """The estimate counts the known part of the history as read from the cache, and its sum grows with the history."""
    model = ScriptedModel([say("a").costing(Usage(1, 2, 3, 4)), say("b"), say("c"), say("d")])
    first = ModelMessage("user", "x" * 400)
    assert (await model.complete(request(first))).usage == Usage(1, 2, 3, 4)
    longer = (first, ModelMessage("assistant", "a"), ModelMessage("user", "y" * 40))
    usage = (await model.complete(request(*longer))).usage
    assert usage.cache_read_input_tokens == len(first.json) // 4
    assert 0 < usage.input_tokens < 50
    edited = (await model.complete(request("another beginning"))).usage
    assert edited.cache_read_input_tokens == 0


async def test_stop_reasons_can_be_scripted() -> None:
    """A reply may stop for any reason, with a note."""
    reply = await ScriptedModel([say("no").stopping("refusal", "bio")]).complete(request())
    assert (reply.stop_reason, reply.stop_note) == ("refusal", "bio")
