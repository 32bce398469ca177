"""The Messages API, first-party or any endpoint that speaks it, through the official SDK under trio.

Laws: one call is one attempt (`max_retries=0`; the gateway retries); every answer is streamed; a stream is read to its end or
cancelled, never broken out of, so that its generators and its connection are released where they are; whatever fails is a
ModelError; the SDK is imported on first use, in a thread, because that takes seconds.

The SDK carries the connection, the key, the headers and the error classes. Bodies are written from the JSON that messages
have cached, and events are read as they are on the wire: blocks come back unchanged, without fields that a typed class adds.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import trio

from compaction.models import model_facts
from compaction.transcript import ModelMessage
from teams.errors import AuthenticationFailed, ModelConnectionError, ModelError
from teams.models.base import Model, ModelReply, ModelRequest, OnText
from teams.models.cache_marks import Position, place_marks
from teams.models.limits import known_limits
from teams.models.provider_errors import translate
from teams.models.stream import StreamAssembler
from teams.models.wire_body import request_body

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic, AsyncStream

DEFAULT_BASE_URL = "https://api.anthropic.com"
CONTEXT_EDITING_BETA = "context-management-2025-06-27"
COMPACTION_BETA = "compact-2026-09-04"
CLEAR_TOOL_USES: Mapping[str, Any] = {"edits": [{"type": "clear_tool_uses_20250919"}]}
"""The context editing that clears old tool results, by the provider's own defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicExtra:
    """What few callers set: further body fields and headers, time limits, the life of the cache, an HTTP client of one's own."""

    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    connect_seconds: float = 10.0
    read_seconds: float = 600.0  # between two pieces of an answer; pings come far more often
    cache_ttl: str | None = None  # None is the provider's default of five minutes; "1h" costs more to write
    http_client: "httpx2.AsyncClient | None" = None
    context_editing: Mapping[str, Any] | None = None  # edits that the provider makes in what it reads; the agent's own view stays whole
    provider_compaction: bool = False  # let the provider itself write the summaries, where the model has that

    def __post_init__(self) -> None:
        if reserved := {"model", "messages", "stream", "max_tokens"} & set(self.body):
            raise ValueError(f"extra body fields cannot replace {', '.join(sorted(reserved))}")
        if self.cache_ttl not in {None, "5m", "1h"}:
            raise ValueError(f"cache_ttl must be None, '5m' or '1h', not {self.cache_ttl!r}")

    def wire(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the body fields and headers of a call, those of the provider's context editing among them."""
        if self.context_editing is None:
            return dict(self.body), dict(self.headers)
        return {**self.body, "context_management": dict(self.context_editing)}, with_beta(self.headers, CONTEXT_EDITING_BETA)


def with_beta(headers: Mapping[str, str], beta: str) -> dict[str, str]:
    """Return headers that also ask for a beta feature."""
    betas = [part.strip() for part in headers.get("anthropic-beta", "").split(",") if part.strip()]
    return {**headers, "anthropic-beta": ",".join([*betas, beta])}


class _End(NamedTuple):
    """Where the newest mark of an agent's last request stood, and the message that it was in."""

    position: Position
    message: ModelMessage


class AnthropicModel:
    """One model behind one Messages endpoint.

    Key and address come from ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN) and ANTHROPIC_BASE_URL when they are not given;
    both are read here, when the model is built, so a missing key is reported before anything starts.

    Owner: whoever built it calls `aclose`; a call after that opens new connections.

    Raises:
        AuthenticationFailed: there is no key.
    """

    summarizes = True
    """That it can be asked for summaries of a context."""

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        context_window_tokens: int | None = None,
        max_output_tokens: int | None = None,
        cache: bool = True,
        extra: AnthropicExtra | None = None,
    ) -> None:
        window, output = known_limits(name)
        self.name = name
        self.context_window_tokens = window if context_window_tokens is None else context_window_tokens
        self.max_output_tokens = output if max_output_tokens is None else max_output_tokens
        self.base_url = base_url or os.environ.get("ANTHROPIC_BASE_URL") or DEFAULT_BASE_URL
        self._api_key = api_key or os.environ.get("ANTHROPIC_API_KEY") or None
        self._auth_token = None if self._api_key else os.environ.get("ANTHROPIC_AUTH_TOKEN") or None
        if self._api_key is None and self._auth_token is None:
            raise AuthenticationFailed(
                f"cannot use model {name!r}: no key; set ANTHROPIC_API_KEY (to any text, for a server that asks for none), "
                "or pass api_key in Python"
            )
        self._extra = extra or AnthropicExtra()
        self._mark = None if not cache else {"type": "ephemeral"} | ({"ttl": self._extra.cache_ttl} if self._extra.cache_ttl else {})
        self._ends: dict[str, _End] = {}
        self._body, self._headers = self._extra.wire()
        self._client: AsyncAnthropic | None = None
        self._building = trio.Lock()

    def __repr__(self) -> str:
        return f"<AnthropicModel {self.name!r} at {self.base_url}>"

    async def warm_up(self) -> None:
        """Import the SDK and build its client, in a thread; `complete` does it otherwise, on its first call.

        Checkpoints: always. A cancellation waits for the thread, which no one may leave behind.
        """
        async with self._building:
            if self._client is None:
                self._client = await trio.to_thread.run_sync(self._build_client)

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Ask once and return the whole answer; `on_text` gets each piece of text as it arrives.

        What `on_text` raises ends the call and is raised. After a failure in mid-stream a new attempt starts its text anew.

        Raises: ModelError, by kind.
        Checkpoints: always. When Cancelled, the call's connection is closed.
        """
        marks = self._place_marks(request)
        body = request_body(self.name, request, marks=marks, mark=self._mark, extra=self._body)
        reply = await self._post(body, self._headers, on_text)
        if marks:
            self._ends[request.agent] = _End(marks[-1], request.messages[marks[-1].message])
        return reply

    async def _post(self, body: bytes, headers: Mapping[str, str], on_text: OnText | None) -> ModelReply:
        client = await self._ready_client()
        from anthropic import AnthropicError, AsyncStream  # its import takes seconds; it was done in the thread
        from httpx2 import TransportError

        assembler = StreamAssembler()
        try:
            stream = await client.post(
                "/v1/messages",
                cast_to=object,
                content=body,
                options={"headers": dict(headers)},
                stream=True,
                stream_cls=AsyncStream[object],
            )
            await _read(stream, assembler, on_text)
        except (AnthropicError, TransportError) as exc:
            raise _translated(exc) from exc
        return assembler.reply()

    def summarizer(self) -> "Model | None":
        """Return the model through which summaries are asked for, where that is the provider's own compaction."""
        return ProviderCompaction(self) if self._extra.provider_compaction and model_facts(self.name).provider_compaction else None

    async def compact(self, request: ModelRequest) -> ModelReply:
        """Have the provider sum up what a request holds; the answer is its summary as text, blank when it made none.

        Raises: ModelError, by kind.
        Checkpoints: always.
        """
        marks = self._place_marks(request)
        extra = {name: value for name, value in self._body.items() if name != "context_management"}  # not both together
        body = request_body(self.name, request, marks=marks, mark=self._mark, extra={**extra, "compaction": {"type": "summarize"}})
        reply = await self._post(body, with_beta(self._extra.headers, COMPACTION_BETA), None)
        texts = [str(block.get("content") or "") for block in reply.content if block["type"] == "compaction"]
        content = tuple({"type": "text", "text": text} for text in texts if text.strip())
        return ModelReply(content, reply.stop_reason, reply.usage, reply.model, reply.stop_note)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return the provider's estimate of the request's input tokens; it costs nothing but has a rate limit.

        Raises: ModelError, by kind.
        Checkpoints: always.
        """
        extra = {name: value for name, value in self._extra.body.items() if name == "thinking"}
        body = request_body(self.name, request, marks=(), mark=None, extra=extra, counting=True)
        client = await self._ready_client()
        from anthropic import AnthropicError  # its import takes seconds; it was done in the thread
        from httpx2 import TransportError

        try:
            answer = await client.post(
                "/v1/messages/count_tokens", cast_to=object, content=body, options={"headers": dict(self._extra.headers)}
            )
        except (AnthropicError, TransportError) as exc:
            raise _translated(exc) from exc
        count = cast("dict[str, object]", answer).get("input_tokens") if isinstance(answer, dict) else None
        if not isinstance(count, int):
            raise ModelConnectionError(f"the endpoint at {self.base_url} did not answer with a token count")
        return count

    async def aclose(self) -> None:
        """Close all connections.

        Checkpoints: always. Idempotent; also when Cancelled, the connections are closed.
        """
        client, self._client = self._client, None
        if client is None:
            await trio.lowlevel.checkpoint()
            return
        with trio.CancelScope(deadline=trio.current_time() + 5, shield=True):
            await client.close()

    async def _ready_client(self) -> "AsyncAnthropic":
        if self._client is None:
            await self.warm_up()
        assert self._client is not None
        return self._client

    def _build_client(self) -> "AsyncAnthropic":
        import anthropic  # takes seconds; this runs in a thread

        extra = self._extra
        return anthropic.AsyncAnthropic(
            api_key=self._api_key,
            auth_token=self._auth_token,
            base_url=self.base_url,
            max_retries=0,
            timeout=anthropic.Timeout(extra.read_seconds, connect=extra.connect_seconds),
            http_client=extra.http_client,
        )

    def _place_marks(self, request: ModelRequest) -> tuple[Position, ...]:
        if self._mark is None:
            return ()
        end = self._ends.get(request.agent)
        messages = request.messages
        if end is None or end.position.message >= len(messages) or messages[end.position.message] != end.message:
            return place_marks(messages)  # the first request, or the history was edited
        return place_marks(messages, end.position)


class ProviderCompaction:
    """The provider's own compaction as a model: what it is asked, it sums up."""

    def __init__(self, model: AnthropicModel) -> None:
        self._model = model
        self.name = model.name
        self.context_window_tokens = model.context_window_tokens
        self.max_output_tokens = model.max_output_tokens

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Sum up; nothing is said piece by piece.

        Raises: ModelError, by kind.
        Checkpoints: always.
        """
        del on_text
        return await self._model.compact(request)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return the provider's estimate of the request's input tokens.

        Raises: ModelError, by kind.
        Checkpoints: always.
        """
        return await self._model.count_tokens(request)

    async def aclose(self) -> None:
        """Do nothing: the connections are the model's.

        Checkpoints: always.
        """
        await trio.lowlevel.checkpoint()


