"""The JSON body of a request, made from what the messages have cached.

Laws: a message is serialized once in its life, except the two that carry a cache mark; marks are in the body only.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from compaction.transcript import ModelMessage
from teams.models.base import ModelRequest, ToolDefinition
from teams.models.cache_marks import Position


def request_body(
    name: str,
    request: ModelRequest,
    *,
    marks: Sequence[Position],
    mark: Mapping[str, Any] | None,
    extra: Mapping[str, Any],
    counting: bool = False,
) -> bytes:
    """Return the UTF-8 body of a call of the Messages endpoint, or of its count_tokens.

    Args:
        marks: the blocks of `request.messages` that carry `mark`.
        mark: the value of `cache_control`; None sets none, on tools and system neither.
        extra: further top-level fields; they win over those of the request.
        counting: leave out what count_tokens does not take.
    """
    head: dict[str, Any] = {"model": name}
    if not counting:
        head |= {"max_tokens": request.max_tokens, "stream": True}
    if request.system.strip():
        head["system"] = [{"type": "text", "text": request.system, **_marked(mark)}]
    if request.tools:
        head["tools"] = _tools(request.tools, mark)
    if request.tool_choice is not None:
        head["tool_choice"] = dict(request.tool_choice)
    head |= extra
    parts = [message.json for message in request.messages]
    for index in {position.message for position in marks}:
        at = {position.block for position in marks if position.message == index}
        parts[index] = _marked_message(request.messages[index], at, mark)
    fields = json.dumps(head, ensure_ascii=True, separators=(",", ":"))
    return f'{fields[:-1]},"messages":[{",".join(parts)}]}}'.encode()


def _tools(tools: Sequence[ToolDefinition], mark: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    listed = [{"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} for tool in tools]
    listed[-1] |= _marked(mark)
    return listed


def _marked_message(message: ModelMessage, at: set[int], mark: Mapping[str, Any] | None) -> str:
    content = [{**block, **_marked(mark)} if index in at else block for index, block in enumerate(message.content)]
    return json.dumps({"role": message.role, "content": content}, ensure_ascii=True, separators=(",", ":"))


def _marked(mark: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if mark is None else {"cache_control": mark}
