"""A request is decided once, by somebody who was asked; whoever comes later learns what was decided."""

import json
import re
from dataclasses import FrozenInstanceError
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from protocols import (
    RUNTIME,
    AlreadyDecided,
    Decision,
    IllegalTransition,
    NotTheAnswerer,
    Request,
    RequestId,
    RequestKind,
    advance,
    answer,
)
from protocols.request import Stage


def request(kind: RequestKind = RequestKind.plan_approval, **more: Any) -> Request:
    """Make a request of ann that lead or kim may answer."""
    return Request(id=RequestId("r1"), kind=kind, asker="ann", answerers=("lead", "kim"), subject="ann", opened_at=1.0, **more)


def approved(kind: RequestKind = RequestKind.plan_approval) -> Request:
    """Make a request that lead approved."""
    decided = answer(request(kind), approved=True, by="lead", at=2.0, feedback="fine")
    assert decided is not None
    return decided


@pytest.mark.parametrize(
    ("kind", "yes", "no"),
    [
        (RequestKind.shutdown, "approved", "rejected"),
        (RequestKind.plan_approval, "approved", "rejected"),
        (RequestKind.permission, "approved", "rejected"),
        (RequestKind.question, "answered", "rejected"),
    ],
)
def test_answer_decides(kind: RequestKind, yes: str, no: str) -> None:
    """An answer moves a request of any kind and records who decided what and when."""
    for approve, state in ((True, yes), (False, no)):
        before = request(kind)
        after = answer(before, approved=approve, by="kim", at=2.0, feedback="text")
        assert after is not None
        assert (before.is_undecided, after.is_undecided) == (True, False)
        assert after.state == state
        assert after.decision == Decision(approve, "kim", 2.0, "text", state)


def test_answer_from_a_stranger_is_refused() -> None:
    """Nobody but those who were asked can answer, not even the asker, and not after the decision either."""
    for stranger in ("eve", "ann", "", "Lead", "lead "):
        for target in (request(), approved()):
            with pytest.raises(NotTheAnswerer, match="was put to 'lead', 'kim'"):
                answer(target, approved=True, by=stranger, at=2.0)


def test_answer_repeated_changes_nothing() -> None:
    """The same answer of the same member is taken once, however often and however late it comes."""
    assert answer(approved(), approved=True, by="lead", at=99.0, feedback="fine") is None


@pytest.mark.parametrize(
    ("approve", "by", "feedback"), [(False, "lead", "fine"), (True, "kim", "fine"), (False, "kim", ""), (True, "lead", "but also")]
)
def test_answer_of_another_kind_is_already_decided(approve: bool, by: str, feedback: str) -> None:
    """Another decision, another member or other words are another answer, and the first one stands."""
    with pytest.raises(AlreadyDecided, match="it was approved by 'lead'") as caught:
        answer(approved(), approved=approve, by=by, at=3.0, feedback=feedback)
    assert (caught.value.decided, caught.value.by, caught.value.at) == ("approved", "lead", 2.0)
    assert caught.value.asked == ("approve" if approve else "reject")


def test_answer_after_the_deadline_is_already_decided() -> None:
    """An expired request counts as its default, and a late answer cannot turn it."""
    for default, counts_as in ((True, True), (False, False), (None, False)):
        expired = advance(request(default_approved=default, deadline=5.0), "expire", at=5.0)
        assert expired.decision == Decision(counts_as, RUNTIME, 5.0, "", "expired")
        with pytest.raises(AlreadyDecided, match=r"it was expired by '\(runtime\)'"):
            answer(expired, approved=True, by="lead", at=6.0)


def test_withdrawn_and_forced_requests_are_never_approved() -> None:
    """What ends a request without an answer and without its deadline does not count as approved, whatever the default."""
    withdrawn = advance(request(default_approved=True), "withdraw", at=2.0, by="ann", feedback="found a better way")
    assert withdrawn.decision == Decision(False, "ann", 2.0, "found a better way", "withdrawn")
    forced = advance(request(RequestKind.shutdown, default_approved=True), "force", at=2.0, by="user")
    assert forced.decision == Decision(False, "user", 2.0, "", "cancelling")
    stopped = advance(forced, "exited", at=3.0)
    with pytest.raises(AlreadyDecided, match="it was cancelling by 'user'"):
        answer(stopped, approved=False, by="lead", at=4.0)


