"""The endpoint: checks every request, answers it from a responder, breaks where its plan of faults says so.

Laws: a request is answered with content only if it has the right key, version and headers and breaks no rule; every
request is recorded with its outcome; no connection outlives `open_fake_anthropic`.
"""

import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import trio

from compaction.transcript import message_from_wire
from teams.errors import ScriptMismatch
from teams.models.base import ModelReply, ModelRequest, ToolDefinition, Usage
from teams.models.script import Reply
from teams.models.scripted import ScriptedModel
from teams.testing.fake_anthropic import events
from teams.testing.fake_anthropic.cache import PromptCache, count_tokens
from teams.testing.fake_anthropic.faults import Fault, fault_of, overflow
from teams.testing.fake_anthropic.http import MAX_BODY_BYTES, Connection, Disconnected, HangUp, Request
from teams.testing.fake_anthropic.signatures import forged, sign
from teams.testing.wire_rules import refusal

Body: TypeAlias = dict[str, Any]
Responder: TypeAlias = Callable[[Body], Reply | str | Awaitable[Reply | str]]
AgentOf: TypeAlias = Callable[[Body], str]

_MODEL_NAME = re.compile(r"claude-(?:3|opus|sonnet|haiku|fable|mythos)-[a-z0-9-]+\Z")
_VERSION = re.compile(r"20(?:2[3-9]|[3-9]\d)-[01]\d-[0-3]\d\Z")  # clients of one major version name different days
_BETAS = frozenset(
    {
        "context-management-2025-06-27",
        "compact-2026-01-12",
        "model-context-window-exceeded-2025-08-26",
        "interleaved-thinking-2025-05-14",
        "thinking-binding-controls-2026-08-01",
        "fine-grained-tool-streaming-2025-05-14",
    }
)


@dataclass(slots=True)
class Recorded:
    """One request as it came, and what became of it; `status` stays 0 while it is under way."""

    path: str
    headers: dict[str, str]
    body: Body
    status: int = 0
    error: str = ""
    completed: bool = False
    usage: Usage = field(default_factory=Usage)


