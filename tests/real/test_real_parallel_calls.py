"""Several calls in one answer of a real endpoint, whose blocks are all open until the answer ends."""

import pytest

from compaction.transcript import ModelMessage
from teams.models import ModelRequest, ToolDefinition
from tests.real.small_model import CallsToolFirst, client_of

pytestmark = [pytest.mark.real, pytest.mark.limit(120)]

GET_WEATHER = ToolDefinition(
    "get_weather", "Get the weather of a city.", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
)


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
