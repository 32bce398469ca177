"""Where cache marks stand."""

from hypothesis import given
from hypothesis import strategies as st

from compaction.transcript import ModelMessage
from teams.models.cache_marks import Position, is_markable, place_marks

HELLO = ModelMessage("user", "hello")
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


def test_first_request_is_marked_at_its_end() -> None:
    """With nothing answered yet there is one mark."""
    assert place_marks([HELLO]) == (Position(0, 0),)


def test_next_request_is_marked_at_the_previous_end_and_at_its_own() -> None:
    """Without a memory the previous end is what precedes the last answer."""
    messages = [
        HELLO,
        ModelMessage("assistant", "hi"),
        ModelMessage("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
    ]
    assert place_marks(messages) == (Position(0, 0), Position(2, 1))


def test_remembered_end_goes_before_the_deduced_one() -> None:
    """A turn that went on after several answers reads from where the last request really ended."""
    messages = [HELLO, *[ModelMessage("assistant", "x"), ModelMessage("user", "y")] * 3]
    assert place_marks(messages, Position(2, 0)) == (Position(2, 0), Position(6, 0))
    assert place_marks(messages, Position(9, 0)) == (Position(4, 0), Position(6, 0))


def test_thinking_and_empty_text_are_never_marked() -> None:
    """The mark moves back to the last block that takes one."""
    answer = ModelMessage("assistant", [{"type": "text", "text": "x"}, THINKING])
    blank = ModelMessage("user", [{"type": "text", "text": " "}])
    assert place_marks([HELLO, answer, blank]) == (Position(0, 0), Position(1, 0))
    assert place_marks([ModelMessage("user", [THINKING])]) == ()
    assert place_marks([]) == ()


def test_system_messages_are_not_marked() -> None:
    """A mark stands on turns of user and assistant alone."""
    assert place_marks([HELLO, ModelMessage("system", "note")]) == (Position(0, 0),)


BLOCK = st.sampled_from(
    [{"type": "text", "text": "x"}, {"type": "text", "text": " "}, THINKING, {"type": "redacted_thinking", "data": "x"}]
)
MESSAGE = st.builds(ModelMessage, st.sampled_from(["user", "assistant", "system"]), st.lists(BLOCK, max_size=3))


@given(messages=st.lists(MESSAGE, max_size=8), previous=st.none() | st.builds(Position, st.integers(0, 9), st.integers(0, 3)))
def test_any_list_gets_at_most_two_marks_in_order_on_blocks_that_take_them(messages: list[ModelMessage], previous: Position | None) -> None:
    """Whatever the list holds, also with a memory of another one."""
    marks = place_marks(messages, previous)
    assert len(marks) <= 2
    assert sorted(set(marks)) == list(marks)
    assert all(is_markable(messages[at.message].content[at.block]) for at in marks)