class _Refused(Exception):
    def __init__(self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.headers = status, kind, message, dict(headers or {})


class FakeAnthropic:
    """A running endpoint; made by `open_fake_anthropic`.

    `requests` holds every request in the order of arrival, `rejected` the texts of those that broke a rule,
    `disconnects` how many answers were cut off by their client, `open_connections` how many are open now.
    """

    def __init__(self, responder: Responder | ScriptedModel, *, api_key: str, agent_of: AgentOf, context_window_tokens: int) -> None:
        self.base_url = ""
        self.api_key = api_key
        self.context_window_tokens = context_window_tokens
        self.requests: list[Recorded] = []
        self.rejected: list[str] = []
        self.open_connections = 0
        self.disconnects = 0
        self.mismatch: ScriptMismatch | None = None
        self._responder = responder
        self._agent_of = agent_of
        self._plan: deque[Fault | None] = deque()
        self._cache = PromptCache()
        self._changed = trio.Event()
        self._next_id = 1

    def plan(self, *faults: Fault | None) -> None:
        """Queue faults, one for each of the next calls that are valid; None lets a call pass."""
        self._plan.extend(faults)

    async def wait_until(self, holds: Callable[["FakeAnthropic"], bool]) -> None:
        """Wait until a condition on this server holds; it is looked at after every request, answer and disconnect.

        Checkpoints: always.
        """
        await trio.lowlevel.checkpoint()
        while not holds(self):
            await self._changed.wait()

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection to its end."""
        self.open_connections += 1
        connection = Connection(stream)
        try:
            while (request := await connection.next_request()) is not None:
                await connection.answering_while_connected(partial(self._answer, connection, request))
        except HangUp:
            pass
        except Disconnected:
            self.disconnects += 1
        finally:
            self.open_connections -= 1
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _answer(self, connection: Connection, request: Request) -> None:
        recorded = Recorded(request.path, request.headers, {})
        self.requests.append(recorded)
        self._notify()
        request_id = f"req_{len(self.requests):06d}"
        try:
            counting = self._check_http(request, recorded)
            self._check_body(recorded.body, counting=counting)
            if counting:
                recorded.status = 200
                await connection.send_json(200, {"input_tokens": count_tokens(recorded.body)}, {"request-id": request_id})
            else:
                await self._answer_message(connection, recorded, request_id)
            recorded.completed = True
        except _Refused as exc:
            recorded.status, recorded.error = exc.status, exc.message
            body = {"type": "error", "error": {"type": exc.kind, "message": exc.message}, "request_id": request_id}
            await connection.send_json(exc.status, body, {**exc.headers, "request-id": request_id})
        self._notify()

    def _check_http(self, request: Request, recorded: Recorded) -> bool:
        path, headers = request.path.partition("?")[0], request.headers
        if path not in {"/v1/messages", "/v1/messages/count_tokens"}:
            raise _Refused(404, "not_found_error", f"Not Found: {path}")
        if request.method != "POST":
            raise _Refused(405, "invalid_request_error", "Method Not Allowed")
        # The key comes in one of two headers, by the version of the client.
        keys = [headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer ")]
        if not any(keys):
            raise _Refused(401, "authentication_error", "x-api-key header is required")
        if any(key and key != self.api_key for key in keys):
            raise _Refused(401, "authentication_error", "invalid x-api-key")
        if not _VERSION.match(headers.get("anthropic-version", "")):
            raise self._invalid("anthropic-version: header is required")
        if headers.get("content-type", "").partition(";")[0] != "application/json":
            raise self._invalid("content-type: must be application/json")
        for beta in filter(None, headers.get("anthropic-beta", "").split(",")):
            if beta.strip() not in _BETAS:
                raise self._invalid(f"Unexpected value(s) `{beta.strip()}` for the `anthropic-beta` header.")
        if len(request.body) > MAX_BODY_BYTES:
            raise _Refused(413, "request_too_large", "Request exceeds the maximum size")
        try:
            recorded.body = json.loads(request.body, parse_constant=_no_constant)
        except ValueError as exc:
            raise self._invalid(f"The request body is not valid JSON: {exc}") from exc
        return path.endswith("count_tokens")

    def _check_body(self, body: Body, *, counting: bool) -> None:
        if text := refusal(body, counting=counting):
            raise self._invalid(text)
        if not _MODEL_NAME.match(body["model"]):
            raise _Refused(404, "not_found_error", f"model: {body['model']}")
        if text := forged(body):
            raise self._invalid(text)
        if not counting and (tokens := count_tokens(body)) > self.context_window_tokens:
            raise _refused(overflow(tokens, self.context_window_tokens))

    def _invalid(self, text: str) -> _Refused:
        self.rejected.append(text)
        return _Refused(400, "invalid_request_error", text)

    async def _answer_message(self, connection: Connection, recorded: Recorded, request_id: str) -> None:
        body = recorded.body
        fault = self._plan.popleft() if self._plan else None
        if fault is not None and fault.status:
            raise _refused(fault)
        reply = await self._respond(body)
        usage = self._cache.account(body)
        output = reply.usage.output_tokens or 1
        if reply.usage.total_input:  # the script says what the input cost
            usage = reply.usage
        usage = usage._replace(output_tokens=output)
        recorded.usage = usage
        answer = events.Answer(
            request_id.replace("req", "msg"), body["model"], sign(reply.content, body), reply.stop_reason, reply.stop_note, usage
        )
        recorded.status = 200
        if not body.get("stream"):
            await connection.send_json(200, events.whole(answer), {"request-id": request_id})
            return
        await connection.send_head(200, {"content-type": "text/event-stream; charset=utf-8", "request-id": request_id})
        for index, event in enumerate(events.stream(answer)):
            if fault is not None and index == fault.after_events:
                await self._break(fault)
                if fault.kind:
                    await connection.send(events.encode({"type": "error", "error": {"type": fault.kind, "message": fault.message}}))
                    break
            await connection.send(events.encode(event))
        await connection.end()

    async def _break(self, fault: Fault) -> None:
        if fault.hold is not None:
            if fault.entered is not None:
                fault.entered.set()
            await fault.hold.wait()
        if fault.cut:
            raise HangUp

    async def _respond(self, body: Body) -> ModelReply:
        if isinstance(self._responder, ScriptedModel):
            try:
                return await self._responder.complete(_request_of(body, self._agent_of(body)))
            except ScriptMismatch as exc:
                self.mismatch = self.mismatch or exc
                raise _Refused(400, "invalid_request_error", str(exc)) from exc
            except Exception as exc:
                if (fault := fault_of(exc)) is None:
                    raise
                raise _refused(fault) from exc
        answer = self._responder(body)
        reply = answer if isinstance(answer, Reply | str) else await answer
        return await self._play(Reply(({"type": "text", "text": reply},)) if isinstance(reply, str) else reply)

    async def _play(self, reply: Reply) -> ModelReply:
        for hold in reply.holds:
            await hold()
        if reply.error is not None:
            if (fault := fault_of(reply.error)) is None:
                raise reply.error
            raise _refused(fault) from reply.error
        content = [block if block["type"] != "tool_use" or "id" in block else {"id": self._mint(), **block} for block in reply.blocks]
        calls = any(block["type"] == "tool_use" for block in content)
        size = sum(len(json.dumps(block)) for block in content)
        usage = reply.usage or Usage(0, 1 + size // 4)
        return ModelReply(tuple(content), reply.stop_reason or ("tool_use" if calls else "end_turn"), usage, "", reply.stop_note)

    def _mint(self) -> str:
        number, self._next_id = self._next_id, self._next_id + 1
        return f"toolu_fake_{number:06d}"


@asynccontextmanager
async def open_fake_anthropic(
    responder: Responder | ScriptedModel,
    *,
    api_key: str = "test-key",
    agent_of: AgentOf = lambda _body: "agent",
    context_window_tokens: int = 200_000,
) -> AsyncGenerator[FakeAnthropic]:
    """Serve the Messages endpoint on a free port of the loopback while the block runs.

    Args:
        responder: a function of the decoded body (also async), or a scripted model.
        agent_of: whose script a body belongs to, for a scripted model with more than one.
        context_window_tokens: a request that is larger is refused, at four bytes a token.

    Raises:
        ScriptMismatch: on leaving, when a call did not match the script.
    """
    server = FakeAnthropic(responder, api_key=api_key, agent_of=agent_of, context_window_tokens=context_window_tokens)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
        server.base_url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        yield server
        nursery.cancel_scope.cancel()
    if server.mismatch is not None:
        raise server.mismatch


def _refused(fault: Fault) -> _Refused:
    return _Refused(fault.status, fault.kind, fault.message, fault.headers)


def _request_of(body: Body, agent: str) -> ModelRequest:
    system = body.get("system") or ""
    return ModelRequest(
        agent=agent,
        system=system if isinstance(system, str) else "\n".join(block["text"] for block in system),
        messages=[message_from_wire(message) for message in body["messages"]],
        tools=[ToolDefinition(tool["name"], tool.get("description", ""), tool["input_schema"]) for tool in body.get("tools") or ()],
        max_tokens=body["max_tokens"],
        tool_choice=body.get("tool_choice"),
    )


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
