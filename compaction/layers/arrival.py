"""Cap what arrives too large: head and tail stay, with the id by which the whole can be recalled.

Laws: a result is never longer than its limit, for every limit; a cut never parts what belongs to one character on the screen
(surrogates, combining marks, joined emoji, flags). Capping on arrival is no edit: the context never held more.
"""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from compaction.tokens import count_text
from compaction.transcript import Block, as_block

HEAD_SHARE = 0.70
TAIL_SHARE = 0.20
_JOINER = "\u200d"
_MAX_CLUSTER_CHARS = 64  # longer heaps of marks are nonsense, and must not make a cut slow


class Capped(NamedTuple):
    """A text within its limit, and whether something was left out (moved to where the recall id points)."""

    text: str
    moved: bool


class CappedBlocks(NamedTuple):
    """Blocks whose texts together are within the limit, and whether something was left out."""

    blocks: tuple[Block, ...]
    moved: bool


def cap(text: str, limit_chars: int, recall_id: str | None = None, *, length_chars: int | None = None) -> Capped:
    """Return the text, or its head and tail around a marker that names the recall id.

    Args:
        length_chars: how long it was at first, when it was capped before; its own length when None.

    Raises:
        ValueError: the limit is negative.
    """
    if limit_chars < 0:
        raise ValueError(f"a text cannot be capped at {limit_chars} characters")
    if len(text) <= limit_chars:
        return Capped(text, False)
    marker = _marker(len(text) if length_chars is None else length_chars, recall_id)
    room = limit_chars - len(marker)
    if room < 0:  # a bit of the marker would say nothing: a bit of the text says more
        return Capped(text[: _before(text, limit_chars)], True)
    parts = HEAD_SHARE + TAIL_SHARE
    head = text[: _before(text, int(room * HEAD_SHARE / parts))]
    tail = text[_after(text, len(text) - int(room * TAIL_SHARE / parts)) :]
    return Capped(f"{head}{marker}{tail}", True)


def cap_tokens(text: str, limit_tokens: int) -> str:
    """Return the text, or its head and tail, in at most so many base tokens; nothing where there is no room for words."""
    while text and (cost := count_text(text)) > limit_tokens:
        shorter = cap(text, int(len(text) * max(0, limit_tokens) / cost * 0.9)).text  # a tenth less: head and tail may be the dear parts
        text = shorter if len(shorter) < len(text) else ""
    return text.strip()


def cap_blocks(content: Sequence[Block], limit_chars: int, recall_id: str | None = None) -> CappedBlocks:
    """Cap the texts of a list of blocks, each by its share of the limit; other blocks stay as they are."""
    texts = [len(str(block.get("text", ""))) for block in content if block.get("type") == "text"]
    total = sum(texts)
    if total <= limit_chars:
        return CappedBlocks(tuple(content), False)
    level = fair_level(texts, limit_chars)
    kept: list[Block] = []
    for block in content:
        if block.get("type") != "text":
            kept.append(block)
        elif (text := cap(str(block.get("text", "")), level, recall_id).text).strip():
            kept.append({**block, "text": text})
    return CappedBlocks(tuple(kept), True)


def cap_content(content: str | Sequence[object], limit_chars: int, recall_id: str | None = None) -> str | tuple[Block, ...]:
    """Cap the content of a tool result, in whichever form it is."""
    if isinstance(content, str):
        return cap(content, limit_chars, recall_id).text
    return cap_blocks([as_block(part) for part in content], limit_chars, recall_id).blocks


def fair_level(sizes: Sequence[int], limit: int) -> int:
    """Return the largest level so that sizes, each cut to it, sum up to the limit at most; small ones stay whole."""
    room, level = limit, 0
    rest = sorted(sizes)
    for at, size in enumerate(rest):
        level = room // (len(rest) - at)
        if size > level:
            return level
        room -= size
    return max(rest, default=level)


def _marker(length: int, recall_id: str | None) -> str:
    where = f"; the whole is kept under {recall_id}" if recall_id else ""
    return f"\n[... shortened from {length:,} characters{where} ...]\n"


def _before(text: str, at: int) -> int:
    """Return the last place not after `at` where the text may be cut."""
    return next((place for place in range(at, max(-1, at - _MAX_CLUSTER_CHARS), -1) if _may_cut(text, place)), at)


def _after(text: str, at: int) -> int:
    """Return the first place not before `at` where the text may be cut."""
    stop = min(len(text), at + _MAX_CLUSTER_CHARS)
    return next((place for place in range(at, stop + 1) if _may_cut(text, place)), at)


def _may_cut(text: str, at: int) -> bool:
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if after.isascii() or before == "\n":
        return before != _JOINER
    if unicodedata.combining(after) or unicodedata.category(after) in {"Mn", "Me", "Mc"}:
        return False
    if after in {_JOINER, "\ufe0f", "\ufe0e"} or before == _JOINER or "\U0001f3fb" <= after <= "\U0001f3ff":
        return False
    if "\udc00" <= after <= "\udfff" and "\ud800" <= before <= "\udbff":
        return False
    return not (_is_flag(before) and _is_flag(after))


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"
