"""Blocking work from the event loop: at once where it is short, in a worker thread where it is not.

A hop to a thread and back costs 0.2 to 0.5 ms here, and more when the loop is busy, because the thread must get the interpreter's lock
first. A synced append on a fast disk takes 0.2 ms: less than the hop that would keep it off the loop. So the work is timed where it runs,
and goes to a thread while its recent times are above a limit.
"""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

_T = TypeVar("_T")

LIMIT_SECONDS = 0.001
"""How long work may take and still run in the loop's own thread; a fifth of the interpreter's switch interval."""
WEIGHT = 0.2
"""How much the newest time counts for the recent ones."""


class RunSync(Protocol):
    """Runs a blocking function for a coroutine; trio.to_thread.run_sync is one."""

    async def __call__(self, sync_fn: Callable[[], _T], /, *, limiter: trio.CapacityLimiter | None = None) -> _T:
        """Return what the function returns."""
        ...


async def run_in_thread(sync_fn: Callable[[], _T], /, *, limiter: trio.CapacityLimiter | None = None) -> _T:
    """Run in a worker thread, to its end also when Cancelled: a write that has begun is not abandoned."""
    return await trio.to_thread.run_sync(sync_fn, limiter=limiter)


class Offload:
    """Runs one kind of blocking work where it costs the loop least; begins in the loop's thread."""

    def __init__(self, run_sync: RunSync = run_in_thread, *, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._run_sync, self._limit_seconds = run_sync, limit_seconds
        self.recent_seconds = 0.0

    @property
    def inline(self) -> bool:
        """Whether the next call runs in the loop's own thread."""
        return self.recent_seconds <= self._limit_seconds

    async def __call__(self, sync_fn: Callable[[], _T], /, *, limiter: trio.CapacityLimiter | None = None) -> _T:
        """Return what the function returns.

        Checkpoints: always; when Cancelled, the function has not run.
        """
        if not self.inline:
            return await self._run_sync(lambda: self._timed(sync_fn), limiter=limiter)
        await trio.lowlevel.checkpoint_if_cancelled()
        result = self._timed(sync_fn)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return result

    def _timed(self, sync_fn: Callable[[], _T]) -> _T:
        started = time.perf_counter()
        try:
            return sync_fn()
        finally:
            # A single hiccup counts as no more than ten limits, so that it is soon forgotten.
            taken = min(time.perf_counter() - started, 10 * self._limit_seconds)
            self.recent_seconds += WEIGHT * (taken - self.recent_seconds)
