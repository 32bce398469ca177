"""One request: who asked whom for what, until when, and what came of it.

Laws: a request never changes, every step makes a new value; it is answered only by somebody who was asked, and only once per revision;
repeating the same answer changes nothing, another answer is an error that says what was decided; only `answer` approves or rejects.
The first step out of the initial state, whatever it is, records a `Decision`: who comes later learns what happened.
Times are seconds since the epoch and come from the caller.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from protocols.errors import AlreadyDecided, NotTheAnswerer
from protocols.machine import Machine
from protocols.names import RUNTIME, RequestId
from protocols.permission import PERMISSION, PermissionEvent, PermissionState
from protocols.plan_approval import PLAN_APPROVAL, PlanEvent, PlanState
from protocols.question import QUESTION, QuestionEvent, QuestionState
from protocols.shutdown import SHUTDOWN, ShutdownEvent, ShutdownState


class RequestKind(StrEnum):
    """What is asked for."""

    shutdown = "shutdown"
    plan_approval = "plan_approval"
    permission = "permission"
    question = "question"


class _Rules(NamedTuple):
    """How requests of one kind step; any enum of states and events, since one table holds all kinds."""

    machine: Machine[Any, Any]
    yes: StrEnum
    no: StrEnum
    on_deadline: Mapping[Any, StrEnum]


_RULES: Final[Mapping[RequestKind, _Rules]] = {
    RequestKind.shutdown: _Rules(
        SHUTDOWN,
        ShutdownEvent.approve,
        ShutdownEvent.reject,
        {
            ShutdownState.requested: ShutdownEvent.expire,
            ShutdownState.approved: ShutdownEvent.grace_over,
            ShutdownState.drained: ShutdownEvent.grace_over,
            ShutdownState.expired: ShutdownEvent.grace_over,
        },
    ),
    RequestKind.plan_approval: _Rules(
        PLAN_APPROVAL,
        PlanEvent.approve,
        PlanEvent.reject,
        {PlanState.submitted: PlanEvent.expire, PlanState.rejected: PlanEvent.withdraw},
    ),
    RequestKind.permission: _Rules(
        PERMISSION, PermissionEvent.approve, PermissionEvent.reject, {PermissionState.asked: PermissionEvent.expire}
    ),
    RequestKind.question: _Rules(QUESTION, QuestionEvent.answer, QuestionEvent.reject, {QuestionState.asked: QuestionEvent.expire}),
}

MACHINES: Final[Mapping[RequestKind, Machine[Any, Any]]] = MappingProxyType({kind: rules.machine for kind, rules in _RULES.items()})


@dataclass(frozen=True, slots=True)
class Decision:
    """What ended the wait for an answer.

    `approved` is what the runtime acts on, for an expired request its default. `outcome` is the state that the decision led to.
    """

    approved: bool
    by: str
    at: float
    feedback: str = ""
    outcome: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request in one state.

    `subject` is the member that shall stop or whose plan it is, or the id of the tool call. `deadline` belongs to the present state:
    when it passes, `deadline_event` is due. `default_approved` is what an expired request counts as; None counts as not approved.
    An empty `state` becomes the initial one. `earlier` holds the decisions on the revisions before this one, the first one first.
    """

    id: RequestId
    kind: RequestKind
    asker: str
    answerers: tuple[str, ...]
    subject: str
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    state: str = ""
    revision: int = 1
    opened_at: float
    deadline: float | None = None
    default_approved: bool | None = None
    decision: Decision | None = None
    earlier: tuple[Decision, ...] = ()

    def __post_init__(self) -> None:
        machine = MACHINES[self.kind]
        object.__setattr__(self, "kind", RequestKind(self.kind))
        object.__setattr__(self, "state", type(machine.initial)(self.state) if self.state else machine.initial)
        object.__setattr__(self, "answerers", tuple(self.answerers))
        if self.kind in _NOT_BY_ONESELF and self.asker in self.answerers:
            raise ValueError(f"request {self.id!r}: {self.asker!r} cannot be asked to decide its own {self.kind.value}")

    @property
    def machine(self) -> Machine[Any, Any]:
        """The table that this request steps through."""
        return MACHINES[self.kind]

    @property
    def is_closed(self) -> bool:
        """Whether nothing can happen to it any more."""
        return MACHINES[self.kind].is_final(self.state)

    @property
    def is_undecided(self) -> bool:
        """Whether it waits for an answer."""
        return self.decision is None

    @property
    def deadline_event(self) -> StrEnum | None:
        """What happens when the deadline passes in this state; None when a deadline means nothing here."""
        return _RULES[self.kind].on_deadline.get(self.state)

    def to_json(self) -> dict[str, Any]:
        """Return the request as JSON values; `from_json` takes them back."""
        data = {item.name: getattr(self, item.name) for item in fields(self)}
        data |= {
            "kind": self.kind.value,
            "state": str(self.state),
            "answerers": list(self.answerers),
            "body": dict(self.body),
            "decision": _decision_json(self.decision) if self.decision else None,
            "earlier": [_decision_json(decision) for decision in self.earlier],
        }
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Request":
        """Build a request from what `to_json` returned.

        Raises:
            ValueError, TypeError, KeyError: a field is missing, unknown, or not of its kind.
        """
        values: dict[str, Any] = dict(data)
        values["decision"] = Decision(**values["decision"]) if values.get("decision") else None
        values["earlier"] = tuple(Decision(**item) for item in values.get("earlier", ()))
        return cls(**values)