def test_withdrawal_by_an_answerer_is_not_its_rejection() -> None:
    """A request that one of the asked took off the table was withdrawn; the same member's rejection afterwards is another answer."""
    withdrawn = advance(request(), "withdraw", at=2.0, by="lead")
    with pytest.raises(AlreadyDecided, match="it was withdrawn by 'lead'"):
        answer(withdrawn, approved=False, by="lead", at=3.0)


def test_an_answer_cannot_be_smuggled_in_as_an_event() -> None:
    """Approval and rejection exist only through `answer`, which checks who gives them."""
    for kind, events in {RequestKind.shutdown: ("approve", "reject"), RequestKind.question: ("answer", "reject")}.items():
        for event in events:
            with pytest.raises(ValueError, match="is an answer"):
                advance(request(kind), event, at=2.0, by="lead")


def test_nobody_decides_their_own_plan_or_permission() -> None:
    """The asker of a plan or a permission cannot be among those who decide it; a member may be asked about its own shutdown."""
    for kind in (RequestKind.plan_approval, RequestKind.permission):
        with pytest.raises(ValueError, match="cannot be asked to decide its own"):
            Request(id=RequestId("r"), kind=kind, asker="ann", answerers=("lead", "ann"), subject="ann", opened_at=1.0)
    Request(id=RequestId("r"), kind=RequestKind.shutdown, asker="ann", answerers=("ann",), subject="ann", opened_at=1.0)


def test_revision_is_decided_anew_and_old_answers_do_not_reach_it() -> None:
    """A repeated or late answer to an old revision is judged by the old decision and never by the new state."""
    rejected = answer(request(), approved=False, by="lead", at=2.0, feedback="smaller")
    assert rejected is not None
    assert not rejected.is_closed
    revised = advance(rejected, "revise", at=3.0, by="ann", body={"summary": "less"}, deadline=30.0)
    assert (revised.revision, revised.state, revised.opened_at, revised.deadline) == (2, "submitted", 3.0, 30.0)
    assert (revised.decision, revised.earlier, revised.body) == (None, (rejected.decision,), {"summary": "less"})
    assert answer(revised, approved=False, by="lead", at=4.0, feedback="smaller", revision=1) is None
    with pytest.raises(AlreadyDecided, match="it was rejected by 'lead'"):
        answer(revised, approved=True, by="lead", at=4.0, revision=1)
    for unknown in (0, 3, -1):
        with pytest.raises(ValueError, match=f"no revision {unknown}: the newest is 2"):
            answer(revised, approved=True, by="lead", at=4.0, revision=unknown)
    final = answer(revised, approved=True, by="kim", at=5.0, revision=2)
    assert final is not None
    assert final.is_closed
    assert final.decision == Decision(True, "kim", 5.0, "", "approved")


def test_deadline_event_is_always_legal() -> None:
    """What is due at a deadline can happen in that state, and every state in which somebody else must act has such an event."""
    silent = {
        RequestKind.shutdown: {"cancelling"},  # the process group was killed: only its exit is left
        RequestKind.plan_approval: set[str](),
        RequestKind.permission: {"approved"},  # only the member's own runtime begins the call, or ends
        RequestKind.question: set[str](),
    }
    for kind in RequestKind:
        machine = request(kind).machine
        for state in machine.states:
            event = request(kind, state=state).deadline_event
            assert (event is None) == (machine.is_final(state) or state in silent[kind]), (kind, state)
            assert event is None or event in machine.legal(state)


def test_deadline_stays_unless_another_one_is_given() -> None:
    """No step takes the deadline away, so that no request is left without an end."""
    asked = request(RequestKind.shutdown, deadline=9.0)
    kept = answer(asked, approved=True, by="lead", at=2.0)
    moved = answer(asked, approved=True, by="lead", at=2.0, deadline=20.0)
    assert kept is not None
    assert moved is not None
    assert (kept.deadline, moved.deadline) == (9.0, 20.0)
    assert advance(kept, "drained", at=3.0).deadline == 9.0
    assert advance(kept, "drained", at=3.0, deadline=11.0).deadline == 11.0


