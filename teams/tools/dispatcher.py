"""Running tool calls: the one door between a model's wish and a handler.

- Every call comes to exactly one result. Unknown tools, refusals, wrong arguments, exceptions and time limits are error results;
  only `Cancelled` and its kin pass through.
- The gate is asked at the moment of the call, before the arguments are even validated, and nothing awaits between its yes and the
  handler's first step: what it refuses has run no code of the tool's author. Where it must wait for somebody, it is asked again after.
- After the definitions were read the set of tools cannot change: the model's prompt prefix stays what it was.
"""

import difflib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import trio

from teams.errors import RegistryFrozen
from teams.tools.base import NO_OUTPUT, Block, Effect, Handler, Tool, ToolCall, ToolContext, ToolError, ToolResult
from teams.tools.processes import DEFAULT_ENDING
from teams.tools.results import cut_middle, describe_error, sendable, to_content
from teams.tools.schema import InvalidArguments

Verdict = str | Callable[[], Awaitable[None]] | None
"""Of a gate: None lets the call run, a text refuses it, and what is neither is awaited, after which the gate is asked again."""
Gate = Callable[[Tool, ToolCall], Verdict]
Cap = Callable[[str], str]
Overflow = Callable[[str], str]
OnError = Callable[[ToolCall, BaseException], None]

_T = TypeVar("_T")
_CUTOFF = 0.5  # of difflib's ratio: `Write_File` and `writefile` find `write_file`
_THREADED_CHARS = 1_000_000  # a cap of the caller's that may write this much to a disk leaves the loop
_LISTED = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLimits:
    """What one call may take.

    Args:
        time_seconds: after which a handler is cancelled; None for no limit.
        output_chars: of text that enters the context; None for no limit.
        threads: how many plain (not async) handlers run at once; an abandoned one counts until it ends.
        cancel_seconds: that a command of `bash` has after SIGTERM, before it is killed.
        kill_seconds: that a killed one is waited for.
    """

    time_seconds: float | None = 120.0
    output_chars: int | None = 50_000
    threads: int = 20
    cancel_seconds: float = DEFAULT_ENDING.cancel_seconds
    kill_seconds: float = DEFAULT_ENDING.kill_seconds

    def __post_init__(self) -> None:
        for name in ("time_seconds", "output_chars", "threads", "cancel_seconds", "kill_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, or None for no limit, not {value!r}")


