"""The words of a scripted model: what it answers, and what it expects to have been sent.

`say("On it.") + call("read_file", path="a.py") + call("glob", pattern="*.py")` is one reply of three blocks.
`expect(tool_result="3 failed").then(call("edit_file", ...))` is a step that first looks at the request.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import trio

from compaction.transcript import ModelMessage
from teams.models.base import Block, ModelRequest, StopReason, Usage

Hold: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model does in one call; `+` joins two, what the second one sets wins.

    `holds` are awaited in order before anything is answered, `error` is raised instead of an answer, `stop_reason` and
    `usage` are worked out where they are None. Calls get their ids from the model.
    """

    blocks: tuple[Block, ...] = ()
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    error: BaseException | None = None
    holds: tuple[Hold, ...] = ()
    stop_note: str = ""

    def __add__(self, other: "Reply") -> "Reply":
        return Reply(
            self.blocks + other.blocks,
            other.stop_reason or self.stop_reason,
            other.usage or self.usage,
            other.error or self.error,
            self.holds + other.holds,
            other.stop_note or self.stop_note,
        )

    def stopping(self, stop_reason: StopReason, note: str = "") -> "Reply":
        """Return the reply with another stop reason."""
        return replace(self, stop_reason=stop_reason, stop_note=note)

    def costing(self, usage: Usage) -> "Reply":
        """Return the reply with the usage that it reports."""
        return replace(self, usage=usage)


def say(text: str) -> Reply:
    """Answer text."""
    return Reply(({"type": "text", "text": text},))


def call(name: str, /, **inputs: Any) -> Reply:
    """Call a tool."""
    return Reply(({"type": "tool_use", "name": name, "input": inputs},))


def think(text: str, *, signature: str = "scripted-signature") -> Reply:
    """Think, signed."""
    return Reply(({"type": "thinking", "thinking": text, "signature": signature},))


def blocked(until: trio.Event, *, entered: trio.Event | None = None) -> Reply:
    """Wait for an event before answering; `entered` is set when the call has arrived here."""

    async def hold() -> None:
        if entered is not None:
            entered.set()
        await until.wait()

    return Reply(holds=(hold,))


def delayed(seconds: float) -> Reply:
    """Wait before answering, by trio's clock."""

    async def hold() -> None:
        await trio.sleep(seconds)

    return Reply(holds=(hold,))


def fail(error: BaseException) -> Reply:
    """Raise instead of answering."""
    return Reply(error=error)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a request must hold for a step to be the right one; see `expect`."""

    contains: tuple[str, ...] = ()
    tool_result: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    where: Callable[[ModelRequest], bool] | None = None

    def then(self, reply: Reply) -> "Step":
        """Make the step that answers a request which meets this."""
        return Step(self, reply)

    def unmet(self, request: ModelRequest) -> str | None:
        """Return what is missing in the request, None when it meets everything."""
        newest = request.messages[-1] if request.messages else ModelMessage("user", "")
        text = spoken(newest)
        results = "\n".join(block_text(block) for block in newest.tool_results)
        names = {tool.name for tool in request.tools}
        places = (
            (self.contains, text, "the last message to contain"),
            (self.tool_result, results, "a tool result of the last message to contain"),
            (self.system, request.system, "the system prompt to contain"),
        )
        for wanted, place, what in places:
            for part in wanted:
                if part not in place:
                    return f"{what} {part!r}"
        for name in self.tools:
            if name not in names:
                return f"a tool named {name!r} among {sorted(names)}"
        if self.where is not None and not self.where(request):
            return f"the request to satisfy {getattr(self.where, '__name__', 'a condition')}"
        return None


@dataclass(frozen=True, slots=True)
class Step:
    """One call that a script knows: what it expects of the request, and its reply."""

    expectation: Expectation
    reply: Reply


def expect(
    *,
    contains: str | tuple[str, ...] = (),
    tool_result: str | tuple[str, ...] = (),
    system: str | tuple[str, ...] = (),
    tools: tuple[str, ...] = (),
    where: Callable[[ModelRequest], bool] | None = None,
) -> Expectation:
    """Say what the next request must hold.

    Args:
        contains: parts of the last message, tool results included.
        tool_result: parts of the tool results in the last message.
        system: parts of the system prompt.
        tools: names of tools that must be offered.
        where: any other condition.
    """
    return Expectation(_parts(contains), _parts(tool_result), _parts(system), tools, where)


def spoken(message: ModelMessage) -> str:
    """Return all text of a message, that of its tool results included."""
    return "\n".join(block_text(block) for block in message.content)


def block_text(block: Block) -> str:
    """Return the text of one block: text, a tool result's content, or nothing."""
    content = block.get("text") or block.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(block_text(inner) for inner in cast("list[Mapping[str, Any]]", content))


def _parts(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value
