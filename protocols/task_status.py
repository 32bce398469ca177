"""The status of a task, and what each event may do to it.

Laws: a task is worked on only between `claim` and the event that ends the claim; `failed` may be retried, so it is not final;
being blocked is no status: it is computed from the blockers.
"""

from enum import StrEnum
from typing import Final

from protocols.machine import Machine


class TaskStatus(StrEnum):
    """Where a task stands."""

    pending = "pending"
    in_progress = "in_progress"
    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"


class TaskEvent(StrEnum):
    """What may happen to a task."""

    claim = "claim"
    release = "release"
    lease_expired = "lease_expired"
    complete = "complete"
    fail = "fail"
    retry = "retry"
    cancel = "cancel"
    blocker_failed = "blocker_failed"


class BlockerPolicy(StrEnum):
    """What becomes of a task when one of its blockers fails or is cancelled."""

    fail = "fail"
    """The task fails too."""
    skip = "skip"
    """The task is cancelled."""
    wait = "wait"
    """The task stays blocked until the blocker is retried and completes."""
    run = "run"
    """The edge counts as settled and the task may run."""


_S, _E = TaskStatus, TaskEvent

SETTLED: Final = frozenset({TaskStatus.completed, TaskStatus.failed, TaskStatus.cancelled})
"""The statuses in which a task needs nobody's work; `failed` leaves it again when it is retried."""

TASK_STATUS: Final = Machine(
    "task_status",
    _S.pending,
    {
        _S.pending: {_E.claim: _S.in_progress, _E.cancel: _S.cancelled, _E.blocker_failed: _S.failed},
        _S.in_progress: {
            _E.release: _S.pending,
            _E.lease_expired: _S.pending,
            _E.complete: _S.completed,
            _E.fail: _S.failed,
            _E.cancel: _S.cancelled,
        },
        _S.failed: {_E.retry: _S.pending, _E.cancel: _S.cancelled},
    },
    final={_S.completed, _S.cancelled},
)
