"""The fake endpoint accepts nothing that it should not."""

from collections.abc import Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from compaction.transcript import ModelMessage
from teams.errors import Overloaded, ScriptMismatch
from teams.models import AnthropicModel, ModelRequest, ScriptedModel, Usage, call, expect, fail, say, think
from teams.testing.fake_anthropic import FakeAnthropic, open_fake_anthropic, overloaded
from teams.testing.fake_anthropic.cache import PromptCache
from teams.testing.fake_anthropic.signatures import forged, sign

HEADERS = {"x-api-key": "test-key", "anthropic-version": "2023-06-01", "content-type": "application/json"}
MARK = {"cache_control": {"type": "ephemeral"}}


def hi(_body: dict[str, Any]) -> str:
    """Answer every request with a word."""
    return "hi"


async def exchange(server: FakeAnthropic, head: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
    """Send one request by hand; return status and body of the answer."""
    lines = [head, "host: x", "connection: close", f"content-length: {len(body)}", *[f"{name}: {value}" for name, value in headers.items()]]
    host, port = server.base_url.removeprefix("http://").split(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all("\r\n".join([*lines, "", ""]).encode() + body)
        answer = b""
        async for data in stream:
            answer += data
    first, _, rest = answer.partition(b"\r\n\r\n")
    return int(first.split()[1]), rest.decode()


GOOD = b'{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'


@pytest.mark.parametrize(
    ("head", "change", "body", "status", "words"),
    [
        ("POST /v1/messages HTTP/1.1", {}, GOOD, 200, '"stop_reason": "end_turn"'),
        ("POST /v1/messages?beta=true HTTP/1.1", {"x-api-key": "", "authorization": "Bearer test-key"}, GOOD, 200, '"text": "hi"'),
        ("POST /v1/complete HTTP/1.1", {}, GOOD, 404, "not_found_error"),
        ("GET /v1/messages HTTP/1.1", {}, b"", 405, "Method Not Allowed"),
        ("POST /v1/messages HTTP/1.1", {"x-api-key": ""}, GOOD, 401, "x-api-key header is required"),
        ("POST /v1/messages HTTP/1.1", {"x-api-key": "other"}, GOOD, 401, "invalid x-api-key"),
        ("POST /v1/messages HTTP/1.1", {"authorization": "Bearer other"}, GOOD, 401, "invalid x-api-key"),
        ("POST /v1/messages HTTP/1.1", {"anthropic-version": "latest"}, GOOD, 400, "anthropic-version"),
        ("POST /v1/messages HTTP/1.1", {"content-type": "text/plain"}, GOOD, 400, "content-type"),
        ("POST /v1/messages HTTP/1.1", {"anthropic-beta": "compact-2026-01-12,nonsense-2026"}, GOOD, 400, "`nonsense-2026`"),
        ("POST /v1/messages HTTP/1.1", {}, b"{", 400, "not valid JSON"),
        ("POST /v1/messages HTTP/1.1", {}, GOOD.replace(b":9", b":NaN"), 400, "NaN is no JSON"),
        ("POST /v1/messages HTTP/1.1", {}, GOOD.replace(b"sonnet-4-5", b"?"), 404, "model: claude-?"),
        ("POST /v1/messages HTTP/1.1", {}, GOOD.replace(b'"hi"', b'""'), 400, "text content blocks must be non-empty"),
        ("POST /v1/messages HTTP/1.1", {}, GOOD.replace(b'"hi"', b'"' + b"x" * 33_000_000 + b'"'), 413, "request_too_large"),
        ("POST /v1/messages/count_tokens HTTP/1.1", {}, GOOD.replace(b'"max_tokens":9,', b""), 200, '{"input_tokens": '),
    ],
    ids=str,
)
async def test_only_a_right_request_is_answered(head: str, change: dict[str, str], body: bytes, status: int, words: str) -> None:
    """Key, version, headers, path, method, JSON and model are all looked at."""
    async with open_fake_anthropic(hi) as server:
        got = await exchange(server, head, {name: value for name, value in (HEADERS | change).items() if value}, body)
        assert got[0] == status
        assert words in got[1]
        assert server.requests[0].status == status
        assert server.requests[0].completed == (status == 200)


async def test_planned_faults_hit_one_valid_call_each() -> None:
    """A fault waits for a call that is valid; None lets one pass."""
    async with open_fake_anthropic(hi) as server:
        server.plan(None, overloaded())
        invalid = GOOD.replace(b'"hi"', b'""')
        statuses = [(await exchange(server, "POST /v1/messages HTTP/1.1", HEADERS, body))[0] for body in (GOOD, invalid, GOOD, GOOD)]
    assert statuses == [200, 400, 529, 200]
    assert len(server.rejected) == 1


async def test_scripted_model_answers_over_http() -> None:
    """A script plays behind the endpoint: it reads the request, and its errors come as HTTP statuses."""
    script = ScriptedModel([expect(contains="hello", system="Ann").then(say("hi") + call("ls")), fail(Overloaded("busy"))])
    async with open_fake_anthropic(script) as server:
        model = AnthropicModel("claude-sonnet-4-5", api_key="test-key", base_url=server.base_url)
        request = ModelRequest(agent="a", system="You are Ann.", messages=[ModelMessage("user", "hello")], max_tokens=9)
        reply = await model.complete(request)
        assert (reply.text, reply.tool_calls[0]["name"], reply.stop_reason) == ("hi", "ls", "tool_use")
        with pytest.raises(Overloaded):
            await model.complete(request)
        await model.aclose()
    script.verify()


async def test_mismatch_with_the_script_is_raised_on_leaving() -> None:
    """A call that the script does not know is refused, and fails the test also when the client swallowed it."""

    async def ask() -> None:
        async with open_fake_anthropic(ScriptedModel([])) as server:
            answers.append(await exchange(server, "POST /v1/messages HTTP/1.1", HEADERS, GOOD))

    answers: list[tuple[int, str]] = []
    with pytest.raises(ScriptMismatch, match="extra call"):
        await ask()
    assert answers[0][0] == 400
    assert "extra call" in answers[0][1]


def conversation(*content: Mapping[str, Any], model: str = "claude-opus-5-5", user: str = "hi", **top: Any) -> dict[str, Any]:
    """A body in which the assistant said this."""
    messages = [{"role": "user", "content": user}, {"role": "assistant", "content": list(content)}, {"role": "user", "content": "go on"}]
    return {"model": model, "max_tokens": 9, "messages": messages, **top}


def test_signature_is_bound_to_its_thinking_and_where_the_model_says_so_to_what_came_before() -> None:
    """Changed thinking is forged everywhere; a changed beginning only for models with bound thinking; a mark changes nothing."""
    asked = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    signed = sign([*think("one").blocks, *say("x").blocks, *think("two").blocks], asked)
    assert forged(conversation(*signed)) is None
    assert forged(conversation(*signed[1:])) is None  # the oldest thinking was dropped
    assert (
        forged(conversation({**signed[0], "thinking": "won"}, *signed[1:]))
        == "messages.1.content.0: Invalid `signature` in `thinking` block"
    )
    assert "bound to a different conversation" in str(forged(conversation(*signed, user="ho")))
    assert "bound to a different conversation" in str(forged(conversation(*signed, system="new")))
    assert forged(conversation(*signed, user="ho", model="claude-sonnet-4-5")) is None
    marked = conversation(*signed)
    marked["messages"][0]["content"] = [{"type": "text", "text": "hi", **MARK}]
    assert forged(marked) is None
    assert "redacted" in str(forged(conversation({"type": "redacted_thinking", "data": "made up"})))


def listed(*texts: str, marks: tuple[int, ...] = (-1,), **top: Any) -> dict[str, Any]:
    """A body of one user message with these texts, marked at these places."""
    blocks = [{"type": "text", "text": text * 40} for text in texts]
    for at in marks:
        blocks[at] |= MARK  # type: ignore[arg-type]  # a mark is an object
    return {"model": "m", "messages": [{"role": "user", "content": blocks}], **top}


async def test_cache_reads_the_longest_marked_prefix(autojump_clock: MockClock) -> None:
    """An entry is found only as a whole prefix, within 20 blocks of a mark, for five minutes."""
    cache = PromptCache()
    first = cache.account(listed("a", "b"))
    assert first.cache_read_input_tokens == 0
    assert first.cache_creation_input_tokens > 0
    again = cache.account(listed("a", "b", "c", marks=(1,)))
    assert again.cache_read_input_tokens == first.cache_creation_input_tokens
    assert again.input_tokens > 0
    assert cache.account(listed("a", "x", "b")).cache_read_input_tokens == 0
    assert cache.account(listed("a", "b", tool_choice={"type": "any"})).cache_read_input_tokens == 0
    far = ["a", "b", *"cdefghijklmnopqrstuv"]
    assert cache.account(listed(*far)).cache_read_input_tokens == 0
    assert cache.account(listed(*far, "w", marks=(1, -1))).cache_read_input_tokens > first.cache_creation_input_tokens
    await trio.sleep(301)
    assert cache.account(listed("a", "b")).cache_read_input_tokens == 0
    assert cache.account(listed("a", marks=())) == Usage(cache.account(listed("a", marks=())).input_tokens)
