"""Texts for the model keep their limits, whatever the limit and the text."""

from hypothesis import given
from hypothesis import strategies as st

from teams.tools import ToolResult
from teams.tools.processes import HeadTail
from teams.tools.results import cut_middle, sendable


@given(st.text(max_size=20), st.integers(0, 50), st.integers(0, 150), st.text(max_size=20))
def test_cut_text_is_within_every_limit(piece: str, times: int, limit: int, note: str) -> None:
    """A cut text is never longer than the limit, starts as the text does, and is the text when that fits."""
    text = piece * times
    cut = cut_middle(text, limit, note=note)
    if len(text) <= limit:
        assert cut == text
    else:
        assert len(cut) <= limit
        assert cut[:1] == text[: min(1, limit)]


@given(st.integers(200, 100_000), st.integers(60, 150))
def test_cut_text_counts_what_is_gone(size: int, limit: int) -> None:
    """The marker's figure and what is kept add up to the text."""
    cut = cut_middle("x" * size, limit)
    gone = int(cut.partition("... ")[2].partition(" ")[0].replace(",", ""))
    assert cut.count("x") - "characters".count("x") + gone == size


@given(st.lists(st.binary(max_size=200), max_size=20), st.integers(0, 300))
def test_head_and_tail_are_the_ends_of_the_stream(chunks: list[bytes], limit: int) -> None:
    """However a stream is cut into chunks, its first and last bytes are kept, at most the limit, and the rest is counted."""
    kept = HeadTail(limit)
    for chunk in chunks:
        kept.add(chunk)
    whole = b"".join(chunks)
    head, tail, gone = kept.parts()
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) + len(tail) == min(limit, len(whole))
    assert gone == len(whole) - len(head) - len(tail)


@given(st.text(st.characters(), max_size=50))
def test_sendable_text_is_utf8(text: str) -> None:
    """Whatever comes in can be encoded, and what could be encoded already stays as it is."""
    cleaned = sendable(text)
    cleaned.encode("utf-8")
    if text.isprintable() and "\ud800" not in text:
        assert len(cleaned) == len(text)


@given(st.sampled_from(["", " ", "\n\t", "text"]), st.booleans(), st.booleans())
def test_result_block_is_never_empty(text: str, is_error: bool, interrupted: bool) -> None:
    """The block of the Messages API has content that is not blank, and an error mark when it is one."""
    block = ToolResult("c", text, is_error, interrupted).block()
    assert block["content"].strip()
    assert block.get("is_error", False) is (is_error or interrupted)
    assert ToolResult("c", ()).block()["content"] == "(no output)"
