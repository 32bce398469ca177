"""Commands about requests: plans, shutdowns, and whatever else waits for somebody's answer.

Laws: every request has a deadline; every step is stepped by the tables of `protocols`, here and at every replay; the step, what it means
for the member and the mail about it are one transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from protocols.lifecycle import MemberEvent, MemberStatus
from protocols.names import RUNTIME, RequestId
from protocols.plan_approval import PlanEvent
from protocols.request import Request, RequestKind, advance, answer
from protocols.shutdown import ShutdownEvent, ShutdownState
from teams.errors import UsageError
from teams.state.decision import Draft
from teams.state.requests import opened_fields
from teams.state.roster import Member, step_member

FEEDBACK_LIMIT = 20_000


@dataclass(slots=True)
class SubmitPlan:
    """Ask for the approval of a plan, or revise the rejected one; the answer is the request.

    `deadline_seconds` is the time for an answer; `default_approved` is what counts when nobody answers (None: not approved).
    """

    name: str
    incarnation: int
    plan: Mapping[str, Any]
    text: str
    deadline_seconds: float
    default_approved: bool | None = None

    def decide(self, draft: Draft) -> Request:
        """Refuse a plan while one waits for its decision, without an approver, and after too many revisions."""
        member = draft.state.roster.check_incarnation(self.name, self.incarnation)
        if not member.spec.approvers:
            raise UsageError(f"cannot submit a plan: nobody is named to approve the plans of {self.name!r}; spawn it with approvers")
        deadline = draft.now + self.deadline_seconds
        if member.plan_request is not None:
            request = self._revise(draft, member, deadline)
        else:
            request = Request(
                id=RequestId(draft.next_request_id()),
                kind=RequestKind.plan_approval,
                asker=self.name,
                answerers=member.spec.approvers,
                subject=self.name,
                body=dict(self.plan),
                opened_at=draft.now,
                deadline=deadline,
                default_approved=self.default_approved,
            )
            draft.add("request.opened", opened_fields(request))
        extra = {"revision": request.revision}
        for approver in member.spec.approvers:
            draft.tell(approver, "plan_approval_request", f"Plan of {self.name}:\n{self.text}", request_id=request.id, extra=extra)
        if member.status is not MemberStatus.awaiting_plan_approval:
            status = step_member(member, MemberEvent.plan_submitted)
            draft.add("member.status", {"name": self.name, "status": status, "incarnation": member.incarnation})
        return request

    def _revise(self, draft: Draft, member: Member, deadline: float) -> Request:
        assert member.plan_request is not None
        before = draft.state.requests.get(member.plan_request)
        if before.is_undecided:
            raise UsageError(
                f"cannot submit a plan: plan {before.id} (revision {before.revision}) still waits for {' or '.join(before.answerers)}"
            )
        if before.revision >= member.spec.max_revisions:
            raise UsageError(
                f"cannot submit a plan: plan {before.id} was rejected in {before.revision} revisions, "
                f"and {member.spec.max_revisions} are allowed; report to your approver instead"
            )
        request = advance(before, PlanEvent.revise, at=draft.now, by=self.name, body=self.plan, deadline=deadline)
        fields = _advanced_fields(before, PlanEvent.revise, request, draft.now, by=self.name)
        draft.add("request.advanced", {**fields, "body": dict(self.plan)})
        return request


@dataclass(slots=True)
class AnswerRequest:
    """Decide a request; the answer is the request after it. Repeating the same answer changes nothing."""

    request_id: str
    by: str
    approved: bool
    feedback: str = ""
    revision: int | None = None
    grace_seconds: float = 0.0
    body_limit: int = field(default=FEEDBACK_LIMIT)

    def decide(self, draft: Draft) -> Request:
        """Refuse who was not asked, an unknown request, and another answer than the one given before."""
        before = draft.state.requests.get(self.request_id)
        if self.by not in draft.state.roster.members:
            draft.state.roster.get(self.by, operation="answer as")
        feedback = self.feedback[: self.body_limit]
        deadline = draft.now + self.grace_seconds if before.kind is RequestKind.shutdown else self._revision_deadline(before, draft.now)
        after = answer(
            before, approved=self.approved, by=self.by, at=draft.now, feedback=feedback, revision=self.revision, deadline=deadline
        )
        if after is None:
            return before
        fields = {"id": before.id, "state": str(after.state), "by": self.by, "time": draft.now, "approved": self.approved}
        draft.add("request.advanced", {**fields, "feedback": feedback, "deadline": deadline})
        _follow(draft, after)
        return after

    def _revision_deadline(self, before: Request, now: float) -> float | None:
        # A rejected plan may be revised for as long as the first answer could have taken.
        return None if before.deadline is None else now + max(before.deadline - before.opened_at, 60.0)


@dataclass(slots=True)
class RequestShutdown:
    """Ask a member to stop; the answer is the request, or None when it does not run any more.

    An open request is returned again; with `force`, it goes straight to cancelling, and a new one begins there. What the member rejected
    since it last stopped stands in the request's body as `rejected_before`, the reasons in their order.
    """

    name: str
    by: str
    answer_seconds: float
    reason: str = ""
    force: bool = False

    def decide(self, draft: Draft) -> Request | None:
        """Refuse unknown members."""
        member = draft.state.roster.get(self.name, operation="shut down")
        if self.by != RUNTIME:
            draft.state.roster.get(self.by, operation="ask for a shutdown as")
        if not member.live:
            return None
        if member.shutdown_request is not None:
            request = draft.state.requests.get(member.shutdown_request)
            return _force(draft, request, self.by) if self.force and request.state != ShutdownState.cancelling else request
        before = draft.state.roster.rejections.get(self.name, ())
        request = Request(
            id=RequestId(draft.next_request_id()),
            kind=RequestKind.shutdown,
            asker=self.by,
            answerers=(self.name,),
            subject=self.name,
            body={"reason": self.reason, "force": self.force, **({"rejected_before": list(before)} if before else {})},
            opened_at=draft.now,
            deadline=draft.now + self.answer_seconds,
        )
        draft.add("request.opened", opened_fields(request))
        if self.force:
            return _force(draft, request, self.by)
        if member.status in (MemberStatus.working, MemberStatus.awaiting_plan_approval) or member.name in draft.state.tasks.owned:
            text = f"{self.by} asks you {'again ' if before else ''}to shut down."
            extra: dict[str, Any] = {"reason": self.reason, "force": self.force}
            if before:
                extra["rejected_before"] = describe_rejections(before)
            draft.tell(self.name, "shutdown_request", text, request_id=request.id, extra=extra)
        return request


def describe_rejections(reasons: Sequence[str]) -> str:
    """Say how often somebody rejected to stop, and why the last time."""
    times = "once" if len(reasons) == 1 else f"{len(reasons)} times, the last time"
    return f"{times} because: {reasons[-1] or 'no reason was given'}"


@dataclass(slots=True)
class AdvanceRequest:
    """Let an event that is nobody's answer happen to a request; the answer is the request after it."""

    request_id: str
    event: str
    by: str = RUNTIME
    grace_seconds: float | None = None

    def decide(self, draft: Draft) -> Request:
        """Refuse what the request's table forbids."""
        before = draft.state.requests.get(self.request_id)
        deadline = None if self.grace_seconds is None else draft.now + self.grace_seconds
        return _advance(draft, before, self.event, by=self.by, deadline=deadline)


