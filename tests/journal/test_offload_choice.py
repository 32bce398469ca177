"""Blocking work runs where it costs the loop least."""

import threading

import pytest
import trio

from teams.journal.offload import LIMIT_SECONDS, Offload


async def test_short_work_runs_in_the_loop_and_long_work_in_a_thread() -> None:
    """Work begins in the loop's own thread, leaves it while its recent times are above the limit, and comes back when they are short."""
    offload = Offload()
    assert await offload(threading.current_thread) is threading.current_thread()
    offload.recent_seconds = 2 * LIMIT_SECONDS
    assert await offload(threading.current_thread) is not threading.current_thread()
    for _ in range(20):
        await offload(lambda: None)
    assert await offload(threading.current_thread) is threading.current_thread()


async def test_slow_work_is_noticed() -> None:
    """What takes longer than the limit, again and again, raises the recent time above it."""
    offload = Offload(limit_seconds=1e-9)
    await offload(lambda: sum(range(10_000)))
    assert await offload(threading.current_thread) is not threading.current_thread()


def test_one_hiccup_is_soon_forgotten() -> None:
    """A single very long run counts as ten limits at most."""
    offload = Offload()
    offload.recent_seconds = 0.0
    offload._timed(lambda: threading.Event().wait(0.05))
    assert offload.recent_seconds <= 2.5 * LIMIT_SECONDS


async def test_cancelled_work_is_not_begun() -> None:
    """A cancellation that came before is heeded before the work, not after it."""
    ran: list[int] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        with pytest.raises(trio.Cancelled):
            await Offload()(lambda: ran.append(1))
        await trio.lowlevel.checkpoint()
    assert ran == []


async def test_an_error_of_the_work_is_the_callers() -> None:
    """What the function raises comes out, in either place."""

    def fail() -> None:
        raise OSError("full")

    offload = Offload()
    with pytest.raises(OSError, match="full"):
        await offload(fail)
    offload.recent_seconds = 1.0
    with pytest.raises(OSError, match="full"):
        await offload(fail)
