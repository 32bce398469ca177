"""The transcripts of the teammates that this process hosts: one file each, written by its host alone.

Laws: lines are written in the order in which they are added, at once (those of a new file with its first sync), so that they survive the
process; `sync` returns when they are on disk, and one worker serves everybody who syncs at the same time. Few files are open at a time,
whatever the number of teammates.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import trio

from compaction.compactor import Checkpoint
from compaction.recall import Archive
from compaction.session import Entry, Header, LoadedSession, encode_checkpoint, encode_header, encode_message, load
from compaction.sessionfile import SessionArchive, SessionFile
from compaction.transcript import ModelMessage
from teams.journal.offload import Offload
from teams.journal.records import utc_now_text
from teams.models.base import ModelReply
from teams.state.roster import check_name

_fdatasync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
SYNC_THREADS = 4
OPEN_FILES = 128
"""File descriptors kept for transcripts; the least recently used one is closed first."""


class SessionStore:
    """All transcripts of one team in this process; in memory when there is no directory.

    Owner: the team, which runs `run` in a nursery and calls `close` at its end.
    """

    def __init__(self, directory: Path | None, *, wall_clock: Callable[[], float]) -> None:
        self._directory = directory
        self._wall_clock = wall_clock
        self._files: OrderedDict[str, int] = OrderedDict()
        self._kept: dict[str, list[bytes]] = {}
        self._unwritten: dict[str, list[bytes]] = {}  # lines of files that are not made yet
        self._dirty: dict[str, None] = {}
        self._syncing: frozenset[str] = frozenset()
        self._waiting: list[tuple[str, trio.Event]] = []
        self._in_sync = trio.Lock()
        self._lot = trio.lowlevel.ParkingLot()
        self._offload = Offload()
        self._archives: dict[str, SessionArchive] = {}  # of those who have looked something up
        self.failure: OSError | None = None

    def exists(self, name: str) -> bool:
        """Tell whether the member has a transcript."""
        if self._directory is None:
            return name in self._kept
        return name in self._unwritten or self._path(name).exists()

    async def load(self, name: str) -> LoadedSession | None:
        """Read a transcript, None when it has no line yet; one that a crash cut is cut off, with the bytes kept aside.

        Raises: NotASession when the file is none.
        Checkpoints: always.
        """
        if self._directory is None:
            await trio.lowlevel.checkpoint()
            return load(self._kept[name])
        await self.sync(name)  # an earlier life may have ended before its lines were written, or while they are
        return await trio.to_thread.run_sync(_recover_and_load, self._path(name))

    async def archive(self, name: str) -> Archive:
        """Return everything that the member's transcript holds, to look things up in it.

        Checkpoints: always.
        """
        if self._directory is None:
            await trio.lowlevel.checkpoint()
            return _archive_of(load(self._kept[name])) if name in self._kept else Archive()
        await self.sync(name)  # a new file is written by its first sync
        found = self._archives.get(name)
        if found is None:
            found = self._archives[name] = SessionArchive(self._path(name))
        return await trio.to_thread.run_sync(found.update)

    def size_bytes(self, name: str) -> int:
        """Return how large a member's transcript file is; 0 for one that is in memory or not made yet."""
        if self._directory is None or name not in self._files:
            return 0
        return os.fstat(self._files[name]).st_size

    def path(self, name: str) -> str:
        """Return where a member's transcript is kept; empty when it is in memory."""
        return "" if self._directory is None else str(self._path(name))

    def log(self, name: str) -> "SessionLog":
        """Return where a member's transcript is written; the file is made by the first line."""
        return SessionLog(self, name)

    def text_now(self) -> str:
        """Return the time for a line, UTC."""
        return utc_now_text(self._wall_clock())

    @trio.lowlevel.enable_ki_protection
    def write(self, name: str, line: bytes) -> None:
        """Append a line: at once where the file is there, with the first `sync` where it is not, since making a file may take long."""
        if self._directory is None:
            lines = self._kept.setdefault(name, [])
            if not lines:
                lines.append(encode_header(Header(name, self.text_now())))
            lines.append(line)
            return
        self._dirty[name] = None
        waiting = self._unwritten.get(name)
        if waiting is not None:
            waiting.append(line)
        elif name in self._syncing and name not in self._files:
            self._unwritten[name] = [line]  # behind what a worker thread is writing into the new file
        elif name in self._files or self._path(name).exists():
            _write(self._open(name), line)
        else:
            self._unwritten[name] = [encode_header(Header(name, self.text_now())), line]

    async def sync(self, name: str) -> None:
        """Return when everything written for the member is on disk.

        Raises: OSError when the disk refused.
        Checkpoints: always; when Cancelled, it is written and may not be on disk yet.
        """
        if self._directory is None or (name not in self._dirty and name not in self._syncing):
            await trio.lowlevel.checkpoint()
            return
        if len(self._dirty) == 1 and not self._waiting and not self._in_sync.locked():  # alone: no need to call the worker
            self._in_sync.acquire_nowait()
            try:
                await self._sync_all([name])
            except OSError as error:
                self.failure = error
            finally:
                self._in_sync.release()
        else:
            await self._sync_with_others(name)
        if self.failure is not None:
            raise OSError(f"cannot keep the transcript of {name!r}: {self.failure}") from self.failure

    async def _sync_with_others(self, name: str) -> None:
        done = trio.Event()
        self._waiting.append((name, done))
        self._lot.unpark()
        await done.wait()

    async def run(self) -> None:
        """Serve `sync` until cancelled."""
        while True:
            if not self._waiting:
                await self._lot.park()
                continue
            async with self._in_sync:
                waiting, self._waiting = self._waiting, []
                names = [name for name in dict.fromkeys(name for name, _ in waiting) if name in self._dirty]
                try:
                    await self._sync_all(names)
                except OSError as error:
                    self.failure = error
            for _, done in waiting:
                done.set()

    def close(self) -> None:
        """Write what no `sync` came for, and close every file, also when the disk refuses; then raise its OSError."""
        try:
            for name in list(self._unwritten):
                _write(self._open(name), b"".join(self._unwritten.pop(name)))
        finally:
            for descriptor in self._files.values():
                os.close(descriptor)
            self._files.clear()

    @trio.lowlevel.enable_ki_protection  # a Ctrl-C between two steps would tear what is written from what is to be written
    async def _sync_all(self, names: Sequence[str]) -> None:
        self._syncing = frozenset(names)
        for name in names:
            self._dirty.pop(name, None)
        work: list[tuple[Path | int, list[bytes]]] = []
        for name in names:
            lines = self._unwritten.pop(name, [])
            # A sync through any descriptor of a file reaches all of it, so one that was closed meanwhile is no loss.
            work.append((self._path(name) if lines else self._files.get(name, self._path(name)), lines))
        try:
            if len(work) == 1:
                await self._offload(partial(_sync_each, work))
            else:
                # A file system commits what several threads sync at the same time in one go.
                async with trio.open_nursery() as nursery:
                    for part in range(min(SYNC_THREADS, len(work))):
                        nursery.start_soon(self._sync_part, work[part::SYNC_THREADS])
        finally:
            self._syncing = frozenset()
            for name, (_, lines) in zip(names, work, strict=True):
                if lines:  # not written: cancelled before its turn came, or the disk refused
                    self._dirty[name] = None
                    self._unwritten[name] = [*lines, *self._unwritten.get(name, ())]
        while len(self._files) > OPEN_FILES and self._close_one():
            pass

    async def _sync_part(self, work: Sequence[tuple[Path | int, list[bytes]]]) -> None:
        try:
            await trio.to_thread.run_sync(_sync_each, work)
        except OSError as error:
            self.failure = error

    def _path(self, name: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{check_name(name)}.jsonl"

    def _open(self, name: str) -> int:
        descriptor = self._files.get(name)
        if descriptor is not None:
            self._files.move_to_end(name)
            return descriptor
        if len(self._files) >= OPEN_FILES:
            self._close_one()
        descriptor = self._files[name] = _open_to_append(self._path(name))
        return descriptor

    def _close_one(self) -> bool:
        for name in self._files:
            if name not in self._syncing:  # a worker thread uses its descriptor
                os.close(self._files.pop(name))
                return True
        return False


class SessionLog:
    """One member's transcript, for its agent loop."""

    __slots__ = ("_store", "name")

    def __init__(self, store: SessionStore, name: str) -> None:
        self._store, self.name = store, name

    def add(self, message: ModelMessage, *, mail: Sequence[str] = (), reply: ModelReply | None = None, epoch: int = 0) -> None:
        """Write a message behind the ones before it; it survives the process, not yet a power failure."""
        at = self._store.text_now()
        if reply is None:
            entry = Entry(message, at, epoch, tuple(mail))
        else:
            entry = Entry(message, at, epoch, tuple(mail), reply.usage._asdict(), reply.stop_reason, reply.model or None)
        self._store.write(self.name, encode_message(entry))

    def compacted(self, checkpoint: Checkpoint) -> None:
        """Write a compaction checkpoint."""
        self._store.write(self.name, encode_checkpoint(checkpoint, self._store.text_now()))

    async def sync(self) -> None:
        """Return when everything added so far is on disk."""
        await self._store.sync(self.name)


def _sync_each(work: Sequence[tuple[Path | int, list[bytes]]]) -> None:
    for file, lines in work:
        if isinstance(file, int):
            _fdatasync(file)
            continue
        descriptor = _open_to_append(file)
        try:
            if lines:
                _write(descriptor, b"".join(lines))
                lines.clear()  # what is left in a list was not written
            _fdatasync(descriptor)
        finally:
            os.close(descriptor)


def _open_to_append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)


def _write(descriptor: int, data: bytes) -> None:
    written = 0
    try:
        while written < len(data):  # more than once for a full disk or a signal; the rest follows or raises
            written += os.write(descriptor, data[written:])
    except OSError:
        if written:  # half a line would swallow the next one
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise


def _recover_and_load(path: Path) -> LoadedSession | None:
    file = SessionFile(path)
    file.open()
    file.close()
    if not path.stat().st_size:  # the crash came before its first line was whole
        return None
    with path.open("rb") as lines:
        return load(lines)


def _archive_of(loaded: LoadedSession) -> Archive:
    archive = Archive(loaded.transcript)
    for checkpoint in loaded.checkpoints:
        archive.add_view(checkpoint.messages)
    return archive
