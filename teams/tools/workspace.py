"""A directory that agents share: no path leaves it, and no agent overwrites what it has not seen.

- Every path is resolved with all its symbolic links and must stay under the root. It is then opened component by component without
  following links, so that a link put there in between is met, not followed.
- An existing file is written only by an agent that read it, and only while its content is what that agent last saw (by hash).
- Check and write are one step: no checkpoint between them, under a lock of the file's directory that other threads and processes
  which use a `Workspace` respect. The new content appears by rename, whole.

File operations run in the loop's thread: on a local disk a hop to a worker thread costs more than they do, and sizes are bounded.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import NamedTuple

import trio

from teams.tools.base import ToolError
from teams.tools.search_worker import Parts, open_beneath

MAX_FILE_BYTES = 20_000_000  # of one file read or written here; about 40 ms in the loop's thread
MAX_PATH_CHARS = 1_000
_LOCK_SECONDS = 5.0  # a directory's lock is held for milliseconds; longer means that somebody else uses flock on it
_LOCK_PAUSE_SECONDS = 0.01
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link that cannot be followed",
}


class WorkspaceError(ToolError):
    """A path or a file cannot be used as asked; the text says why, and what would be legal."""


class Written(NamedTuple):
    """What a write did."""

    path: str
    created: bool
    size_bytes: int


class Workspace:
    """A root directory, and what each agent last saw of the files in it.

    Args:
        root: an existing directory; resolved once.
        denied: paths under the root that no tool may touch, such as the team's own directory.

    Raises:
        NotADirectoryError: the root is no directory.
    """

    def __init__(self, root: str | os.PathLike[str], *, denied: Iterable[str | os.PathLike[str]] = ()) -> None:
        self.root = Path(os.path.realpath(root))
        if not self.root.is_dir():
            raise NotADirectoryError(f"{str(self.root)!r} cannot be a workspace: it is not a directory")
        paths = (os.path.realpath(self.root / path) for path in denied)
        self.denied: tuple[Parts, ...] = tuple(Path(path).relative_to(self.root).parts for path in paths if self._holds(path))
        self._seen: dict[tuple[str, Parts], bytes] = {}

    def _holds(self, path: str) -> bool:
        return path == str(self.root) or path.startswith(os.path.join(self.root, ""))

    def resolve(self, path: object) -> Parts:
        """Resolve a path of a model's, with all links, to its components under the root; the file need not exist.

        Raises:
            WorkspaceError: it is no path, or leads outside.
        """
        if not isinstance(path, str) or not path:
            raise WorkspaceError(f"cannot use {path!r} as a path: it must be a text that is not empty")
        shown = repr(path[:200])
        if len(path) > MAX_PATH_CHARS:
            raise WorkspaceError(f"cannot use {path[:60]!r}... as a path: it has {len(path):,} characters, over {MAX_PATH_CHARS:,}")
        if "\0" in path:
            raise WorkspaceError(f"cannot use {shown} as a path: it holds a NUL character")
        if path == "~" or (path.startswith("~") and "/" in path):
            raise WorkspaceError(f"cannot use {shown}: '~' is not expanded here; give a path relative to the work directory")
        try:
            real = os.path.realpath(os.path.join(self.root, path))
        except (OSError, ValueError) as error:
            raise WorkspaceError(f"cannot use {shown} as a path: {error}") from error
        if not self._holds(real):
            raise WorkspaceError(f"cannot use {shown}: it leads outside of the work directory; paths are relative to it")
        parts = Path(real).relative_to(self.root).parts
        for denied in self.denied:
            if parts[: len(denied)] == denied:
                raise WorkspaceError(f"cannot use {shown}: {'/'.join(denied)!r} is not for tools")
        return parts

    def read(self, agent: str, path: str) -> bytes:
        """Read a regular file and remember its content as what the agent saw last.

        Raises:
            WorkspaceError: outside, absent, not a regular file, or over `MAX_FILE_BYTES`.
        """
        parts = self.resolve(path)
        with _explained("read", path), self._directory(parts, path) as (directory, name):
            data, _ = _read_regular(directory, name, path)
        self._seen[agent, parts] = _digest(data)
        return data

    async def replace(self, agent: str, path: str, make: Callable[[bytes | None], bytes]) -> Written:
        """Give a file the content that `make` makes of the present one (None: there is no file), all or nothing.

        Directories on the way are made. The agent has then seen the new content.

        Raises:
            WorkspaceError: as `read`; or the agent has not read the file, or it changed since. What `make` raises passes through.

        Checkpoints: always; when Cancelled, nothing was written.
        """
        parts = self.resolve(path)
        with _explained("write", path), self._directory(parts, path, create=True) as (directory, name):
            await _lock(directory, path)
            # No await from here on.
            present, before = _read_regular(directory, name, path) if _exists(directory, name) else (None, None)
            self._check_seen(agent, parts, path, present)
            data = make(present)
            if len(data) > MAX_FILE_BYTES:
                raise WorkspaceError(f"cannot write {path!r}: {len(data):,} bytes is over the limit of {MAX_FILE_BYTES:,}")
            _put(directory, name, data, before, path)
        self._seen[agent, parts] = _digest(data)
        return Written("/".join(parts), present is None, len(data))

    def _check_seen(self, agent: str, parts: Parts, path: str, present: bytes | None) -> None:
        seen = self._seen.get((agent, parts))
        if present is None:
            if seen is not None:
                del self._seen[agent, parts]
                raise WorkspaceError(f"cannot write {path!r}: it was removed since you read it; write it again if it shall exist")
        elif seen is None:
            raise WorkspaceError(f"cannot write {path!r}: the file exists and you have not read it; read it first")
        elif seen != _digest(present):
            raise WorkspaceError(
                f"cannot write {path!r}: it changed since you read it: read it again, then repeat your change on the new content"
            )

    @contextlib.contextmanager
    def _directory(self, parts: Parts, path: str, *, create: bool = False) -> Generator[tuple[int, str], None, None]:
        """Open the directory of a resolved path without following any link; give its descriptor and the last name."""
        if not parts:
            raise WorkspaceError(f"cannot use {path!r} as a file: it is the work directory itself")
        if create:
            self._make_directories(parts[:-1])
        descriptor = open_beneath(self.root, parts[:-1])
        try:
            yield descriptor, parts[-1]
        finally:
            os.close(descriptor)

    def _make_directories(self, parts: Parts) -> None:
        descriptor = open_beneath(self.root, ())
        for part in parts:
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
        os.close(descriptor)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


@contextlib.contextmanager
def _explained(verb: str, path: str) -> Generator[None, None, None]:
    try:
        yield
    except FileNotFoundError as error:
        raise WorkspaceError(f"cannot {verb} {path!r}: there is no such file") from error
    except NotADirectoryError as error:
        raise WorkspaceError(f"cannot {verb} {path!r}: something on the way is a file or a link, not a directory") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise WorkspaceError(f"cannot {verb} {path[:200]!r}: {reason}") from error


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _read_regular(directory: int, name: str, path: str) -> tuple[bytes, os.stat_result]:
    # The kind is looked at before opening, because opening a device can do something, and after it, because it may have been exchanged;
    # O_NONBLOCK lets a FIFO that slipped in between not hang.
    _refuse_odd(os.stat(name, dir_fd=directory, follow_symlinks=False), path)
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        _refuse_odd(status, path)
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise WorkspaceError(f"cannot read {path!r}: it is over the limit of {MAX_FILE_BYTES:,} bytes; look at parts of it with the shell")
    return data, status


def _refuse_odd(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
        raise WorkspaceError(f"cannot use {path!r} as a file: it is {kind}")


async def _lock(directory: int, path: str) -> None:
    """Lock a directory among all who write through a workspace; closing the descriptor unlocks."""
    await trio.lowlevel.checkpoint()
    deadline = trio.current_time() + _LOCK_SECONDS
    while trio.current_time() < deadline:
        try:
            return fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await trio.sleep(_LOCK_PAUSE_SECONDS)
    raise WorkspaceError(
        f"cannot write {path!r}: another process holds the lock of its directory for over {_LOCK_SECONDS:g} seconds; try again"
    )


def _put(directory: int, name: str, data: bytes, before: os.stat_result | None, path: str) -> None:
    """Write a temporary file beside the target and give it the target's name; permission bits stay."""
    temporary = f".{secrets.token_hex(8)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=directory)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            if before is not None:
                os.fchmod(descriptor, before.st_mode & 0o777)  # a set-user-id bit does not survive a change of content
        if before is None:
            _link_new(directory, temporary, name, path)
        else:
            _refuse_changed(directory, name, before, path)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)


def _link_new(directory: int, temporary: str, name: str, path: str) -> None:
    """Name a new file; unlike a rename, a link never replaces what a shell put there in between."""
    try:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        raise WorkspaceError(f"cannot write {path!r}: it was made by somebody else just now; read it first") from None
    except PermissionError:  # a file system without hard links
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)


def _refuse_changed(directory: int, name: str, before: os.stat_result, path: str) -> None:
    """See a writer that does not know our lock, such as a shell; what is left of the race is one system call wide."""
    now = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if (now.st_ino, now.st_size, now.st_mtime_ns) != (before.st_ino, before.st_size, before.st_mtime_ns):
        raise WorkspaceError(
            f"cannot write {path!r}: it changed since you read it: read it again, then repeat your change on the new content"
        )
