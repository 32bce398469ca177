"""The events of one streamed answer, put together to a reply.

Laws: pure, no I/O; deltas and ends go by the index of their block (llama.cpp leaves all blocks open until the answer ends); a
block that did not end is not in the reply, nor is a tool call that the limit cut off; signatures and inputs come out as they
came in; null fields are left out, since the provider refuses them when the block is sent back. Stop reasons that this version
does not know are kept in `stop_note` and treated as `tool_use` when there are complete calls (they must be answered) and as
`end_turn` otherwise.
"""

import json
from collections.abc import Mapping
from typing import Any, cast, get_args

from teams.errors import ModelConnectionError
from teams.models.base import Block, ModelReply, StopReason, Usage

_KNOWN_STOPS = frozenset(get_args(StopReason))
# After these the last block may be a torso.
_CUT_STOPS = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})
# delta type -> (field of the delta, field of the block); the pieces are joined
_TEXT_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
}


class StreamAssembler:
    """Takes the decoded events of one stream in order, gives the reply in the end."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, Any]] = []
        self._open: dict[int, tuple[dict[str, Any], dict[str, list[str]]]] = {}  # index -> (block, pieces of its fields)
        self._torso = False  # the last block is a call whose input did not end
        self._usage: dict[str, int] = {}
        self._stop_reason = ""
        self._stop_note = ""
        self._model = ""
        self._ended = False

    def feed(self, event: Mapping[str, Any]) -> str:
        """Take one event; return the piece of text that it adds, or an empty string.

        Raises: ModelConnectionError when a complete block holds an input that is no JSON object.
        """
        kind = event.get("type")
        if kind == "content_block_delta":
            return self._take_delta(event.get("index", 0), event["delta"])
        if kind == "content_block_start":
            self._open[event.get("index", 0)] = dict(event["content_block"]), {}
        elif kind == "content_block_stop":
            self._close_block(event.get("index", 0))
        elif kind == "message_start":
            message = event["message"]
            self._model = message.get("model") or ""
            self._count(message.get("usage"))
        elif kind == "message_delta":
            delta = event["delta"]
            self._stop_reason = delta.get("stop_reason") or self._stop_reason
            self._stop_note = _note_of(delta) or self._stop_note
            self._count(event.get("usage"))
        elif kind == "message_stop":
            self._ended = True
        return ""  # pings and events of newer versions say nothing that is needed

    def reply(self) -> ModelReply:
        """Return the whole reply.

        Raises: ModelConnectionError when the stream ended before its last event.
        """
        if not self._ended or not self._stop_reason:
            raise ModelConnectionError("the answer was cut off: the stream ended before its message_stop event")
        reason, note = self._stop_reason, self._stop_note
        if self._torso and reason not in _CUT_STOPS:
            raise ModelConnectionError("the answer holds a tool call whose input is not a JSON object")
        content: list[Block] = [block for block in self._blocks if not (block["type"] == "text" and not block["text"].strip())]
        if content and reason in _CUT_STOPS and not self._torso and content[-1] is self._blocks[-1] and _maybe_cut(content[-1]):
            content.pop()
        if reason not in _KNOWN_STOPS:
            note = f"unknown stop reason {reason!r}"
            reason = "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
        return ModelReply(tuple(content), cast("StopReason", reason), Usage(**self._usage), self._model, note)

    def _take_delta(self, index: int, delta: Mapping[str, Any]) -> str:
        kind = delta.get("type")
        if index not in self._open:
            raise ModelConnectionError("the answer is out of order: a delta outside of a content block")
        block, pieces = self._open[index]
        if fields := _TEXT_DELTAS.get(str(kind)):
            piece: str = delta[fields[0]]
            pieces.setdefault(fields[1], []).append(piece)
            return piece if kind == "text_delta" else ""
        if kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        elif kind == "compaction_delta":
            block.update({name: value for name, value in delta.items() if name != "type"})
        return ""

    def _close_block(self, index: int) -> None:
        if index not in self._open:
            raise ModelConnectionError("the answer is out of order: a content block ended that had not begun")
        block, pieces = self._open.pop(index)
        if block["type"] == "tool_use":
            block.setdefault("input", {})  # some endpoints leave it out of the start
        for name, parts in pieces.items():
            if name != "input":
                block[name] = (block.get(name) or "") + "".join(parts)
            elif joined := "".join(parts):
                try:
                    block["input"] = json.loads(joined)
                except ValueError:
                    block["input"] = None
        if "input" in block and not isinstance(block["input"], dict):
            self._torso = True
            return
        self._blocks.append(block if block["type"] == "compaction" else {name: value for name, value in block.items() if value is not None})

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        if not usage:
            return
        self._usage |= {name: value for name in Usage._fields if isinstance(value := usage.get(name), int)}
        parts = usage.get("iterations")
        if isinstance(parts, list):  # the provider compacted on the way: the top level leaves those calls out, and the bill does not
            listed = cast("list[Mapping[str, Any]]", parts)
            self._usage |= {name: sum(int(part.get(name) or 0) for part in listed) for name in Usage._fields}


def _maybe_cut(block: Block) -> bool:
    # An input of {} is what a call looks like whose input had not begun; unsigned thinking would be refused when sent back.
    if block["type"] in {"tool_use", "server_tool_use", "mcp_tool_use"}:
        return not block["input"]
    return block["type"] == "thinking" and not block.get("signature")


def _note_of(delta: Mapping[str, Any]) -> str:
    details = delta.get("stop_details")
    if not isinstance(details, Mapping):
        return ""
    values = cast("Mapping[str, Any]", details)
    return ": ".join(str(values[name]) for name in ("category", "explanation") if values.get(name))
