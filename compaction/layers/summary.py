"""Layer 1: older turns become one summary, which is merged with the one before; the newest turns stay word for word.

The call of the model is made outside (`compaction.summarizer`); here is what goes into it as plain text, and what becomes of its answer.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from compaction.draft import Draft, Frame
from compaction.encoding import dumps
from compaction.layers.arrival import cap
from compaction.layers.split import Cut, draft_cut
from compaction.transcript import Block, ModelMessage, parts_of

INPUT_LIMIT_CHARS = 1_000
RESULT_LIMIT_CHARS = 2_000


def apply(draft: Draft, frame: Frame, cut: Cut, text: str) -> Draft:
    """Return the draft in which this summary stands for what the cut takes away."""
    return replace(draft_cut(draft, cut, frame), kind="summary", summary=text)


def as_text(messages: Iterable[ModelMessage]) -> str:
    """Return messages as a protocol that is read, not continued: who said, called and got what; long bodies are shortened."""
    names: dict[str, str] = {}
    return "\n\n".join(line for message in messages for line in _lines(message, names))


def _lines(message: ModelMessage, names: dict[str, str]) -> Iterator[str]:
    for block in message.content:
        match block.get("type"):
            case "text":
                yield f"[{message.role}] {block.get('text', '')}"
            case "tool_use":
                name = names[str(block.get("id"))] = str(block.get("name"))
                yield f"[{message.role} called {name}] {cap(dumps(block.get('input')), INPUT_LIMIT_CHARS).text}"
            case "tool_result":
                name = names.get(str(block.get("tool_use_id")), "a tool")
                failed = ", an error" if block.get("is_error") else ""
                yield f"[result of {name}{failed}] {cap(_result_text(block), RESULT_LIMIT_CHARS).text}"
            case "thinking" | "redacted_thinking":
                continue
            case other:
                yield f"[{message.role}: {other}]"


def _result_text(block: Block) -> str:
    def shown(part: Block) -> Any:
        return part.get("text", "") if part.get("type") == "text" else f"({part.get('type')})"

    return "\n".join(str(shown(part)) for part in parts_of(block))
