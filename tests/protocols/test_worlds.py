"""The real protocols keep every promise in every state they can reach; each of many planted faults is found."""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any

import pytest

from protocols.errors import IllegalTransition, ProtocolError
from protocols.explore import explore
from protocols.plan_approval import PlanState
from protocols.request import Decision, Request, RequestKind, Stage, advance, answer
from protocols.shutdown import ShutdownEvent, ShutdownState
from protocols.worlds import WORLDS, ClaimRules, ClaimWorld, RequestRules, RequestWorld, may_write

NEVER_CHANGES = "a decided request never changes"
ONLY_APPROVERS = "nobody but the named approver decides"
NO_WRITE = "no write before an approval is recorded"
ENDS = "when deadlines pass an outcome comes"
ONCE = "what was allowed once happens once"
STORED = "an answer that was accepted is stored"


@pytest.mark.parametrize("name", WORLDS)
def test_the_real_tables_keep_every_promise(name: str) -> None:
    """No state that a protocol can reach breaks a promise, and every one of them ends."""
    report = explore(WORLDS[name])
    assert [str(violation) for violation in report.violations] == []
    assert report.states > 100
    assert report.outcomes > 10


def overwriting(request: Request, **given: Any) -> Request | None:
    """Answer as if nothing had been decided."""
    try:
        return answer(request, **given)
    except ProtocolError:
        given.pop("revision")
        fresh = replace(request, decision=None, state=request.machine.initial)
        return answer(fresh, **given)


def from_anybody(request: Request, **given: Any) -> Request | None:
    """Answer without looking at who does."""
    decided = answer(replace(request, answerers=(*request.answerers, str(given["by"])), stages=()), **given)
    return None if decided is None else replace(decided, stages=request.stages)


def of_any_revision(request: Request, **given: Any) -> Request | None:
    """Take an answer to an old plan for one to the newest."""
    given["revision"] = None
    return answer(request, **given)


def never_due(_request: Request) -> StrEnum | None:
    """Forget the deadline."""
    return None


def due_while_undecided(request: Request) -> StrEnum | None:
    """Forget the deadline of whatever was answered."""
    return request.deadline_event if request.decision is None else None


def late_expiry(request: Request, event: str, **given: Any) -> Request:
    """Let a deadline that passes later replace the decision."""
    after = advance(request, event, **given)
    if event == request.deadline_event and request.decision is not None:
        return replace(after, decision=Decision(False, "runtime", 0.0, "", str(after.state)))
    return after


def reopening(request: Request, event: str, **given: Any) -> Request:
    """Let a withdrawn plan be revised."""
    if request.state == PlanState.withdrawn and event == "revise":
        return replace(request, state=PlanState.submitted, decision=None, earlier=())
    return advance(request, event, **given)


def stopped_too_soon(request: Request, event: str, **given: Any) -> Request:
    """Record a member as stopped when it says that it has drained."""
    after = advance(request, event, **given)
    return replace(after, state=ShutdownState.stopped) if event == ShutdownEvent.drained else after


def never_exits(request: Request, event: str, **given: Any) -> Request:
    """Lose the exit of a member that was killed."""
    if request.state == ShutdownState.cancelling:
        raise IllegalTransition("shutdown", request.state, event, frozenset())
    return advance(request, event, **given)


def approving_by_default(request: Request, event: str, **given: Any) -> Request:
    """Count silence as a yes that somebody gave."""
    after = advance(request, event, **given)
    if event == "expire" and after.decision is not None:
        return replace(after, decision=replace(after.decision, approved=True, by="runtime", outcome="approved"))
    return after


def by_one_alone(request: Request, **given: Any) -> Request | None:
    """Let the first vote decide, whatever the quorum."""
    decided = answer(replace(request, stages=(), quorum=1), **given)
    return None if decided is None else replace(decided, stages=request.stages)


def of_all_stages(request: Request, **given: Any) -> Request | None:
    """Let everybody in the chain answer, also those who are asked later."""
    everybody = tuple(dict.fromkeys(name for stage in request.stages for name in stage.answerers))
    decided = answer(replace(request, stages=(), answerers=everybody, quorum=1), **given)
    return None if decided is None else replace(decided, stages=request.stages)


def deciding_nothing(request: Request, event: str, **given: Any) -> Request:
    """Hand over to nobody, for ever."""
    if event == "expire":
        return request
    return advance(request, event, **given)


def using_again(request: Request, event: str, **given: Any) -> Request:
    """Begin a call that has begun."""
    if event == "use" and request.state == "used":
        return request
    return advance(request, event, **given)


PLAN, SHUTDOWN, PERMISSION, QUESTION = RequestKind.plan_approval, RequestKind.shutdown, RequestKind.permission, RequestKind.question

