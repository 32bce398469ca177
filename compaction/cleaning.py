"""Repair what is wrong inside one message, seen alone.

Laws: a message that is right is returned itself; cleaning a clean message changes nothing. What is between messages (roles,
pairs of calls and results, ids) is the business of compaction.repair.
"""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from compaction.images import MAX_BASE64_CHARS, MAX_SIDE_PX, read_head, source_of
from compaction.transcript import SERVER_CALL_TYPES, Block, ModelMessage, as_block, is_server_result

ID_PATTERN = re.compile(r"\A[a-zA-Z0-9_-]+\Z")
NO_OUTPUT = "(no output)"
IMAGE_UNREADABLE = "[an image that could not be read was removed]"

# Fields that the provider takes; others are refused (V11). Cache marks are set on the wire, never kept in a message.
FIELDS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "citations"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input", "caller", "toolset_name"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "toolset_name"}),
    "image": frozenset({"type", "source"}),
    "document": frozenset({"type", "source", "title", "context", "citations"}),
}
RESULT_PARTS = frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"})


def clean(message: ModelMessage) -> ModelMessage:
    """Return the message without what is wrong inside it, the same object when nothing is; its content may become empty."""
    if message.cleaned is None:
        cleaned = _clean(message)
        message.cleaned = True if cleaned is message else cleaned
    return message if message.cleaned is True else message.cleaned


def is_clean(message: ModelMessage) -> bool:
    """Tell whether nothing is wrong inside a message, except that it may be empty."""
    return clean(message) is message


def blank(text: object) -> bool:
    """Tell whether a text is none: not a string, empty, or white space only (V08)."""
    return not isinstance(text, str) or not text or text.isspace()


def _clean(message: ModelMessage) -> ModelMessage:
    source = message.content if message.well_formed else tuple(cast("Block", _well_formed(block)) for block in message.content)
    blocks: list[Block] = []
    right = source is message.content
    for block in source:
        cleaned = _clean_block(block, message.role)
        right = right and cleaned is block
        if cleaned is not None:
            blocks.append(cleaned)
    return message if right else ModelMessage(message.role, blocks)


def _clean_block(block: Block, role: str) -> Block | None:
    kind = block.get("type")
    if not isinstance(kind, str):
        return None
    known = FIELDS.get(kind)
    if known is not None and not known.issuperset(block):
        block = {key: value for key, value in block.items() if key in known}
    elif "cache_control" in block:
        block = {key: value for key, value in block.items() if key != "cache_control"}
    if role == "system" and kind != "text":
        return None
    if role != "assistant" and (kind in SERVER_CALL_TYPES or is_server_result(block)):
        return None
    match kind:
        case "text":
            return None if blank(block.get("text")) else block
        case "thinking":
            signed = role == "assistant" and bool(block.get("signature")) and isinstance(block.get("thinking"), str)
            return block if signed else None
        case "redacted_thinking":
            return block if role == "assistant" and block.get("data") else None
        case "tool_use":
            return _clean_call(block) if role == "assistant" else None
        case "tool_result":
            return _clean_result(block) if role == "user" else None
        case "image":
            return clean_image(block)
        case _:
            return block


def _clean_call(block: Block) -> Block:
    if isinstance(block.get("input"), Mapping) and not blank(block.get("name")) and isinstance(block.get("id"), str):
        return block
    name = "unknown" if blank(block.get("name")) else block.get("name")
    return {**block, "id": str(block.get("id")), "name": name, "input": _as_object(block.get("input"))}


def _as_object(value: object) -> dict[str, Any]:
    """Return a call's input as an object: JSON in a string is read, anything else is put under a key."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    return {} if value is None or value == "" else {"value": value}


def _clean_result(block: Block) -> Block:
    content = block.get("content")
    if isinstance(content, str):
        bad = blank(content) and (content or block.get("is_error"))
        return {**block, "content": NO_OUTPUT} if bad else block
    if content is None:
        return {**block, "content": NO_OUTPUT}
    if not isinstance(content, list | tuple):
        return {**block, "content": json.dumps(content, ensure_ascii=False)}
    parts = cast("Sequence[object]", content)
    cleaned = [part for raw in parts if (part := _clean_part(as_block(raw))) is not None]
    if not cleaned:
        return {**block, "content": NO_OUTPUT}
    if len(cleaned) == len(parts) and all(a is b for a, b in zip(cleaned, parts, strict=True)):
        return block
    return {**block, "content": cleaned}


def _clean_part(part: Block) -> Block | None:
    kind = part.get("type")
    if kind not in RESULT_PARTS:
        return {"type": "text", "text": json.dumps(dict(part), ensure_ascii=False)}
    return _clean_block(part, "user")


def clean_image(block: Block) -> Block:
    """Return an image that the provider can read, with its true media type; a text in its place when it cannot be one."""
    source = source_of(block)
    if source.get("type") != "base64":
        return block if source.get("type") in {"url", "file"} else {"type": "text", "text": IMAGE_UNREADABLE}
    data = source.get("data")
    if not isinstance(data, str) or len(data) > MAX_BASE64_CHARS:
        return {"type": "text", "text": IMAGE_UNREADABLE}
    facts = read_head(data)
    if facts.media_type is None or not 0 < max(facts.width, facts.height) <= MAX_SIDE_PX:
        return {"type": "text", "text": IMAGE_UNREADABLE}
    if source.get("media_type") == facts.media_type:
        return block
    return {**block, "source": {**source, "media_type": facts.media_type}}


def _well_formed(value: object) -> object:
    """Return JSON in which every lone surrogate became the replacement character."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {_well_formed(key): _well_formed(part) for key, part in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_well_formed(part) for part in cast("Sequence[object]", value)]
    return value
