"""One call of a real model through the real client: streaming, counting, the cache, an overflow, and an end in mid-stream."""

import os

import pytest
import trio

from compaction.transcript import ModelMessage
from teams.errors import ContextOverflow
from teams.models import AnthropicModel, ModelRequest, ToolDefinition
from tests.real.small_model_server import WINDOW_TOKENS

pytestmark = [pytest.mark.real, pytest.mark.limit(120)]

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SOON_SECONDS = 20.0  # far less than the rest of a cancelled answer takes, far more than a short one, also on a busy machine
ENDLESS_TOKENS = 6_000


def _request(text: str, *, max_tokens: int = 40, tools: tuple[ToolDefinition, ...] = ()) -> ModelRequest:
    return ModelRequest(
        agent="ann", system="You are a helpful assistant.", messages=[ModelMessage("user", text)], max_tokens=max_tokens, tools=tools
    )


async def test_real_answer_comes_in_pieces(small_model: AnthropicModel) -> None:
    """The text of the reply is what `on_text` got, in more than one piece, and its tokens were counted."""
    pieces: list[str] = []
    reply = await small_model.complete(_request("Name three rivers of Europe."), on_text=pieces.append)
    assert len(pieces) > 1
    assert reply.text == "".join(pieces)
    assert reply.stop_reason in {"end_turn", "max_tokens"}
    assert 0 < reply.usage.output_tokens <= 40


@pytest.mark.parametrize("tools", [(), (ToolDefinition("get_weather", "Get the weather of a city.", CITY),)], ids=["plain", "tools"])
async def test_real_count_is_what_the_call_uses(small_model: AnthropicModel, tools: tuple[ToolDefinition, ...]) -> None:
    """The tokens that were counted beforehand are those that the call reports, and a repeated call reads nearly all from the cache."""
    request = _request("What is a river?", max_tokens=4, tools=tools)
    counted = await small_model.count_tokens(request)
    first = (await small_model.complete(request)).usage
    again = (await small_model.complete(request)).usage
    assert counted == first.total_input == again.total_input
    assert again.cache_read_input_tokens >= counted - 2


async def test_real_overflow_is_told_as_one(small_model: AnthropicModel) -> None:
    """A request that does not fit the window is refused with the error by which an agent compacts."""
    with pytest.raises(ContextOverflow, match="exceeds the available context size"):
        await small_model.complete(_request("river " * WINDOW_TOKENS))


async def test_real_call_cancelled_in_mid_stream_leaves_nothing(small_model: AnthropicModel) -> None:
    """The endpoint stops working for calls that were cancelled, so that the next one is answered soon, and no descriptor stays open."""
    await small_model.complete(_request("Hello.", max_tokens=4))
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        with trio.CancelScope() as scope:
            pieces = 0

            def on_text(_piece: str, scope: trio.CancelScope = scope) -> None:
                nonlocal pieces
                pieces += 1
                if pieces == 3:
                    scope.cancel()

            await small_model.complete(_request("Write a very long story about a river.", max_tokens=ENDLESS_TOKENS), on_text=on_text)
        assert scope.cancelled_caught
    with trio.fail_after(SOON_SECONDS):
        reply = await small_model.complete(_request("Hello.", max_tokens=4))
    assert reply.content
    assert len(os.listdir("/dev/fd")) == before
