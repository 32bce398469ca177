"""Several calls in one answer of a real endpoint, whose blocks are all open until the answer ends."""

import pytest

from compaction.transcript import ModelMessage
from teams.models import ModelRequest, ToolDefinition
from teams.models.stream import StreamAssembler
from tests.real.small_model import CallsToolFirst, client_of

pytestmark = [pytest.mark.real, pytest.mark.limit(120)]

GET_WEATHER = ToolDefinition(
    "get_weather", "Get the weather of a city.", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
)


def test_blocks_that_are_open_side_by_side_are_told_apart() -> None:
    """A delta and an end belong to the block of their index, whichever began last."""
    assembler = StreamAssembler()
    for index, name in enumerate(("one", "two")):
        block = {"type": "tool_use", "id": f"call_{index}", "name": name}
        delta = {"type": "input_json_delta", "partial_json": f'{{"number": {index}}}'}
        assembler.feed({"type": "content_block_start", "index": index, "content_block": block})
        assembler.feed({"type": "content_block_delta", "index": index, "delta": delta})
    for index in (0, 1):
        assembler.feed({"type": "content_block_stop", "index": index})
    assembler.feed({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    assembler.feed({"type": "message_stop"})
    assert [(call["name"], call["input"]) for call in assembler.reply().tool_calls] == [("one", {"number": 0}), ("two", {"number": 1})]


async def test_real_parallel_calls_are_all_read(endpoint: str) -> None:
    """A model that makes one call after the other, until its limit, gives a reply with those that it finished."""
    client = client_of(endpoint)
    question = ModelMessage("user", "What is the weather in Paris and in Oslo?")
    request = ModelRequest(agent="ann", system="You are a helpful assistant.", messages=[question], tools=[GET_WEATHER], max_tokens=100)
    try:
        reply = await CallsToolFirst(client).complete(request)
    finally:
        await client.aclose()
    assert len(reply.tool_calls) > 1
    assert all(call["name"] == "get_weather" and call["input"]["city"] for call in reply.tool_calls)