class ToolDispatcher:
    """A set of tools and the way to call them.

    Args:
        limits: for every call.
        workdir: handed to the tools in their context, for `dispatch`.
        cap: shortens a text over `limits.output_chars` (an arrival cap, which keeps the full text elsewhere); default: head and tail.
        overflow: takes the full text of an output over the limit and returns where it can be found, which the marker then says.
            `cap` and `overflow` run in a worker thread for texts over a million characters.
        on_error: is told of every exception that became an error result.
    """

    def __init__(
        self,
        tools: Iterable[Tool | Handler] = (),
        *,
        limits: ToolLimits | None = None,
        workdir: Path | None = None,
        cap: Cap | None = None,
        overflow: Overflow | None = None,
        on_error: OnError | None = None,
    ) -> None:
        self.limits = limits or ToolLimits()
        self.workdir = workdir
        self._cap, self._overflow, self._on_error = cap, overflow, on_error
        self._tools: dict[str, Tool] = {}
        self._definitions: list[dict[str, Any]] | None = None
        self._threads: trio.CapacityLimiter | None = None
        self._memo: dict[Callable[..., Any], Any] = {}
        self.register_many(tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tools, in the order of registration."""
        return tuple(self._tools)

    def get(self, name: object) -> Tool | None:
        """Find a tool by its exact name."""
        return self._tools.get(name) if isinstance(name, str) else None

    def writes(self, name: object) -> bool:
        """Tell whether a call of this name could change anything; a tool that does not exist cannot."""
        tool = self.get(name)
        return tool is not None and tool.effect != "reads"

    @property
    def frozen(self) -> bool:
        """Whether the definitions were read, so that nothing can be registered any more."""
        return self._definitions is not None

    def register(
        self,
        name: str,
        handler: Handler,
        description: str | None = None,
        input_schema: Mapping[str, Any] | None = None,
        effect: Effect = "writes",
    ) -> Tool:
        """Make a tool of a handler and add it; description and schema come from the handler unless given.

        Raises:
            RegistryFrozen: the definitions were read already.
            TypeError: the handler's signature cannot be described to a model.
            ValueError: the name is taken or cannot be a tool's.
        """
        self._refuse_when_frozen(name)
        return self.add(Tool(name, handler, effect=effect, description=description, input_schema=input_schema))

    def register_many(self, tools: Mapping[str, Handler] | Iterable[Tool | Handler]) -> None:
        """Add several: tools, plain functions under their own names, or a mapping of names to functions; all or none.

        Raises: as `register`.
        """
        made: list[Tool] = []
        pairs: list[tuple[str | None, Tool | Handler]]
        if isinstance(tools, Mapping):
            pairs = list(cast("Mapping[str | None, Tool | Handler]", tools).items())
        else:
            pairs = [(None, item) for item in tools]
        for name, item in pairs:
            if isinstance(item, Tool) and name in (None, item.name):
                made.append(item)
            elif isinstance(item, Tool):
                raise ValueError(f"the tool {item.name!r} cannot be registered as {name!r}; a tool keeps its name")
            else:
                made.append(Tool(name if name is not None else getattr(item, "__name__", ""), item))
        names = [item.name for item in made]
        for name in names:
            self._check_free(name)
        if len(set(names)) < len(names):
            raise ValueError(f"two tools of one name among {', '.join(names)}")
        for item in made:
            item.signature.resolve()
        for item in made:
            self._tools[item.name] = item

    def add(self, tool: Tool) -> Tool:
        """Add a tool that is already made.

        Raises: as `register`.
        """
        self._check_free(tool.name)
        tool.signature.resolve()
        self._tools[tool.name] = tool
        return tool

    def _check_free(self, name: str) -> None:
        self._refuse_when_frozen(name)
        if name in self._tools:
            raise ValueError(f"there is a tool named {name!r} already; tools: {', '.join(self._tools)}")

    def _refuse_when_frozen(self, name: str) -> None:
        if self.frozen:
            raise RegistryFrozen(
                f"cannot register {name!r}: the definitions were read, and the set of tools is fixed since; register it before"
            )

    def freeze(self) -> None:
        """Fix the set of tools and build all schemas.

        Raises:
            TypeError: an annotation has no JSON form.
        """
        if self._definitions is None:
            self._definitions = [tool.definition() for tool in self._tools.values()]

    def get_tool_definitions(self) -> list[dict[str, Any]]:
        """Return what a model request lists, in the order of registration: name, description, input_schema. Freezes the set.

        Raises: as `freeze`.
        """
        self.freeze()
        assert self._definitions is not None
        return list(self._definitions)

    def memo(self, compute: Callable[[Sequence[Mapping[str, Any]]], _T]) -> _T:
        """Return what a pure function derives from the definitions; freezes them, and calls each function once.

        Agents share a dispatcher by the thousand, and what they derive from it is the same for all.
        """
        if compute not in self._memo:
            self._memo[compute] = compute(self.get_tool_definitions())
        return cast("_T", self._memo[compute])

    async def dispatch(self, name: str, /, **arguments: Any) -> str:
        """Call one tool by name and return its text; what went wrong is text as well, never an exception.

        Checkpoints: as the handler does.
        """
        result = await self.call(ToolCall("", name, arguments), ToolContext(workdir=self.workdir))
        return result.text or NO_OUTPUT

    async def call(self, call: ToolCall, context: ToolContext, *, gate: Gate | None = None) -> ToolResult:
        """Run one call of a model and return its one result.

        Asked in this order: does the tool exist, does the gate let it pass, are the arguments right; then the handler runs, for at most
        the time limit. A plain handler runs in a worker thread, which is abandoned at the limit or at a cancellation: its result is then
        thrown away, but it cannot be stopped.

        Checkpoints: as the handler does; when Cancelled, how far the handler went is not known.
        """
        try:
            tool = self.get(call.name)  # any object: a model wrote it
            if tool is None:
                return ToolResult(call.id, self._unknown(call.name), is_error=True)
            while gate is not None and (verdict := gate(tool, call)) is not None:
                if isinstance(verdict, str):
                    return ToolResult(call.id, verdict or f"{call.name} was refused", is_error=True)
                await verdict()
            arguments = tool.signature.validate(call.input)
            if tool.signature.wants_context is not None:
                arguments[tool.signature.wants_context] = context
            return await self._run(tool, call, arguments)
        except InvalidArguments as error:
            return ToolResult(call.id, sendable(str(error)), is_error=True)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the boundary of a tool call; SystemExit: `exit()` in a tool ends no team
            if self._on_error is not None:
                self._on_error(call, error)
            return ToolResult(call.id, describe_error(error), is_error=True)

    def _unknown(self, name: object) -> str:
        listed = ", ".join(list(self._tools)[:_LISTED]) or "none"
        near = difflib.get_close_matches(str(name)[-64:].lower().rpartition(".")[2], self._tools, n=3, cutoff=_CUTOFF)
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        return sendable(f"there is no tool named {cut_middle(repr(name), 80)}{hint} Available tools: {listed}")

    async def _run(self, tool: Tool, call: ToolCall, arguments: dict[str, Any]) -> ToolResult:
        seconds = self.limits.time_seconds if tool.time_limited else None
        if seconds is None:
            value = await self._invoke(tool, arguments)
        else:
            value = None
            with trio.CancelScope(deadline=trio.current_time() + seconds) as scope:
                value = await self._invoke(tool, arguments)
            if scope.cancelled_caught:
                raise ToolError(f"{tool.name} was stopped: it did not finish within its limit of {seconds:g} seconds")
        is_error = False
        if isinstance(value, ToolResult):  # a handler that reports a failure with content of its own
            is_error, value = value.is_error, value.content
        content = to_content(value)
        if isinstance(content, str):
            return ToolResult(call.id, await self._bounded(content), is_error)
        return ToolResult(call.id, await self._bounded_blocks(content), is_error)

    async def _invoke(self, tool: Tool, arguments: dict[str, Any]) -> object:
        if tool.is_async:
            return await tool.handler(**arguments)
        if self._threads is None:
            self._threads = trio.CapacityLimiter(self.limits.threads)
        value = await trio.to_thread.run_sync(partial(tool.handler, **arguments), abandon_on_cancel=True, limiter=self._threads)
        return await value if inspect.isawaitable(value) else value

    async def _bounded(self, text: str) -> str:
        limit = self.limits.output_chars
        if limit is None or len(text) <= limit:
            return sendable(text) if text and not text.isspace() else NO_OUTPUT
        if self._cap is None and self._overflow is None:
            return sendable(cut_middle(text, limit))
        if len(text) < _THREADED_CHARS:
            return self._shorten(text, limit)
        return await trio.to_thread.run_sync(self._shorten, text, limit)

    def _shorten(self, text: str, limit: int) -> str:
        text = sendable(text)
        if self._overflow is not None:
            text = cut_middle(text, limit, note=f"; the full text is at {self._overflow(text)}")
        return text if self._cap is None else self._cap(text)

    async def _bounded_blocks(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        bounded: list[Block] = []
        for block in blocks:
            text = block.get("text")
            bounded.append({**block, "text": await self._bounded(text)} if isinstance(text, str) else block)
        return tuple(bounded)
