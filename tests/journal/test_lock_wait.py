"""While another process holds the log's lock, the event loop goes on; the append waits elsewhere, and comes through."""

from pathlib import Path

import pytest
import trio

from teams.errors import JournalError
from teams.journal.file import FileJournalOptions, open_file_journal
from teams.journal.locking import FileLock, LockHeld
from teams.journal.records import Record

FIRST = 60


def record(seq: int) -> Record:
    """Return a record."""
    return Record(seq, "2026-01-01T00:00:00.000000Z", "member.noted", {"member": "ann", "text": "x"})


async def test_the_loop_goes_on_while_an_append_waits_for_the_lock(tmp_path: Path) -> None:
    """Whoever holds the lock lets go of it in this very loop, which only works when the append does not block it."""
    async with open_file_journal(tmp_path, options=FileJournalOptions(lock_seconds=2.0)) as journal:
        for seq in range(FIRST):  # until the disk is known to be fast, so that appends run in the loop's own thread
            await journal.append([record(seq + 1)], seq)
        other, done = FileLock(tmp_path / "lock", wait_seconds=1.0), trio.Event()

        async def append() -> None:
            await journal.append([record(FIRST + 1)], FIRST)
            done.set()

        async with trio.open_nursery() as nursery:
            with other.exclusive():
                nursery.start_soon(append)
                for _ in range(50):
                    await trio.lowlevel.checkpoint()
                assert not done.is_set()
        assert done.is_set()
        assert journal.head_seq == FIRST + 1
        other.close()


async def test_a_lock_that_is_never_let_go_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    """After its time the append fails with the file's name, and the log is as it was."""
    async with open_file_journal(tmp_path, options=FileJournalOptions(lock_seconds=0.05)) as journal:
        await journal.append([record(1)], 0)
        other = FileLock(tmp_path / "lock", wait_seconds=1.0)
        with other.exclusive():
            with pytest.raises(JournalError, match=r"another process has held it for 0.05 s"):
                await journal.append([record(2)], 1)
            with pytest.raises(LockHeld), FileLock(tmp_path / "lock", wait_seconds=9.0).exclusive(patient=False):
                pass
        other.close()
        await journal.append([record(2)], 1)
        assert [each.seq for each in await journal.read(0)] == [1, 2]
