"""Reading segments: where they are, what their bytes say, where the log ends.

A segment `00000041.jsonl` begins with record 41; the next one begins where it ends. Nothing here writes, locks or knows trio. Only the end
of the last segment may be torn; whatever else does not read is damage, reported with file and line.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from teams.errors import JournalDamaged
from teams.journal.fileops import FileOps
from teams.journal.records import DamagedLine, Record, decode

_SEGMENT_NAME = re.compile(r"(\d{8,})\.jsonl")
_SEQ_PREFIX = re.compile(rb'\{"seq":(\d+),')
_WINDOW_BYTES = 64 * 1024
_REMEDY = (
    "nothing was changed; put the file back from a copy. To go on without it, copy the whole team first, then remove this line and all "
    "after it, all later segments and snapshot.json: every record before it stays"
)


class Cursor(NamedTuple):
    """A place between two records: `offset` bytes into the segment that begins with record `first`, after record `seq`.

    `first` is 0 where no segment exists yet.
    """

    first: int
    offset: int
    seq: int


class Scan(NamedTuple):
    """What a piece of a segment says: whole transactions, the bytes they take, and why it stopped before the piece's end."""

    records: list[Record]
    consumed: int
    seq: int
    problem: str | None
    problem_offset: int
    may_be_torn: bool


def segment_path(directory: Path, first: int) -> Path:
    """Return the path of the segment that begins with record `first`."""
    return directory / f"{first:08d}.jsonl"


def list_segments(directory: Path) -> list[int]:
    """Return the first record numbers of all segments, ascending."""
    return sorted(int(match[1]) for name in os.listdir(directory) if (match := _SEGMENT_NAME.fullmatch(name)))


def damage_at(ops: FileOps, path: Path, offset: int, reason: str) -> JournalDamaged:
    """Return the error for the line at `offset` of a segment."""
    fd = ops.open(path, os.O_RDONLY)
    try:
        line = ops.read_at(fd, offset, 0).count(b"\n") + 1
    finally:
        ops.close(fd)
    return JournalDamaged(path, line=line, reason=reason, remedy=_REMEDY)


def missing_records(directory: Path, *, expected: int, first: int) -> JournalDamaged:
    """Return the error for a segment that begins later than the log before it ends."""
    reason = f"record {expected} should stand before it or first in it" if first > expected else f"record {expected} should follow"
    remedy = (
        "the segment before it is missing or cut: put it back from a copy. To go on without it, copy the whole team first, then move this "
        "segment, all later ones and snapshot.json out of the team"
    )
    return JournalDamaged(segment_path(directory, first), line=1, reason=reason, remedy=remedy)


def scan(piece: bytes, seq: int) -> Scan:
    """Decode the whole transactions at the beginning of a piece of a segment that follows record `seq`."""
    records: list[Record] = []
    start = whole = consumed = pending = 0
    problem: str | None = None
    may_be_torn = False
    while (end := piece.find(b"\n", start)) >= 0:
        try:
            record = decode(piece[start:end])
        except DamagedLine as error:
            problem, may_be_torn = error.reason, end + 1 == len(piece)
            break
        expected = seq + len(records) + 1
        if record.seq != expected:
            problem = f"it is record {record.seq}, but record {expected} should follow"
            break
        if pending and record.more != pending - 1:
            problem = f"the transaction before record {record.seq} lacks {pending} records"
            break
        records.append(record)
        start, pending = end + 1, record.more
        if not pending:
            whole, consumed = len(records), start
    del records[whole:]
    return Scan(records, consumed, seq + whole, problem, start, may_be_torn)


class _NeedMore(Exception):
    """The window is too short to tell where the log ends."""


def find_end(ops: FileOps, path: Path, *, first: int, size: int) -> Cursor:
    """Return the place after the last whole transaction of the last segment; what follows it there is torn.

    Raises: JournalDamaged when a line that is not the last of the segment cannot be read.
    """
    fd = ops.open(path, os.O_RDONLY)
    try:
        window = _WINDOW_BYTES
        while True:
            start = max(0, size - window)
            try:
                end, seq = _last_whole(ops.read_at(fd, size - start, start), at_start=start == 0)
            except _NeedMore:
                window *= 8
                continue
            except _MiddleDamage as damage:
                raise damage_at(ops, path, start + damage.offset, damage.reason) from None
            return Cursor(first, start + end, seq) if end else Cursor(first, 0, first - 1)
    finally:
        ops.close(fd)


class _MiddleDamage(Exception):
    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset, self.reason = offset, reason


def _last_whole(window: bytes, *, at_start: bool) -> tuple[int, int]:
    """Return the end and the number of the last record that completes a transaction; (0, 0) when there is none."""
    end = window.rfind(b"\n") + 1
    while end:
        start = window.rfind(b"\n", 0, end - 1) + 1
        if not start and not at_start:
            break
        try:
            record = decode(window[start:end])
        except DamagedLine as error:
            if end != len(window):
                raise _MiddleDamage(start, error.reason) from error
        else:
            if not record.more:
                return end, record.seq
        end = start
    if at_start:
        return 0, 0
    raise _NeedMore


def find_record(ops: FileOps, path: Path, *, first: int, size: int, seq: int) -> Cursor:
    """Return a place shortly before record `seq`, found by bisection of the segment; its beginning when the bytes cannot be followed."""
    fd = ops.open(path, os.O_RDONLY)
    try:
        low, low_seq, high = 0, first, size
        while high - low > _WINDOW_BYTES:
            middle = (low + high) // 2
            window = ops.read_at(fd, min(_WINDOW_BYTES, size - middle), middle)
            start = window.find(b"\n") + 1
            match = _SEQ_PREFIX.match(window, start) if start else None
            if match is None or int(match[1]) > seq:
                high = middle
            elif int(match[1]) < low_seq:
                return Cursor(first, 0, first - 1)
            else:
                low, low_seq = middle + start, int(match[1])
        return Cursor(first, low, low_seq - 1)
    finally:
        ops.close(fd)