async def _read(stream: "AsyncStream[object]", assembler: StreamAssembler, on_text: OnText | None) -> None:
    """Feed every event of a stream to the assembler.

    A failure here ends the loop by cancelling it, not by leaving it: only so are all generators below it closed in their
    own task. What the cancelled loop still yields from its buffer is skipped.
    """
    from anthropic import AsyncStream  # its import takes seconds; it was done in the thread

    failure: Exception | None = None
    with trio.CancelScope() as reading:
        async for event in AsyncStream.raw_events(stream.response):
            if failure is not None or not event.data:
                continue
            try:
                _take(event.event, event.data, assembler, on_text, stream.response.headers)
            except Exception as exc:  # noqa: BLE001  # a callback of the user's; raised below
                failure = exc
                reading.cancel()
    if failure is not None:
        raise failure


def _take(kind: str | None, data: str, assembler: StreamAssembler, on_text: OnText | None, headers: Mapping[str, str]) -> None:
    try:
        event = json.loads(data)
    except ValueError as exc:
        raise ModelConnectionError(f"the answer holds an event that is no JSON: {data[:200]!r}") from exc
    if kind == "error" or event.get("type") == "error":
        raise translate(event, status=200, headers=headers, request_id=headers.get("request-id") or event.get("request_id"))
    try:
        text = assembler.feed(event)
    except (KeyError, TypeError) as exc:
        raise ModelConnectionError(f"the answer holds an event of an unknown shape: {data[:200]!r}") from exc
    if text and on_text is not None:
        on_text(text)


def _translated(exc: Exception) -> ModelError:
    """Return the ModelError that an error of the SDK or of its transport stands for."""
    from anthropic import APIConnectionError, APIStatusError, APITimeoutError, CredentialsError
    from httpx2 import TimeoutException

    match exc:
        case APIStatusError():
            headers = {name.lower(): value for name, value in exc.response.headers.items()}
            return translate(exc.body, status=exc.status_code, headers=headers, request_id=exc.request_id)
        case APITimeoutError() | TimeoutException():
            return ModelConnectionError(f"the provider did not answer in time: {str(exc) or type(exc).__name__}")
        case APIConnectionError():
            return ModelConnectionError(f"cannot reach the provider: {exc.__cause__ or exc}")
        case CredentialsError():
            return AuthenticationFailed(str(exc))
        case _:
            return ModelConnectionError(f"the connection was cut in mid-stream: {str(exc) or type(exc).__name__}")
