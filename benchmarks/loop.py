"""One agent's turns on a model that answers at once: in memory, durable, and with a long history.

The limit beside it is two appended writes with their syncs, each through a worker thread: one turn is two replies.
"""

import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import trio

from benchmarks._common import fsync_p50_us, report, run, scratch
from compaction.transcript import ModelMessage
from compaction.view import View
from teams.loop import AgentConfig, AgentLoop
from teams.models.base import ModelReply, ModelRequest, Usage
from teams.sessions import SessionStore
from teams.tools.dispatcher import ToolDispatcher

TURNS = 500


class InstantModel:
    """Asks for one tool, then ends the turn; without any thought."""

    name = "instant"
    context_window_tokens = 100_000_000
    max_output_tokens = 64_000

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, request: ModelRequest, *, on_text: Any = None) -> ModelReply:
        """Answer at once."""
        del on_text
        self.calls += 1
        await trio.lowlevel.checkpoint()
        if request.messages[-1].tool_results:
            return ModelReply(({"type": "text", "text": "done"},), "end_turn", Usage(0, 5), self.name)
        call = {"type": "tool_use", "id": f"toolu_{self.calls}", "name": "look", "input": {"place": "here"}}
        return ModelReply((call,), "tool_use", Usage(0, 20), self.name)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Not needed here."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Do nothing."""


async def look(place: str) -> str:  # noqa: ASYNC124  # a tool of a model
    """Look at a place."""
    return f"nothing at {place}"


def history(count: int) -> View:
    """Make a context of so many messages."""
    view = View()
    for number in range(count):
        view.append(ModelMessage("assistant" if number % 2 else "user", f"message {number}: " + "some words of an earlier talk " * 8))
    return view


async def turns(view: View, log: Any = None) -> float:
    """Run the turns; return microseconds for one."""
    dispatcher = ToolDispatcher()
    dispatcher.register("look", look, effect="reads")
    agent = AgentLoop(AgentConfig(model=InstantModel()), dispatcher, view=view, log=log)
    await agent.run("warm up")
    started = time.perf_counter()
    for _ in range(TURNS):
        await agent.run("go on")
    return (time.perf_counter() - started) / TURNS * 1e6


async def durable(directory: Path) -> float:
    """Run the turns with a transcript on disk."""
    store = SessionStore(directory, wall_clock=time.time)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        taken = await turns(View(), store.log("agent"))
        nursery.cancel_scope.cancel()
    store.close()
    return taken


async def thread_sync_us(directory: Path) -> float:
    """Measure one write and sync through a worker thread."""
    taken: list[float] = []
    for _ in range(100):
        started = time.perf_counter()
        await trio.to_thread.run_sync(partial(fsync_p50_us, directory, 400, 1))
        taken.append(time.perf_counter() - started)
    return median(taken) * 1e6


async def main() -> None:
    """Measure all in one process."""
    with scratch() as directory:
        empty, long, empty_again, long_again = [await turns(history(count)) for count in (0, 2_000, 0, 2_000)]
        sync_us = await thread_sync_us(directory)
        on_disk = await durable(directory)
        report(
            benchmark="loop",
            us_per_turn=min(empty, empty_again),
            us_per_turn_durable=on_disk,
            growth=min(long, long_again) / min(empty, empty_again),
            model_calls_per_turn=2,
            thread_sync_us=sync_us,
            syncs_per_durable_turn=(on_disk - min(empty, empty_again)) / sync_us,
        )


if __name__ == "__main__":
    run(main)
