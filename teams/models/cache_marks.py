"""Where the prompt-cache marks of a request stand.

Laws: at most four marks (last tool, system, the end of the previous request, the newest end); none on thinking or on
empty text; positions only, nothing is changed: marks live in the wire body alone.

The end of the previous request carries a mark again since the provider looks back at most 20 blocks from a mark: one
turn with many parallel calls is longer than that and would miss its own prefix.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from compaction.transcript import ModelMessage

Block: TypeAlias = Mapping[str, Any]

# Blocks that take a mark; thinking never does, and kinds that this version does not know are left alone.
MARKABLE = frozenset(
    {
        "text",
        "image",
        "document",
        "search_result",
        "tool_use",
        "tool_result",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "compaction",
    }
)


class Position(NamedTuple):
    """A block of the message list."""

    message: int
    block: int


def place_marks(messages: Sequence[ModelMessage], previous_end: Position | None = None) -> tuple[Position, ...]:
    """Return the blocks of `messages` that carry a mark, oldest first, at most two.

    Args:
        messages: the list as it will be sent.
        previous_end: where the newest mark stood in the previous request of the same agent. None deduces it: a request
            ends before the assistant message that answered it, so it is the end of what precedes the last of those.
    """
    newest = _last_markable(messages, len(messages) - 1)
    if newest is None:
        return ()
    if previous_end is None or not _is_markable_at(messages, previous_end):
        previous_end = _last_markable(messages, _before_last_answer(messages))
    if previous_end is None or previous_end >= newest:
        return (newest,)
    return (previous_end, newest)


def is_markable(block: Block) -> bool:
    """Tell whether the provider takes a mark on this block."""
    kind = block["type"]
    if kind == "text":
        return bool(block["text"].strip())
    return kind in MARKABLE


def _last_markable(messages: Sequence[ModelMessage], start: int) -> Position | None:
    for index in range(start, -1, -1):
        message = messages[index]
        if message.role == "system":
            continue
        blocks = message.content
        for at in range(len(blocks) - 1, -1, -1):
            if is_markable(blocks[at]):
                return Position(index, at)
    return None


def _is_markable_at(messages: Sequence[ModelMessage], position: Position) -> bool:
    index, at = position
    return index < len(messages) and at < len(messages[index].content) and is_markable(messages[index].content[at])


def _before_last_answer(messages: Sequence[ModelMessage]) -> int:
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "assistant":
            return index - 1
    return -1
