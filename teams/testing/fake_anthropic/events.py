"""One answer as the events of a stream, and as the one object of a call without a stream."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from teams.models.base import Usage

_PIECE = 9  # characters of text or JSON in one delta: small, so that every answer comes in pieces


class Answer(NamedTuple):
    """What the endpoint answers."""

    message_id: str
    model: str
    content: Sequence[Mapping[str, Any]]
    stop_reason: str
    stop_note: str
    usage: Usage


def whole(answer: Answer) -> dict[str, Any]:
    """Return the answer of a call without a stream."""
    return {
        **_head(answer),
        "content": [dict(block) for block in answer.content],
        "stop_reason": answer.stop_reason,
        "usage": answer.usage._asdict(),
    }


def stream(answer: Answer) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream.

    A call that is the last block of an answer which ended at `max_tokens` is cut off in the middle of its input.
    """
    start = answer.usage._asdict() | {"output_tokens": 1}
    yield {"type": "message_start", "message": {**_head(answer), "content": [], "stop_reason": None, "usage": start}}
    for index, block in enumerate(answer.content):
        first, deltas = _taken_apart(block)
        if answer.stop_reason == "max_tokens" and index == len(answer.content) - 1 and block["type"] == "tool_use":
            deltas = deltas[: len(deltas) // 2]
        yield {"type": "content_block_start", "index": index, "content_block": first}
        if index == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    details = {"type": "refusal", "category": answer.stop_note} if answer.stop_note else None
    delta = {"stop_reason": answer.stop_reason, "stop_sequence": None, "stop_details": details}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": answer.usage.output_tokens}}
    yield {"type": "message_stop"}


def encode(event: Mapping[str, Any]) -> bytes:
    """Return one event as it stands on the wire."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _head(answer: Answer) -> dict[str, Any]:
    return {"id": answer.message_id, "type": "message", "role": "assistant", "model": answer.model, "stop_sequence": None}


def _taken_apart(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block as it starts, and the deltas that complete it; null fields as the provider sends them."""
    kind = block["type"]
    if kind == "text":
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        return {**block, "text": "", "citations": None}, deltas
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
        return {**block, "thinking": "", "signature": ""}, [*deltas, {"type": "signature_delta", "signature": block["signature"]}]
    if kind in {"tool_use", "server_tool_use"}:
        text = json.dumps(block["input"]) if block["input"] else ""
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *_pieces(text)]]
    return dict(block), []


def _pieces(text: str) -> list[str]:
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