@dataclass(slots=True)
class ExpireRequests:
    """Let every due deadline pass; the answer is the requests that changed."""

    def decide(self, draft: Draft) -> tuple[Request, ...]:
        """Never refuses."""
        changed: list[Request] = []
        for request in draft.state.requests.due(draft.now):
            assert request.deadline_event is not None
            after = _advance(draft, request, request.deadline_event, by=RUNTIME, deadline=draft.now)
            if after.state == ShutdownState.expired and after.kind is RequestKind.shutdown:
                after = _advance_from(draft, after, ShutdownEvent.grace_over, by=RUNTIME, deadline=None)
            changed.append(after)
        return tuple(changed)


def close_shutdown(draft: Draft, member: Member) -> None:
    """Let the open shutdown of a member that has ended reach its outcome."""
    if member.shutdown_request is not None:
        request = draft.state.requests.get(member.shutdown_request)
        _advance(draft, request, ShutdownEvent.exited, by=RUNTIME, deadline=None)


def withdraw_plan(draft: Draft, member: Member) -> None:
    """Withdraw the open plan of a member that has ended."""
    if member.plan_request is not None:
        _advance_from(draft, draft.state.requests.get(member.plan_request), PlanEvent.withdraw, by=member.name, deadline=None)


def _force(draft: Draft, request: Request, by: str) -> Request:
    return _advance(draft, request, ShutdownEvent.force, by=by, deadline=None)


def _advance(draft: Draft, before: Request, event: str, *, by: str, deadline: float | None) -> Request:
    after = _advance_from(draft, before, event, by=by, deadline=deadline)
    if before.is_undecided:
        _follow(draft, after)
    return after


def _advance_from(draft: Draft, before: Request, event: str, *, by: str, deadline: float | None) -> Request:
    after = advance(before, event, at=draft.now, by=by, deadline=deadline)
    draft.add("request.advanced", _advanced_fields(before, event, after, draft.now, by=by, given_deadline=deadline))
    return after


def _advanced_fields(
    before: Request, event: str, after: Request, now: float, *, by: str, given_deadline: float | None = None
) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": before.id, "event": str(event), "state": str(after.state), "by": by, "time": now}
    deadline = after.deadline if event == PlanEvent.revise else given_deadline
    return fields if deadline is None else {**fields, "deadline": deadline}


def _follow(draft: Draft, request: Request) -> None:
    """Tell the asker what was decided, and let a member that waited for it go on."""
    decision = request.decision
    if decision is None:
        return
    if request.kind is RequestKind.plan_approval:
        member = draft.state.roster.members[request.subject]
        if member.status is MemberStatus.awaiting_plan_approval:
            status = step_member(member, MemberEvent.plan_decided)
            draft.add("member.status", {"name": member.name, "status": status, "incarnation": member.incarnation})
        text = f"Your plan {request.id} (revision {request.revision}) is {request.state}, by {decision.by}."
        extra = {"approve": decision.approved, "feedback": decision.feedback}
        draft.tell(request.asker, "plan_approval_response", text, request_id=request.id, extra=extra)
    elif request.kind is RequestKind.shutdown and decision.by == request.subject:
        extra = {"approve": decision.approved, "reason": decision.feedback}
        text = f"{request.subject} has {request.state} the shutdown."
        draft.tell(request.asker, "shutdown_response", text, request_id=request.id, extra=extra)
