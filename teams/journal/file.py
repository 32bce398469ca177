"""The journal in files, for many processes on one directory.

`<root>/journal/00000001.jsonl` and its followers are the log, `<root>/snapshot.json` its snapshot. The work is done by
`store.SegmentStore`: a read in slices in a worker thread, an append where it disturbs least (see `offload`). This module orders the calls
and decides what cancellation means.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from teams.errors import JournalClosed
from teams.journal.base import Journal, JournalReport, JournalStatistics, Snapshot
from teams.journal.fileops import FileOps
from teams.journal.locking import LockHeld
from teams.journal.offload import Offload, RunSync, run_in_thread
from teams.journal.records import Record, check_group, encode
from teams.journal.segments import Cursor
from teams.journal.snapshot import encode_snapshot
from teams.journal.store import SegmentStore
from teams.journal.watch import Watch, open_watch

_T = TypeVar("_T")
_CLOSE_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileJournalOptions:
    """How a file journal works.

    segment_bytes: a segment of this size takes no further append.
    slice_bytes: how much of the log is read and decoded in one piece.
    lock_seconds: how long another process may hold the lock before a call gives up.
    poll_seconds: look for growth by the clock, for file systems that other machines write to; None means the system's own events.
    ops: the operations of the operating system.
    """

    segment_bytes: int = 16 * 1024 * 1024
    slice_bytes: int = 1024 * 1024
    lock_seconds: float = 10.0
    poll_seconds: float | None = None
    ops: FileOps = field(default_factory=FileOps)

    def __post_init__(self) -> None:
        """Check the figures."""
        for name in ("segment_bytes", "slice_bytes", "lock_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)}")
        if self.poll_seconds is not None and self.poll_seconds <= 0:
            raise ValueError(f"poll_seconds must be more than 0 or None, not {self.poll_seconds}")


class FileJournal(Journal):
    """A handle on a journal directory; made by `open_file_journal`."""

    def __init__(self, store: SegmentStore, *, directory: Path, options: FileJournalOptions, run_sync: RunSync) -> None:
        self._store, self._directory, self._options, self._run_sync = store, directory, options, run_sync
        # Reads go through a thread, appends wherever they disturb least; a stand-in that is passed in gets everything.
        self._run_append: RunSync = Offload() if run_sync is run_in_thread else run_sync
        self._busy = trio.Lock()
        self._limiter = trio.CapacityLimiter(1)  # tools that fill the default one must not hold up the log
        self._watch: Watch | None = None

    @classmethod
    async def open(cls, directory: Path, *, options: FileJournalOptions | None = None, run_sync: RunSync = run_in_thread) -> "FileJournal":
        """Open a handle that the caller closes with `aclose`; `open_file_journal` does both.

        Raises: JournalDamaged, JournalError, OSError.
        """
        options = options or FileJournalOptions()
        make = partial(
            SegmentStore,
            directory,
            segment_bytes=options.segment_bytes,
            slice_bytes=options.slice_bytes,
            lock_seconds=options.lock_seconds,
            ops=options.ops,
        )
        return cls(await run_sync(make), directory=directory, options=options, run_sync=run_sync)

    @property
    def head_seq(self) -> int:
        """See Journal.head_seq."""
        return self._store.at.seq

    @property
    def reports(self) -> tuple[JournalReport, ...]:
        """See Journal.reports."""
        return tuple(self._store.reports)

    async def append(self, records: Sequence[Record], expected_seq: int) -> None:
        """See Journal.append: one write and one fsync."""
        check_group(records, expected_seq)
        data = b"".join(map(encode, records))
        await self._acquire()
        try:
            self._store.check_usable()
            if expected_seq > self.head_seq:
                raise ValueError(f"cannot append after record {expected_seq}: this handle has read up to record {self.head_seq} only")
            append = partial(self._store.append, data, expected_seq, len(records))
            if isinstance(self._run_append, Offload) and self._run_append.inline:
                try:
                    return await self._run_append(partial(append, patient=False), limiter=self._limiter)
                except LockHeld:  # another process appends: that wait is no work for the loop's own thread
                    return await self._in_thread(append)
            await self._run_append(append, limiter=self._limiter)
        finally:
            self._busy.release()

    async def read(self, after_seq: int) -> list[Record]:
        """See Journal.read: the log is decoded in slices, each in a worker thread."""
        async with self._busy:
            self._store.check_usable()
            if after_seq >= self.head_seq and not self._store.grown():
                return []
            records: list[Record] = []
            cursor: Cursor | None = None
            done = False
            while not done:
                found, cursor, done = await self._in_thread(partial(self._store.read_slice, cursor, after_seq))
                records += found
            assert cursor is not None
            self._store.advance(cursor)
            return records

    def grown(self) -> bool:
        """See Journal.grown."""
        return not self._busy.locked() and self._store.grown()

    async def wait_grown(self, after_seq: int) -> None:
        """See Journal.wait_grown; for one task at a time, others get trio.BusyResourceError."""
        await trio.lowlevel.checkpoint()
        self._store.check_usable()
        if self._watch is None:
            self._watch, reason = open_watch(self._directory, poll_seconds=self._options.poll_seconds)
            if reason is not None:
                self._store.reports.append(JournalReport("watch_fallback", f"growth is looked for by the clock: {reason}", self._directory))
        if self.head_seq > after_seq:
            return
        while True:
            async with self._busy:  # a call under way changes what counts as growth
                self._store.check_usable()
                if self._store.grown():
                    return
            try:
                await self._watch.wait()
            except trio.ClosedResourceError as error:
                raise JournalClosed(f"the journal {self._directory} was closed while growth was waited for") from error

    async def load_snapshot(self) -> Snapshot | None:
        """See Journal.load_snapshot."""
        async with self._busy:
            self._store.check_usable()
            return await self._in_thread(self._store.load_snapshot)

    async def save_snapshot(self, seq: int, state: dict[str, Any]) -> None:
        """See Journal.save_snapshot."""
        data = encode_snapshot(seq, state)  # before the first checkpoint: the caller may change its state afterwards
        async with self._busy:
            self._store.check_usable()
            if not 0 <= seq <= self.head_seq:
                raise ValueError(f"cannot save a snapshot after record {seq}: this handle knows records up to {self.head_seq}")
            await self._in_thread(partial(self._store.save_snapshot, seq, data))

    def statistics(self) -> JournalStatistics:
        """See Journal.statistics; costs a listing of the directory."""
        return self._store.statistics()

    async def aclose(self) -> None:
        """See Journal.aclose."""
        self._store.refuse()
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.close()
        # A thread may still use the descriptors. When it does not end in time they stay open: closed ones would soon be other files.
        with trio.move_on_after(self._options.lock_seconds + _CLOSE_GRACE_SECONDS, shield=True):
            async with self._busy:
                self._store.close()
        await trio.lowlevel.checkpoint()

    async def _acquire(self) -> None:
        """Take the handle without a checkpoint when it is free: the hop to the thread that follows is one."""
        try:
            self._busy.acquire_nowait()
        except trio.WouldBlock:
            await self._busy.acquire()

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await self._run_sync(work, limiter=self._limiter)


@asynccontextmanager
async def open_file_journal(
    directory: Path, *, options: FileJournalOptions | None = None, run_sync: RunSync = run_in_thread
) -> AsyncGenerator[FileJournal]:
    """Open a handle on a journal directory, creating it if need be, and close it in the end.

    What a crash left torn at the log's end is cut and kept aside as `torn-*.bin`.

    Raises: JournalDamaged when the last segment's end cannot be read; JournalError when the lock is not to be had; OSError.
    """
    journal = await FileJournal.open(directory, options=options, run_sync=run_sync)
    try:
        yield journal
    finally:
        await journal.aclose()
