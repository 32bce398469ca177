"""What a tool is, what a call of it is, and what comes back.

- A call has exactly one result, and a result is never empty.
- `effect` is a promise of the tool's author on which the plan gate stands: a tool marked `reads` changes nothing that outlives the call.
- Nothing here runs a handler; `teams.tools.dispatcher` is the only module that does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from protocols.contract import Reach
from protocols.patterns import Parts, path_parts
from teams.tools.schema import HandlerSignature, check_tool_name, is_async

Effect = Literal["reads", "writes"]
Block = Mapping[str, Any]
Handler = Callable[..., Any]

NO_OUTPUT = "(no output)"


class ToolError(Exception):
    """Raised by a handler that could not do what was asked; its text alone is what the model reads."""


class ToolCall(NamedTuple):
    """One call as the model asked for it; nothing in it is validated yet."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What one call came to; `interrupted` when it was cancelled, so that nobody knows how far it went."""

    call_id: str
    content: str | tuple[Block, ...]
    is_error: bool = False
    interrupted: bool = False

    @property
    def text(self) -> str:
        """All text of the content."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text")

    def block(self) -> dict[str, Any]:
        """Make the `tool_result` block of the Messages API; its content is never empty."""
        content: Any = self.content if isinstance(self.content, str) else [dict(block) for block in self.content]
        if not content or (isinstance(content, str) and not content.strip()):
            content = NO_OUTPUT
        made: dict[str, Any] = {"type": "tool_result", "tool_use_id": self.call_id, "content": content}
        if self.is_error or self.interrupted:
            made["is_error"] = True
        return made


class ToolContext:
    """Who calls a tool, and where; handed to every handler that has a parameter annotated with this class."""

    __slots__ = ("agent", "call_id", "progress", "workdir")

    def __init__(
        self, agent: str = "", workdir: Path | None = None, call_id: str = "", progress: Callable[[str], None] | None = None
    ) -> None:
        self.agent, self.workdir, self.call_id, self.progress = agent, workdir, call_id, progress

    def report(self, text: str) -> None:
        """Tell whoever watches the agent how far the call is; nothing happens when nobody does."""
        if self.progress is not None:
            self.progress(text)


class Touches(NamedTuple):
    """What a call of a tool names, for plans and rules, and whether each call needs a permission.

    paths: the parameters that hold a path, or several, relative to the work directory.
    command: the parameter that holds a command line.
    asks: whether somebody must allow each call before it runs, where no rule does.
    resolve: turns a path into its components, with links followed; raises ToolError for one that leads nowhere legal.
    """

    paths: tuple[str, ...] = ()
    command: str | None = None
    asks: bool = False
    resolve: Callable[[str], Parts] | None = None


NOTHING = Touches()


class Tool:
    """A named handler with its effect; built by `tool` or by `ToolDispatcher.register`, and never changed.

    Args:
        name: letters, digits, `_` and `-`, at most 64, as the provider demands.
        handler: a plain or an async function; a plain one runs in a worker thread. Every parameter needs an annotation.
        effect: `writes` unless the tool changes nothing.
        description: what the model is told; the first paragraph of the handler's docstring when None.
        input_schema: shown to the model instead of the schema of the signature; needed for a handler that takes `**kwargs`.
        time_limited: False for a handler that bounds itself (a shell, a wait), so that the dispatcher's limit does not end it.
        touches: what its calls name.

    Raises:
        TypeError: the handler's signature cannot be described to a model.
        ValueError: the name or the effect is not one.
    """

    __slots__ = ("description", "effect", "handler", "is_async", "name", "signature", "time_limited", "touches")

    def __init__(
        self,
        name: str,
        handler: Handler,
        *,
        effect: Effect = "writes",
        description: str | None = None,
        input_schema: Mapping[str, Any] | None = None,
        time_limited: bool = True,
        touches: Touches = NOTHING,
    ) -> None:
        check_tool_name(name)
        if effect not in ("reads", "writes"):
            raise ValueError(f"the effect of tool {name!r} is {effect!r}; legal: 'reads', 'writes'")
        self.name = name
        self.handler = handler
        self.effect: Effect = effect
        self.time_limited = time_limited
        self.touches = touches
        self.is_async = is_async(handler)
        self.signature = HandlerSignature(name, handler, context_type=ToolContext, input_schema=input_schema)
        self.description = self.signature.summary if description is None else description

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the handler itself, without validation, gate or limits: the decorated function stays a function."""
        return self.handler(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name!r} {self.effect}>"

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The JSON schema of the input; the first look builds it."""
        return self.signature.input_schema

    def reach(self, given: Mapping[str, Any]) -> Reach:
        """Return what a call with this input names; the input is a model's, and not validated."""
        touches = self.touches
        paths: list[object] = []
        for name in touches.paths:
            value: object = given.get(name)
            if isinstance(value, list | tuple):
                paths += cast("Sequence[object]", value)
            elif value is not None:
                paths.append(value)
        command = None if touches.command is None else given.get(touches.command)
        return Reach(
            self.name,
            tuple(_parts(path, touches.resolve) for path in paths),
            command if isinstance(command, str) or touches.command is None else "",
        )

    def definition(self) -> dict[str, Any]:
        """Make the tool's entry in a model request: name, description, input_schema."""
        return {"name": self.name, "description": self.description, "input_schema": dict(self.input_schema)}


def _parts(path: object, resolve: Callable[[str], Parts] | None) -> Parts | None:
    if not isinstance(path, str):
        return None
    try:
        return path_parts(path) if resolve is None else resolve(path)
    except ToolError:
        return None


def tool(
    *,
    effect: Effect,
    name: str | None = None,
    description: str | None = None,
    time_limited: bool = True,
    touches: Touches = NOTHING,
) -> Callable[[Handler], Tool]:
    """Make a tool of a function, plain or async: name, description and schema come from the function unless given.

    Raises:
        TypeError: the signature cannot be described to a model (`*args`, `**kwargs`, positional-only or unannotated parameters).
    """

    def decorate(handler: Handler) -> Tool:
        chosen = name if name is not None else getattr(handler, "__name__", "")
        return Tool(chosen, handler, effect=effect, description=description, time_limited=time_limited, touches=touches)

    return decorate
