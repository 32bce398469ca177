"""Signatures of thinking: made by this endpoint, and bound to what was sent before.

Laws: a signature holds the digest of its own thinking and that of everything that preceded it, thinking itself left out
(whole blocks of thinking may be dropped); only some models check the second. Every mark is left out of both.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from teams.testing.fake_anthropic.cache import canonical, without_mark
from teams.testing.wire_rules import blocks_of

BOUND_MODELS = ("fable-5-1", "opus-5-5", "sonnet-5-5", "haiku-5-5")


def sign(content: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks of an answer with its thinking signed."""
    prefix = _prefix_of(body)
    for message in body["messages"]:
        for block in blocks_of(message):
            _extend(prefix, message["role"], block)
    signed: list[dict[str, Any]] = []
    for item in content:
        block = dict(item)
        if block["type"] == "thinking":
            signed.append({**block, "signature": f"{_digest(block['thinking'])}.{prefix.hexdigest()[:24]}"})
        elif block["type"] == "redacted_thinking":
            signed.append({**block, "data": f"{_digest(block['data'])}.{prefix.hexdigest()[:24]}"})
        else:
            signed.append(block)
            _extend(prefix, "assistant", block)
    return signed


def forged(body: Mapping[str, Any]) -> str | None:
    """Return the provider's text about the first thinking block that it would not take back (V41, V67)."""
    prefix = _prefix_of(body)
    bound = any(part in body["model"] for part in BOUND_MODELS)
    for index, message in enumerate(body["messages"]):
        for at, block in enumerate(blocks_of(message)):
            place = f"messages.{index}.content.{at}"
            if block["type"] not in {"thinking", "redacted_thinking"}:
                _extend(prefix, message["role"], block)
                continue
            own, _, before = str(block.get("signature") or block.get("data")).partition(".")
            if block["type"] == "thinking" and own != _digest(block["thinking"]):
                return f"{place}: Invalid `signature` in `thinking` block"
            if block["type"] == "redacted_thinking" and not before:
                return f"{place}: Invalid `data` in `redacted_thinking` block"
            if bound and before != prefix.hexdigest()[:24]:
                return f"{place}: Invalid `signature` in `{block['type']}` block. The block is bound to a different conversation."
    return None


def _prefix_of(body: Mapping[str, Any]) -> "hashlib._Hash":
    system: str | list[dict[str, Any]] = body.get("system") or []
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else [without_mark(block) for block in system]
    return hashlib.sha256(canonical([blocks, [without_mark(tool) for tool in body.get("tools") or ()]]))


def _extend(prefix: "hashlib._Hash", role: str, block: Mapping[str, Any]) -> None:
    if block["type"] not in {"thinking", "redacted_thinking"}:
        prefix.update(canonical([role, without_mark(block)]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
