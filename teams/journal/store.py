"""The file journal without trio: one handle on the segments, whose every method runs to its end in one thread.

What always holds:

- `at` is the end of the last transaction that this handle appended or took in; it moves only when that is certain.
- Bytes are written, and torn ones cut, only under the exclusive lock; they are read only under the shared one. So nobody sees an append
  before it is durable, and nobody cuts one that is still being written.
- A failed append is undone before the lock is given back. After a failed fsync, or where undoing cannot be verified, the handle is failed:
  the system reports a lost write once, so a later fsync that succeeds would prove nothing.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from teams.errors import JournalClosed, JournalConflict, JournalDamaged, JournalError
from teams.journal.base import JournalReport, JournalStatistics, Snapshot
from teams.journal.fileops import FileOps
from teams.journal.locking import FileLock
from teams.journal.records import Record
from teams.journal.segments import Cursor, damage_at, find_end, find_record, list_segments, missing_records, scan, segment_path
from teams.journal.snapshot import SnapshotDamaged, read_snapshot, replace_snapshot


class Stamp(NamedTuple):
    """The size and time of a segment; both, because a cut and an append can end at the size that was there before."""

    size: int
    modified_ns: int


_START = Cursor(first=0, offset=0, seq=0)
_NOTHING = Stamp(0, 0)


class SegmentStore:
    """One handle on a journal directory; not for two threads at a time."""

    def __init__(self, directory: Path, *, segment_bytes: int, slice_bytes: int, lock_seconds: float, ops: FileOps) -> None:
        """Open the directory, creating it, and settle the log's end; raises JournalDamaged, JournalError and OSError."""
        self._directory, self._ops = directory, ops
        self._segment_bytes, self._slice_bytes = segment_bytes, slice_bytes
        self._prefix = f"{directory}{os.sep}"
        self._snapshot_path = directory.parent / "snapshot.json"
        self._fd: int | None = None
        self._identity = (0, 0)
        self._closed = self._released = False
        self._failure: BaseException | None = None
        self._appends = self._fsyncs = self._torn_bytes = 0
        self.reports: list[JournalReport] = []
        if not directory.is_dir():
            directory.mkdir(parents=True, exist_ok=True)
            self._sync_directory(directory.parent)
        self._lock = FileLock(directory / "lock", wait_seconds=lock_seconds)
        self._snapshot_lock: Callable[[], FileLock] = lambda: FileLock(directory / "snapshot-lock", wait_seconds=lock_seconds)
        try:
            with self._lock.exclusive():
                self.at = self._settle_end()
                self._seen = self._looked_at = self._stamp(self.at.first)
        except BaseException:
            self._lock.close()
            raise

    def check_usable(self) -> None:
        """Raise JournalClosed when the handle is closed or failed."""
        if self._failure is not None:
            raise JournalClosed(f"the journal {self._directory} failed and must be opened again: {self._failure}") from self._failure
        if self._closed:
            raise JournalClosed(f"the journal {self._directory} is closed")

    def grown(self) -> bool:
        """Tell whether the directory changed behind `at` since this handle last looked."""
        if self._closed or self._failure is not None:
            return False
        return self._stamp(self.at.first) != self._seen or self._has_next()

    def append(self, data: bytes, expected_seq: int, count: int, *, patient: bool = True) -> None:
        """Write the lines of `count` records as one group; see Journal.append.

        Raises: as Journal.append; LockHeld when another process holds the lock and `patient` is False: nothing has happened then.
        """
        self.check_usable()
        if expected_seq < self.at.seq:
            raise JournalConflict(expected_seq=expected_seq, head_seq=self.at.seq)
        with self._lock.exclusive(patient=patient):
            self._check_end(expected_seq)
            if not data:
                return
            try:
                fd = self._writable_segment()
            except OSError as error:
                raise JournalError(f"cannot append to the journal {self._directory}: {error}; nothing was written") from error
            self._write_durably(fd, data)
            self.at = Cursor(self.at.first, self.at.offset + len(data), expected_seq + count)
            self._seen = self._stamp(self.at.first)
        self._appends += 1

    def read_slice(self, cursor: Cursor | None, after_seq: int) -> tuple[list[Record], Cursor, bool]:
        """Return some whole transactions from the cursor on, the next cursor, and whether the log ends there.

        Without a cursor, begin at record `after_seq + 1`. The cursor is the caller's to keep; `advance` makes it the handle's own.
        """
        self.check_usable()
        if cursor is None:
            cursor = self.at if after_seq >= self.at.seq else self._find(after_seq + 1)
        limit = self._slice_bytes
        while True:
            piece, stamp, later = self._read_piece(cursor, limit)
            self._looked_at = stamp
            if cursor.first == 0 or (not piece and later):  # on to the next segment
                if not later:
                    return [], cursor, True
                if later[0] != cursor.seq + 1:
                    raise missing_records(self._directory, expected=cursor.seq + 1, first=later[0])
                cursor = Cursor(later[0], 0, cursor.seq)
                continue
            found = scan(piece, cursor.seq)
            at_end = cursor.offset + len(piece) >= stamp.size
            torn_allowed = at_end and not later
            if found.problem is not None and not (torn_allowed and found.may_be_torn):
                raise damage_at(self._ops, segment_path(self._directory, cursor.first), cursor.offset + found.problem_offset, found.problem)
            if not found.consumed and not at_end:  # a transaction longer than the slice
                limit *= 4
                continue
            if at_end and later and found.consumed < len(piece):
                path, offset = segment_path(self._directory, cursor.first), cursor.offset + found.consumed
                raise damage_at(self._ops, path, offset, "the segment ends within a record or transaction")
            records = found.records
            if cursor.seq < after_seq:
                records = records[after_seq - cursor.seq :]
            return records, Cursor(cursor.first, cursor.offset + found.consumed, found.seq), torn_allowed

    def advance(self, cursor: Cursor) -> None:
        """Make the cursor of the last slice the handle's own; raises JournalDamaged when the log is shorter than it was."""
        if cursor.seq < self.at.seq:
            raise self._vanished(segment_path(self._directory, cursor.first))
        self._move(cursor, self._looked_at)

    def load_snapshot(self) -> Snapshot | None:
        """Return the snapshot if it is sound and the log reaches it; what is ignored is reported."""
        self.check_usable()
        try:
            snapshot = read_snapshot(self._snapshot_path)
        except (SnapshotDamaged, OSError) as error:
            self.reports.append(JournalReport("snapshot_ignored", f"the snapshot cannot be used: {error}", self._snapshot_path))
            return None
        if snapshot is not None and snapshot[0] > self.at.seq:
            with self._lock.shared():
                end, _ = self._find_end()
            if snapshot[0] > end.seq:
                message = f"the snapshot stands after record {snapshot[0]}, but the log ends with record {end.seq}"
                self.reports.append(JournalReport("snapshot_ignored", message, self._snapshot_path))
                return None
        return snapshot

    def save_snapshot(self, seq: int, data: bytes) -> None:
        """Replace an older snapshot; appends of others go on meanwhile."""
        self.check_usable()
        lock = self._snapshot_lock()
        try:
            with lock.exclusive():
                self._fsyncs += 2 * replace_snapshot(self._ops, self._snapshot_path, seq, data)
        except OSError as error:
            raise JournalError(f"cannot write the snapshot {self._snapshot_path}: {error}; the former one stands") from error
        finally:
            lock.close()

    def statistics(self) -> JournalStatistics:
        """Return the figures; costs a listing of the directory."""
        earlier = [first for first in list_segments(self._directory) if first < self.at.first]
        size = self.at.offset + sum(segment_path(self._directory, first).stat().st_size for first in earlier)
        segments = len(earlier) + (self.at.first > 0)
        return JournalStatistics(self.at.seq, size, self._appends, self._fsyncs, segments, self._torn_bytes)

    def refuse(self) -> None:
        """Let every later call raise JournalClosed."""
        self._closed = True

    def close(self) -> None:
        """Close the descriptors; closing twice is nothing."""
        self.refuse()
        if not self._released:
            self._released = True
            self._close_active()
            self._lock.close()

    def _name(self, first: int) -> str:
        return f"{self._prefix}{first:08d}.jsonl"  # what segment_path gives, without the 5 us of a Path

    @property
    def _active_path(self) -> Path:
        return segment_path(self._directory, self.at.first)

    def _has_next(self) -> bool:
        following = self.at.seq + 1
        return following != self.at.first and os.path.exists(self._name(following))

    def _stamp(self, first: int) -> Stamp:
        """Return what changes with every write to a segment; nothing where there is no segment."""
        if not first:
            return _NOTHING
        try:
            return _stamp_of(os.stat(self._name(first)))
        except FileNotFoundError:
            return _NOTHING  # reading tells what is wrong

    def _move(self, cursor: Cursor, seen: Stamp) -> None:
        if cursor.first != self.at.first:
            self._close_active()
        self.at, self._seen = cursor, seen

    def _close_active(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._ops.close(fd)

    def _find(self, seq: int) -> Cursor:
        with self._lock.shared():
            segments = list_segments(self._directory)
            first = max((first for first in segments if first <= seq), default=0)
            if not first:
                if segments:
                    raise missing_records(self._directory, expected=seq, first=segments[0])
                return _START
            path = segment_path(self._directory, first)
            return find_record(self._ops, path, first=first, size=path.stat().st_size, seq=seq)

    def _read_piece(self, cursor: Cursor, limit: int) -> tuple[bytes, Stamp, list[int]]:
        """Return bytes at the cursor, the segment's stamp and the segments after it, all seen at one moment between appends."""
        with self._lock.shared():
            later = [first for first in list_segments(self._directory) if first > cursor.first]
            if not cursor.first:
                return b"", _NOTHING, later
            path = segment_path(self._directory, cursor.first)
            try:
                fd = self._ops.open(path, os.O_RDONLY)
            except FileNotFoundError:
                raise self._vanished(path) from None
            try:
                stamp = _stamp_of(os.fstat(fd))
                if stamp.size < cursor.offset:
                    raise self._vanished(path)
                return self._ops.read_at(fd, min(limit, stamp.size - cursor.offset), cursor.offset), stamp, later
            finally:
                self._ops.close(fd)

    def _vanished(self, path: Path) -> JournalDamaged:
        reason = f"records up to {self.at.seq} stood here and are gone: the segment was removed, replaced or cut by somebody else"
        return JournalDamaged(path, line=1, reason=reason, remedy="put it back from a copy; nothing was written since")

    def _check_end(self, expected_seq: int) -> None:
        """Raise JournalConflict unless the log ends at `at`; cut what is torn behind it."""
        if self.at.first:
            try:
                found = os.stat(self._name(self.at.first))
            except FileNotFoundError:
                raise self._fail(self._vanished(self._active_path)) from None
            if self._fd is not None and _identity_of(found) != self._identity:
                raise self._fail(self._vanished(self._active_path))
            if found.st_size == self.at.offset and not self._has_next():
                return
        elif not self._has_next():
            return
        end = self._settle_end()
        if end.seq > self.at.seq:
            raise JournalConflict(expected_seq=expected_seq, head_seq=end.seq)
        if end.seq < self.at.seq:
            raise self._fail(self._vanished(segment_path(self._directory, end.first)))
        self._move(end, self._stamp(end.first))

    def _find_end(self) -> tuple[Cursor, int]:
        segments = list_segments(self._directory)
        if not segments:
            return _START, 0
        path = segment_path(self._directory, segments[-1])
        size = path.stat().st_size
        return find_end(self._ops, path, first=segments[-1], size=size), size

    def _settle_end(self) -> Cursor:
        """Find the log's end and cut what is torn behind it, keeping the bytes aside. The exclusive lock is held."""
        end, size = self._find_end()
        if size > end.offset:
            self._set_aside(end, size)
        return end

    def _set_aside(self, end: Cursor, size: int) -> None:
        path = segment_path(self._directory, end.first)
        fd = self._ops.open(path, os.O_RDWR)
        try:
            torn = self._ops.read_at(fd, size - end.offset, end.offset)
            kept = self._keep(torn, end.seq + 1)
            self._ops.truncate(fd, end.offset)
            self._sync(fd)
        finally:
            self._ops.close(fd)
        self._torn_bytes += len(torn)
        self.reports.append(
            JournalReport("torn", f"{path}: {len(torn)} bytes after record {end.seq} were torn and are kept in {kept.name}", kept)
        )

    def _keep(self, torn: bytes, seq: int) -> Path:
        number = 1
        while (kept := self._directory / f"torn-{seq}-{number}.bin").exists():
            number += 1
        fd = self._ops.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            self._ops.write_all(fd, torn)
            self._sync(fd)
        finally:
            self._ops.close(fd)
        self._sync_directory(self._directory)
        return kept

    def _writable_segment(self) -> int:
        """Return the descriptor to append to, opening the active segment or beginning the next one."""
        if not self.at.first or (self.at.offset >= self._segment_bytes and self.at.offset):
            following = Cursor(self.at.seq + 1, 0, self.at.seq)
            fd = self._ops.open(segment_path(self._directory, following.first), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND)
            self._move(following, self._stamp(following.first))
            self._fd, self._identity = fd, _identity_of(os.fstat(fd))
        elif (fd_or_none := self._fd) is None:
            fd = self._ops.open(self._active_path, os.O_RDWR | os.O_APPEND)
            self._fd, self._identity = fd, _identity_of(os.fstat(fd))
        else:
            fd = fd_or_none
        if not self.at.offset:  # here and not where it was created: whoever created it may have died before this
            self._sync_directory(self._directory)
        return fd

    def _write_durably(self, fd: int, data: bytes) -> None:
        try:
            self._ops.write_all(fd, data)
        except OSError as error:
            self._undo(fd, error)
            raise JournalError(f"cannot append to {self._active_path}: {error}; the log is as before") from error
        try:
            self._sync(fd)
        except OSError as error:
            self._undo(fd, error)
            raise self._fail(error) from error

    def _undo(self, fd: int, cause: OSError) -> None:
        """Cut the log back to `at`; fail the handle when that cannot be verified."""
        try:
            self._ops.truncate(fd, self.at.offset)
            self._sync(fd)
            if os.fstat(fd).st_size != self.at.offset:
                raise self._fail(cause)
            self._seen = self._stamp(self.at.first)
        except OSError as error:
            raise self._fail(cause) from error

    def _fail(self, cause: BaseException) -> JournalClosed:
        self._failure = cause
        return JournalClosed(f"the journal {self._directory} failed and must be opened again: {cause}")

    def _sync(self, fd: int) -> None:
        self._fsyncs += 1
        self._ops.sync(fd)

    def _sync_directory(self, path: Path) -> None:
        self._fsyncs += 1
        self._ops.sync_directory(path)


def _stamp_of(found: os.stat_result) -> Stamp:
    return Stamp(found.st_size, found.st_mtime_ns)


def _identity_of(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