_NOT_BY_ONESELF: Final = frozenset({RequestKind.plan_approval, RequestKind.permission})


def answer(
    request: Request,
    *,
    approved: bool,
    by: str,
    at: float,
    feedback: str = "",
    revision: int | None = None,
    deadline: float | None = None,
) -> Request | None:
    """Decide a request.

    `revision` is the one that was read before answering, None for the present one. `deadline` is when the next step is due,
    None keeps the old one. Returns None when this very answer was given before.

    Raises:
        NotTheAnswerer: `by` was not asked.
        AlreadyDecided: another decision was made on that revision.
        ValueError: there is no such revision yet.
    """
    if by not in request.answerers:
        raise NotTheAnswerer(request.id, by, request.answerers)
    rules = _RULES[request.kind]
    earlier = _decision_on(request, request.revision if revision is None else revision)
    if earlier is not None:
        if (earlier.approved, earlier.by, earlier.feedback) == (approved, by, feedback) and earlier.outcome in _ANSWERED:
            return None
        raise AlreadyDecided(request.id, earlier.outcome, earlier.by, earlier.at, str(rules.yes if approved else rules.no))
    state = rules.machine.step(request.state, rules.yes if approved else rules.no)
    decision = Decision(approved, by, at, feedback, str(state))
    return replace(request, state=state, decision=decision, deadline=request.deadline if deadline is None else deadline)


def advance(
    request: Request,
    event: str,
    *,
    at: float,
    by: str = RUNTIME,
    feedback: str = "",
    body: Mapping[str, Any] | None = None,
    deadline: float | None = None,
) -> Request:
    """Let anything but an answer happen to a request.

    `body` replaces the body, for a revision. `deadline` is when the next step is due, None keeps the old one.

    Raises:
        IllegalTransition: the event is not legal in the request's state.
        ValueError: the event is an answer.
    """
    rules = _RULES[request.kind]
    if event in (rules.yes, rules.no):
        raise ValueError(f"request {request.id!r}: {str(event)!r} is an answer; answers go through answer(), which checks who gives them")
    state = rules.machine.step(request.state, event)
    changed = replace(
        request,
        state=state,
        body=request.body if body is None else dict(body),
        deadline=request.deadline if deadline is None else deadline,
    )
    if state == rules.machine.initial and request.decision is not None:
        return replace(changed, revision=request.revision + 1, opened_at=at, decision=None, earlier=(*request.earlier, request.decision))
    if request.decision is None:
        approved = bool(request.default_approved) and event == request.deadline_event
        return replace(changed, decision=Decision(approved, by, at, feedback, str(state)))
    return changed


_ANSWERED: Final = frozenset({"approved", "rejected", "answered"})


def _decision_on(request: Request, revision: int) -> Decision | None:
    if revision == request.revision:
        return request.decision
    if not 1 <= revision < request.revision:
        raise ValueError(f"request {request.id!r} has no revision {revision}: the newest is {request.revision}")
    return request.earlier[revision - 1]


def _decision_json(decision: Decision) -> dict[str, Any]:
    return {item.name: getattr(decision, item.name) for item in fields(decision)}
