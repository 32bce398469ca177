"""The shutdown handshake: ask, answer or deadline, drain, and at the worst cancel.

Laws: a member that exits ends every request but one that it rejected; whoever asked may force at any time before the end;
a rejection is final for this request, the asker asks anew or with force; once cancelling, only the exit is left.
"""

from enum import StrEnum
from typing import Final

from protocols.machine import Machine


class ShutdownState(StrEnum):
    """How far a shutdown has come."""

    requested = "requested"
    approved = "approved"
    drained = "drained"
    stopped = "stopped"
    rejected = "rejected"
    expired = "expired"
    cancelling = "cancelling"
    stopped_forced = "stopped_forced"


class ShutdownEvent(StrEnum):
    """What may happen to a shutdown."""

    approve = "approve"
    reject = "reject"
    expire = "expire"
    """The deadline for the answer passed."""
    drained = "drained"
    grace_over = "grace_over"
    """The time for draining passed."""
    force = "force"
    exited = "exited"


_S, _E = ShutdownState, ShutdownEvent
_ENDS: Final = {_E.grace_over: _S.cancelling, _E.force: _S.cancelling, _E.exited: _S.stopped}

SHUTDOWN: Final = Machine(
    "shutdown",
    _S.requested,
    {
        _S.requested: {
            _E.approve: _S.approved,
            _E.reject: _S.rejected,
            _E.expire: _S.expired,
            _E.force: _S.cancelling,
            _E.exited: _S.stopped,
        },
        _S.approved: {_E.drained: _S.drained, **_ENDS},
        _S.drained: _ENDS,
        _S.expired: _ENDS,
        _S.cancelling: {_E.exited: _S.stopped_forced},
    },
    final={_S.stopped, _S.rejected, _S.stopped_forced},
)