def test_request_round_trips_as_json() -> None:
    """A request survives a journal with all of its history, and comes back with the members of its enums."""
    rejected = answer(request(body={"steps": ["a"]}), approved=False, by="lead", at=2.0, feedback="no")
    assert rejected is not None
    for original in (request(), approved(), rejected, advance(rejected, "revise", at=3.0)):
        copy = Request.from_json(json.loads(json.dumps(original.to_json())))
        assert copy == original
        assert (type(copy.state), type(copy.kind)) == (type(original.state), RequestKind)


def test_request_refuses_what_is_not_of_its_kind() -> None:
    """An unknown kind, a state of another machine and an unknown field are refused, and nothing in a request can be set."""
    good = request().to_json()
    for bad in ({"kind": "wish"}, {"state": "asked"}, {"colour": "red"}):
        with pytest.raises((ValueError, TypeError, KeyError)):
            Request.from_json({**good, **bad})
    with pytest.raises(FrozenInstanceError):
        request().state = "approved"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue] -- the refusal is tested


MEMBERS = st.sampled_from(["lead", "kim", "ann", "eve", "(runtime)"])
EVENTS = st.sampled_from(
    ["approve", "reject", "answer", "revise", "withdraw", "expire", "drained", "grace_over", "force", "exited", "nonsense"]
)


class RequestLife(RuleBasedStateMachine):
    """Any order of answers and events, right and wrong ones, against a memory of what was decided first."""

    now = 1.0
    current: Request
    first: dict[int, tuple[str, bool, str]]

    @initialize(kind=st.sampled_from(list(RequestKind)), default=st.sampled_from([None, True, False]))
    def begin(self, kind: RequestKind, default: bool | None) -> None:
        """Open a request."""
        self.current, self.first = request(kind, default_approved=default), {}

    @rule(by=MEMBERS, approve=st.booleans(), feedback=st.sampled_from(["", "why"]), back=st.sampled_from([None, 0, 1]))
    def give_answer(self, by: str, approve: bool, feedback: str, back: int | None) -> None:
        """Answer the present revision, or the one before it."""
        self.now += 1
        before, revision = self.current, None if back is None else self.current.revision - back
        judged = before.revision if revision is None else revision
        known = self.first.get(judged)
        attempt = partial(answer, before, approved=approve, by=by, at=self.now, feedback=feedback, revision=revision)
        if by not in ("lead", "kim"):
            with pytest.raises(NotTheAnswerer):
                attempt()
        elif judged == 0:
            with pytest.raises(ValueError, match="no revision 0"):
                attempt()
        elif known == (by, approve, feedback):
            assert attempt() is None
        elif known is not None:
            with pytest.raises(AlreadyDecided, match=re.escape(f"by {known[0]!r}")):
                attempt()
        else:
            after = attempt()
            assert after is not None
            self.first[judged] = (by, approve, feedback)
            self.current = after

    @rule(event=EVENTS, by=MEMBERS)
    def happen(self, event: str, by: str) -> None:
        """Let something other than an answer happen, or try to."""
        self.now += 1
        before = self.current
        attempt = partial(advance, before, event, at=self.now, by=by)
        if event in ("reject", "answer" if before.kind is RequestKind.question else "approve"):
            with pytest.raises(ValueError, match="is an answer"):
                attempt()
            return
        if event not in before.machine.legal(before.state):
            with pytest.raises(IllegalTransition):
                attempt()
            return
        after = attempt()
        assert not before.is_closed
        if before.decision is None:
            assert after.decision is not None
            assert not after.decision.approved or (event == "expire" and before.default_approved)
            self.first[before.revision] = (by, after.decision.approved, "not an answer")
        self.current = after

    @invariant()
    def decided_once(self) -> None:
        """What was decided first on a revision is what the request still says."""
        decisions = (*self.current.earlier, *([self.current.decision] if self.current.decision else []))
        assert len(self.current.earlier) == self.current.revision - 1
        assert {number: (item.by, item.approved) for number, item in enumerate(decisions, start=1)} == {
            number: first[:2] for number, first in self.first.items()
        }

    @invariant()
    def approved_only_by_the_asked(self) -> None:
        """A request is in its approved state only when somebody who was asked approved it."""
        if self.current.state in ("approved", "answered", "drained"):
            assert self.current.decision is not None
            assert self.current.decision.approved
            assert self.current.decision.by in ("lead", "kim")


