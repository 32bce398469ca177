"""What all requests share that somebody must decide: who is asked, who is asked next, and who is told.

Laws: the step of a request, what it means for its asker and the mail about it are one transaction; whoever is asked is told; who cannot be
there any more hands over to the next of the chain.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from protocols.contract import Reach
from protocols.lifecycle import MemberEvent, MemberStatus
from protocols.names import RUNTIME, RequestId
from protocols.plan_text import plan_text, shown_exactly, shown_prose
from protocols.question import QuestionEvent
from protocols.request import Request, RequestKind, Stage, advance
from teams.errors import UsageError
from teams.state.decision import Draft
from teams.state.mailboxes import OutgoingMail
from teams.state.requests import opened_fields
from teams.state.roster import Member, MemberSpec, step_member
from teams.state.team_state import TeamState


class Wish(NamedTuple):
    """What a member asks its approvers: `seconds` is the time for an answer of each stage that names none."""

    kind: RequestKind
    subject: str
    body: Mapping[str, Any]
    seconds: float
    default_approved: bool | None


def ask_approvers(draft: Draft, member: Member, wish: Wish) -> Request:
    """Open a request to those who decide for a member; raise UsageError where nobody is named."""
    stages = stages_of(member.spec, wish.seconds)
    first = stages[0]
    if not first.answerers:
        raise UsageError(
            f"nobody is named to decide what {member.name!r} asks for; name somebody in MemberOptions(approvers=...) when it joins"
        )
    opened = Request(
        id=RequestId(draft.next_request_id()),
        kind=wish.kind,
        asker=member.name,
        answerers=first.answerers,
        quorum=first.quorum,
        stages=stages if len(stages) > 1 else (),
        subject=wish.subject,
        body=dict(wish.body),
        opened_at=draft.now,
        deadline=draft.now + (first.seconds or wish.seconds),
        default_approved=wish.default_approved,
    )
    return open_asking(draft, opened)


def stages_of(spec: MemberSpec, seconds: float) -> tuple[Stage, ...]:
    """Return who decides what a member asks for, one stage after the other, each with its own time (`seconds` where none was chosen)."""
    stages = spec.approval or (Stage(spec.approvers),)
    return tuple(stage._replace(seconds=stage.seconds or seconds) for stage in stages)


def is_there(state: TeamState, stage: Stage, *, ending: str = "") -> bool:
    """Tell whether enough of a stage can still answer; a person always can, and who is just `ending` cannot."""
    members = (state.roster.members.get(name) for name in stage.answerers if name != ending)
    return sum(member is not None and (member.live or member.spec.kind == "person") for member in members) >= stage.quorum


def open_asking(draft: Draft, request: Request) -> Request:
    """Open a request with the first stage that is there, and tell whom it asks."""
    stages = request.stages or (Stage(request.answerers, request.quorum),)
    at = next((at for at, stage in enumerate(stages) if is_there(draft.state, stage)), len(stages) - 1)
    if at:
        seconds = stages[at].seconds
        request = advance_to(request, at, None if seconds is None else draft.now + seconds)
    draft.add("request.opened", opened_fields(request))
    tell_answerers(draft, request)
    return request


def advance_to(request: Request, stage: int, deadline: float | None) -> Request:
    """Return an unopened request as if the stages before had handed over already."""
    data = request.to_json()
    return Request.from_json({**data, "stage": stage, "deadline": deadline})


def hand_over(draft: Draft, request: Request, by: str, *, ending: str = "") -> Request:
    """Ask the next stage that is there, or the last one; `ending` is a member whose end is part of the same step."""
    while (event := request.hand_over_event) is not None:
        seconds = request.stages[request.stage + 1].seconds
        request = step_request(draft, request, event, by=by, deadline=None if seconds is None else draft.now + seconds)
        if is_there(draft.state, request.stages[request.stage], ending=ending):
            break
    tell_answerers(draft, request)
    return request


def step_request(
    draft: Draft, before: Request, event: str, *, by: str, deadline: float | None = None, body: Mapping[str, Any] | None = None
) -> Request:
    """Let an event that is no answer happen to a request, and record it."""
    after = advance(before, event, at=draft.now, by=by, deadline=deadline, body=body)
    fields: dict[str, Any] = {"id": before.id, "event": str(event), "state": str(after.state), "by": by, "time": draft.now}
    if deadline is not None:
        fields["deadline"] = deadline
    if body is not None:
        fields["body"] = dict(body)
    draft.add("request.advanced", fields)
    return after


def approver_ended(draft: Draft, name: str) -> None:
    """Let what waited for a member that has ended be asked of the next of its chain; a question that nobody can answer ends."""
    requests = draft.state.requests.open(answerer=name)
    for request in requests:
        if request.kind is RequestKind.shutdown:
            continue
        if is_there(draft.state, Stage(request.answerers, request.quorum), ending=name):
            continue
        if request.hand_over_event is not None:
            hand_over(draft, request, RUNTIME, ending=name)
        elif request.kind is RequestKind.question:
            step_request(draft, request, QuestionEvent.expire, by=RUNTIME)


def tell_answerers(draft: Draft, request: Request) -> None:
    """Send mail to those who are asked: of the runtime about plans and permissions, of the asker itself for a question."""
    kind, text, extra = _mail_of(request)
    for name in request.answerers:
        if request.kind is not RequestKind.question:
            draft.tell(name, kind, text, request_id=request.id, extra=extra)
            continue
        member = draft.state.roster.members.get(name)
        if member is not None and member.live:
            draft.mail(OutgoingMail(type=kind, sender=request.asker, recipients=(name,), content=text, request_id=request.id))


def _mail_of(request: Request) -> tuple[str, str, dict[str, Any] | None]:
    if request.kind is RequestKind.plan_approval:
        text = f"Plan of {request.asker}:\n{plan_text(request.body, request.body_before)}"
        return "plan_approval_request", text, {"revision": request.revision}
    if request.kind is RequestKind.permission:
        return "permission_request", permission_text(request), None
    return "message", str(request.body.get("question", "")), None


def permission_text(request: Request) -> str:
    """Write a permission request as text for whoever must decide it."""
    body = request.body
    what, why = body.get("what", body.get("tool", "")), body.get("why", "")
    lines = [f"{request.asker} asks to run {shown_exactly(what)}", f"Why you are asked: {shown_exactly(why)}", "", "Its input:"]
    lines += [f"- {shown_exactly(name)}: {shown_prose(value)}" for name, value in body.get("input", {}).items()]
    if body.get("artifact"):
        lines.append(f"The whole input is artifact {body['artifact']} of {request.asker}.")
    return "\n".join(lines)


def reach_of(request: Request) -> Reach:
    """Return what the call of a permission request names."""
    body = request.body
    paths = tuple(None if parts is None else tuple(parts) for parts in body.get("paths", ()))
    return Reach(body["tool"], paths, body.get("command"))


def follow_decision(draft: Draft, request: Request) -> None:
    """Tell the asker what was decided, and let a member that waited for it go on."""
    decision = request.decision
    if decision is None:
        return
    if request.kind is RequestKind.plan_approval:
        member = draft.state.roster.members[request.subject]
        if member.status is MemberStatus.awaiting_plan_approval:
            status = step_member(member, MemberEvent.plan_decided)
            draft.add("member.status", {"name": member.name, "status": status, "incarnation": member.incarnation})
        if decision.approved and member.spec.steps_as_tasks:
            _make_tasks(draft, request)
        text = f"Your plan {request.id} (revision {request.revision}) is {request.state}, by {decision.by}."
        extra = {"approve": decision.approved, "feedback": decision.feedback}
        draft.tell(request.asker, "plan_approval_response", text, request_id=request.id, extra=extra)
    elif request.kind is RequestKind.shutdown and decision.by == request.subject:
        extra = {"approve": decision.approved, "reason": decision.feedback}
        text = f"{request.subject} has {request.state} the shutdown."
        draft.tell(request.asker, "shutdown_response", text, request_id=request.id, extra=extra)


def _make_tasks(draft: Draft, request: Request) -> None:
    """Put the steps of an approved plan on the graph, each behind the one before it, for the plan's owner."""
    first = draft.state.tasks.highest + 1
    steps = [str(step) for step in request.body.get("steps", ())]
    for at, text in enumerate(steps):
        subject = text.splitlines()[0][:200]
        fields: dict[str, Any] = {"id": first + at, "subject": subject, "by": request.asker, "assignee": request.subject}
        if text != subject:
            fields["description"] = text
        if at:
            fields["blocked_by"] = [[first + at - 1, "fail"]]
        draft.add("task.created", fields)
    draft.add("plan.tasks", {"member": request.subject, "plan": request.id, "tasks": list(range(first, first + len(steps)))})
