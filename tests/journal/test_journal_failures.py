"""When the disk fails, nothing is assumed: an append is undone and says so, or the handle is failed."""

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import trio
import trio.testing

from teams.errors import JournalClosed, JournalError
from teams.journal import FileJournal, FileJournalOptions, open_file_journal
from teams.journal.fileops import FileOps
from teams.testing.journal_contract import make_records

T = TypeVar("T")


class FailingOps(FileOps):
    """Real operations, any of which a test replaces; `writes` and `syncs` count."""

    def __init__(self) -> None:
        self.writes = self.syncs = 0
        self.before_write: Callable[[memoryview], memoryview] = lambda data: data
        self.before_sync: Callable[[], None] = lambda: None
        self.before_truncate: Callable[[], None] = lambda: None
        self.before_open: Callable[[], None] = lambda: None

    def open(self, path: Path, flags: int) -> int:
        self.before_open()
        return super().open(path, flags)

    def write(self, fd: int, data: memoryview) -> int:
        self.writes += 1
        return super().write(fd, self.before_write(data))

    def sync(self, fd: int) -> None:
        self.syncs += 1
        self.before_sync()
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        self.before_truncate()
        super().truncate(fd, size)


def no_space(*_: object) -> memoryview:
    """Fail as a full disk does."""
    raise OSError(errno.ENOSPC, "No space left on device")


def half_then_no_space() -> Callable[[memoryview], memoryview]:
    """Take ten bytes once, then fail as a full disk does."""
    sizes = iter([10])

    def change(data: memoryview) -> memoryview:
        for size in sizes:
            return data[:size]
        return no_space()

    return change


def broken(*_: object) -> None:
    """Fail as a broken disk does."""
    raise OSError(errno.EIO, "Input/output error")


async def in_thread(sync_fn: Callable[[], T], /, *, limiter: trio.CapacityLimiter | None = None) -> T:
    """Run in a thread always: an append that waits for the test must not stop the loop."""
    return await trio.to_thread.run_sync(sync_fn, limiter=limiter)


async def open_with(root: Path, ops: FailingOps) -> FileJournal:
    """Open a handle over the operations, with one record in its log."""
    journal = await FileJournal.open(root / "journal", options=FileJournalOptions(ops=ops), run_sync=in_thread)
    await journal.append(make_records(0, 1), 0)
    return journal


async def test_a_group_costs_one_write_and_one_sync(tmp_path: Path) -> None:
    """However many records an append has, it writes once and syncs once."""
    ops = FailingOps()
    journal = await open_with(tmp_path, ops)
    ops.writes = ops.syncs = 0
    before = journal.statistics()
    await journal.append(make_records(1, 100), 1)
    assert (ops.writes, ops.syncs) == (1, 1)
    assert (journal.statistics().appends - before.appends, journal.statistics().fsyncs - before.fsyncs) == (1, 1)
    await journal.aclose()


async def test_a_short_write_is_completed(tmp_path: Path) -> None:
    """A system that takes three bytes at a time gets all of them."""
    ops = FailingOps()
    journal = await open_with(tmp_path, ops)
    ops.before_write = lambda data: data[:3]
    await journal.append(make_records(1, 2), 1)
    assert await journal.read(0) == make_records(0, 3)
    await journal.aclose()


async def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    """A write that stops half way is cut back; the error carries its cause, and the handle works once there is space."""
    ops = FailingOps()
    journal = await open_with(tmp_path, ops)
    before = (tmp_path / "journal/00000001.jsonl").read_bytes()
    ops.before_write = half_then_no_space()
    with pytest.raises(JournalError, match=r"No space left on device.*; the log is as before") as caught:
        await journal.append(make_records(1, 2), 1)
    assert isinstance(caught.value.__cause__, OSError)
    assert (tmp_path / "journal/00000001.jsonl").read_bytes() == before
    assert (journal.head_seq, journal.grown()) == (1, False)
    ops.before_write = lambda data: data
    await journal.append(make_records(1, 2), 1)
    assert await journal.read(0) == make_records(0, 3)
    await journal.aclose()


async def test_a_full_disk_at_rotation_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    """A segment that cannot be begun is begun by the next append."""
    ops = FailingOps()
    async with open_file_journal(tmp_path / "journal", options=FileJournalOptions(ops=ops, segment_bytes=1)) as journal:
        await journal.append(make_records(0, 1), 0)
        ops.before_open = broken
        with pytest.raises(JournalError, match="nothing was written"):
            await journal.append(make_records(1, 1), 1)
        ops.before_open, ops.before_write = lambda: None, no_space
        with pytest.raises(JournalError, match="the log is as before"):
            await journal.append(make_records(1, 1), 1)
        ops.before_write = lambda data: data
        await journal.append(make_records(1, 1), 1)
        assert await journal.read(0) == make_records(0, 2)


async def test_a_failed_sync_fails_the_handle(tmp_path: Path) -> None:
    """After a sync that failed once, no later success is believed: the handle is done for, others see the log as before."""
    ops = FailingOps()
    journal = await open_with(tmp_path, ops)

    def fail_once() -> None:
        ops.before_sync = lambda: None
        broken()

    ops.before_sync = fail_once
    with pytest.raises(JournalClosed, match=r"failed and must be opened again.*Input/output error") as caught:
        await journal.append(make_records(1, 1), 1)
    assert isinstance(caught.value.__cause__, OSError)
    for call in (journal.append(make_records(1, 1), 1), journal.read(0), journal.wait_grown(1)):
        with pytest.raises(JournalClosed, match="Input/output error"):
            await call
    assert not journal.grown()
    await journal.aclose()
    async with open_file_journal(tmp_path / "journal") as other:
        assert await other.read(0) == make_records(0, 1)
        assert other.reports == ()


