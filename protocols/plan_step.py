"""One step of an approved plan: to do, in progress, then done or failed, and after a failure tried again.

Law: the table knows one step; that only one of a plan is in progress, and that nobody skips ahead without a reason, is the business of
whoever holds the plan.
"""

from enum import StrEnum
from typing import Final

from protocols.machine import Machine


class StepStatus(StrEnum):
    """Where a step stands."""

    todo = "todo"
    in_progress = "in_progress"
    done = "done"
    failed = "failed"


class StepEvent(StrEnum):
    """What may happen to a step."""

    start = "start"
    """Also after a failure: every start is an attempt."""
    finish = "finish"
    fail = "fail"


_S, _E = StepStatus, StepEvent

PLAN_STEP: Final = Machine(
    "plan_step",
    _S.todo,
    {
        _S.todo: {_E.start: _S.in_progress},
        _S.in_progress: {_E.finish: _S.done, _E.fail: _S.failed},
        _S.failed: {_E.start: _S.in_progress},
    },
    final={_S.done},
)
