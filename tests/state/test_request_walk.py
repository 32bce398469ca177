"""Random plans and shutdowns of members that work, idle, end and come back, against a model of them that is written from the prose."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, note

from protocols.errors import AlreadyDecided, IllegalTransition, NotTheAnswerer
from protocols.lifecycle import MemberEvent, MemberStatus
from protocols.request import Request, RequestKind
from teams.errors import MemberStateError, UsageError
from teams.state.plan_commands import SubmitPlan
from teams.state.request_commands import AdvanceRequest, AnswerRequest, ExpireRequests, RequestShutdown
from teams.state.roster import KEPT_REJECTIONS, Member
from teams.state.roster_commands import EndTurn, StartTurn
from tests.state.driving import Choices, Desk, walk_settings, walks

SPECS = {"ann": True, "ben": None, "cat": False}  # what counts when nobody decides a plan
REVISIONS = 3
ANSWERERS = ["boss", "user", "ann", "ben"]
FEEDBACK = ["", "why"]
ANSWER_SECONDS, PLAN_SECONDS, GRACE_SECONDS = 5.0, 100.0, 7.0


@dataclass
class Plan:
    """The newest plan of one member."""

    id: str = ""
    state: str = "none"  # none | submitted | rejected | approved | closed
    revision: int = 1


class RequestWalk:
    """Every command of requests."""

    def __init__(self, data: bytes) -> None:
        self.choices = Choices(data)
        self.desk = Desk()
        self.desk.join("boss", kind="lead")
        self.desk.join("user", kind="person")
        self.plans = {name: Plan() for name in SPECS}
        self.gates: dict[str, str | None] = dict.fromkeys(SPECS)
        self.rejections: dict[str, list[str]] = {name: [] for name in SPECS}  # of shutdowns, in this life
        self.closed: dict[str, Request] = {}
        self.expected_mail = 0
        for name in SPECS:
            self.come(name)

    def run(self) -> None:
        """Take every step, and look at the laws after each."""
        steps: list[Callable[[], None]] = [
            *(self.submit, self.submit, self.submit, self.answer_plan, self.answer_plan, self.answer_plan, self.turn, self.turn),
            *(self.ask_shutdown, self.answer_shutdown, self.drained, self.pass_time, self.leave_or_return),
        ]
        while self.choices.left:
            step = self.choices.pick(steps)
            note(f"{step.__name__} ({self.desk.state.seq} records)")
            step()
            self.check()
        self.desk.check_folds()

    def come(self, name: str) -> None:
        self.desk.join(name, plan_required=True, approvers=("boss", "user"), max_revisions=REVISIONS)

    def some_member(self) -> Member:
        return self.desk.state.roster.members[self.choices.pick(sorted(SPECS))]

    # -- plans -------------------------------------------------------------------

    def submit(self) -> None:
        member = self.some_member()
        plan = self.plans[member.name]
        default = SPECS[member.name]
        command = SubmitPlan(member.name, member.incarnation, {"summary": "s"}, PLAN_SECONDS, default)
        error: type[Exception] | None = None
        if plan.state == "submitted" or (plan.state == "rejected" and plan.revision >= REVISIONS):
            error = UsageError
        elif member.status not in (MemberStatus.idle, MemberStatus.working, MemberStatus.awaiting_plan_approval):
            error = MemberStateError
        if error is not None:
            with pytest.raises(error):
                self.desk.do(command)
            return
        request = self.desk.do(command)
        if plan.state == "rejected":
            assert (request.id, request.revision) == (plan.id, plan.revision + 1)
        else:
            assert request.revision == 1
            assert request.id != plan.id
        self.plans[member.name] = Plan(request.id, "submitted", request.revision)
        self.gates[member.name] = None
        assert request.deadline == self.desk.now + PLAN_SECONDS
        self.expected_mail += 1  # to the lead, who is an agent; the person sees requests herself
        assert self.desk.state.roster.members[member.name].status is MemberStatus.awaiting_plan_approval

    def answer_plan(self) -> None:
        name = self.choices.pick(sorted(SPECS))
        plan, by = self.plans[name], self.choices.pick(["boss", "boss", *ANSWERERS])
        if plan.state == "none":
            return
        approved, feedback = self.choices.pick([False, False, True]), self.choices.pick(FEEDBACK)
        command = AnswerRequest(plan.id, by, approved, feedback)
        before = self.desk.state.requests.get(plan.id)
        if by not in ("boss", "user"):
            with pytest.raises(NotTheAnswerer):
                self.desk.do(command)
        elif plan.state != "submitted":
            self.answer_again(command, before)
        else:
            self.desk.do(command)
            plan.state = "approved" if approved else "rejected"
            self.gates[name] = plan.id if approved else None
            self.expected_mail += 1

    def answer_again(self, command: AnswerRequest, before: Request) -> None:
        """The same answer by the same member changes nothing; any other says what was decided."""
        decision, seq = before.decision, self.desk.state.seq
        assert decision is not None
        same = (decision.by, decision.approved, decision.feedback) == (command.by, command.approved, command.feedback)
        if same:
            assert self.desk.do(command) == before
            assert self.desk.state.seq == seq
        else:
            with pytest.raises(AlreadyDecided) as refused:
                self.desk.do(command)
            assert (refused.value.by, refused.value.decided) == (decision.by, decision.outcome)

    # -- shutdowns ---------------------------------------------------------------

    def shutdown_of(self, member: Member) -> Request | None:
        return None if member.shutdown_request is None else self.desk.state.requests.get(member.shutdown_request)

    def ask_shutdown(self) -> None:
        member, force = self.some_member(), self.choices.pick([False, False, True])
        before, busy = self.shutdown_of(member), member.status in (MemberStatus.working, MemberStatus.awaiting_plan_approval)
        after = self.desk.do(RequestShutdown(member.name, "boss", ANSWER_SECONDS, "enough", force))
        if not member.live:
            assert after is None
            return
        assert after is not None
        assert before is None or before.id == after.id
        assert after.state == ("cancelling" if force else before.state if before is not None else "requested")
        if before is None:
            assert after.body.get("rejected_before", []) == self.rejections[member.name]
        self.expected_mail += before is None and not force and busy

    def answer_shutdown(self) -> None:
        member, by = self.some_member(), self.choices.pick(["", "", "", "boss"])
        approved, feedback = self.choices.pick([True, False]), self.choices.pick(FEEDBACK)
        request = self.shutdown_of(member)
        if request is None:
            return
        command = AnswerRequest(request.id, by or member.name, approved, feedback, grace_seconds=GRACE_SECONDS)
        if by:
            with pytest.raises(NotTheAnswerer):
                self.desk.do(command)
        elif not request.is_undecided:
            self.answer_again(command, request)
        else:
            after = self.desk.do(command)
            assert after.state == ("approved" if approved else "rejected")
            assert not approved or after.deadline == self.desk.now + GRACE_SECONDS
            self.expected_mail += 1
            if not approved:
                self.rejections[member.name] = [*self.rejections[member.name], feedback][-KEPT_REJECTIONS:]

    def drained(self) -> None:
        request = self.shutdown_of(self.some_member())
        if request is None:
            return
        command = AdvanceRequest(request.id, "drained")
        if request.state == "approved":
            assert self.desk.do(command).state == "drained"
        else:
            with pytest.raises(IllegalTransition):
                self.desk.do(command)

    # -- time and people -----------------------------------------------------------

    def turn(self) -> None:
        """Let a member begin or end a turn."""
        member = self.some_member()
        start = self.choices.pick([True, False])
        command = StartTurn(member.name, member.incarnation) if start else EndTurn(member.name, member.incarnation, (1, 1, 0, 0, 1))
        may_start = member.status in (MemberStatus.idle, MemberStatus.working, MemberStatus.awaiting_plan_approval)
        if start and not may_start:
            with pytest.raises(MemberStateError):
                self.desk.do(command)
            return
        self.desk.do(command)
        if not start and member.status is MemberStatus.working:
            waits = self.plans[member.name].state == "submitted"
            expected = MemberStatus.awaiting_plan_approval if waits else MemberStatus.idle
            assert self.desk.state.roster.members[member.name].status is expected

    def pass_time(self) -> None:
        self.desk.now += self.choices.pick([1.0, 6.0, 101.0])
        due = {request.id: request for request in self.desk.state.requests.open() if (request.deadline or 0.0) <= self.desk.now}
        changed = {request.id: request for request in self.desk.do(ExpireRequests())}
        assert set(changed) == {request_id for request_id, request in due.items() if request.deadline_event is not None}
        for name, plan in self.plans.items():
            if plan.id in changed:
                if plan.state == "submitted":  # nobody answered: the owner's default counts, and only that can open the gate
                    self.gates[name] = plan.id if SPECS[name] else None
                    self.expected_mail += 1
                plan.state = "closed"
        for request in changed.values():
            assert request.kind is RequestKind.plan_approval or request.state == "cancelling"
        assert self.desk.state.requests.due(self.desk.now) == ()

    def leave_or_return(self) -> None:
        member = self.some_member()
        if not member.live:
            self.come(member.name)
            return
        shutdown, plan = self.shutdown_of(member), self.plans[member.name]
        self.desk.leave(member.name, self.choices.pick([MemberEvent.exited, MemberEvent.crashed, MemberEvent.lost]))
        if shutdown is not None:
            self.rejections[member.name] = []
            forced = shutdown.state == "cancelling"
            assert self.desk.state.requests.get(shutdown.id).state == ("stopped_forced" if forced else "stopped")
        if plan.state in ("submitted", "rejected"):
            assert self.desk.state.requests.get(plan.id).state == "withdrawn"
            plan.state = "closed"

    # -- what always holds -------------------------------------------------------------

    def check(self) -> None:
        state = self.desk.state
        open_ids = {request.id for request in state.requests.open()}
        for name, plan in self.plans.items():
            member = state.roster.members[name]
            assert member.approved_plan == self.gates[name], "the gate is open exactly while an approval stands"
            assert member.plan_request == (plan.id if plan.state in ("submitted", "rejected") else None)
            assert (member.status is not MemberStatus.awaiting_plan_approval) or plan.state == "submitted"
            assert {member.plan_request, member.shutdown_request} - {None} == {request.id for request in state.requests.open(subject=name)}
            assert member.live or not state.requests.open(subject=name), "a member that has ended owes no answer"
        for request in state.requests.open():
            assert request.deadline_event is None or request.deadline is not None, "every request that waits has a deadline"
            assert request.deadline_event is not None or request.state == "cancelling"
        for request_id, before in self.closed.items():
            assert request_id not in open_ids
            assert state.requests.get(request_id) == before, "what is closed stays as it was"
        for number in range(1, state.requests_opened + 1):
            request = state.requests.get(f"r{number}")
            assert len(request.earlier) == request.revision - 1
            if request.is_closed:
                assert request.decision is not None
                self.closed.setdefault(request.id, request)
        assert state.mail.sent == self.expected_mail, "each request and each answer is told once"


@walk_settings(max_examples=25)
@given(walks)
def test_every_request_comes_to_its_one_outcome(data: bytes) -> None:
    """Whatever the order of plans, answers, deadlines and ends: one decision per revision, no gate without approval, nothing left."""
    RequestWalk(data).run()
