"""Running a child process to its end, with everything it started.

- When `run_process` returns or raises, the child is reaped and its process group is killed: on success, at the time limit, and on
  cancellation. On Linux also what left the group (`setsid`) is found, by a mark in its environment, and killed.
- The end of the child is waited for, not the end of its pipe: a background process that keeps the pipe open holds nobody up.
- Output is kept to a limit, head and tail; the child never blocks because too much of it was written.
"""

import contextlib
import math
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import trio

MARK = "TEAMS_TOOL_CALL"  # in the environment of a child: how its escaped descendants are recognised
_CHUNK_BYTES = 65_536
_DRAIN_SECONDS = 0.5  # for what is left in the pipe once every holder should be dead
_ROUNDS = 5
_ENVIRON_BYTES = 1_000_000


class Ending(NamedTuple):
    """How a process group is ended: the time between SIGTERM and SIGKILL, and how long the killed child is waited for.

    A process in an uninterruptible system call cannot be killed; it is left to the kernel then.
    """

    cancel_seconds: float = 0.5
    kill_seconds: float = 5.0


DEFAULT_ENDING = Ending()


class HeadTail:
    """The first and the last bytes of a stream, at most `limit_bytes` in all."""

    __slots__ = ("_head", "_head_limit", "_tail", "_tail_limit", "total_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._head_limit = (limit_bytes + 1) // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._head, self._tail = bytearray(), bytearray()
        self.total_bytes = 0

    def add(self, data: bytes | bytearray) -> None:
        """Take the next bytes; costs as much as they are long."""
        self.total_bytes += len(data)
        free = self._head_limit - len(self._head)
        if free > 0:
            self._head += data[:free]
            data = data[free:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit + _CHUNK_BYTES:
            self._trim()

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_limit)]

    def parts(self) -> tuple[bytes, bytes, int]:
        """Return head, tail, and how many bytes between them are gone."""
        self._trim()
        return bytes(self._head), bytes(self._tail), self.total_bytes - len(self._head) - len(self._tail)


async def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    time_seconds: float | None,
    output: HeadTail,
    stdin: bytes | None = None,
    ending: Ending = DEFAULT_ENDING,
) -> tuple[int | None, bool]:
    """Run a program in a process group of its own, stdout and stderr into `output`; return its exit code and whether the limit ended it.

    At the limit the group gets SIGTERM, then SIGKILL, at the times of `ending`. The exit code is negative for a signal, None for a process
    that cannot be reaped.

    Checkpoints: always; when Cancelled, the group is dead and `output` holds what came until then.

    Raises:
        OSError: the program cannot be started.
    """
    mark = secrets.token_hex(16)
    process = await trio.lowlevel.open_process(
        argv,
        cwd=cwd,
        env={**environment, MARK: mark},
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    exited = False
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_drain, process, output)
            if stdin is not None:
                nursery.start_soon(_feed, process, stdin)
            try:
                with trio.move_on_after(math.inf if time_seconds is None else time_seconds):
                    await _wait_exited(process)
                    exited = True
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + sum(ending)):
                    await _end(process, mark, None if exited else ending.cancel_seconds)
            nursery.cancel_scope.deadline = trio.current_time() + _DRAIN_SECONDS
    finally:
        # Only now: closing a pipe that a task still reads would wake that task with an error.
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                await trio.aclose_forcefully(pipe)
    return process.returncode, not exited


async def _drain(process: trio.Process, output: HeadTail) -> None:
    assert process.stdout is not None
    while data := await process.stdout.receive_some(_CHUNK_BYTES):
        output.add(data)


async def _feed(process: trio.Process, data: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # the child did not want to read it all
        await process.stdin.send_all(data)
    await process.stdin.aclose()


async def _wait_exited(process: trio.Process) -> None:
    """Wait for the end of the child without reaping it: while it is a zombie, nobody else can get its process group's number."""
    if sys.platform == "linux":
        descriptor = os.pidfd_open(process.pid)
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
    else:
        await process.wait()


async def _end(process: trio.Process, mark: str, cancel_seconds: float | None) -> None:
    """Kill the child's group and reap the child; a group whose leader still runs gets a while to end by itself (None: it has ended)."""
    if cancel_seconds is not None:
        _signal_group(process.pid, signal.SIGTERM)
        with trio.move_on_after(cancel_seconds):
            await _wait_exited(process)
    _signal_group(process.pid, signal.SIGKILL)
    await process.wait()
    _kill_marked(mark)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone already; macOS says EPERM for a group of zombies
        os.killpg(group, number)


def _kill_marked(mark: str) -> None:
    """Kill what left the process group but kept the environment; in rounds, because it may fork while we look."""
    if sys.platform != "linux":
        return
    wanted = f"{MARK}={mark}".encode()
    for _ in range(_ROUNDS):
        found = [pid for pid in _own_processes() if wanted in _environment_of(pid)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def _own_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _environment_of(pid: int) -> bytes:
    try:
        descriptor = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
    except OSError:  # ended, or another user's
        return b""
    try:
        return os.read(descriptor, _ENVIRON_BYTES)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
