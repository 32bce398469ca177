"""The contract of a journal backend as a suite of async tests, for this project's backends and for anybody's own.

Subclass it in a test module under pytest-trio and tell how a handle is opened:

    class TestMyJournal(JournalContract):
        @asynccontextmanager
        async def open(self, name: str) -> AsyncGenerator[Journal]:
            async with open_my_journal(self.server, name) as journal:
                yield journal

Handles of one name within one test are handles on one log, as those of different processes would be.
"""

from abc import abstractmethod
from collections.abc import Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

import trio
import trio.testing

from teams.errors import JournalClosed, JournalConflict
from teams.journal.base import Journal
from teams.journal.records import Record, together


def make_records(after_seq: int, count: int, **fields: Any) -> list[Record]:
    """Return `count` records numbered after `after_seq`, each with its number and the fields."""
    return [
        Record(seq, "2026-01-31T12:00:00.000000Z", "test.made", {"n": seq, **fields}) for seq in range(after_seq + 1, after_seq + count + 1)
    ]


@contextmanager
def raises(*kinds: type[Exception]) -> Generator[list[Exception]]:
    """Fail unless the block raises one of the errors, and keep it in the list."""
    caught: list[Exception] = []
    try:
        yield caught
    except kinds as error:
        caught.append(error)
        return
    raise AssertionError(f"{' or '.join(kind.__name__ for kind in kinds)} was not raised")


