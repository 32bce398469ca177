"""Being woken when another process writes into a directory.

On Linux the kernel tells it through inotify, at no cost while nothing happens. Elsewhere, and where inotify is refused, waking is a look
every half second: kqueue would watch single files only, and misses the ones that are yet to come. A wake-up is a hint, never a fact.
"""

import ctypes
import os
import sys
from pathlib import Path
from typing import Protocol

import trio

_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE = 0x2, 0x80, 0x100
_DRAIN_BYTES = 64 * 1024


class Watch(Protocol):
    """Something that wakes its one waiter."""

    async def wait(self) -> None:
        """Wait for a hint that the directory changed since the last return. Raises: trio.ClosedResourceError when it is closed."""
        ...

    def close(self) -> None:
        """Close it and wake the waiter."""
        ...


class InotifyWatch:
    """Wake-up by the Linux kernel."""

    def __init__(self, directory: Path) -> None:
        """Begin to watch; raises OSError where the system refuses."""
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1 failed")
        if libc.inotify_add_watch(self._fd, os.fsencode(directory), _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE) < 0:
            code = ctypes.get_errno()
            os.close(self._fd)
            raise OSError(code, "inotify_add_watch failed", str(directory))

    async def wait(self) -> None:
        """Wait for a change; see Watch.wait."""
        await trio.lowlevel.wait_readable(self._fd)
        try:
            while len(os.read(self._fd, _DRAIN_BYTES)) > _DRAIN_BYTES // 2:
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Close the descriptor and wake the waiter."""
        trio.lowlevel.notify_closing(self._fd)
        os.close(self._fd)


class PollWatch:
    """Wake-up by the clock."""

    def __init__(self, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._closed = trio.Event()

    async def wait(self) -> None:
        """Wait for one interval; see Watch.wait."""
        with trio.move_on_after(self._interval_seconds):
            await self._closed.wait()
            raise trio.ClosedResourceError

    def close(self) -> None:
        """Wake the waiter."""
        self._closed.set()


def open_watch(directory: Path, *, poll_seconds: float | None) -> tuple[Watch, str | None]:
    """Return the best watch that the system grants, and why it is not the kernel's; `poll_seconds` asks for polling by the clock."""
    if poll_seconds is not None:
        return PollWatch(poll_seconds), None
    if sys.platform != "linux":
        return PollWatch(0.5), f"{sys.platform} has no inotify"
    try:
        return InotifyWatch(directory), None
    except OSError as error:
        return PollWatch(0.5), f"{error}"
