"""What somebody said, as it is remembered: the first statements and the newest, each by its words.

Laws: both their number and their characters together are bounded; nothing is lost by that, since a long statement has the id under which
the whole is recalled; statements added in parts are kept as if they had been added at once; the order is that of the last time each was
said.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeAlias

from compaction.layers.arrival import cap
from compaction.recall import recall_id
from compaction.record import Statement
from compaction.transcript import Block

STATEMENTS_FIRST, STATEMENTS_LAST = 20, 180
STATEMENTS_LIMIT_CHARS: Final = 100_000
"""All of them together: 25 of the longest, or 193 shortened ones and 6 of the longest."""
STATEMENT_LIMIT_CHARS: Final = 4_000
SHORT_CHARS: Final = 400
"""A longer one may be shortened to so much, the oldest first, while all of them are too long together."""


_Key: TypeAlias = tuple[str, str]


class Statements:
    """The statements of a record while it is built; those of the record come first."""

    def __init__(self, kept: Iterable[Statement]) -> None:
        self._kept = {_key(statement): statement for statement in kept}
        self._chars = sum(len(statement.text) for statement in self._kept.values())
        self._fit()

    def add(self, block: Block) -> None:
        """Take in a text block; what was said before counts as said now, and a blank one not at all."""
        text = str(block.get("text", "")).strip()
        if not text:
            return
        if len(text) <= SHORT_CHARS:
            statement = Statement(text=text)
        else:
            whole = recall_id(block)
            statement = Statement(text=cap(text, STATEMENT_LIMIT_CHARS, whole).text, recall_id=whole, chars=len(text))
        key = _key(statement)
        self._drop(key)
        self._kept[key] = statement
        self._chars += len(statement.text)
        self._fit()

    def all(self) -> tuple[Statement, ...]:
        """Return what is kept, in the order in which it was said."""
        return tuple(self._kept.values())

    def _fit(self) -> None:
        while len(self._kept) > STATEMENTS_FIRST + STATEMENTS_LAST:
            self._drop(next(islice(self._kept, STATEMENTS_FIRST, None)))
        for key in tuple(self._kept) if self._chars > STATEMENTS_LIMIT_CHARS else ():
            self._shorten(key)
            if self._chars <= STATEMENTS_LIMIT_CHARS:
                break

    def _drop(self, key: _Key) -> None:
        gone = self._kept.pop(key, None)
        self._chars -= 0 if gone is None else len(gone.text)

    def _shorten(self, key: _Key) -> None:
        """Leave head and tail of a long statement at its place."""
        statement = self._kept[key]
        short = cap(statement.text, SHORT_CHARS, statement.recall_id or None, length_chars=statement.chars or None).text
        self._chars += len(short) - len(statement.text)
        self._kept[key] = statement.model_copy(update={"text": short})


def _key(statement: Statement) -> _Key:
    """Return what a statement is known by: its words, or the id of the whole, which holds when they were shortened."""
    return statement.recall_id, "" if statement.recall_id else statement.text