async def test_a_write_that_cannot_be_undone_fails_the_handle(tmp_path: Path) -> None:
    """Half a record that could not be cut back is cut by whoever opens next."""
    ops = FailingOps()
    journal = await open_with(tmp_path, ops)
    ops.before_write, ops.before_truncate = half_then_no_space(), broken
    with pytest.raises(JournalClosed, match="No space left on device"):
        await journal.append(make_records(1, 1), 1)
    await journal.aclose()
    async with open_file_journal(tmp_path / "journal") as other:
        assert await other.read(0) == make_records(0, 1)
        assert [report.kind for report in other.reports] == ["torn"]
        await other.append(make_records(1, 1), 1)


async def test_an_append_that_has_begun_ends_and_returns_though_cancelled(tmp_path: Path) -> None:
    """Cancellation during the sync neither interrupts the write nor hides that it succeeded."""
    ops = FailingOps()
    journal = await open_with(tmp_path, ops)
    begun, go_on = trio.Event(), threading.Event()

    def wait() -> None:
        trio.from_thread.run_sync(begun.set)
        assert go_on.wait(10)

    ops.before_sync = wait
    returned = False
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def append() -> None:
                nonlocal returned
                await journal.append(make_records(1, 1), 1)
                returned = True

            nursery.start_soon(append)
            await begun.wait()
            assert not journal.grown()  # bytes of an append under way are no growth
            scope.cancel()
            go_on.set()
    assert returned
    assert journal.head_seq == 2
    ops.before_sync = lambda: None
    await journal.append(make_records(2, 1), 2)
    assert await journal.read(0) == make_records(0, 3)
    await journal.aclose()


async def test_a_reader_sees_no_append_before_it_is_durable(tmp_path: Path) -> None:
    """What is written but not synced is invisible to other handles, so that an undone append was never seen."""
    ops = FailingOps()
    journal = await open_with(tmp_path, ops)
    begun, go_on = trio.Event(), threading.Event()

    def wait() -> None:
        trio.from_thread.run_sync(begun.set)
        assert go_on.wait(10)
        ops.before_sync = lambda: None
        broken()

    ops.before_sync = wait
    async with open_file_journal(tmp_path / "journal") as reader:
        found: list[int] = []
        async with trio.open_nursery() as nursery:

            async def append() -> None:
                with pytest.raises(JournalClosed):
                    await journal.append(make_records(1, 1), 1)

            async def read() -> None:
                found.extend(record.seq for record in await reader.read(0))

            nursery.start_soon(append)
            await begun.wait()
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked(0.02)
            go_on.set()
        assert found == [1]
    await journal.aclose()


async def test_a_lock_that_is_never_free_is_given_up(tmp_path: Path) -> None:
    """A holder that hangs costs a bounded wait and an error that names the lock."""
    async with open_file_journal(tmp_path / "journal", options=FileJournalOptions(lock_seconds=0.02)) as journal:
        fd = os.open(tmp_path / "journal/lock", os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            with pytest.raises(JournalError, match=r"cannot lock .*another process has held it for 0\.02 s"):
                await journal.append(make_records(0, 1), 0)
        finally:
            os.close(fd)
        await journal.append(make_records(0, 1), 0)


async def test_a_removed_lock_file_parts_nobody(tmp_path: Path) -> None:
    """A handle opened before somebody removed the lock file still waits for who holds the new one."""
    lock = tmp_path / "journal/lock"
    async with open_file_journal(tmp_path / "journal", options=FileJournalOptions(lock_seconds=0.02)) as journal:
        lock.unlink()
        fd = os.open(lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            with pytest.raises(JournalError, match="cannot lock"):
                await journal.append(make_records(0, 1), 0)
        finally:
            os.close(fd)
        await journal.append(make_records(0, 1), 0)


async def test_the_name_of_a_segment_is_durable_before_its_first_record(tmp_path: Path) -> None:
    """The directory is synced for each new segment, also for one that a crash left empty, and for nothing else."""
    synced: list[str] = []

    class SpyOps(FileOps):
        def sync_directory(self, path: Path) -> None:
            synced.append(path.name)
            super().sync_directory(path)

    options = FileJournalOptions(ops=SpyOps(), segment_bytes=300)
    for expected in (1, 0, 0, 0):
        async with open_file_journal(tmp_path / "journal", options=options) as journal:
            synced.clear()
            await journal.append(make_records(journal.head_seq, 1), journal.head_seq)
            assert synced == ["journal"] * expected
    (tmp_path / "journal/00000005.jsonl").touch()
    async with open_file_journal(tmp_path / "journal", options=options) as journal:
        synced.clear()
        await journal.append(make_records(4, 1), 4)
        assert synced == ["journal"]


@pytest.mark.parametrize("name", ["segment_bytes", "slice_bytes", "lock_seconds", "poll_seconds"])
def test_options_are_checked_when_built(name: str) -> None:
    """Zero is no size and no time."""
    with pytest.raises(ValueError, match=f"{name} must be more than 0"):
        FileJournalOptions(**{name: 0})  # type: ignore[arg-type]  # every figure is refused alike
