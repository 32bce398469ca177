"""What the real client makes of the answers of a strict endpoint, over HTTP."""

from typing import TYPE_CHECKING, get_args

import pytest

from compaction.transcript import ModelMessage
from teams.errors import AuthenticationFailed
from teams.models import AnthropicExtra, AnthropicModel, ModelRequest, Reply, StopReason, ToolDefinition, Usage, call, say, think
from teams.models.base import Block

if TYPE_CHECKING:
    from tests.models.conftest import OpenEndpoint

TOOL = ToolDefinition("read_file", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


def request(*messages: ModelMessage, agent: str = "ann", tools: tuple[ToolDefinition, ...] = (TOOL,)) -> ModelRequest:
    """A request of one agent, with a tool."""
    return ModelRequest(agent=agent, system="You are Ann.", messages=messages or (ModelMessage("user", "go"),), tools=tools, max_tokens=200)


def answer_to(calls: tuple[Block, ...], text: str = "done") -> ModelMessage:
    """The results of calls."""
    return ModelMessage("user", [{"type": "tool_result", "tool_use_id": one["id"], "content": text} for one in calls])


@pytest.mark.parametrize("reason", get_args(StopReason))
async def test_reply_carries_every_stop_reason(open_endpoint: "OpenEndpoint", reason: StopReason) -> None:
    """Each stop reason of the provider reaches the caller under its own name."""
    reply = call("read_file", path="a") if reason == "tool_use" else say("hello")
    async with open_endpoint(lambda _body: reply.stopping(reason, "cyber" if reason == "refusal" else "")) as (_server, model):
        got = await model.complete(request())
    assert got.stop_reason == reason
    assert got.stop_note == ("cyber" if reason == "refusal" else "")


async def test_tool_calls_streamed_in_pieces_come_back_whole(open_endpoint: "OpenEndpoint") -> None:
    """Two calls with nested, non-ASCII and null inputs arrive as they were made, an empty input as an empty object."""
    first = call("read_file", path="ä/b.py", options={"deep": [1, None, "\u2028"]})
    async with open_endpoint(lambda _body: say("Looking.") + first + call("read_file")) as (_server, model):
        got = await model.complete(request())
    assert [block["input"] for block in got.tool_calls] == [{"path": "ä/b.py", "options": {"deep": [1, None, "\u2028"]}}, {}]
    assert got.stop_reason == "tool_use"
    assert got.text == "Looking."


async def test_text_is_handed_on_as_it_arrives(open_endpoint: "OpenEndpoint") -> None:
    """The callback gets the text in pieces that add up to the reply's text."""
    pieces: list[str] = []
    async with open_endpoint(lambda _body: say("one sentence that is longer than a piece")) as (_server, model):
        got = await model.complete(request(), on_text=pieces.append)
    assert len(pieces) > 1
    assert "".join(pieces) == got.text


async def test_error_of_the_text_callback_ends_the_call_and_leaves_the_client_usable(open_endpoint: "OpenEndpoint") -> None:
    """What the callback raises reaches the caller, without a stream left behind."""

    def refuse(_piece: str) -> None:
        raise LookupError("no more text")

    async with open_endpoint(lambda _body: say("a text of several pieces")) as (_server, model):
        with pytest.raises(LookupError, match="no more text"):
            await model.complete(request(), on_text=refuse)
        assert (await model.complete(request())).text == "a text of several pieces"


async def test_blocks_have_no_null_fields(open_endpoint: "OpenEndpoint") -> None:
    """The endpoint sends null fields and refuses them; the client drops them, so a reply can be sent back."""
    async with open_endpoint(lambda _body: say("hello") + call("read_file", path="x")) as (server, model):
        got = await model.complete(request())
        assert all(value is not None for block in got.content for value in block.values())
        await model.complete(request(ModelMessage("user", "go"), got.message, answer_to(got.tool_calls)))
    assert server.rejected == []


@pytest.mark.parametrize("name", ["claude-sonnet-4-5", "claude-opus-5-5"])
async def test_thinking_and_its_signature_survive_the_round_trip(open_endpoint: "OpenEndpoint", name: str) -> None:
    """The endpoint takes its own thinking back, also where signatures are bound to the whole conversation."""
    replies = [think("first thought") + say("hm") + call("read_file", path="a"), think("") + call("read_file", path="b"), say("end")]
    opaque = Reply(({"type": "redacted_thinking", "data": "secret"},))
    replies[1] = opaque + replies[1]
    async with open_endpoint(lambda _body: replies.pop(0), name=name) as (server, model):
        messages = [ModelMessage("user", "go")]
        while replies:
            got = await model.complete(request(*messages))
            messages += [got.message, answer_to(got.tool_calls)]
    assert server.rejected == []
    assert [block["type"] for block in messages[3].content] == ["redacted_thinking", "thinking", "tool_use"]


async def test_call_cut_off_by_max_tokens_is_not_in_the_reply(open_endpoint: "OpenEndpoint") -> None:
    """The partial call is dropped, the complete one before it stays."""
    reply = call("read_file", path="a.py") + call("read_file", path="a very long path that will be cut")
    async with open_endpoint(lambda _body: reply.stopping("max_tokens")) as (_server, model):
        got = await model.complete(request())
    assert got.stop_reason == "max_tokens"
    assert [block["input"] for block in got.tool_calls] == [{"path": "a.py"}]


async def test_second_request_reads_the_first_ones_prefix_from_the_cache(open_endpoint: "OpenEndpoint") -> None:
    """Nothing that was sent before is paid for again, also after a turn of more blocks than the cache looks back over."""
    many = call("read_file", path="0")
    for number in range(1, 30):
        many += call("read_file", path=str(number))
    replies = [many, many, say("end")]
    async with open_endpoint(lambda _body: replies.pop(0)) as (server, model):
        messages = [ModelMessage("user", "go")]
        usages: list[Usage] = []
        for _ in range(3):
            got = await model.complete(request(*messages))
            usages.append(got.usage)
            if got.tool_calls:
                messages += [got.message, answer_to(got.tool_calls)]
        marks = [str(recorded.body).count("cache_control") for recorded in server.requests]
    assert [usage.cache_read_input_tokens for usage in usages[1:]] == [usage.total_input for usage in usages[:-1]]
    assert marks == [3, 4, 4]


async def test_cache_can_be_turned_off(open_endpoint: "OpenEndpoint") -> None:
    """Without the cache no mark is sent."""
    async with open_endpoint(lambda _body: "hi") as (server, _model):
        model = AnthropicModel("claude-haiku-4-5", api_key="test-key", base_url=server.base_url, cache=False)
        await model.complete(request())
        await model.aclose()
        assert "cache_control" not in str(server.requests[0].body)


async def test_extra_fields_and_headers_are_sent(open_endpoint: "OpenEndpoint") -> None:
    """Body fields and headers of the caller's reach the endpoint."""
    extra = AnthropicExtra(body={"thinking": {"type": "adaptive"}}, headers={"anthropic-beta": "compact-2026-01-12"}, cache_ttl="1h")
    async with open_endpoint(lambda _body: "hi", name="claude-opus-4-6", extra=extra) as (server, model):
        await model.complete(request())
        sent = server.requests[0]
    assert sent.body["thinking"] == {"type": "adaptive"}
    assert sent.headers["anthropic-beta"] == "compact-2026-01-12"
    assert sent.body["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


async def test_count_tokens_asks_the_endpoint(open_endpoint: "OpenEndpoint") -> None:
    """The count is the endpoint's, and the request that it was asked with breaks no rule."""
    async with open_endpoint(lambda _body: "hi") as (server, model):
        short = await model.count_tokens(request())
        long = await model.count_tokens(request(ModelMessage("user", "go " * 400)))
    assert long - short == pytest.approx(300, abs=3)
    assert server.rejected == []


async def test_one_model_serves_runs_one_after_the_other(open_endpoint: "OpenEndpoint") -> None:
    """After `aclose` a call opens new connections."""
    async with open_endpoint(lambda _body: "hi") as (_server, model):
        await model.complete(request())
        await model.aclose()
        await model.aclose()
        assert (await model.complete(request())).text == "hi"


def test_model_without_a_key_is_refused_when_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable to set; with a key in the environment the model is built."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(AuthenticationFailed, match=r"no key; set ANTHROPIC_API_KEY .*, or pass api_key in Python"):
        AnthropicModel("claude-sonnet-4-5")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    assert AnthropicModel("claude-sonnet-4-5").base_url == "http://127.0.0.1:9"


def test_windows_of_known_models() -> None:
    """Names give windows; an unknown name gets the smallest, and what the caller says wins."""
    sizes = {name: AnthropicModel(name, api_key="k").context_window_tokens for name in ("claude-sonnet-4-5", "claude-opus-5-5", "other")}
    assert sizes == {"claude-sonnet-4-5": 200_000, "claude-opus-5-5": 1_000_000, "other": 200_000}
    assert AnthropicModel("other", api_key="k", context_window_tokens=9).context_window_tokens == 9


def test_extra_body_cannot_replace_what_the_request_says() -> None:
    """A field that the request owns is refused in the extra body."""
    with pytest.raises(ValueError, match="cannot replace messages"):
        AnthropicExtra(body={"messages": []})
