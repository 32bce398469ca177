"""The life of a teammate, from being spawned to resting, and back again.

Laws: every live state can exit, crash, or be lost with its host; `stopped` and `failed` rest, nothing happens in them but a respawn,
so no state is final. A decided plan starts work, whatever was decided: the teammate has news.
A teammate that waits for a plan decision still reads mail: `work_started` brings it back to work, and when it idles before the decision
came, the runtime follows `went_idle` with `plan_submitted` again.
"""

from enum import StrEnum
from typing import Final

from protocols.machine import Machine


class MemberStatus(StrEnum):
    """What a teammate is doing."""

    spawning = "spawning"
    idle = "idle"
    working = "working"
    awaiting_plan_approval = "awaiting_plan_approval"
    draining = "draining"
    stopped = "stopped"
    failed = "failed"


class MemberEvent(StrEnum):
    """What may happen to a teammate."""

    ready = "ready"
    work_started = "work_started"
    went_idle = "went_idle"
    plan_submitted = "plan_submitted"
    plan_decided = "plan_decided"
    drain_started = "drain_started"
    exited = "exited"
    crashed = "crashed"
    lost = "lost"
    """The lease of its host ended: nobody runs it any more."""
    respawned = "respawned"


_S, _E = MemberStatus, MemberEvent
_ENDS: Final = {_E.exited: _S.stopped, _E.crashed: _S.failed, _E.lost: _S.failed}
_LIVES: Final = {_E.drain_started: _S.draining, **_ENDS}

RESTING: Final = frozenset({MemberStatus.stopped, MemberStatus.failed})
"""The states in which nobody hosts the teammate."""

LIFECYCLE: Final = Machine(
    "lifecycle",
    _S.spawning,
    {
        _S.spawning: {_E.ready: _S.idle, **_LIVES},
        _S.idle: {_E.work_started: _S.working, _E.plan_submitted: _S.awaiting_plan_approval, **_LIVES},
        _S.working: {_E.went_idle: _S.idle, _E.plan_submitted: _S.awaiting_plan_approval, **_LIVES},
        _S.awaiting_plan_approval: {_E.plan_decided: _S.working, _E.work_started: _S.working, **_LIVES},
        _S.draining: _ENDS,
        _S.stopped: {_E.respawned: _S.spawning},
        _S.failed: {_E.respawned: _S.spawning},
    },
)
