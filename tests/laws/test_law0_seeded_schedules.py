"""The canary: the schedules over which the laws are tested are decided by their seed, in the trio that is installed."""

import trio

from teams.testing.team import EPOCH_SECONDS, cancel_at_step, run_seeded, virtual_wall_clock


async def _order() -> list[int]:
    order: list[int] = []

    async def note(number: int) -> None:
        for _ in range(4):
            await trio.lowlevel.checkpoint()
            order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(note, number)
    return order


def test_schedule_is_decided_by_its_seed() -> None:
    """The same seed gives the same order of steps, and different seeds give different ones."""
    orders = [run_seeded(_order, seed=seed) for seed in range(8)]
    assert orders == [run_seeded(_order, seed=seed) for seed in range(8)]
    assert len({tuple(order) for order in orders}) > 5


async def test_virtual_wall_clock_follows_trio(autojump_clock: trio.testing.MockClock) -> None:
    """An hour of virtual time is an hour of the wall clock that a team is given."""
    await trio.sleep(3600)
    assert virtual_wall_clock() == EPOCH_SECONDS + 3600


async def test_cancel_at_step_stops_before_that_step() -> None:
    """A block is cancelled before the chosen step, and none of its code runs to the end."""
    reached = 0
    with cancel_at_step(5) as counter:
        for _ in range(100):
            reached += 1
            await trio.lowlevel.checkpoint()
    assert counter.scope.cancelled_caught
    assert 1 <= reached < 100
