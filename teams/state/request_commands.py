"""Commands about all requests, and about shutdowns: answers, deadlines, and ends.

Laws: every request has a deadline; every step is stepped by the tables of `protocols`, here and at every replay; the step, what it means
for the member and the mail about it are one transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from protocols.errors import NotTheAnswerer
from protocols.lifecycle import MemberStatus
from protocols.names import RUNTIME, RequestId
from protocols.plan_approval import PlanEvent
from protocols.request import Request, RequestKind, answer
from protocols.shutdown import ShutdownEvent, ShutdownState
from teams.errors import MemberStateError
from teams.state.asking import follow_decision, hand_over, step_request
from teams.state.decision import AGENT_KINDS, Draft
from teams.state.requests import opened_fields
from teams.state.roster import Member

FEEDBACK_LIMIT = 20_000


@dataclass(slots=True)
class AnswerRequest:
    """Decide a request; the answer is the request after it. Repeating the same answer changes nothing.

    `incarnation` is that of the agent who answers, None for who has none.
    """

    request_id: str
    by: str
    approved: bool
    feedback: str = ""
    revision: int | None = None
    grace_seconds: float = 0.0
    body_limit: int = field(default=FEEDBACK_LIMIT)
    incarnation: int | None = None

    def decide(self, draft: Draft) -> Request:
        """Refuse who was not asked, an agent that has ended, an unknown request, and another answer than the one given before."""
        before = draft.state.requests.get(self.request_id)
        member = draft.state.roster.check_incarnation(self.by, self.incarnation)
        if self.by in before.answerers and member.spec.kind in AGENT_KINDS and not member.live:
            raise MemberStateError(self.by, status=member.status.value, operation="answer as", legal=["spawn it again"])
        feedback = self.feedback[: self.body_limit]
        deadline = draft.now + self.grace_seconds if before.kind is RequestKind.shutdown else self._revision_deadline(before, draft.now)
        after = answer(
            before, approved=self.approved, by=self.by, at=draft.now, feedback=feedback, revision=self.revision, deadline=deadline
        )
        if after is None:
            return before
        fields = {"id": before.id, "state": str(after.state), "by": self.by, "time": draft.now, "approved": self.approved}
        draft.add("request.advanced", {**fields, "feedback": feedback, "deadline": deadline})
        follow_decision(draft, after)
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
class PassOn:
    """Leave a request to the next of its chain, as an approver that has nothing to say about it; the answer is the request after it."""

    request_id: str
    by: str

    def decide(self, draft: Draft) -> Request:
        """Refuse who was not asked; change nothing where nobody comes next, where others are asked too, or where it is decided."""
        request = draft.state.requests.get(self.request_id)
        if self.by not in request.answerers:
            raise NotTheAnswerer(request.id, self.by, request.answerers)
        if request.hand_over_event is None or len(request.answerers) - 1 >= request.quorum:
            return request
        return hand_over(draft, request, self.by)


@dataclass(slots=True)
class ExpireRequests:
    """Let every due deadline pass; the answer is the requests that changed."""

    def decide(self, draft: Draft) -> tuple[Request, ...]:
        """Never refuses."""
        changed: list[Request] = []
        for request in draft.state.requests.due(draft.now):
            assert request.deadline_event is not None
            if request.deadline_event == request.hand_over_event:
                changed.append(hand_over(draft, request, RUNTIME))
                continue
            after = _advance(draft, request, request.deadline_event, by=RUNTIME, deadline=draft.now)
            if after.state == ShutdownState.expired and after.kind is RequestKind.shutdown:
                after = step_request(draft, after, ShutdownEvent.grace_over, by=RUNTIME, deadline=None)
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
        step_request(draft, draft.state.requests.get(member.plan_request), PlanEvent.withdraw, by=member.name, deadline=None)


def withdraw_asked(draft: Draft, member: Member) -> None:
    """Withdraw the permissions and questions of a member that has ended: the calls that wait for them have ended as well."""
    for request in draft.state.requests.open(asker=member.name):
        if request.kind in (RequestKind.permission, RequestKind.question):
            step_request(draft, request, "withdraw", by=member.name)


def _force(draft: Draft, request: Request, by: str) -> Request:
    return _advance(draft, request, ShutdownEvent.force, by=by, deadline=None)


def _advance(draft: Draft, before: Request, event: str, *, by: str, deadline: float | None) -> Request:
    after = step_request(draft, before, event, by=by, deadline=deadline)
    if before.is_undecided:
        follow_decision(draft, after)
    return after
