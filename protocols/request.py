"""One request: who asked whom for what, until when, and what came of it.

Laws: a request never changes, every step makes a new value; it is answered only by somebody who was asked, and only once per revision;
repeating the same answer changes nothing, another answer is an error that says what was decided; only `answer` approves or rejects. A
quorum of k decides when k have said yes, or when k cannot be reached any more. A chain asks one stage after the other: who does not decide
in time, or is gone, hands over. The first step out of the initial state, whatever it is, records a `Decision`: who comes later learns what
happened.
Times are seconds since the epoch and come from the caller.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from protocols.errors import AlreadyDecided, IllegalTransition, NotTheAnswerer
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
    """How requests of one kind step; any enum of states and events, since one table holds all kinds.

    `hand_over` asks the next stage of the chain; `on_default` is what a deadline means where the default is yes.
    """

    machine: Machine[Any, Any]
    yes: StrEnum
    no: StrEnum
    on_deadline: Mapping[Any, StrEnum]
    hand_over: StrEnum | None = None
    on_default: StrEnum | None = None


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
        PlanEvent.hand_over,
    ),
    RequestKind.permission: _Rules(
        PERMISSION,
        PermissionEvent.approve,
        PermissionEvent.reject,
        {PermissionState.asked: PermissionEvent.expire},
        PermissionEvent.hand_over,
        PermissionEvent.allow,
    ),
    RequestKind.question: _Rules(
        QUESTION, QuestionEvent.answer, QuestionEvent.reject, {QuestionState.asked: QuestionEvent.expire}, QuestionEvent.hand_over
    ),
}

MACHINES: Final[Mapping[RequestKind, Machine[Any, Any]]] = MappingProxyType({kind: rules.machine for kind, rules in _RULES.items()})


class Stage(NamedTuple):
    """Who is asked together: any `quorum` of them decide, within so many seconds (None: as long as the whole request may take)."""

    answerers: tuple[str, ...]
    quorum: int = 1
    seconds: float | None = None


class Vote(NamedTuple):
    """What one of several approvers said, before or with the decision; `stage` is where in the chain, from 0."""

    by: str
    approved: bool
    at: float
    feedback: str = ""
    stage: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What ended the wait for an answer.

    `approved` is what the runtime acts on, for an expired request its default. `outcome` is the state that the decision led to, and
    `expired` for a default. `votes` are all that were cast, where more than one had to be.
    """

    approved: bool
    by: str
    at: float
    feedback: str = ""
    outcome: str = ""
    votes: tuple[Vote, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request in one state.

    `subject` is the member that shall stop or whose plan it is, or the id of the tool call. `deadline` belongs to the present state:
    when it passes, `deadline_event` is due. `default_approved` is what an expired request counts as; None counts as not approved.
    An empty `state` becomes the initial one. `earlier` holds the decisions on the revisions before this one, the first one first.
    `answerers` and `quorum` are those of the present stage; `stages` is the whole chain, empty where there is no other stage, and `stage`
    the place in it, from 0. `votes` are the answers so far where one alone does not decide. `body_before` is what the revision before held.
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
    quorum: int = 1
    stages: tuple[Stage, ...] = ()
    stage: int = 0
    votes: tuple[Vote, ...] = ()
    body_before: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        machine = MACHINES[self.kind]
        object.__setattr__(self, "kind", RequestKind(self.kind))
        object.__setattr__(self, "state", type(machine.initial)(self.state) if self.state else machine.initial)
        if self.stages:
            here = self.stages[self.stage]
            object.__setattr__(self, "answerers", here.answerers)
            object.__setattr__(self, "quorum", here.quorum)
        object.__setattr__(self, "answerers", tuple(self.answerers))
        everybody = {name for stage in self.stages for name in stage.answerers}.union(self.answerers)
        if self.kind in _NOT_BY_ONESELF and self.asker in everybody:
            raise ValueError(f"request {self.id!r}: {self.asker!r} cannot be asked to decide its own {self.kind.value}")
        for stage in self.stages or (Stage(self.answerers, self.quorum),):
            if not 1 <= stage.quorum <= max(1, len(set(stage.answerers))):
                raise ValueError(f"request {self.id!r}: {stage.quorum} of {len(set(stage.answerers))} approvers cannot decide")

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
        rules = _RULES[self.kind]
        event = rules.on_deadline.get(self.state)
        if event is None or self.decision is not None:
            return event
        if self.has_next_stage and rules.hand_over is not None:
            return rules.hand_over
        return rules.on_default if self.default_approved and rules.on_default is not None else event

    @property
    def has_next_stage(self) -> bool:
        """Whether somebody else is asked when those who are asked now do not decide."""
        return self.stage + 1 < len(self.stages)

    @property
    def hand_over_event(self) -> StrEnum | None:
        """What asks the next stage now; None when there is none, or it is decided."""
        return _RULES[self.kind].hand_over if self.is_undecided and self.has_next_stage else None

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
            "stages": [[list(stage.answerers), stage.quorum, stage.seconds] for stage in self.stages],
            "votes": [list(vote) for vote in self.votes],
        }
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Request":
        """Build a request from what `to_json` returned.

        Raises:
            ValueError, TypeError, KeyError: a field is missing, unknown, or not of its kind.
        """
        values: dict[str, Any] = dict(data)
        values["decision"] = _decision_from(values["decision"]) if values.get("decision") else None
        values["earlier"] = tuple(_decision_from(item) for item in values.get("earlier", ()))
        values["stages"] = tuple(Stage(tuple(names), quorum, seconds) for names, quorum, seconds in values.get("stages", ()))
        values["votes"] = tuple(Vote(*vote) for vote in values.get("votes", ()))
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
    None keeps the old one. Returns None when this very answer was given before; where a quorum is needed and not reached yet, the request
    is returned undecided, with one vote more.

    Raises:
        NotTheAnswerer: `by` was not asked.
        AlreadyDecided: another decision was made on that revision.
        ValueError: there is no such revision yet.
    """
    if by not in request.answerers:
        raise NotTheAnswerer(request.id, by, request.answerers)
    rules = _RULES[request.kind]
    event = rules.yes if approved else rules.no
    earlier = _decision_on(request, request.revision if revision is None else revision)
    if earlier is not None:
        said = [(earlier.approved, earlier.by, earlier.feedback), *((vote.approved, vote.by, vote.feedback) for vote in earlier.votes)]
        if (approved, by, feedback) in said and earlier.outcome in _ANSWERED:
            return None
        raise AlreadyDecided(request.id, earlier.outcome, earlier.by, earlier.at, str(event))
    state = rules.machine.step(request.state, event)
    if request.quorum == 1:
        decision = Decision(approved, by, at, feedback, str(state), request.votes)
        return replace(request, state=state, decision=decision, votes=(), deadline=request.deadline if deadline is None else deadline)
    return _vote(request, Vote(by, approved, at, feedback, request.stage), state, deadline)


def _vote(request: Request, vote: Vote, state: StrEnum, deadline: float | None) -> Request | None:
    """Add a vote; when it decides, the request steps to `state`."""
    here = [cast for cast in request.votes if cast.stage == request.stage]
    before = next((cast for cast in here if cast.by == vote.by), None)
    if before is not None:
        if (before.approved, before.feedback) == (vote.approved, vote.feedback):
            return None
        raise AlreadyDecided(
            request.id, "approved" if before.approved else "rejected", before.by, before.at, "approve" if vote.approved else "reject"
        )
    votes = (*request.votes, vote)
    same = [cast for cast in (*here, vote) if cast.approved == vote.approved]
    needed = request.quorum if vote.approved else len(set(request.answerers)) - request.quorum + 1
    if len(same) < needed:
        return replace(request, votes=votes)
    said = [f"{cast.by}: {cast.feedback}" for cast in same if cast.feedback]
    decision = Decision(vote.approved, vote.by, vote.at, "\n".join(said), str(state), votes)
    return replace(request, state=state, decision=decision, votes=(), deadline=request.deadline if deadline is None else deadline)


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
    if event == rules.hand_over:
        return _handed_over(request, event, deadline)
    changed = replace(
        request,
        state=state,
        body=request.body if body is None else dict(body),
        deadline=request.deadline if deadline is None else deadline,
    )
    if state == rules.machine.initial and request.decision is not None:
        earlier = (*request.earlier, request.decision)
        fresh = replace(changed, revision=request.revision + 1, opened_at=at, decision=None, earlier=earlier, stage=0, votes=())
        return replace(fresh, body_before=None if body is None else request.body)
    if request.decision is None:
        is_default = event == request.deadline_event
        outcome = _EXPIRED if event == rules.on_default else str(state)
        approved = bool(request.default_approved) and is_default
        return replace(changed, decision=Decision(approved, by, at, feedback, outcome, request.votes), votes=())
    return changed


def _handed_over(request: Request, event: str, deadline: float | None) -> Request:
    if not request.has_next_stage:
        legal = request.machine.legal(request.state) - {event}
        raise IllegalTransition(request.machine.name, str(request.state), event, legal)
    return replace(request, stage=request.stage + 1, deadline=request.deadline if deadline is None else deadline)


_ANSWERED: Final = frozenset({"approved", "rejected", "answered"})
_EXPIRED: Final = "expired"


def _decision_on(request: Request, revision: int) -> Decision | None:
    if revision == request.revision:
        return request.decision
    if not 1 <= revision < request.revision:
        raise ValueError(f"request {request.id!r} has no revision {revision}: the newest is {request.revision}")
    return request.earlier[revision - 1]


def _decision_json(decision: Decision) -> dict[str, Any]:
    data = {item.name: getattr(decision, item.name) for item in fields(decision)}
    data["votes"] = [list(vote) for vote in decision.votes]
    return data


def _decision_from(data: Mapping[str, Any]) -> Decision:
    values: dict[str, Any] = dict(data)
    values["votes"] = tuple(Vote(*vote) for vote in values.get("votes", ()))
    return Decision(**values)
