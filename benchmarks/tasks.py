"""Tasks in a shared graph: creating, then claiming and completing in order by four agents, and whether the cost grows with the graph.

Each figure is the median of three rounds. The limit beside it is one appended write and its sync per batch, as the disk gives it.
"""

import time
from collections.abc import Awaitable, Callable
from statistics import median

import trio

from benchmarks._common import Core, fsync_p50_us, join_all, open_core, report, run, scratch

AGENTS = ("ann", "ben", "cora", "dan")
CREATORS = 32
ROUNDS = 3


async def measure(core: Core, total: int) -> tuple[float, float]:
    """Create and finish so many tasks with two blockers each; return tasks per second of both."""
    await join_all(core.engine, *AGENTS)
    tasks = core.tasks
    numbers = iter(range(total))

    async def create() -> None:
        for number in numbers:
            highest = core.engine.state.tasks.highest
            blockers = [highest - 15, highest - 7] if highest > 15 else []  # wider than there are agents, so that nobody waits
            await tasks.create(f"task {number}", blocked_by=blockers)

    created = await timed(create, CREATORS)

    async def work(name: str) -> None:
        while core.engine.state.tasks.unfinished:
            claim = await tasks.claim_next(name)
            if claim is not None:
                await tasks.complete(claim.task.id, "done", fence=claim.fence)
            else:
                await core.engine.park(("any", ""))

    started = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for name in AGENTS:
            nursery.start_soon(work, name)
    return total / created, total / (time.perf_counter() - started)


async def timed(work: Callable[[], Awaitable[None]], count: int) -> float:
    """Run so many children of one kind; return seconds."""
    started = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(work)
    return time.perf_counter() - started


async def main() -> None:
    """Measure 1,000 tasks and 10,000."""
    with scratch() as directory:
        fsync_us = fsync_p50_us(directory)
        smalls: list[tuple[float, float]] = []
        larges: list[tuple[float, float]] = []
        for number in range(ROUNDS):  # in turns, so that a slow moment of the machine is not taken for growth
            async with open_core(directory / f"small{number}") as core:
                smalls.append(await measure(core, 1_000))
            async with open_core(directory / f"large{number}") as core:
                larges.append(await measure(core, 10_000))
        pairs = list(zip(smalls, larges, strict=True))
        created, finished = (median(large[which] for large in larges) for which in (0, 1))
        report(
            benchmark="tasks",
            create_per_s=created,
            claim_complete_per_s=finished,
            growth=max(median(small[which] / large[which] for small, large in pairs) for which in (0, 1)),
            fsync_p50_us=fsync_us,
            fsyncs_per_claim_complete=1e6 / finished / fsync_us,
        )


if __name__ == "__main__":
    run(main)
