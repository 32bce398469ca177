"""What the benchmarks share: a team's core without its runtime, a bare program to compare with, and one JSON line at the end."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import trio

from teams.artifacts import ArtifactStore
from teams.bus import MessageBus
from teams.engine import Engine, open_engine
from teams.journal.base import Journal
from teams.journal.file import FileJournal
from teams.options import BusOptions, TaskOptions
from teams.state.roster import MemberSpec
from teams.tasks import TaskManager
from teams.team import join_plain_member
from teams.waits import TeamFacts, WaitGraph


class Core(NamedTuple):
    """Engine, bus and tasks over one journal."""

    engine: Engine
    bus: MessageBus
    tasks: TaskManager


@contextmanager
def scratch() -> Generator[Path]:
    """Make a directory on the disk that is measured (BENCH_DIR, or the current one)."""
    path = Path(tempfile.mkdtemp(prefix=".bench-", dir=os.environ.get("BENCH_DIR", ".")))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@asynccontextmanager
async def open_core(directory: Path) -> AsyncGenerator[Core]:
    """Open the durable core of a team."""
    journal = await FileJournal.open(directory / "journal")
    async with core_over(journal) as core:
        yield core
    await journal.aclose()


@asynccontextmanager
async def core_over(journal: Journal) -> AsyncGenerator[Core]:
    """Run a core over a journal."""
    async with open_engine(journal, wall_clock=time.time) as engine:
        waits = WaitGraph(TeamFacts(lambda: engine.state))
        bus = MessageBus(engine, ArtifactStore(None), waits, BusOptions(unread_quota=None))
        yield Core(engine, bus, TaskManager(engine, waits, TaskOptions(), author="author"))


async def join_all(engine: Engine, *names: str, capabilities: tuple[str, ...] = ()) -> None:
    """Put script members on the roster, in one commit as far as possible."""
    async with trio.open_nursery() as nursery:
        for name in names:
            spec = MemberSpec(name=name, kind="script", task_limit=None, capabilities=capabilities)
            nursery.start_soon(partial(join_plain_member, engine, spec, "bench"))


def fsync_p50_us(directory: Path, size_bytes: int = 400, rounds: int = 300) -> float:
    """Measure one appended write and its sync, without trio."""
    descriptor = os.open(directory / "fsync", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    sync = getattr(os, "fdatasync", os.fsync)
    taken: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        os.write(descriptor, b"x" * size_bytes)
        sync(descriptor)
        taken.append(time.perf_counter() - started)
    os.close(descriptor)
    return median(taken) * 1e6


def report(**figures: Any) -> None:
    """Print one JSON line, figures rounded to what the noise allows."""
    print(json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}))


def run(main: Callable[[], Any]) -> None:
    """Run a benchmark."""
    trio.run(main)
