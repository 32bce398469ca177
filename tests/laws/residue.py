"""What a team could leave behind in this process: tasks, threads at work, children, descriptors."""

import os
from pathlib import Path
from typing import NamedTuple

import trio


class Residue(NamedTuple):
    """What there is at one moment."""

    tasks: int
    busy_threads: int
    descriptors: frozenset[str]
    children: frozenset[str]

    def more_than(self, before: "Residue") -> "Residue":
        """Return what has come since then; what went meanwhile belonged to somebody else."""
        more = (max(0, self.tasks - before.tasks), max(0, self.busy_threads - before.busy_threads))
        return Residue(*more, self.descriptors - before.descriptors, self.children - before.children)


NOTHING = Residue(0, 0, frozenset(), frozenset())


def residue(marker: str = "") -> Residue:
    """Look at this process; children are its own, and whoever has the marker in its command line."""
    tasks = trio.lowlevel.current_statistics().tasks_living
    threads = int(trio.to_thread.current_default_thread_limiter().borrowed_tokens)
    return Residue(tasks, threads, frozenset(_descriptors()), frozenset(_children(marker)))


async def wait_for_file(path: Path) -> None:
    """Wait until a process has made a file."""
    while not path.exists():  # noqa: ASYNC110  # another process cannot set an event
        await trio.sleep(0.01)


def _descriptors() -> list[str]:
    found: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(f"{name}:{os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:  # the descriptor of the listing itself
            continue
    return found


def _children(marker: str) -> list[str]:
    found: list[str] = []
    me = str(os.getpid())
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or entry.name == me:
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:  # it ended meanwhile
            continue
        if parent == me or (marker and marker in command):
            found.append(f"{entry.name}:{command}")
    return found