TestRequestLife = RequestLife.TestCase
TestRequestLife.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)


CHAIN = (Stage(("lead",)), Stage(("kim", "bo", "cy"), quorum=2))


def test_two_of_three_decide() -> None:
    """One vote leaves a request open, the second decides with all votes kept; a voter cannot say something else, a repeat is nothing."""
    asked = Request(
        id=RequestId("r1"), kind=RequestKind.permission, asker="ann", answerers=(), subject="c1", opened_at=1.0, stages=CHAIN[1:]
    )
    one = answer(asked, approved=True, by="kim", at=2.0, feedback="go")
    assert one is not None
    assert (one.is_undecided, one.state) == (True, "asked")
    assert answer(one, approved=True, by="kim", at=3.0, feedback="go") is None
    with pytest.raises(AlreadyDecided, match="cannot reject request 'r1': it was approved by 'kim'"):
        answer(one, approved=False, by="kim", at=3.0)
    mixed = answer(one, approved=False, by="bo", at=3.0)
    assert mixed is not None
    assert mixed.is_undecided
    yes, no = (answer(mixed, approved=approved, by="cy", at=4.0) for approved in (True, False))
    assert yes is not None
    assert no is not None
    assert (yes.state, no.state) == ("approved", "rejected")
    assert yes.decision is not None
    assert [(vote.by, vote.approved) for vote in yes.decision.votes] == [("kim", True), ("bo", False), ("cy", True)]
    assert answer(yes, approved=True, by="kim", at=5.0, feedback="go") is None
    with pytest.raises(AlreadyDecided):
        answer(yes, approved=False, by="kim", at=5.0)
    assert Request.from_json(json.loads(json.dumps(yes.to_json()))) == yes


def test_who_does_not_decide_hands_over_to_the_next() -> None:
    """At a deadline the next stage is asked, and only it may answer; the last one's silence is the default; a revision begins anew."""
    asked = Request(
        id=RequestId("r1"), kind=RequestKind.plan_approval, asker="ann", answerers=(), subject="ann", opened_at=1.0, stages=CHAIN
    )
    assert (asked.answerers, asked.deadline_event) == (("lead",), "hand_over")
    with pytest.raises(NotTheAnswerer):
        answer(asked, approved=True, by="kim", at=2.0)
    later = advance(asked, "hand_over", at=2.0, deadline=9.0)
    assert (later.answerers, later.quorum, later.deadline, later.deadline_event) == (("kim", "bo", "cy"), 2, 9.0, "expire")
    with pytest.raises(NotTheAnswerer):
        answer(later, approved=True, by="lead", at=3.0)
    with pytest.raises(IllegalTransition, match="legal now: approve, expire"):
        advance(later, "hand_over", at=3.0)
    for name in ("kim", "bo"):
        later = answer(later, approved=False, by=name, at=4.0, feedback="no") or later
    assert later.state == "rejected"
    assert advance(later, "revise", at=5.0, body={}).answerers == ("lead",)


def test_a_permission_that_nobody_decides_counts_as_its_default() -> None:
    """Where the default is yes the deadline allows, which is no approval of anybody; what is allowed is used once."""
    asked = request(RequestKind.permission, default_approved=True)
    assert asked.deadline_event == "allow"
    allowed = advance(asked, "allow", at=2.0)
    assert allowed.decision == Decision(True, "(runtime)", 2.0, "", "expired")
    used = advance(allowed, "use", at=3.0)
    assert (used.is_closed, used.decision) == (True, allowed.decision)
    with pytest.raises(IllegalTransition):
        advance(used, "use", at=4.0)


@pytest.mark.parametrize("quorum", [0, 4])
def test_a_quorum_that_cannot_be_is_refused(quorum: int) -> None:
    """Nobody can be asked for more answers than there are people, or for none."""
    with pytest.raises(ValueError, match="of 3 approvers cannot decide"):
        request(stages=(Stage(("kim", "bo", "cy"), quorum),))
