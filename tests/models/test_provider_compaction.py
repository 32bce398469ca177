"""The provider's own context editing and compaction are options of the model, off by default, behind the same door."""

import json
from typing import Any

import httpx2
import pytest

from compaction.summarizer import SummaryRequest
from compaction.transcript import ModelMessage
from teams import AnthropicModel, Gateway
from teams.compacting import ask_for_summary
from teams.models.anthropic import CLEAR_TOOL_USES, AnthropicExtra, with_beta
from teams.models.base import ModelRequest, ToolDefinition

SUMMARY = "The parser was mended; next comes the changelog."
TOOLS = (ToolDefinition("look", "Look.", {"type": "object"}),)
ITERATIONS = [{"input_tokens": 900, "output_tokens": 80, "cache_read_input_tokens": 40}, {"input_tokens": 10, "output_tokens": 5}]


def events(content: list[dict[str, Any]], stop_reason: str, usage: dict[str, Any]) -> bytes:
    """Return an answer as the provider streams it."""
    listed: list[dict[str, Any]] = [{"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 0, "output_tokens": 0}}}]
    for index, block in enumerate(content):
        listed += [{"type": "content_block_start", "index": index, "content_block": block}, {"type": "content_block_stop", "index": index}]
    listed += [{"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": usage}, {"type": "message_stop"}]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in listed).encode()


class Provider:
    """Answers over the client's own transport, and keeps what it was sent."""

    def __init__(self, content: list[dict[str, Any]], stop_reason: str = "end_turn", usage: dict[str, Any] | None = None) -> None:
        self._body = events(content, stop_reason, usage or {"input_tokens": 7, "output_tokens": 3})
        self.bodies: list[dict[str, Any]] = []
        self.betas: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one call."""
        self.bodies.append(json.loads(request.content))
        self.betas.append(request.headers.get("anthropic-beta", ""))
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=self._body)

    def model(self, name: str, **extra: Any) -> AnthropicModel:
        """Return a model that calls here."""
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self))
        return AnthropicModel(name, api_key="any", extra=AnthropicExtra(http_client=client, **extra))


REQUEST = ModelRequest(agent="ann", messages=[ModelMessage("user", "go")], max_tokens=500, system="s", tools=TOOLS)


async def test_context_editing_is_asked_for_with_its_header_and_changes_nothing_here() -> None:
    """With the option the provider clears old results in what it reads; other betas stay; without it nothing is sent."""
    provider = Provider([{"type": "text", "text": "hello"}])
    plain = provider.model("claude-sonnet-4-6")
    edited = provider.model("claude-sonnet-4-6", context_editing=CLEAR_TOOL_USES, headers={"anthropic-beta": "one-2026-01-01"})
    for model in (plain, edited):
        assert (await model.complete(REQUEST)).text == "hello"
        await model.aclose()
    assert "context_management" not in provider.bodies[0]
    assert provider.betas[0] == ""
    assert provider.bodies[1]["context_management"] == {"edits": [{"type": "clear_tool_uses_20250919"}]}
    assert provider.betas[1] == "one-2026-01-01,context-management-2025-06-27"
    assert with_beta({}, "x") == {"anthropic-beta": "x"}


def summary_request(*, same_prefix: bool) -> SummaryRequest:
    """Return what the summarizer asks."""
    return SummaryRequest("plain instructions", (ModelMessage("user", "go, and sum up"),), 4_000, same_prefix)


async def ask(model: AnthropicModel, *, same_prefix: bool = True) -> Any:
    """Ask for a summary as an agent does."""
    request = summary_request(same_prefix=same_prefix)
    reply = await ask_for_summary(request, gateway=Gateway(model), model=model, agent="ann", system="s", tools=TOOLS)
    await model.aclose()
    return reply


async def test_the_provider_writes_the_summary_where_it_can_and_is_paid_for_all_its_calls() -> None:
    """With the option the summary is the readable part of the provider's block; usage is the sum of its iterations."""
    block = {"type": "compaction", "content": SUMMARY, "signature": "sig"}
    provider = Provider([block], "compaction", {"input_tokens": 0, "output_tokens": 0, "iterations": ITERATIONS})
    reply = await ask(provider.model("claude-opus-5", provider_compaction=True, context_editing=CLEAR_TOOL_USES))
    assert (reply.text, reply.called_tools) == (SUMMARY, False)
    assert (reply.usage["input_tokens"], reply.usage["output_tokens"], reply.usage["cache_read_input_tokens"]) == (910, 85, 40)
    (body,) = provider.bodies
    assert body["compaction"] == {"type": "summarize"}
    assert "context_management" not in body, "the two may not be asked for together"
    assert (body["system"][0]["text"], body["tools"][0]["name"]) == ("s", "look")
    assert provider.betas == ["compact-2026-09-04"]


@pytest.mark.parametrize(
    ("name", "option", "same_prefix"), [("claude-opus-5", False, True), ("claude-opus-4-5", True, True), ("claude-opus-5", True, False)]
)
async def test_otherwise_the_model_is_asked_in_words(name: str, option: bool, same_prefix: bool) -> None:
    """Without the option, for a model that lacks it, and after an overflow, the summary is an answer like any other."""
    provider = Provider([{"type": "text", "text": SUMMARY}])
    reply = await ask(provider.model(name, provider_compaction=option), same_prefix=same_prefix)
    assert reply.text == SUMMARY
    assert "compaction" not in provider.bodies[0]
    assert bool(provider.bodies[0].get("tools")) is same_prefix


async def test_no_summary_of_the_provider_is_a_blank_one() -> None:
    """A block without content is no summary, so that the caller falls back."""
    provider = Provider([{"type": "compaction", "content": None}], "compaction")
    assert (await ask(provider.model("claude-opus-5", provider_compaction=True))).text == ""
