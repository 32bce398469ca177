"""Locks between processes: shared by readers, exclusive for a writer, given back by the system when a process dies.

The lock is on a file of its own, so that it outlives the rotation of segments. It is held for one read or one append. Waiting is bounded
and done by trying again, because a blocking `flock` in a thread could not be given up when the holder is stopped in a debugger.
"""

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from teams.errors import JournalError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_FIRST_PAUSE_SECONDS = 0.0001
_LONGEST_PAUSE_SECONDS = 0.005


class LockHeld(Exception):
    """Somebody else holds a lock that was not to be waited for."""


class FileLock:
    """A lock file that is opened once; use it from one thread at a time, and not nested."""

    def __init__(self, path: Path, *, wait_seconds: float) -> None:
        self._path, self._wait_seconds = path, wait_seconds
        self._fd = self._open()

    @contextmanager
    def shared(self) -> Generator[None]:
        """Hold the lock together with other readers.

        Raises: JournalError when it was not free within the waiting time.
        """
        self._acquire(exclusive=False)
        try:
            yield
        finally:
            self._release()

    @contextmanager
    def exclusive(self, *, patient: bool = True) -> Generator[None]:
        """Hold the lock alone.

        Raises: JournalError when it was not free within the waiting time; LockHeld when it is not free now and is not waited for.
        """
        self._acquire(exclusive=True, patient=patient)
        try:
            yield
        finally:
            self._release()

    def close(self) -> None:
        """Close the lock file; whatever was held is free."""
        os.close(self._fd)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)

    def _acquire(self, *, exclusive: bool, patient: bool = True) -> None:
        give_up_at: float | None = None
        pause = _FIRST_PAUSE_SECONDS
        while True:
            if _try_lock(self._fd, exclusive=exclusive):
                if os.fstat(self._fd).st_nlink:
                    return
                os.close(self._fd)  # somebody removed the lock file: a lock on what has no name would bind nobody else
                self._fd = self._open()
                continue
            if not patient:
                raise LockHeld
            if give_up_at is None:
                give_up_at = time.monotonic() + self._wait_seconds
            elif time.monotonic() > give_up_at:
                raise JournalError(f"cannot lock {self._path}: another process has held it for {self._wait_seconds} s")
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _release(self) -> None:
        if sys.platform == "win32":
            os.lseek(self._fd, 0, os.SEEK_SET)
            msvcrt.locking(self._fd, msvcrt.LK_UNLCK, 1)
        else:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


def _try_lock(fd: int, *, exclusive: bool) -> bool:
    try:
        if sys.platform == "win32":
            os.lseek(fd, 0, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # knows no shared lock
        else:
            fcntl.flock(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
