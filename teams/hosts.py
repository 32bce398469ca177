"""Which processes are alive that host members of a team.

A host holds a lock on a file of its own for as long as it lives; the operating system lets go of it however the process ends. So a dead
host is known at once and for certain, without leases to renew and without clocks. (Hosts on other machines cannot be told apart this way:
a file system without locks makes every other host look alive, which is the safe side.)
"""

import json
import os
import secrets
import socket
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from teams.journal.locking import _try_lock as try_lock


def new_host_name() -> str:
    """Return a name for this process as a host: machine, process id, and a random part."""
    machine = "".join(char for char in socket.gethostname() if char.isalnum() or char == "-")[:40] or "host"
    return f"{machine}_{os.getpid()}_{secrets.token_hex(4)}"


def describe_host(host: str) -> str:
    """Return a host's name in words."""
    machine, pid, _ = host.rsplit("_", 2)
    return f"process {pid} on {machine}"


@contextmanager
def host_lock(directory: Path | None, host: str) -> Generator[None]:
    """Be alive for as long as the block runs; nothing to do for a team in memory."""
    if directory is None:
        yield
        return
    directory.mkdir(exist_ok=True)
    path = directory / host
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        try_lock(descriptor, exclusive=True)
        yield
        path.unlink(missing_ok=True)
        _retries_path(directory, host).unlink(missing_ok=True)
    finally:
        os.close(descriptor)


class RetryBoard:
    """What another process may know of calls that this host makes again: a small file beside the host's lock.

    An entry counts until its time and is not taken away before; the file goes when the host ends.
    """

    def __init__(self, directory: Path | None, host: str) -> None:
        self._path = None if directory is None else _retries_path(directory, host)
        self._entries: dict[str, dict[str, Any]] = {}

    def note(self, member: str, *, until: float, now: float, text: str) -> None:
        """Say until when (seconds since the epoch) a member waits, and for what; what cannot be written is left out."""
        if self._path is None:
            return
        self._entries = {name: entry for name, entry in self._entries.items() if entry["until"] > now}
        self._entries[member] = {"until": until, "text": text}
        temporary = self._path.with_suffix(".tmp")
        with suppress(OSError):  # it is for people; the call itself goes on
            temporary.write_text(json.dumps(self._entries), encoding="utf-8")
            temporary.replace(self._path)


def read_retries(directory: Path, hosts: Iterable[str], now: float) -> dict[str, str]:
    """Return, for each member of these hosts that waits to call its model again, for what it waits."""
    found: dict[str, str] = {}
    for host in hosts:
        with suppress(OSError, ValueError, AttributeError, KeyError, TypeError):  # absent, or of another version
            entries = json.loads(_retries_path(directory, host).read_text(encoding="utf-8"))
            found |= {str(name): str(entry["text"]) for name, entry in entries.items() if entry["until"] > now}
    return found


def _retries_path(directory: Path, host: str) -> Path:
    return directory / f"{host}.retries.json"


def dead_hosts(directory: Path | None, hosts: Iterable[str]) -> frozenset[str]:
    """Return those of the hosts whose process is gone."""
    return frozenset(host for host in hosts if _is_dead(directory, host))


def _is_dead(directory: Path | None, host: str) -> bool:
    if directory is None:
        return False
    try:
        descriptor = os.open(directory / host, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        return True  # it took its file away when it ended
    try:
        return try_lock(descriptor, exclusive=False)  # shared: who asks must not look like a host to others who ask
    finally:
        os.close(descriptor)