MUTANTS: list[tuple[str, RequestKind, RequestRules, str]] = [
    ("a second decision is accepted", PLAN, RequestRules(answer=overwriting), NEVER_CHANGES),
    ("a second decision is accepted, of a permission", PERMISSION, RequestRules(answer=overwriting), NEVER_CHANGES),
    ("anybody may answer", PERMISSION, RequestRules(answer=from_anybody), ONLY_APPROVERS),
    ("anybody may answer a question", QUESTION, RequestRules(answer=from_anybody), ONLY_APPROVERS),
    ("an old answer counts for the new plan", PLAN, RequestRules(answer=of_any_revision), STORED),
    ("the deadline is forgotten", PLAN, RequestRules(due_event=never_due), ENDS),
    ("the deadline is forgotten, of a shutdown", SHUTDOWN, RequestRules(due_event=never_due), ENDS),
    ("a rejected plan waits for ever", PLAN, RequestRules(due_event=due_while_undecided), ENDS),
    ("an approved shutdown has no grace", SHUTDOWN, RequestRules(due_event=due_while_undecided), ENDS),
    ("acknowledged before it is stored", PLAN, RequestRules(acknowledge_before_store=True), STORED),
    ("writes pass while the plan waits", PLAN, RequestRules(may_write=lambda request: request.state == "submitted"), NO_WRITE),
    ("writes pass after any decision", PLAN, RequestRules(may_write=lambda request: request.decision is not None), NO_WRITE),
    ("a late deadline replaces the decision", SHUTDOWN, RequestRules(advance=late_expiry), NEVER_CHANGES),
    ("a withdrawn plan comes back", PLAN, RequestRules(advance=reopening), "an end is never left"),
    ("stopped is recorded too soon", SHUTDOWN, RequestRules(advance=stopped_too_soon), "a member that is recorded as stopped does not run"),
    ("the exit of a killed member is lost", SHUTDOWN, RequestRules(advance=never_exits), "from every state an outcome can be reached"),
    ("silence counts as an approval by the runtime", PERMISSION, RequestRules(advance=approving_by_default), ONLY_APPROVERS),
    ("the call begins before its use is stored", PERMISSION, RequestRules(effect_before_use=True), ONCE),
    ("a call that has begun begins again", PERMISSION, RequestRules(advance=using_again), ONCE),
    ("a deadline without a successor means nothing", PERMISSION, RequestRules(advance=deciding_nothing), ENDS),
]


@pytest.mark.parametrize(("kind", "rules", "promise"), [mutant[1:] for mutant in MUTANTS], ids=[mutant[0] for mutant in MUTANTS])
def test_a_broken_rule_is_found(kind: RequestKind, rules: RequestRules, promise: str) -> None:
    """Each planted fault breaks the promise that it should, by a path that can be shown."""
    found = {violation.promise: violation for violation in explore(RequestWorld(kind, rules=rules)).violations}
    assert promise in found
    assert found[promise].path
    assert found[promise].mermaid().startswith("sequenceDiagram\n    asker->>runtime: asks")


@pytest.mark.parametrize(
    ("stage", "rules"),
    [
        (Stage(("ann", "ben"), quorum=2), RequestRules(answer=by_one_alone)),
        (Stage(("ann",)), RequestRules(answer=of_all_stages)),
    ],
    ids=["one of two decides", "the last of the chain decides first"],
)
def test_a_broken_quorum_or_chain_is_found(stage: Stage, rules: RequestRules) -> None:
    """A vote that decides alone, and an answer of somebody whose turn has not come, break the promise of the named approver."""
    world = RequestWorld(PERMISSION, stages=(stage, Stage(("dan",))), rules=rules)
    assert ONLY_APPROVERS in {violation.promise for violation in explore(world).violations}


@pytest.mark.parametrize(
    ("rules", "promise"),
    [
        (ClaimRules(checks_fence=False), "a stale owner changes nothing"),
        (ClaimRules(checks_status=False), "a task has at most one live owner"),
        (ClaimRules(expires=False), ENDS),
    ],
    ids=["no fence", "no look at the status", "leases never end"],
)
def test_a_broken_claim_is_found(rules: ClaimRules, promise: str) -> None:
    """A claim without its fence, its guard or its lease breaks a promise."""
    assert promise in {violation.promise for violation in explore(ClaimWorld(rules=rules)).violations}


def test_the_gate_opens_for_an_approval_alone() -> None:
    """The rule for writes looks at the stored decision: an expired default or a rejection does not open it."""
    base = Request(id="r1", kind=PLAN, asker="ann", answerers=("ben",), subject="ann", opened_at=0.0)  # type: ignore[arg-type]
    decide: Callable[..., Request | None] = answer
    approved = decide(base, approved=True, by="ben", at=1.0)
    rejected = decide(base, approved=False, by="ben", at=1.0)
    assert approved is not None
    assert rejected is not None
    assert [may_write(request) for request in (base, approved, rejected, advance(base, "expire", at=2.0))] == [False, True, False, False]
