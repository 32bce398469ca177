"""What the provider refuses, written from its rules alone: an oracle for lists of messages, which shares no code with the package."""

import re
from collections.abc import Sequence
from typing import Any

Wire = dict[str, Any]

_RESULT = re.compile(r"^(?!tool_result$)\w+_tool_result$")
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_TEXT_KEYS = {"type", "text", "citations", "cache_control"}


def refusals(messages: Sequence[Wire]) -> list[str]:
    """Return why the provider would refuse the messages; nothing when it would take them."""
    found: list[str] = []
    if not messages:
        return ["no messages"]
    if messages[0]["role"] != "user":
        found.append("does not start with the user")
    for number, message in enumerate(messages):
        if not message["content"]:
            found.append(f"{number}: empty")
        for block in message["content"]:
            found += [f"{number}: {why}" for why in _block_faults(block, message["role"])]
    turns = _merged(messages)
    if len(turns) != len(messages) and not any(_is_server(block) for message in messages for block in message["content"]):
        found.append("roles do not alternate")
    found += _pair_faults(turns)
    found += _server_faults(messages)
    last = messages[-1]
    if last["role"] == "assistant" and not any(_is_server(block) for block in last["content"]):
        found.append("ends with the assistant")
    return found


def thinking_blocks(messages: Sequence[Wire]) -> list[Wire]:
    """Return all thinking in a list, in order."""
    return [block for message in messages for block in message["content"] if block["type"] in ("thinking", "redacted_thinking")]


def _is_server(block: Wire) -> bool:
    return block["type"] in _SERVER_CALLS or bool(_RESULT.match(block["type"]))


def _block_faults(block: Wire, role: str) -> list[str]:
    kind = block.get("type")
    if kind == "text":
        found = [] if isinstance(block.get("text"), str) and block["text"].strip() else ["blank text"]
        return found + [f"extra {key}" for key in block if key not in _TEXT_KEYS]
    if kind == "thinking":
        return [] if role == "assistant" and block.get("signature") and "thinking" in block else ["unsigned or misplaced thinking"]
    if kind == "redacted_thinking":
        return [] if role == "assistant" and block.get("data") else ["redacted thinking without data, or misplaced"]
    if kind == "tool_use":
        fine = role == "assistant" and re.fullmatch(r"[a-zA-Z0-9_-]+", str(block.get("id"))) and isinstance(block.get("input"), dict)
        return [] if fine else ["malformed or misplaced call"]
    if kind == "tool_result":
        if role != "user":
            return ["misplaced result"]
        content = block.get("content", "")
        if isinstance(content, str):
            return ["empty error"] if block.get("is_error") and not content else []
        return [fault for part in content for fault in _block_faults(part, "user")]
    return [] if isinstance(kind, str) else ["no type"]


def _merged(messages: Sequence[Wire]) -> list[tuple[str, list[Wire]]]:
    turns: list[tuple[str, list[Wire]]] = []
    for message in messages:
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(message["content"])
        else:
            turns.append((message["role"], list(message["content"])))
    return turns


def _pair_faults(turns: Sequence[tuple[str, list[Wire]]]) -> list[str]:
    found: list[str] = []
    ever: set[str] = set()
    waiting: list[str] = []
    for role, content in turns:
        results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        if role == "user":
            if sorted(results) != sorted(waiting):
                found.append(f"results {results} for calls {waiting}")
            if [block["type"] == "tool_result" for block in content] != [True] * len(results) + [False] * (len(content) - len(results)):
                found.append("a result after other content")
            waiting = []
            continue
        if waiting:
            found.append(f"calls {waiting} without an answer")
        waiting = [block["id"] for block in content if block["type"] == "tool_use"]
        for call_id in [block["id"] for block in content if block["type"] == "tool_use" or block["type"] in _SERVER_CALLS]:
            if call_id in ever:
                found.append(f"the id {call_id} twice")
            ever.add(call_id)
    return [*found, f"calls {waiting} at the end"] if waiting else found


def _server_faults(messages: Sequence[Wire]) -> list[str]:
    calls = {block["id"] for message in messages for block in message["content"] if block["type"] in _SERVER_CALLS}
    results = {block["tool_use_id"] for message in messages for block in message["content"] if _RESULT.match(block["type"])}
    found = [f"the result {one} has no call" for one in results - calls]
    closed = max(
        (i for i, m in enumerate(messages) if m["role"] == "user" and any(b["type"] != "tool_result" for b in m["content"])), default=0
    )
    asked = [block for message in messages[:closed] for block in message["content"] if block["type"] in _SERVER_CALLS]
    return found + [f"the provider's call {block['id']} has no result" for block in asked if block["id"] not in results]
