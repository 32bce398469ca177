"""The few operations of the operating system that the file journal stands on.

Everything that can fail on a disk passes through one FileOps object, so that a test can let any of it fail, fall short or stop at any call.
"""

import os
import sys
from pathlib import Path

if sys.platform == "darwin":
    import fcntl

_BINARY = getattr(os, "O_BINARY", 0)  # Windows would translate newlines otherwise


class FileOps:
    """The real operations; every method may raise OSError, and none is called from two threads at once by one journal."""

    def open(self, path: Path, flags: int) -> int:
        """Open a file that child processes do not inherit."""
        return os.open(path, flags | _BINARY, 0o666)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def write(self, fd: int, data: memoryview) -> int:
        """Write the beginning of the data and return how many bytes that was."""
        return os.write(fd, data)

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset`, fewer only at the end of the file."""
        os.lseek(fd, offset, os.SEEK_SET)
        data = os.read(fd, size)
        while len(data) < size and (piece := os.read(fd, size - len(data))):
            data += piece
        return data

    def sync(self, fd: int) -> None:
        """Bring the file's content and length to the disk."""
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync stops at the drive's cache there
        elif sys.platform == "win32":
            os.fsync(fd)
        else:
            os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        """Bring a directory's names to the disk, where the system can."""
        if sys.platform != "win32":
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(fd, size)

    def replace(self, source: Path, target: Path) -> None:
        """Rename over whatever stands there."""
        os.replace(source, target)

    def write_all(self, fd: int, data: bytes) -> None:
        """Write all of the data, going on after a short write."""
        rest = memoryview(data)
        while rest:
            written = self.write(fd, rest)
            if written <= 0:
                raise OSError(f"the system took {written} of {len(rest)} bytes")
            rest = rest[written:]
