"""What arrives too large is cut to its limit, for every limit, and never inside what is one character on the screen."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.layers.arrival import cap, cap_blocks, cap_content, fair_level
from tests.compaction.strategies import image, say

PIECES = st.sampled_from(["a", "word ", "字", "日本語", "e\u0301", "n\u0303\u0323", "😀", "👨‍👩‍👧", "🇩🇪", "👍🏽", "☎️", "\n", "नि"])
TEXTS = st.lists(PIECES, max_size=400).map("".join)


@given(TEXTS | st.text(max_size=300), st.integers(0, 600), st.sampled_from([None, "res-17"]))
def test_cap_is_never_longer_than_its_limit(text: str, limit: int, recall_id: str | None) -> None:
    """The result has at most as many characters as the limit, or is the text itself; what was left out is told."""
    capped = cap(text, limit, recall_id)
    assert len(capped.text) <= limit
    assert capped.moved == (len(text) > limit)
    if not capped.moved:
        assert capped.text is text


@given(TEXTS, st.integers(150, 600))
def test_cap_keeps_head_and_tail_and_names_the_recall_id(text: str, limit: int) -> None:
    """About seven tenths of the limit are the head, two the tail; between them stands how to get the rest."""
    capped = cap(text, limit, "res-17")
    if capped.moved:
        head, marker, tail = capped.text.partition("\n[... shortened from ")
        assert marker
        note, end, tail = tail.partition(" ...]\n")
        assert end
        assert "res-17" in note
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) > 2 * len(tail)


@given(TEXTS, st.integers(0, 600))
def test_cap_parts_no_character(text: str, limit: int) -> None:
    """No piece of the result begins with a mark that belongs to what was cut off, or ends with a joiner."""
    capped = cap(text, limit)
    if not capped.moved:
        return
    head, _, rest = capped.text.partition("\n[... ")
    tail = rest.partition(" ...]\n")[2]
    assert not head.endswith("\u200d")
    following = text[len(head) : len(head) + 1]
    for first in (following, tail[:1]):
        assert not first or not unicodedata.category(first).startswith("M")
        assert first not in {"\u200d", "\ufe0f", "\U0001f3fd"}
    flags = sum("\U0001f1e6" <= char <= "\U0001f1ff" for char in head)
    assert flags % 2 == 0


@pytest.mark.parametrize("piece", ["e\u0301", "👨‍👩‍👧", "🇩🇪", "👍🏽", "☎️", "नि"])
def test_cap_parts_no_piece_at_any_limit(piece: str) -> None:
    """At every limit, head and tail are made of whole pieces, and together with the marker they are within it."""
    unit = f"ab{piece}"
    text = unit * 300
    for limit in range(400):
        capped = cap(text, limit).text
        assert len(capped) <= limit
        head, _, rest = capped.partition("\n[... ")
        tail = rest.partition(" ...]\n")[2]
        for part in (head.removeprefix(unit * (len(head) // len(unit))), tail.removesuffix(unit * (len(tail) // len(unit)))):
            assert part in {"", "a", "ab", piece, f"b{piece}"}


def test_cap_of_a_heap_of_marks_is_bounded() -> None:
    """A text of nothing but combining marks has no good place; it is cut all the same, and at once."""
    assert len(cap("a" + "\u0301" * 1_000_000, 5_000).text) <= 5_000


def test_cap_refuses_a_negative_limit() -> None:
    """A negative limit is the caller's mistake."""
    with pytest.raises(ValueError, match="cannot be capped at -1"):
        cap("x", -1)


@given(st.lists(TEXTS | st.just(None), max_size=8), st.integers(0, 500))
def test_cap_of_blocks_keeps_their_sum(texts: list[str | None], limit: int) -> None:
    """The texts of all blocks together stay within the limit; other blocks stay themselves; no text is left blank."""
    blocks = [image() if text is None else say(text) for text in texts]
    capped = cap_blocks(blocks, limit, "res-1")
    kept = [str(block["text"]) for block in capped.blocks if block["type"] == "text"]
    assert sum(map(len, kept)) <= limit or not capped.moved
    assert [block for block in capped.blocks if block["type"] == "image"] == [block for block in blocks if block["type"] == "image"]
    if capped.moved:
        assert all(text.strip() for text in kept)


def test_cap_of_blocks_takes_from_the_largest() -> None:
    """A small text beside a large one stays whole."""
    capped = cap_blocks([say("short"), say("word " * 400)], 500, "res-1")
    assert capped.blocks[0] == say("short")
    assert "res-1" in capped.blocks[1]["text"]
    assert cap_content("word " * 400, 100) == cap("word " * 400, 100).text


@given(st.lists(st.integers(0, 1_000)), st.integers(0, 10_000))
def test_fair_level_is_the_highest(sizes: list[int], limit: int) -> None:
    """Cut to the level, sizes fit; cut to one more, they do not, unless all of them are whole."""
    level = fair_level(sizes, limit)
    assert sum(min(size, level) for size in sizes) <= limit
    if sum(sizes) > limit:
        assert sum(min(size, level + 1) for size in sizes) > limit
