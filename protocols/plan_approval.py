"""The approval of a plan: submitted, decided, and after a rejection revised or withdrawn.

Laws: only an approval lets its owner write; a rejected plan is not the end, its owner revises it (the request counts revisions) or
withdraws it; at the deadline whoever is next in the chain is asked; where nobody is left, the plan
expires and the request's default decision counts.
`Plan` itself lives in `protocols.plan` and is loaded on first use, so that the table does not cost an import of pydantic.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from protocols.machine import Machine

if TYPE_CHECKING:
    from protocols.plan import Plan

__all__ = ["PLAN_APPROVAL", "Plan", "PlanEvent", "PlanState"]


class PlanState(StrEnum):
    """Where a plan stands."""

    submitted = "submitted"
    approved = "approved"
    rejected = "rejected"
    withdrawn = "withdrawn"
    expired = "expired"


class PlanEvent(StrEnum):
    """What may happen to a plan."""

    approve = "approve"
    reject = "reject"
    revise = "revise"
    withdraw = "withdraw"
    expire = "expire"
    hand_over = "hand_over"
    """Who was asked did not decide, and the next in the chain is asked."""


_S, _E = PlanState, PlanEvent

PLAN_APPROVAL: Final = Machine(
    "plan_approval",
    _S.submitted,
    {
        _S.submitted: {
            _E.approve: _S.approved,
            _E.reject: _S.rejected,
            _E.withdraw: _S.withdrawn,
            _E.expire: _S.expired,
            _E.hand_over: _S.submitted,
        },
        _S.rejected: {_E.revise: _S.submitted, _E.withdraw: _S.withdrawn},
    },
    final={_S.approved, _S.withdrawn, _S.expired},
)


def __getattr__(name: str) -> object:
    if name == "Plan":
        from protocols.plan import Plan  # pydantic costs 0.1 s, and only who reads or writes a plan needs it

        globals()["Plan"] = Plan
        return Plan
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
