"""The file of a session: append, sync, and a safe end after a crash.

Laws: one process writes; every append is one write; what a crash left half written is cut at open, and kept beside the file. Calls block:
a caller under an event loop runs them in a thread.
"""

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from compaction.errors import SessionError
from compaction.recall import Archive
from compaction.session import (
    Entry,
    Header,
    Line,
    Rewind,
    StoredCheckpoint,
    decode,
    encode_header,
    encode_rewind,
    encode_view,
    load,
)

_CHUNK_BYTES = 1 << 20
_TAIL_BYTES = 1 << 18
_fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class SessionArchive:
    """Everything that a session file holds, for looking things up; reads what was appended since the last look, and never writes.

    A line that is cut or damaged is left out, as it is from a view. What a fork took from another session is read there, as long as that
    one's file is there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._archive = Archive()
        self._read_bytes = 0

    def update(self) -> Archive:
        """Read on and return the archive; a file that does not exist is an empty one.

        Raises:
            OSError: it cannot be read.
        """
        self._read_bytes = self._read(self.path, self._read_bytes, math.inf, {self.path.resolve()})
        return self._archive

    def _read(self, path: Path, start: int, stop: float, seen: set[Path]) -> int:
        """Take in the whole lines of a file between two places, and return where the last of them ends."""
        try:
            with path.open("rb") as file:
                file.seek(start)
                for line in file:
                    if not line.endswith(b"\n") or start + len(line) > stop:
                        break
                    start += len(line)
                    with suppress(ValueError):
                        self._take(decode(line), path, seen)
        except FileNotFoundError:
            return start
        return start

    def _take(self, line: Line, path: Path, seen: set[Path]) -> None:
        match line:
            case Entry():
                self._archive.add(line.message)
            case StoredCheckpoint():
                self._archive.add_view(line.messages)
            case Header() if line.source and (source := (path.parent / line.source).resolve()) not in seen:
                seen.add(source)
                self._read(source, 0, line.source_bytes, seen)
            case _:
                return


class SessionFile:
    """One session's file; open it before use, close it after.

    Args:
        path: the file; its directory must exist. What is cut off a torn end is appended to `<path>.torn`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._fd = -1

    def open(self) -> int:
        """Open or create the file and give it a clean end.

        Returns:
            How many bytes of a torn last line were cut off and kept aside.

        Raises:
            SessionError: it is open already.
            OSError: the file cannot be opened.
        """
        if self._fd >= 0:
            raise SessionError(f"cannot open {str(self.path)!r}: it is open already")
        self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            return self._mend()
        except BaseException:
            self.close()
            raise

    def append(self, lines: Sequence[bytes]) -> None:
        """Write whole lines, each with its line end, at the end of the file; they are safe after `sync`.

        Raises:
            ValueError: a line has no end, or more than one.
            SessionError: the file is not open.
            OSError: the write failed; close the session and open it again, so that its end is mended.
        """
        for line in lines:
            if not line or line.find(b"\n") != len(line) - 1:
                raise ValueError(f"a line must end in its only line end: {line[:60]!r}")
        data = memoryview(b"".join(lines))
        descriptor = self._open_fd("append to")
        while data:  # one write, but for a full disk or a signal
            data = data[os.write(descriptor, data) :]

    def sync(self) -> None:
        """Return when everything appended is on disk.

        Raises:
            SessionError: the file is not open.
            OSError: it could not be written; nothing may be assumed of what was appended.
        """
        _fdatasync(self._open_fd("sync"))

    def read(self) -> list[bytes]:
        """Return all lines, with their line ends."""
        with self.path.open("rb") as file:
            return file.readlines()

    def close(self) -> None:
        """Close the file; closing it again does nothing."""
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _open_fd(self, operation: str) -> int:
        if self._fd < 0:
            raise SessionError(f"cannot {operation} {str(self.path)!r}: it is not open")
        return self._fd

    def _mend(self) -> int:
        """End a whole last line that lacks its line end; cut a torn one off."""
        size = os.fstat(self._fd).st_size
        start = self._last_line_start(size)
        tail = os.pread(self._fd, size - start, start)
        if not tail:
            return 0
        try:
            decode(tail)
        except ValueError:
            with self.path.with_name(self.path.name + ".torn").open("ab") as aside:
                aside.write(tail + b"\n")
                aside.flush()
                os.fsync(aside.fileno())
            os.ftruncate(self._fd, start)
            _fdatasync(self._fd)
            return len(tail)
        os.write(self._fd, b"\n")
        _fdatasync(self._fd)
        return 0

    def _last_line_start(self, size: int) -> int:
        """Return where the bytes after the last line end begin."""
        stop = size
        while stop > 0:
            start = max(0, stop - _CHUNK_BYTES)
            found = os.pread(self._fd, stop - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            stop = start
        return 0


def last_call(path: str | os.PathLike[str]) -> tuple[int, str] | None:
    """Return what the newest call of a session sent, in tokens as reported, and its model; None where its end tells of no call.

    Only the end of the file is read, so the cost does not grow with the session.
    """
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return None
    for line in reversed(lines[1:] if size > _TAIL_BYTES else lines):
        with suppress(ValueError):
            entry = decode(line)
            if isinstance(entry, Entry) and entry.usage is not None:
                return sum(count for key, count in entry.usage.items() if key != "output_tokens"), entry.model or ""
            if not isinstance(entry, Entry):
                return None  # compacted since, or nothing was asked yet
    return None


def rewind(path: str | os.PathLike[str], *, before_epoch: int, at: str) -> int:
    """Take a session back to what its view was before the compaction of an epoch; nothing is removed from the file.

    Args:
        path: the session's file; nobody else may be writing it.
        before_epoch: the epoch that the compaction began.
        at: now, UTC, ISO 8601.

    Returns:
        The epoch of the view from here on.

    Raises:
        NotASession: the file is none.
        SessionError: there is no compaction of that epoch; the message names those that there are.
        OSError: the file cannot be read or written.
    """
    with SessionFile(path) as file:
        loaded = load(file.read())
        epochs = [checkpoint.epoch for checkpoint in loaded.checkpoints]
        if before_epoch not in epochs:
            there = ", ".join(map(str, epochs)) or "none"
            raise SessionError(f"cannot rewind {str(path)!r} to before epoch {before_epoch}: compactions began the epochs {there}")
        file.append([encode_rewind(Rewind(before_epoch, loaded.epoch + 1, at))])
        file.sync()
        return loaded.epoch + 1


def fork(source: str | os.PathLike[str], target: str | os.PathLike[str], *, agent: str, created_at: str, full: bool = False) -> None:
    """Begin a new session where another one stands: with all that was ever said, or with the compacted view alone.

    Args:
        source: the session that is forked; it is not changed.
        target: the new one's file; it must not exist.
        agent: whose the new session is.
        created_at: now, UTC, ISO 8601.
        full: whether every line is taken over, also what the view does not show any more.

    Raises:
        NotASession: the source is none.
        SessionError: the target exists.
        OSError: a file cannot be read or written.
    """
    source, target = Path(source), Path(target)
    with source.open("rb") as file:
        lines = file.readlines()
    loaded = load(lines)
    header = Header(agent, created_at, forked_from=f"{loaded.header.agent} {loaded.header.created_at}")
    if not full:
        header = header._replace(source=_relative(source, target.parent), source_bytes=sum(map(len, lines)))
    rest = [line for line in lines[1:] if line.endswith(b"\n")] if full else [encode_view(loaded.view, created_at)]
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    except FileExistsError as error:
        raise SessionError(f"cannot fork into {str(target)!r}: it exists") from error
    with os.fdopen(descriptor, "wb") as file:
        file.writelines([encode_header(header), *rest])
        file.flush()
        os.fsync(file.fileno())


def _relative(path: Path, directory: Path) -> str:
    try:
        return Path(os.path.relpath(path, directory)).as_posix()
    except ValueError:  # another drive
        return str(path.resolve())
