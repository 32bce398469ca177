"""What the user said is remembered within bounds, and every word of it can be found again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction import statements as bounds
from compaction.compactor import Checkpoint, Compactor
from compaction.models import ModelFacts
from compaction.options import CompactionOptions
from compaction.recall import Archive
from compaction.record import EMPTY_RECORD, CompressedHistory, Statement
from compaction.session import encode_checkpoint
from compaction.tracking import fold
from compaction.transcript import ModelMessage
from compaction.triggers import Cause
from compaction.view import View
from tests.compaction.strategies import assistant, user


def long_statement(number: int) -> str:
    """Return about 4,000 characters with a rule in the middle."""
    filler = f"This is part {number} of the story, told at length. " * 38
    return f"Statement {number}. {filler}\nNever rename table t{number}.\n{filler}End of {number}."


def talk(count: int) -> list[ModelMessage]:
    """Return a task and so many long statements, each with an answer."""
    messages = [user("go")]
    for number in range(count):
        messages += [assistant("I see."), user(long_statement(number))]
    return messages


async def checkpoint_of(count: int) -> Checkpoint:
    """Return the checkpoint of a session with so many long statements."""
    compactor = Compactor(CompactionOptions(), facts=ModelFacts(name="test", window_tokens=400_000), reply_tokens=0)
    checkpoint = (await compactor.prepare(View(talk(count)), cause=Cause.ASKED)).checkpoint
    assert checkpoint is not None
    return checkpoint


def record_chars(checkpoint: Checkpoint) -> int:
    """Return how long the record of a checkpoint is as JSON."""
    line = encode_checkpoint(checkpoint, "now").decode()
    return line.index(',"messages":') - line.index('"record":')


async def test_a_checkpoint_is_bounded_however_much_the_user_said() -> None:
    """200 statements of 4,000 characters take little more than the limit, and as many again take nothing more."""
    once, twice = record_chars(await checkpoint_of(200)), record_chars(await checkpoint_of(400))
    assert once <= bounds.STATEMENTS_LIMIT_CHARS + 60_000  # the ids and lengths, and 200 rules
    assert twice <= once + 15_000  # 100 rules more


async def test_a_long_statement_keeps_its_rule_in_sight_and_its_words_in_reach() -> None:
    """The rule in the middle of a shortened statement is shown, and the id in its text brings back every character."""
    messages = talk(200)
    record = fold(EMPTY_RECORD, messages[1:])
    archive = Archive(messages)
    shortened = [statement for statement in record.user_statements if len(statement.text) <= bounds.SHORT_CHARS]
    assert len(shortened) > 150
    for statement in record.user_statements:
        found = archive.get(statement.recall_id)
        assert found is not None
        assert found.text in [message.text for message in messages]
        assert statement.text == found.text or statement.recall_id in statement.text
        assert statement.chars == len(found.text)
        assert f"from {statement.chars:,} characters" in statement.text or statement.text == found.text
    rules = {constraint.text for constraint in record.constraints if constraint.status == "current"}
    assert {f"Never rename table t{number}." for number in range(200)} <= rules
    shown = (await checkpoint_of(200)).messages[0].text
    assert "Never rename table t100." in shown


def test_a_long_rule_is_shown_with_its_end_and_its_id() -> None:
    """A rule of more than a line keeps head and tail, since the end may turn it round."""
    rule = f"Never delete a branch {'that anybody may still look at ' * 15}unless its owner says so."
    messages = [user("go"), user(rule)]
    (constraint,) = fold(EMPTY_RECORD, messages[1:]).constraints
    assert constraint.text.startswith("Never delete a branch")
    assert constraint.text.endswith("unless its owner says so.")
    assert len(constraint.text) <= 300
    (statement,) = fold(EMPTY_RECORD, messages[1:]).user_statements
    assert statement.recall_id in constraint.text


def test_what_is_said_again_counts_as_said_now() -> None:
    """A statement that was shortened is whole again when it is said again, and stands once, at the end."""
    messages = talk(200)[1:]
    record = fold(fold(EMPTY_RECORD, messages), [assistant("?"), user(long_statement(50))])
    assert len(record.user_statements) == 200
    assert record.user_statements[-1].text == long_statement(50)
    assert len({statement.recall_id for statement in record.user_statements}) == 200


def test_a_statement_that_is_cut_twice_tells_how_long_it_was() -> None:
    """First cut because it is long, then because all are long together: length and id are those of the whole."""
    messages = [user("a whole page of words " * 500), *talk(60)[1:]]
    (first, *_) = fold(EMPTY_RECORD, messages).user_statements
    assert len(first.text) <= bounds.SHORT_CHARS
    assert f"shortened from 10,999 characters; the whole is kept under {first.recall_id} " in first.text
    assert first.text.count("shortened") == 1
    found = Archive(messages).get(first.recall_id)
    assert found is not None
    assert found.text == messages[0].text


def test_the_oldest_statements_are_shortened_first() -> None:
    """The newest are whole, also where the oldest are not, and no more are shortened than must be."""
    for count, most in ((20, 20), (40, 40), (200, 200)):
        said = fold(EMPTY_RECORD, talk(count)[1:]).user_statements
        whole = [at for at, statement in enumerate(said) if len(statement.text) > bounds.SHORT_CHARS]
        assert whole == list(range(len(said) - len(whole), len(said)))
        spare = bounds.STATEMENTS_LIMIT_CHARS - sum(len(statement.text) for statement in said)
        assert len(whole) == most or spare < bounds.STATEMENT_LIMIT_CHARS
        assert len(whole) >= 5


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([1, 40, 90, 400])), max_size=40), st.data())
def test_statements_in_parts_are_statements_at_once(said: list[tuple[int, int]], data: st.DataObject) -> None:
    """Wherever the fold is cut, also where statements were shortened, dropped or said again, the same is kept."""
    messages = [message for number, chars in said for message in (assistant("?"), user(f"{number} {'x' * chars} {number}"))]
    cut = 2 * data.draw(st.integers(0, len(said)))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "STATEMENTS_FIRST": 2,
            "STATEMENTS_LAST": 4,
            "STATEMENTS_LIMIT_CHARS": 700,
            "STATEMENT_LIMIT_CHARS": 300,
            "SHORT_CHARS": 85,
        }.items():
            patch.setattr(bounds, name, value)
        at_once = fold(EMPTY_RECORD, messages)
        assert fold(fold(EMPTY_RECORD, messages[:cut]), messages[cut:]) == at_once
        assert sum(len(statement.text) for statement in at_once.user_statements) <= 700
        assert len(at_once.user_statements) <= 6


@pytest.mark.parametrize("field", ["user_statements", "received"])
def test_statements_of_older_sessions_are_read_and_bounded(field: str) -> None:
    """Plain texts are taken for statements; when they are too long together, words of theirs stay, though no id is known of them."""
    stored: dict[str, Any] = {field: [f"{number} {'old ' * 900}" for number in range(100)]}
    record = CompressedHistory.model_validate(stored)
    assert getattr(record, field)[0] == Statement(text=stored[field][0])
    later = getattr(fold(record, []), field)
    assert sum(len(statement.text) for statement in later) <= bounds.STATEMENTS_LIMIT_CHARS
    assert [statement.text.split()[0] for statement in later] == [str(number) for number in range(100)]
