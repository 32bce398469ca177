"""A model that follows a script, and the script reads what the agent was sent.

Laws: deterministic; a call that the script does not know fails, so does a step that is never used; a call costs the new
messages of its request, never the whole history; one object serves many agents, each with its own place in its script.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

import trio

from compaction.transcript import ModelMessage
from teams.errors import ScriptMismatch
from teams.models.base import Block, ModelReply, ModelRequest, OnText, StopReason, Usage
from teams.models.script import Reply, Step, spoken

Answer: TypeAlias = Reply | str
ScriptFunction: TypeAlias = Callable[[ModelRequest], Answer | Awaitable[Answer]]
Steps: TypeAlias = Sequence[Reply | Step | str | ScriptFunction]
Script: TypeAlias = Steps | ScriptFunction

_BYTES_PER_TOKEN = 4  # a plausible figure is enough: a script's tokens are nobody's money


class _Agent:
    """One agent's place in its script, and what of its history has been counted."""

    __slots__ = ("at", "calls", "function", "last", "seen_bytes", "seen_messages", "steps")

    def __init__(self, script: Script) -> None:
        self.function: ScriptFunction | None = script if callable(script) else None
        self.steps: Steps = () if callable(script) else tuple(script)
        self.at = 0
        self.calls = 0
        self.seen_messages = 0
        self.seen_bytes = 0
        self.last: ModelMessage | None = None


