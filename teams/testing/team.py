"""For who tests a team offline: time that costs nothing, schedules that repeat, cancellation at a chosen step, requests that must be valid.

Laws: what is seeded repeats exactly; nothing here touches a team from the inside.
"""

import json
import random
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio
from trio.testing import MockClock

from compaction.request import Request
from compaction.validity import problems
from teams.errors import InvalidRequest
from teams.models.base import Model, ModelReply, ModelRequest, OnText
from teams.models.wire_body import request_body
from teams.team import Team
from teams.testing.wire_rules import refusal
from teams.topics import ANYTHING

ResultT = TypeVar("ResultT")
EPOCH_SECONDS = 1_000_000_000.0
"""When virtual time begins, in seconds since the epoch."""


def virtual_wall_clock() -> float:
    """Return a wall clock that follows trio's own; pass it as `wall_clock` to `open_team` where trio's clock is a MockClock."""
    return EPOCH_SECONDS + trio.current_time()


SWITCH = "_ALLOW_DETERMINISTIC_SCHEDULING"  # typed as a constant, and meant to be set


def run_seeded(main: Callable[..., Awaitable[ResultT]], *args: Any, seed: int) -> ResultT:
    """Run an async function on a clock that jumps over every wait, in the order of steps that the seed decides.

    Worker threads would make the order depend on the machine: use it for teams in memory.
    """
    with _seeded_scheduling(seed):
        return trio.run(main, *args, clock=MockClock(autojump_threshold=0))


@contextmanager
def _seeded_scheduling(seed: int) -> Generator[None]:
    from trio._core import _run  # trio keeps the switch for its own tests and for such as this; a canary test tells when it moves

    order: random.Random = _run._r  # noqa: SLF001  # as above
    before, state = getattr(_run, SWITCH), order.getstate()
    order.seed(seed)
    setattr(_run, SWITCH, True)
    try:
        yield
    finally:
        setattr(_run, SWITCH, before)
        order.setstate(state)


async def wait_for(team: Team, condition: Callable[[], object]) -> None:
    """Wait until the condition holds; it is asked again after every change in the team.

    Checkpoints: always.
    """
    await team._services.engine.wait_until(ANYTHING, lambda: True if condition() else None)  # noqa: SLF001  # built with the team


class StepCounter(trio.abc.Instrument):
    """Counts the steps of all tasks, and cancels a scope before a chosen one."""

    def __init__(self, cancel_at: int | None) -> None:
        self.cancel_at = cancel_at
        self.steps = 0
        self.scope = trio.CancelScope()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count; called by trio."""
        del task
        self.steps += 1
        if self.steps == self.cancel_at:
            self.scope.cancel()


@contextmanager
def cancel_at_step(step: int | None) -> Generator[StepCounter]:
    """Cancel the block before the step of this number, counted over all tasks from the block's begin; None only counts."""
    counter = StepCounter(step)
    trio.lowlevel.add_instrument(counter)
    try:
        with counter.scope:
            yield counter
    finally:
        trio.lowlevel.remove_instrument(counter)


class StrictModel:
    """A model behind an endpoint that refuses what the provider would refuse, by two independent sets of rules.

    Args:
        model: answers what is accepted.
        wire_name: the model by whose rules requests are judged.
    """

    def __init__(self, model: Model, *, wire_name: str = "claude-sonnet-4-5") -> None:
        self.model, self._wire_name = model, wire_name
        self.name = model.name
        self.context_window_tokens, self.max_output_tokens = model.context_window_tokens, model.max_output_tokens
        self.refused: list[str] = []

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Judge the request, then let the model answer; raise InvalidRequest as the endpoint would."""
        tools = tuple({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} for tool in request.tools)
        reason = refusal(json.loads(request_body(self._wire_name, request, marks=(), mark=None, extra={})))
        broken = problems(Request(messages=request.messages, system=request.system, tools=tools))
        if reason is not None or broken:
            self.refused.append(reason or str(broken))
            raise InvalidRequest(self.refused[-1])
        return await self.model.complete(request, on_text=on_text)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Let the model count."""
        return await self.model.count_tokens(request)

    async def aclose(self) -> None:
        """Close the model."""
        await self.model.aclose()
