"""Which processes are alive that host members of a team.

A host holds a lock on a file of its own for as long as it lives; the operating system lets go of it however the process ends. So a dead
host is known at once and for certain, without leases to renew and without clocks. (Hosts on other machines cannot be told apart this way:
a file system without locks makes every other host look alive, which is the safe side.)
"""

import os
import secrets
import socket
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

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
    finally:
        os.close(descriptor)


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
