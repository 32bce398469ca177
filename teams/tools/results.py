"""From what a handler returned or raised to what the model reads.

- Every value becomes text, content blocks, or a `ToolError` that names its type; nothing is dropped in silence.
- A text that was cut has at most the characters it was given, and says how many are gone.
- The text can be sent: no lone surrogates.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import date, datetime, time
from enum import Enum
from pathlib import PurePath
from typing import Any, cast

from teams.tools.base import Block, ToolError

_BLOCK_TYPES = frozenset({"text", "image", "document", "search_result", "tool_reference"})  # what a tool_result may hold
_ERROR_LEAVES = 5
_ERROR_CHARS = 4000


def to_content(value: object) -> str | tuple[Block, ...]:
    """Make content of a handler's return value: text and bytes as they are, simple values by `str`, structures as JSON.

    Raises:
        ToolError: the value, or something inside it, has no textual form; the text names the type.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast("bytes", value)).decode("utf-8", "replace")
    if isinstance(value, Enum):
        return to_content(value.value)
    if isinstance(value, bool | int | float | PurePath):
        return str(value)
    return _as_blocks(value) or _to_json(value)


def _as_blocks(value: object) -> tuple[Block, ...] | None:
    """Copy a tuple that consists of content blocks; any other is a structure like a list."""
    if not isinstance(value, tuple):
        return None
    items = cast("Sequence[Any]", value)
    if items and all(isinstance(item, Mapping) and cast("Block", item).get("type") in _BLOCK_TYPES for item in items):
        return tuple(dict(block) for block in items)
    return None


def _to_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain)
    except TypeError as error:
        raise ToolError(f"the tool returned a {_kind(value)} that is no text and has no JSON form: {error}") from error
    except (ValueError, RecursionError) as error:  # a structure that contains itself
        raise ToolError(f"the tool returned a {_kind(value)} that has no JSON form: {error}") from error


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # a pydantic model, without importing pydantic to ask
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(cast("dict[Any, Any]", value))
    if isinstance(value, set | frozenset):
        return sorted(cast("set[Any]", value), key=repr)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise TypeError(f"a {_kind(cast('object', value))} is not text")


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def sendable(text: str) -> str:
    """Replace what UTF-8 cannot carry, the lone surrogates that undecodable file names leave behind."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def cut_middle(text: str, limit_chars: int, *, note: str = "") -> str:
    """Keep head and tail of a text, at most `limit_chars` in all, with a marker that says how many characters are gone.

    A limit too small for the marker keeps the head alone. Costs as much as the limit, not as the text.
    """
    if len(text) <= limit_chars:
        return text
    # The count's width depends on the count: reserve for the widest one.
    reserved = len(_marker(len(text), note))
    if reserved >= limit_chars:
        return text[:limit_chars]
    kept = limit_chars - reserved
    head = (kept + 1) // 2
    tail = kept - head
    return f"{text[:head]}{_marker(len(text) - kept, note)}{text[len(text) - tail :]}"


def _marker(count: int, note: str) -> str:
    return f"\n[... {count:,} characters left out{note} ...]\n"


def describe_error(error: BaseException) -> str:
    """Say what an exception is in the words that a model can use: a `ToolError` its text, others type and text, groups their leaves."""
    leaves = list(_leaves(error))
    said = [_describe(leaf) for leaf in leaves[:_ERROR_LEAVES]]
    if len(leaves) > _ERROR_LEAVES:
        said.append(f"and {len(leaves) - _ERROR_LEAVES} more")
    return cut_middle(sendable("; ".join(said)), _ERROR_CHARS)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _describe(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # a foreign __str__, at the boundary of a tool call
        text = "(its text could not be made)"
    if isinstance(error, ToolError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
