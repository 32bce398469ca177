"""The journal in memory, for tests and for teams that need no memory of themselves.

A MemoryLog is what the disk would be; every MemoryJournal on it is what a process's handle would be. Records are kept as encoded lines, so
that what comes back is what a disk would give back and no two handles share a value.
"""

from collections.abc import Sequence
from typing import Any

import trio

from teams.errors import JournalClosed, JournalConflict
from teams.journal.base import Journal, JournalReport, JournalStatistics, Snapshot
from teams.journal.records import Record, check_group, decode, encode
from teams.journal.snapshot import decode_snapshot, encode_snapshot


class MemoryLog:
    """The lines of a log, and its snapshot, shared by any number of handles of one trio run."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.snapshot: tuple[int, bytes] | None = None
        self.changed = trio.lowlevel.ParkingLot()


class MemoryJournal(Journal):
    """A handle on a MemoryLog, by default on one of its own."""

    def __init__(self, log: MemoryLog | None = None) -> None:
        self._log = MemoryLog() if log is None else log
        self._head_seq = len(self._log.lines)
        self._closed = False
        self._appends = 0
        self._reports: list[JournalReport] = []

    @property
    def head_seq(self) -> int:
        """See Journal.head_seq."""
        return self._head_seq

    @property
    def reports(self) -> tuple[JournalReport, ...]:
        """See Journal.reports."""
        return tuple(self._reports)

    async def append(self, records: Sequence[Record], expected_seq: int) -> None:
        """See Journal.append."""
        check_group(records, expected_seq)
        lines = [encode(record) for record in records]
        await self._begin()
        if expected_seq > self._head_seq:
            raise ValueError(f"cannot append after record {expected_seq}: this handle has read up to record {self._head_seq} only")
        if expected_seq < len(self._log.lines):
            raise JournalConflict(expected_seq=expected_seq, head_seq=len(self._log.lines))
        if lines:
            self._log.lines += lines
            self._head_seq = len(self._log.lines)
            self._appends += 1
            self._log.changed.unpark_all()

    async def read(self, after_seq: int) -> list[Record]:
        """See Journal.read."""
        await self._begin()
        records = [decode(line) for line in self._log.lines[after_seq:]]
        self._head_seq = len(self._log.lines)
        return records

    def grown(self) -> bool:
        """See Journal.grown."""
        return not self._closed and len(self._log.lines) > self._head_seq

    async def wait_grown(self, after_seq: int) -> None:
        """See Journal.wait_grown."""
        await self._begin()
        if self._head_seq > after_seq:
            return
        while not self.grown():
            await self._log.changed.park()
            self._check_open()

    async def load_snapshot(self) -> Snapshot | None:
        """See Journal.load_snapshot."""
        await self._begin()
        return None if self._log.snapshot is None else decode_snapshot(self._log.snapshot[1])

    async def save_snapshot(self, seq: int, state: dict[str, Any]) -> None:
        """See Journal.save_snapshot."""
        data = encode_snapshot(seq, state)
        await self._begin()
        if not 0 <= seq <= self._head_seq:
            raise ValueError(f"cannot save a snapshot after record {seq}: this handle knows records up to {self._head_seq}")
        if self._log.snapshot is None or self._log.snapshot[0] <= seq:
            self._log.snapshot = seq, data

    def statistics(self) -> JournalStatistics:
        """See Journal.statistics; nothing is ever synced."""
        size = sum(map(len, self._log.lines[: self._head_seq]))
        return JournalStatistics(self._head_seq, size, self._appends, 0, 1 if self._head_seq else 0, 0)

    async def aclose(self) -> None:
        """See Journal.aclose."""
        self._closed = True
        self._log.changed.unpark_all()
        await trio.lowlevel.checkpoint()

    async def _begin(self) -> None:
        self._check_open()
        await trio.lowlevel.checkpoint()
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise JournalClosed("the journal in memory is closed")
