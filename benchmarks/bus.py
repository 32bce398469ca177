"""Durable mail: how many messages a second, how long one takes, and whether the cost grows with history.

The limit beside it is a bare trio program that does the same writes, syncs and wake-ups and nothing else.
"""

import os
import time
from pathlib import Path
from statistics import median, quantiles

import trio

from benchmarks._common import Core, fsync_p50_us, join_all, open_core, report, run, scratch

BODY = "x" * 200
TOTAL = 20_000


async def pairs(core: Core, count: int, total: int, prefix: str) -> tuple[float, int, int]:
    """Send from `count` senders to `count` receivers; return seconds, lost, doubled."""
    await join_all(core.engine, *(f"{prefix}{side}{index}" for index in range(count) for side in "sr"))
    each = total // count
    received: dict[str, set[str]] = {}
    doubled = 0

    async def send(index: int) -> None:
        for number in range(each):
            await core.bus.send(f"{prefix}s{index}", f"{prefix}r{index}", f"{number:06}{BODY}"[:200])

    async def receive(index: int) -> None:
        nonlocal doubled
        name = f"{prefix}r{index}"
        seen = received[name] = set[str]()
        for _ in range(each):
            message = await core.bus.receive(name)
            doubled += message.content in seen
            seen.add(message.content)
            core.bus.acknowledge_nowait(name, message.id)

    started = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for index in range(count):
            nursery.start_soon(send, index)
            nursery.start_soon(receive, index)
    await core.engine.wait_until(("any", ""), lambda: core.engine.is_settled or None)  # the last acknowledgements are on disk
    seconds = time.perf_counter() - started
    unread = sum(len(core.engine.state.mail.box(name)) for name in received)
    lost = each * count - sum(len(seen) for seen in received.values()) + unread
    return seconds, lost, doubled


async def single(core: Core, rounds: int) -> list[float]:
    """Send one message after the other; return the times from send to receive."""
    await join_all(core.engine, "one", "two")
    taken: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(core.bus.send, "one", "two", BODY)
            message = await core.bus.receive("two")
            taken.append(time.perf_counter() - started)
        await core.bus.acknowledge("two", message.id)
    return taken


async def bare(directory: Path, count: int, total: int) -> float:
    """Do the same writes, group syncs and wake-ups without anything else; return messages per second."""
    descriptor = os.open(directory / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    sync = getattr(os, "fdatasync", os.fsync)
    queue: list[tuple[trio.lowlevel.Task, bytes, int | None]] = []
    wake = trio.lowlevel.ParkingLot()
    boxes: list[list[bytes]] = [[] for _ in range(count)]
    lots = [trio.lowlevel.ParkingLot() for _ in range(count)]

    def write_and_sync(data: bytes) -> None:
        os.write(descriptor, data)
        sync(descriptor)

    async def write_all() -> None:
        while True:
            if not queue:
                await wake.park()
                continue
            batch = queue.copy()
            queue.clear()
            await trio.to_thread.run_sync(write_and_sync, b"".join(item[1] for item in batch))
            for task, item, receiver in batch:
                if receiver is not None:
                    boxes[receiver].append(item)
                    lots[receiver].unpark()
                trio.lowlevel.reschedule(task)

    async def put(data: bytes, receiver: int | None) -> None:
        queue.append((trio.lowlevel.current_task(), data, receiver))
        wake.unpark()
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)

    async def send(index: int) -> None:
        for _ in range(total // count):
            await put(b"m" * 350, index)

    async def receive(index: int) -> None:
        for _ in range(total // count):
            while not boxes[index]:
                await lots[index].park()
            boxes[index].pop()
            await put(b"a" * 120, None)

    async with trio.open_nursery() as writer:
        writer.start_soon(write_all)
        started = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for index in range(count):
                nursery.start_soon(send, index)
                nursery.start_soon(receive, index)
        seconds = time.perf_counter() - started
        writer.cancel_scope.cancel()
    os.close(descriptor)
    return total / seconds


async def main() -> None:
    """Measure everything in one process, on one disk."""
    with scratch() as directory:
        fsync_us = fsync_p50_us(directory)
        async with open_core(directory / "a") as core:
            first = (await pairs(core, 100, 2_000, "w"))[0] / 2_000
            seconds, lost, doubled = await pairs(core, 100, TOTAL, "h")
            bare_100 = await bare(directory, 100, TOTAL)
            seconds_10, lost_10, doubled_10 = await pairs(core, 10, TOTAL, "t")
            bare_10 = await bare(directory, 10, TOTAL)
            taken = await single(core, 500)
            history = core.engine.state.seq
            while history < 200_000:  # two records a message
                await pairs(core, 100, TOTAL, f"g{history}")
                history = core.engine.state.seq
            runs = [(await pairs(core, 100, 2_000, f"z{index}"))[0] / 2_000 for index in range(3)]
        async with open_core(directory / "b") as core:
            fresh = [(await pairs(core, 100, 2_000, f"z{index}"))[0] / 2_000 for index in range(3)]
        report(
            benchmark="bus",
            messages_per_s=TOTAL / seconds,
            messages_per_s_10=TOTAL / seconds_10,
            p50_us=median(taken) * 1e6,
            p99_us=quantiles(taken, n=100)[98] * 1e6,
            fsync_p50_us=fsync_us,
            fsyncs_per_message=median(taken) * 1e6 / fsync_us,
            lost=lost + lost_10,
            duplicated=doubled + doubled_10,
            growth=median(runs) / median(fresh),
            warm_up_us=first * 1e6,
            bare_per_s=bare_100,
            bare_per_s_10=bare_10,
            ratio=TOTAL / seconds / bare_100,
            ratio_10=TOTAL / seconds_10 / bare_10,
        )


if __name__ == "__main__":
    run(main)
