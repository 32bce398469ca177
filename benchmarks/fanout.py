"""Many idle teammates: what one weighs, how fast they come, and how fast a broadcast is answered by a model turn of each.

The limit beside it is a bare trio child with an inbox, and a child that does as many checkpoints and nothing else.
"""

import resource
import time
from pathlib import Path
from typing import Any

import trio
import trio.testing

from benchmarks._common import report, run, scratch
from teams import TeamOptions, open_team
from teams.models.base import ModelReply, ModelRequest, Usage

SPAWNERS = 50


class Answering:
    """Ends every turn with one word, at once."""

    name = "answering"
    context_window_tokens = 200_000
    max_output_tokens = 64_000

    async def complete(self, request: ModelRequest, *, on_text: Any = None) -> ModelReply:
        """Answer at once."""
        del request, on_text
        await trio.lowlevel.checkpoint()
        return ModelReply(({"type": "text", "text": "yes"},), "end_turn", Usage(10, 1), self.name)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Not needed here."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Do nothing."""


def resident_kib() -> float:
    """Return the memory of this process."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1024
    except FileNotFoundError:  # no Linux: the highest so far
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def bare_kib(count: int) -> float:
    """Measure a child that waits for an inbox of its own."""
    before = resident_kib()
    async with trio.open_nursery() as nursery:
        channels = [trio.open_memory_channel[str](10) for _ in range(count)]
        for _, receive in channels:
            nursery.start_soon(receive.receive)
        await trio.testing.wait_all_tasks_blocked()
        taken = (resident_kib() - before) / count
        nursery.cancel_scope.cancel()
    return taken


async def measure(directory: Path, count: int) -> dict[str, float]:
    """Spawn so many, broadcast once, and take the figures."""
    options = TeamOptions(views=False)
    async with open_team(directory, model=Answering(), options=options) as team:
        numbers = iter(range(count))

        async def spawn() -> None:
            for number in numbers:
                await team.spawn(f"mate{number}", tools=[])

        before, started = resident_kib(), time.perf_counter()
        halves: list[float] = []
        for half in (count // 2, count):
            numbers = iter(range(half - count // 2, half))
            half_started = time.perf_counter()
            async with trio.open_nursery() as nursery:
                for _ in range(SPAWNERS):
                    nursery.start_soon(spawn)
            halves.append(time.perf_counter() - half_started)
        await team.wait_quiescent()
        spawned, kib = time.perf_counter() - started, (resident_kib() - before) / count
        started = time.perf_counter()
        await team.broadcast("Are you there?")
        await team.wait_quiescent()
        answered = time.perf_counter() - started
        turns = sum(spent.turns for spent in team.spending.values())
        if turns != count:
            raise RuntimeError(f"{turns} of {count} answered")
    return {"spawn_per_s": count / spawned, "kib": kib, "answered_s": answered, "slow_down": halves[1] / halves[0]}


async def main() -> None:
    """Measure 1,000 and 10,000 teammates."""
    with scratch() as directory:
        bare = await bare_kib(1_000)
        small = await measure(directory / "small", 1_000)
        large = await measure(directory / "large", 10_000)
        report(
            benchmark="fanout",
            spawn_per_s=large["spawn_per_s"],
            spawn_per_s_1k=small["spawn_per_s"],
            spawn_slow_down=large["slow_down"],
            kib_per_teammate=large["kib"],
            bare_kib=bare,
            broadcast_answered_s=small["answered_s"],
            broadcast_answered_10k_s=large["answered_s"],
        )


if __name__ == "__main__":
    run(main)
