"""The permission for one tool call: asked, then allowed, refused, withdrawn, or expired into its default."""

from enum import StrEnum
from typing import Final

from protocols.machine import Machine


class PermissionState(StrEnum):
    """Where a permission stands."""

    asked = "asked"
    approved = "approved"
    rejected = "rejected"
    withdrawn = "withdrawn"
    expired = "expired"


class PermissionEvent(StrEnum):
    """What may happen to a permission."""

    approve = "approve"
    reject = "reject"
    withdraw = "withdraw"
    expire = "expire"


_S, _E = PermissionState, PermissionEvent

PERMISSION: Final = Machine(
    "permission",
    _S.asked,
    {_S.asked: {_E.approve: _S.approved, _E.reject: _S.rejected, _E.withdraw: _S.withdrawn, _E.expire: _S.expired}},
    final={_S.approved, _S.rejected, _S.withdrawn, _S.expired},
)