class ScriptedModel:
    """A model whose answers come from a script.

    Args:
        script: a function of the request (also async); or a list of steps, used once each, in order, shared by no one: every
            agent has its own copy of the list; or a mapping from agent name to one of these, where the name "*" is anybody
            else. A step is a Reply, a text, a function, or `expect(...).then(reply)`.

    As a context manager it checks on leaving that no step is unused and that no call failed to match.
    """

    def __init__(
        self,
        script: Script | Mapping[str, Script],
        *,
        name: str = "scripted",
        context_window_tokens: int = 200_000,
        max_output_tokens: int = 64_000,
    ) -> None:
        self.name = name
        self.context_window_tokens = context_window_tokens
        self.max_output_tokens = max_output_tokens
        self.last_requests: dict[str, ModelRequest] = {}
        self._scripts: Mapping[str, Script] = script if isinstance(script, Mapping) else {"*": script}
        self._agents: dict[str, _Agent] = {}
        self._next_id = 1
        self._mismatch: ScriptMismatch | None = None

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.name!r}: {sum(agent.calls for agent in self._agents.values())} calls>"

    @property
    def calls(self) -> dict[str, int]:
        """How often each agent has called."""
        return {name: agent.calls for name, agent in self._agents.items()}

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Answer by the script.

        Raises: ScriptMismatch; whatever a `fail` step holds.
        Checkpoints: always.
        """
        agent = self._agents.get(request.agent) or self._meet(request.agent)
        agent.calls += 1
        self.last_requests[request.agent] = request
        old, new = self._count(agent, request)
        answer = agent.function(request) if agent.function is not None else self._next_step(agent, request)
        if not isinstance(answer, Reply | str):
            answer = await answer
        if isinstance(answer, str):
            answer = Reply(({"type": "text", "text": answer},))
        if answer.holds:
            for hold in answer.holds:
                await hold()
        await trio.lowlevel.checkpoint()
        if answer.error is not None:
            raise answer.error
        reply = self._build(answer, old, new)
        if on_text is not None and reply.text:
            on_text(reply.text)
        return reply

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return the request's bytes by four.

        Checkpoints: always.
        """
        await trio.lowlevel.checkpoint()
        return (sum(len(message.json) for message in request.messages) + len(request.system)) // _BYTES_PER_TOKEN

    async def aclose(self) -> None:
        """Do nothing: there is no connection.

        Checkpoints: always.
        """
        await trio.lowlevel.checkpoint()

    def verify(self) -> None:
        """Check that the script was followed to its end.

        Raises: ScriptMismatch: a step was never used, or a call did not match (also when its error was swallowed).
        """
        if self._mismatch is not None:
            raise self._mismatch
        left = [
            f"{name!r} used {agent.at} of {len(agent.steps)} steps" for name, agent in self._agents.items() if agent.at < len(agent.steps)
        ]
        left += [
            f"{name!r} never called"
            for name, script in self._scripts.items()
            if name not in self._agents and name != "*" and not callable(script) and script
        ]
        if not self._agents and not callable(script := self._scripts.get("*", ())) and script:
            left.append("nobody ever called")
        if left:
            raise ScriptMismatch(f"the script was not played to its end: {'; '.join(left)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        if exc is None:
            self.verify()

    def _meet(self, name: str) -> _Agent:
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts.get("*")
        if script is None:
            raise self._mismatched(f"no script for agent {name!r}; there are scripts for {', '.join(sorted(self._scripts)) or 'nobody'}")
        agent = self._agents[name] = _Agent(script)
        return agent

    def _next_step(self, agent: _Agent, request: ModelRequest) -> Answer | Awaitable[Answer]:
        if agent.at >= len(agent.steps):
            used = f"the script of {request.agent!r} has {len(agent.steps)} steps and this is call {agent.calls}"
            raise self._mismatched(f"an extra call: {used}; {_seen(request)}")
        step = agent.steps[agent.at]
        if isinstance(step, Step):
            if missing := step.expectation.unmet(request):
                raise self._mismatched(f"step {agent.at + 1} of {request.agent!r} expected {missing}; {_seen(request)}")
            step = step.reply
        agent.at += 1
        return step if isinstance(step, Reply | str) else step(request)

    def _mismatched(self, message: str) -> ScriptMismatch:
        error = ScriptMismatch(message)
        self._mismatch = self._mismatch or error
        return error

    def _count(self, agent: _Agent, request: ModelRequest) -> tuple[int, int]:
        """Return the tokens of the history that the agent's last request held, and of what is new."""
        messages = request.messages
        seen = agent.seen_messages
        if seen > len(messages) or (seen and messages[seen - 1] is not agent.last and messages[seen - 1] != agent.last):
            seen = agent.seen_messages = agent.seen_bytes = 0
        if not seen:
            self._pass_by(messages)
        old = agent.seen_bytes
        new = len(request.system) if not seen else 0
        for index in range(seen, len(messages)):
            new += len(messages[index].json)
        agent.seen_messages = len(messages)
        agent.seen_bytes = old + new
        agent.last = messages[-1] if messages else None
        return old // _BYTES_PER_TOKEN, new // _BYTES_PER_TOKEN

    def _pass_by(self, messages: Iterable[ModelMessage]) -> None:
        # A history from an earlier process holds ids that this model must not give out again.
        for message in messages:
            if message.role == "assistant":
                for block in message.tool_calls:
                    tail = str(block.get("id", "")).rpartition("_")[2]
                    if tail.isdecimal():
                        self._next_id = max(self._next_id, int(tail) + 1)

    def _build(self, answer: Reply, old: int, new: int) -> ModelReply:
        content = answer.blocks
        reason: StopReason = "end_turn"
        size = 0
        for index, block in enumerate(content):
            if block["type"] == "tool_use":
                if "id" not in block:
                    content = (*content[:index], self._with_id(block), *content[index + 1 :])
                reason = "tool_use"
                size += 40
            else:
                size += len(block.get("text") or block.get("thinking") or "")
        usage = answer.usage or Usage(new, 1 + size // _BYTES_PER_TOKEN, 0, old)
        return ModelReply(content, answer.stop_reason or reason, usage, self.name, answer.stop_note)

    def _with_id(self, block: Block) -> dict[str, Any]:
        number, self._next_id = self._next_id, self._next_id + 1
        return {"type": "tool_use", "id": f"toolu_{number:06d}", "name": block["name"], "input": block["input"]}


def _seen(request: ModelRequest) -> str:
    newest = next((message for message in reversed(request.messages) if message.role == "user"), None)
    return f"the last user message was {spoken(newest)[-600:]!r}" if newest is not None else "there was no user message"
