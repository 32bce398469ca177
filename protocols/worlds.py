"""The worlds in which the protocols are explored: askers, answerers, the runtime, and everything that can go wrong between them.

The channel delays, repeats, reorders and drops: so an answer to any revision that was ever asked about may arrive at any time, any number
of times, or never, also from an answerer that has crashed since, and from somebody who was not asked. Who takes no step is down, and
fairness demands nothing of it. The asker and the runtime crash at any time, though not for ever, and forget what they had not stored;
deadlines pass at any time.
The tables and the functions that step them are the real ones; `RequestRules` and `ClaimRules` name them so that a test can put a broken one
in their place and see the exploration find it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from protocols.errors import ProtocolError
from protocols.explore import Action, World
from protocols.names import RequestId
from protocols.permission import PermissionEvent, PermissionState
from protocols.plan_approval import PlanEvent, PlanState
from protocols.request import Decision, Request, RequestKind, Stage, Vote, advance, answer
from protocols.shutdown import ShutdownEvent, ShutdownState
from protocols.task_status import TASK_STATUS, TaskEvent, TaskStatus

MAX_REVISIONS: Final = 2
MAX_ATTEMPTS: Final = 3
MAX_CRASHES: Final = 2
ASKER, STRANGER, RUNTIME_NAME = "asker", "stranger", "runtime"


class Answer(NamedTuple):
    """An answer on its way, or one that its sender was told is accepted."""

    by: str
    approved: bool
    revision: int


class Kept(NamedTuple):
    """What is stored of a request; the rest of it never changes."""

    state: str
    revision: int
    decision: Decision | None
    earlier: tuple[Decision, ...]
    stage: int
    votes: tuple[Vote, ...]


class RequestState(NamedTuple):
    """Everything that matters about one request, its parties and the mail between them."""

    stored: Kept | None = None
    asker_up: bool = True
    asker_knows: str = ""
    unstored: Answer | None = None  # taken by the runtime, and not yet on disk
    accepted: frozenset[Answer] = frozenset()  # whose sender was told so
    granted: bool = False  # the asker's process knows that it may begin the one call; a crash forgets it
    effects: int = 0
    running: bool = True  # the member that is asked to stop
    crashes: int = 0


def may_write(request: Request) -> bool:
    """Tell whether the subject of a plan or a permission may write: by the decision that is stored, and by nothing else."""
    may = PermissionState.used if request.kind is RequestKind.permission else PlanState.approved
    return request.decision is not None and request.decision.approved and request.state == may


def due_event(request: Request) -> StrEnum | None:
    """Return what happens when the deadline of a request passes."""
    return request.deadline_event


@dataclass(frozen=True, slots=True)
class RequestRules:
    """The real rules; a test replaces one to see that its loss is found."""

    answer: Callable[..., Request | None] = answer
    advance: Callable[..., Request] = advance
    due_event: Callable[[Request], StrEnum | None] = due_event
    may_write: Callable[[Request], bool] = may_write
    acknowledge_before_store: bool = False
    effect_before_use: bool = False


class RequestWorld(World[RequestState]):
    """One request of one kind, from the question to its outcome.

    Args:
        stages: the chain of those who are asked; one stage of two people, one of whom is enough, by default.
        default_approved: what counts when nobody decides.
    """

    def __init__(
        self,
        kind: RequestKind,
        *,
        stages: tuple[Stage, ...] = (Stage(("ann", "ben")),),
        default_approved: bool | None = None,
        rules: RequestRules | None = None,
        name: str = "",
    ) -> None:
        self._kind, self._stages, self._default, self._rules = kind, stages, default_approved, rules or RequestRules()
        self._name = name or kind.value
        self._people = tuple(dict.fromkeys(person for stage in stages for person in stage.answerers))
        self._subject = stages[0].answerers[0] if kind is RequestKind.shutdown else ASKER

    @property
    def name(self) -> str:
        """What reports call it: the kind of the request, unless it has a name of its own."""
        return self._name

    def initial(self) -> RequestState:
        """Return the state before anything was asked."""
        return RequestState()

    def is_outcome(self, state: RequestState) -> bool:
        """Tell whether the request is closed and the asker knows how; a member that stopped has really stopped."""
        request = self._request(state)
        return request is not None and request.is_closed and state.asker_knows == request.state

    # -- what can happen ----------------------------------------------------------

    def actions(self, state: RequestState) -> Iterator[tuple[Action, RequestState]]:
        """Yield what every party, the channel and the clock can do."""
        request = self._request(state)
        yield from self._of_asker(state, request)
        if request is None:
            return
        yield from self._of_runtime(state, request)
        if self._kind is RequestKind.shutdown:
            yield from self._of_member(state, request)

    def _of_asker(self, state: RequestState, request: Request | None) -> Iterator[tuple[Action, RequestState]]:
        if not state.asker_up:
            yield Action(ASKER, ASKER, "comes back", fair=True), state._replace(asker_up=True)
            return
        if request is None:
            opened = self._new()
            yield Action(ASKER, RUNTIME_NAME, "asks", fair=True), state._replace(stored=_kept(opened))
            return
        if state.crashes < MAX_CRASHES:
            crashed = state._replace(asker_up=False, asker_knows="", granted=False, crashes=state.crashes + 1)
            yield Action(ASKER, ASKER, "crashes"), crashed
        if request.is_closed and state.asker_knows != request.state:
            yield Action(RUNTIME_NAME, ASKER, f"it is {request.state}", fair=True), state._replace(asker_knows=str(request.state))
        yield from self._writes(state, request)
        for event in _ASKERS_EVENTS[self._kind]:
            if str(event) == PlanEvent.revise.value and request.revision >= MAX_REVISIONS:
                continue
            after = self._advanced(request, event)
            if after is not None:
                yield Action(ASKER, RUNTIME_NAME, event.value), state._replace(stored=_kept(after))

    def _writes(self, state: RequestState, request: Request) -> Iterator[tuple[Action, RequestState]]:
        """Let the asker write under its plan, or begin the one call that was allowed and run it."""
        if self._kind is RequestKind.plan_approval and not state.effects and self._rules.may_write(request):
            yield Action(ASKER, RUNTIME_NAME, "writes"), state._replace(effects=1)
        if self._kind is not RequestKind.permission:
            return
        effect = Action(ASKER, RUNTIME_NAME, "runs the tool", fair=True)
        if state.granted and self._rules.may_write(request):
            yield effect, state._replace(granted=False, effects=state.effects + 1)
        if self._rules.effect_before_use and request.state == PermissionState.approved and state.effects < MAX_CRASHES:
            yield effect, state._replace(effects=state.effects + 1)
        used = self._advanced(request, PermissionEvent.use)
        if used is not None:
            yield Action(ASKER, RUNTIME_NAME, "begins the call", fair=True), state._replace(stored=_kept(used), granted=True)

    def _of_runtime(self, state: RequestState, request: Request) -> Iterator[tuple[Action, RequestState]]:
        event = self._rules.due_event(request)
        after = None if event is None else self._advanced(request, event)
        if after is not None:
            yield Action(RUNTIME_NAME, RUNTIME_NAME, "the deadline passes", fair=True), state._replace(stored=_kept(after))
        gone = None if request.hand_over_event is None else self._advanced(request, request.hand_over_event)
        if gone is not None:
            yield Action(RUNTIME_NAME, RUNTIME_NAME, "asks the next: those who were asked are gone"), state._replace(stored=_kept(gone))
        if state.unstored is not None:
            if state.crashes < MAX_CRASHES:
                yield Action(RUNTIME_NAME, RUNTIME_NAME, "crashes"), state._replace(unstored=None, crashes=state.crashes + 1)
            yield Action(RUNTIME_NAME, RUNTIME_NAME, "stores", fair=True), self._stored(state, request, state.unstored)
            return
        for given in self._answers(request):
            taken = state._replace(unstored=given)
            if self._rules.acknowledge_before_store and self._answered(request, given) is not None:
                taken = taken._replace(accepted=taken.accepted | {given})
            yield Action(given.by, RUNTIME_NAME, f"{'yes' if given.approved else 'no'} to revision {given.revision}"), taken

    def _answers(self, request: Request) -> Iterator[Answer]:
        """Yield every answer that may be on its way by now."""
        for revision in range(1, request.revision + 1):
            for name in self._people:
                yield Answer(name, True, revision)
                yield Answer(name, False, revision)
            yield Answer(STRANGER, True, revision)

    def _of_member(self, state: RequestState, request: Request) -> Iterator[tuple[Action, RequestState]]:
        """Let the member that shall stop drain when it has approved, be killed when its time is over, and die at any time."""
        name = self._subject
        if not state.running:
            return
        drained = self._advanced(request, ShutdownEvent.drained)
        if drained is not None:
            yield Action(name, RUNTIME_NAME, "has drained"), state._replace(stored=_kept(drained))
        after = self._advanced(request, ShutdownEvent.exited)
        exits = state._replace(running=False, stored=state.stored if after is None else _kept(after))
        must = request.state in {ShutdownState.drained, ShutdownState.cancelling}
        yield Action(name, RUNTIME_NAME, "is killed" if must else "exits", fair=must), exits

    # -- what must hold -----------------------------------------------------------

    def wrong(self, state: RequestState) -> Iterator[str]:
        """Yield what must not be: a decision by somebody else, an accepted answer that is not stored, sides that disagree."""
        request = self._request(state)
        if request is None:
            return
        for decision in (*request.earlier, request.decision):
            if decision is not None and decision.outcome in _ANSWERED:
                asked = self._stages[request.stage : request.stage + 1] if decision is request.decision else self._stages
                yield from self._wrongly_decided(decision, asked)
        for given in state.accepted:
            if state.unstored != given and not _is_stored(request, given):
                yield "an answer that was accepted is stored"
        if state.effects > 1 and self._kind is RequestKind.permission:
            yield "what was allowed once happens once"
        if state.asker_knows and state.asker_knows != request.state:
            yield "both sides record the same outcome"
        if self._kind is RequestKind.shutdown and request.state in _STOPPED and state.running:
            yield "a member that is recorded as stopped does not run"

    def _wrongly_decided(self, decision: Decision, asked: Iterable[Stage]) -> Iterator[str]:
        cast = {(vote.stage, vote.by) for vote in decision.votes if vote.approved == decision.approved}
        for stage in asked:
            said = {by for at, by in cast if self._stages[at] == stage}
            needed = stage.quorum if decision.approved else len(stage.answerers) - stage.quorum + 1
            if decision.by in stage.answerers and (stage.quorum == 1 or (len(said) >= needed and said <= set(stage.answerers))):
                return
        yield "nobody but the named approver decides"

    def wrong_step(self, before: RequestState, after: RequestState) -> Iterator[str]:
        """Yield what must not happen: a decision that changes, an end that is left, a write that nobody approved."""
        old, new = self._request(before), self._request(after)
        if after.effects > before.effects and (old is None or old.decision is None or not old.decision.approved):
            yield "no write before an approval is recorded"
        if old is None or new is None:
            return
        if any(_decision_on(new, revision) != decision for revision, decision in _decisions(old)):
            yield "a decided request never changes"
        if old.is_closed and new.state != old.state:
            yield "an end is never left"

    # -- the real functions ---------------------------------------------------------

    def _new(self) -> Request:
        return Request(
            id=RequestId("r1"),
            kind=self._kind,
            asker=ASKER,
            answerers=(),
            subject=self._subject,
            opened_at=0.0,
            deadline=1.0,
            default_approved=self._default,
            stages=self._stages,
        )

    def _request(self, state: RequestState) -> Request | None:
        kept = state.stored
        if kept is None:
            return None
        return replace(self._new(), **kept._asdict())

    def _advanced(self, request: Request, event: StrEnum) -> Request | None:
        try:
            return self._rules.advance(request, event, at=0.0, by=ASKER)
        except (ProtocolError, ValueError):
            return None

    def _answered(self, request: Request, given: Answer) -> Request | None:
        try:
            return self._rules.answer(request, approved=given.approved, by=given.by, at=0.0, revision=given.revision) or request
        except (ProtocolError, ValueError):
            return None

    def _stored(self, state: RequestState, request: Request, given: Answer) -> RequestState:
        after = self._answered(request, given)
        if after is None:
            return state._replace(unstored=None)
        return state._replace(unstored=None, stored=_kept(after), accepted=state.accepted | {given})


_ANSWERED: Final = frozenset({"approved", "rejected", "answered"})
_STOPPED: Final = frozenset({ShutdownState.stopped, ShutdownState.stopped_forced})


def _askers_events() -> Mapping[RequestKind, tuple[StrEnum, ...]]:
    from protocols.question import QuestionEvent

    return MappingProxyType(
        {
            RequestKind.shutdown: (ShutdownEvent.force,),
            RequestKind.plan_approval: (PlanEvent.revise, PlanEvent.withdraw),
            RequestKind.permission: (PermissionEvent.withdraw,),
            RequestKind.question: (QuestionEvent.withdraw,),
        }
    )


_ASKERS_EVENTS: Final = _askers_events()


def _kept(request: Request) -> Kept:
    return Kept(str(request.state), request.revision, request.decision, request.earlier, request.stage, request.votes)


def _decisions(request: Request) -> Iterable[tuple[int, Decision]]:
    known = (*request.earlier, *((request.decision,) if request.decision is not None else ()))
    return enumerate(known, 1)


def _decision_on(request: Request, revision: int) -> Decision | None:
    return dict(_decisions(request)).get(revision)


def _is_stored(request: Request, given: Answer) -> bool:
    """Tell whether an answer is the decision on its revision, or one of the votes on it."""
    decision = _decision_on(request, given.revision)
    votes = decision.votes if decision is not None else request.votes if given.revision == request.revision else ()
    said = {(vote.by, vote.approved) for vote in votes}
    if decision is not None:
        said.add((decision.by, decision.approved))
    return (given.by, given.approved) in said


__all__ = [
    "WORLDS",
    "Answer",
    "ClaimRules",
    "ClaimState",
    "ClaimWorld",
    "RequestRules",
    "RequestState",
    "RequestWorld",
    "due_event",
    "may_write",
]


class ClaimState(NamedTuple):
    """One task, its workers, and the writes that are on their way."""

    status: str = TaskStatus.pending.value
    owner: str = ""
    fence: int = 0
    up: frozenset[str] = frozenset()
    holds: frozenset[tuple[str, int]] = frozenset()  # (worker, the fence that it was given)
    writes: frozenset[tuple[str, int]] = frozenset()
    crashes: int = 0
    done_by: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """What the runtime checks; a test leaves one out."""

    checks_fence: bool = True
    checks_status: bool = True
    expires: bool = True


class ClaimWorld(World[ClaimState]):
    """A task that several workers want, with a lease that can end at any time and a fence on every write."""

    def __init__(self, *, workers: tuple[str, ...] = ("ann", "ben"), rules: ClaimRules | None = None) -> None:
        self._workers, self._rules = workers, rules or ClaimRules()

    @property
    def name(self) -> str:
        """What reports call it."""
        return "claim"

    def initial(self) -> ClaimState:
        """Return the state in which nobody has the task."""
        return ClaimState(up=frozenset(self._workers))

    def is_outcome(self, state: ClaimState) -> bool:
        """Tell whether the task needs nobody's work any more."""
        return state.status in {TaskStatus.completed, TaskStatus.failed}

    def actions(self, state: ClaimState) -> Iterator[tuple[Action, ClaimState]]:
        """Yield what the workers, the channel and the clock can do."""
        for name in self._workers:
            if name not in state.up:
                yield Action(name, name, f"{name} comes back", fair=True), state._replace(up=state.up | {name})
                continue
            if state.crashes < MAX_CRASHES:
                crashed = state._replace(up=state.up - {name}, holds=_others(state.holds, name), crashes=state.crashes + 1)
                yield Action(name, name, "crashes"), crashed
            free = not self._rules.checks_status or TaskEvent.claim in TASK_STATUS.legal(TaskStatus(state.status))
            if free and state.fence < MAX_ATTEMPTS:
                yield Action(name, RUNTIME_NAME, "claims", fair=True), self._claimed(state, name)
            for holder, fence in state.holds:
                if holder == name:
                    sent = state._replace(writes=state.writes | {(name, fence)})
                    yield Action(name, "channel", f"completes under fence {fence}", fair=True), sent
        for name, fence in state.writes:
            yield Action(name, RUNTIME_NAME, f"done, fence {fence}", fair=True), self._completed(state, name, fence)
            yield Action(name, RUNTIME_NAME, "its write is lost"), state._replace(writes=state.writes - {(name, fence)})
        if self._rules.expires and state.status == TaskStatus.in_progress:
            event = TaskEvent.lease_expired if state.fence < MAX_ATTEMPTS else TaskEvent.fail
            after = TASK_STATUS.step(TaskStatus(state.status), event)
            yield Action(RUNTIME_NAME, RUNTIME_NAME, "the lease ends", fair=True), state._replace(status=after.value, owner="")

    def wrong(self, state: ClaimState) -> Iterator[str]:
        """Yield what must not be: an owner without work, a result under an old fence."""
        if (state.status == TaskStatus.in_progress) != bool(state.owner):
            yield "a task in progress has one owner, and no other task has"
        if state.done_by is not None and state.done_by[1] != state.fence:
            yield "a stale owner changes nothing"

    def wrong_step(self, before: ClaimState, after: ClaimState) -> Iterator[str]:
        """Yield what must not happen: an owner that is replaced while its lease lives, a result that changes."""
        if before.owner and after.owner and before.owner != after.owner:
            yield "a task has at most one live owner"
        if before.done_by is not None and after.done_by != before.done_by:
            yield "a result never changes"

    def _claimed(self, state: ClaimState, name: str) -> ClaimState:
        fence = state.fence + 1
        holds = _others(state.holds, name) | {(name, fence)}
        return state._replace(status=TaskStatus.in_progress.value, owner=name, fence=fence, holds=holds)

    def _completed(self, state: ClaimState, name: str, fence: int) -> ClaimState:
        rest = state._replace(writes=state.writes - {(name, fence)})
        if self._rules.checks_fence and (fence != state.fence or name != state.owner):
            return rest
        if TaskEvent.complete not in TASK_STATUS.legal(TaskStatus(state.status)):
            return rest
        after = TASK_STATUS.step(TaskStatus(state.status), TaskEvent.complete)
        return rest._replace(status=after.value, owner="", holds=_others(rest.holds, name), done_by=(name, fence))


def _others(holds: frozenset[tuple[str, int]], name: str) -> frozenset[tuple[str, int]]:
    return frozenset(held for held in holds if held[0] != name)


_QUORUM: Final = (Stage(("ann", "ben", "cem"), quorum=2),)
_CHAIN: Final = (Stage(("ann",)), Stage(("ben", "cem"), quorum=2), Stage(("dan",)))


def _worlds() -> Iterator[World[Any]]:
    for kind in RequestKind:
        yield RequestWorld(kind)
    yield RequestWorld(RequestKind.permission, stages=_QUORUM, name="permission-quorum")
    yield RequestWorld(RequestKind.plan_approval, stages=_CHAIN[::2], name="plan_approval-chain")
    yield RequestWorld(RequestKind.permission, stages=_CHAIN, default_approved=True, name="permission-chain")
    yield ClaimWorld()


WORLDS: Final[Mapping[str, World[Any]]] = MappingProxyType({world.name: world for world in _worlds()})
"""Every world, by name: one for each kind of request, some with a quorum or a chain, and the claim of a task."""