class JournalContract:
    """What `teams.journal.base` promises, test by test."""

    @abstractmethod
    def open(self, name: str) -> AbstractAsyncContextManager[Journal]:
        """Return the opening of a handle on the log of this name, which begins empty in every test."""

    async def test_an_empty_log_has_head_zero_and_nothing_to_read(self) -> None:
        """A new log has head 0, no records, no snapshot and no growth."""
        async with self.open("log") as journal:
            assert (journal.head_seq, await journal.read(0), await journal.load_snapshot(), journal.grown()) == (0, [], None, False)

    async def test_appended_records_are_read_as_they_were_written(self) -> None:
        """Everything that JSON can hold comes back equal, from the same handle and after opening again."""
        fields: dict[str, Any] = {
            "text": 'a "b"\n\\ \u2028 \x00 é 😀 \ud800',
            "none": None,
            "list": [1, 2.5, True, {"x": []}],
            "big": 2**70,
            "long": "x" * 100_000,
        }
        written = make_records(0, 3, **fields)
        async with self.open("log") as journal:
            await journal.append(written, 0)
            assert journal.head_seq == 3
            assert await journal.read(0) == written
        async with self.open("log") as journal:
            assert journal.head_seq == 3
            assert await journal.read(0) == written
            assert await journal.read(2) == written[2:]

    async def test_reading_beyond_the_end_finds_nothing(self) -> None:
        """A read at or after the end returns an empty list."""
        async with self.open("log") as journal:
            await journal.append(make_records(0, 2), 0)
            assert [await journal.read(2), await journal.read(7)] == [[], []]

    async def test_an_append_at_a_stale_end_conflicts_and_changes_nothing(self) -> None:
        """The loser of a race gets JournalConflict with the true head, catches up, and appends."""
        async with self.open("log") as first, self.open("log") as second:
            await first.append(make_records(0, 2, by="first"), 0)
            with raises(JournalConflict) as caught:
                await second.append(make_records(0, 1, by="second"), 0)
            assert [(error.expected_seq, error.head_seq) for error in caught if isinstance(error, JournalConflict)] == [(0, 2)]
            assert [record.fields["by"] for record in await second.read(second.head_seq)] == ["first", "first"]
            await second.append(make_records(2, 1, by="second"), 2)
            assert [record.fields["by"] for record in await first.read(first.head_seq)] == ["second"]
            assert await first.read(0) == await second.read(0)

    async def test_an_append_before_the_own_head_conflicts(self) -> None:
        """An expected number that this handle itself has passed is a conflict as well."""
        async with self.open("log") as journal:
            await journal.append(make_records(0, 2), 0)
            with raises(JournalConflict):
                await journal.append(make_records(1, 1), 1)
            assert len(await journal.read(0)) == 2

    async def test_an_empty_append_only_looks_for_conflicts(self) -> None:
        """Appending nothing succeeds at the log's end and conflicts elsewhere."""
        async with self.open("log") as first, self.open("log") as second:
            await first.append([], 0)
            await second.append(make_records(0, 1), 0)
            with raises(JournalConflict):
                await first.append([], 0)

    async def test_misnumbered_or_unencodable_groups_are_refused_whole(self) -> None:
        """Wrong numbers, broken transactions and values that JSON lacks are errors before anything is written."""
        whole = together(make_records(0, 3))
        refused: list[Sequence[Record]] = [
            make_records(1, 1),
            [*make_records(0, 1), *make_records(2, 1)],
            whole[:2],
            [whole[0], whole[1]._replace(more=0)],
            [*make_records(0, 1), *make_records(1, 1, bad=float("nan"))],
            make_records(0, 1, bad=object()),
            make_records(0, 1, seq=5),
        ]
        async with self.open("log") as journal:
            for group in refused:
                with raises(ValueError, TypeError):
                    await journal.append(group, 0)
            with raises(ValueError):
                await journal.append(make_records(5, 1), 5)
            await journal.append(whole, 0)
            assert await journal.read(0) == whole

    async def test_growth_by_another_handle_is_seen_until_it_is_read(self) -> None:
        """`grown` is about others, stays true until `read` has looked, and an own append is no growth."""
        async with self.open("log") as mine, self.open("log") as other:
            await mine.append(make_records(0, 1), 0)
            assert not mine.grown()
            assert other.grown()
            await other.read(0)
            await other.append(make_records(1, 1), 1)
            assert mine.grown()
            assert [record.seq for record in await mine.read(1)] == [2]
            assert not mine.grown()

    async def test_a_wait_ends_for_growth_before_and_during_it(self) -> None:
        """`wait_grown` misses nothing that was appended before it began, and wakes for what comes later."""
        async with self.open("log") as mine, self.open("log") as other:
            await other.append(make_records(0, 1), 0)
            await mine.wait_grown(0)
            await mine.read(0)
            await mine.wait_grown(0)  # the head is beyond 0
            async with trio.open_nursery() as nursery:
                nursery.start_soon(mine.wait_grown, 1)
                await trio.testing.wait_all_tasks_blocked(0.01)
                await other.append(make_records(1, 1), 1)
            assert [record.seq for record in await mine.read(1)] == [2]

    async def test_an_own_append_does_not_end_a_wait(self) -> None:
        """A wait for others goes on while this handle appends, and still ends when another does."""
        async with self.open("log") as mine, self.open("log") as other:
            ended = False

            async def wait() -> None:
                nonlocal ended
                await mine.wait_grown(0)
                ended = True

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked(0.01)
                await mine.append(make_records(0, 1), 0)
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert not ended
                await other.read(0)
                await other.append(make_records(1, 1), 1)

    async def test_a_snapshot_comes_back_and_an_older_one_never_replaces_it(self) -> None:
        """The newest snapshot wins, whoever saves it and in whatever order."""
        async with self.open("log") as journal:
            await journal.append(make_records(0, 3), 0)
            await journal.save_snapshot(3, {"text": "é\ud800", "list": [1]})
            await journal.save_snapshot(2, {"old": True})
            with raises(ValueError):
                await journal.save_snapshot(4, {})
            with raises(TypeError):
                await journal.save_snapshot(3, {"bad": object()})
        async with self.open("log") as journal:
            assert await journal.load_snapshot() == (3, {"text": "é\ud800", "list": [1]})
            assert await journal.read(3) == []

    async def test_a_cancelled_append_is_there_or_not_and_the_handle_works_on(self) -> None:
        """Cancelled at once, nothing is written; afterwards the same handle appends and reads."""
        async with self.open("log") as journal:
            with trio.CancelScope() as scope:
                scope.cancel()
                await journal.append(make_records(0, 1), 0)
            assert scope.cancelled_caught
            assert journal.head_seq == 0
            await journal.append(make_records(0, 2), 0)
            with trio.CancelScope() as scope:
                scope.cancel()
                await journal.read(0)
            assert [record.seq for record in await journal.read(0)] == [1, 2]

    async def test_overlapping_appends_do_not_mix(self) -> None:
        """Of appends at the same place one is written whole, and the others conflict."""
        async with self.open("log") as journal:
            outcomes: list[str] = []

            async def append(name: str) -> None:
                try:
                    await journal.append(make_records(0, 20, by=name), 0)
                    outcomes.append(name)
                except JournalConflict:
                    outcomes.append("conflict")

            async with trio.open_nursery() as nursery:
                for name in ("a", "b", "c"):
                    nursery.start_soon(append, name)
            (winner,) = {outcome for outcome in outcomes if outcome != "conflict"}
            assert sorted(outcomes) == sorted([winner, "conflict", "conflict"])
            assert [record.fields["by"] for record in await journal.read(0)] == [winner] * 20

    async def test_a_closed_handle_refuses_everything_and_ends_its_wait(self) -> None:
        """After `aclose` every call raises JournalClosed, a wait under way ends so, and closing again is nothing."""
        async with self.open("log") as journal:
            await journal.append(make_records(0, 1), 0)

            async def wait() -> None:
                with raises(JournalClosed):
                    await journal.wait_grown(1)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked(0.01)
                await journal.aclose()
            await journal.aclose()
            assert not journal.grown()
            for call in (
                journal.append([], 1),
                journal.read(0),
                journal.wait_grown(1),
                journal.load_snapshot(),
                journal.save_snapshot(1, {}),
            ):
                with raises(JournalClosed):
                    await call

    async def test_logs_of_other_names_are_apart(self) -> None:
        """Two logs share nothing."""
        async with self.open("one") as one, self.open("two") as two:
            await one.append(make_records(0, 1), 0)
            assert not two.grown()
            assert await two.read(0) == []
