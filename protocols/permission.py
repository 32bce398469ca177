"""The permission for one tool call: asked, then allowed, refused, withdrawn, or expired into its default; what was allowed is used once.

Laws: an effect comes after `use` and never before, and nothing is used twice; who has not decided in time hands over to whoever is asked
next, and where nobody is left the default counts: `allow` for a yes, `expire` for a no.
"""

from enum import StrEnum
from typing import Final

from protocols.machine import Machine


class PermissionState(StrEnum):
    """Where a permission stands."""

    asked = "asked"
    approved = "approved"
    used = "used"
    """The call that it allows has begun; nobody can begin it again."""
    rejected = "rejected"
    withdrawn = "withdrawn"
    expired = "expired"


class PermissionEvent(StrEnum):
    """What may happen to a permission."""

    approve = "approve"
    reject = "reject"
    withdraw = "withdraw"
    expire = "expire"
    allow = "allow"
    """The deadline passed, and the default is yes."""
    hand_over = "hand_over"
    """Who was asked did not decide, and the next in the chain is asked."""
    use = "use"


_S, _E = PermissionState, PermissionEvent

PERMISSION: Final = Machine(
    "permission",
    _S.asked,
    {
        _S.asked: {
            _E.approve: _S.approved,
            _E.reject: _S.rejected,
            _E.withdraw: _S.withdrawn,
            _E.expire: _S.expired,
            _E.allow: _S.approved,
            _E.hand_over: _S.asked,
        },
        _S.approved: {_E.use: _S.used, _E.withdraw: _S.withdrawn},
    },
    final={_S.used, _S.rejected, _S.withdrawn, _S.expired},
)
