"""Commands about plans: submit one, and work through its steps.

Laws: a member has one plan that is open or in force; of its steps one is in progress at a time, and who skips ahead says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocols.lifecycle import MemberEvent, MemberStatus
from protocols.plan_approval import PlanEvent
from protocols.plan_step import PLAN_STEP, StepEvent, StepStatus
from protocols.request import Request, RequestKind
from teams.errors import UsageError
from teams.state.asking import Wish, ask_approvers, hand_over, is_there, stages_of, step_request, tell_answerers
from teams.state.decision import Draft
from teams.state.plans import ApprovedPlan, PlanStep
from teams.state.roster import Member, step_member

OUTPUT_LIMIT_CHARS = 4_000
"""How much a step hands on to the steps after it."""
NOTE_LIMIT_CHARS = 2_000


@dataclass(slots=True)
class SubmitPlan:
    """Ask for the approval of a plan, or revise the rejected one; the answer is the request.

    `deadline_seconds` is the time for an answer, of each stage that names none; `default_approved` is what counts when nobody answers
    (None: not approved).
    """

    name: str
    incarnation: int
    plan: Mapping[str, Any]
    deadline_seconds: float
    default_approved: bool | None = None

    def decide(self, draft: Draft) -> Request:
        """Refuse a plan while one waits for its decision, without an approver, and after too many revisions."""
        member = draft.state.roster.check_incarnation(self.name, self.incarnation)
        if member.plan_request is not None:
            request = self._revise(draft, member)
        else:
            wish = Wish(RequestKind.plan_approval, self.name, self.plan, self.deadline_seconds, self.default_approved)
            request = ask_approvers(draft, member, wish)
        if member.status is not MemberStatus.awaiting_plan_approval:
            status = step_member(member, MemberEvent.plan_submitted)
            draft.add("member.status", {"name": self.name, "status": status, "incarnation": member.incarnation})
        return request

    def _revise(self, draft: Draft, member: Member) -> Request:
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
        seconds = (before.stages or stages_of(member.spec, self.deadline_seconds))[0].seconds
        deadline = draft.now + (seconds or self.deadline_seconds)
        request = step_request(draft, before, PlanEvent.revise, by=self.name, deadline=deadline, body=self.plan)
        if request.stages and not is_there(draft.state, request.stages[0]):
            return hand_over(draft, request, self.name)
        tell_answerers(draft, request)
        return request


@dataclass(slots=True)
class AdvanceStep:
    """Move a step of a member's approved plan; the answer is the plan's steps after it.

    `step` counts from 1; `note` is why it failed, or why it is started before those above it; `output` is handed on to later steps.
    """

    name: str
    incarnation: int
    step: int
    event: StepEvent
    note: str = ""
    output: str = ""

    def decide(self, draft: Draft) -> tuple[PlanStep, ...]:
        """Refuse a step that there is not, a second one in progress, skipping ahead without a note, and what the table forbids."""
        member = draft.state.roster.check_incarnation(self.name, self.incarnation)
        plan = draft.state.plans.current.get(self.name)
        if plan is None or member.approved_plan != plan.id:
            raise UsageError(f"cannot {self.event.value} step {self.step}: {self.name!r} has no approved plan")
        if not 1 <= self.step <= len(plan.steps):
            raise UsageError(f"cannot {self.event.value} step {self.step}: plan {plan.id} has the steps 1 to {len(plan.steps)}")
        self._check(plan)
        step = plan.steps[self.step - 1]
        PLAN_STEP.step(step.status, self.event)
        fields: dict[str, Any] = {"member": self.name, "plan": plan.id, "step": self.step, "event": self.event.value}
        if self.note:
            fields["note"] = self.note[:NOTE_LIMIT_CHARS]
        if self.output:
            fields["output"] = bounded(self.output)
        draft.add("plan.step", fields)
        return plan.steps

    def _check(self, plan: ApprovedPlan) -> None:
        step, current = plan.steps[self.step - 1], plan.current_step
        if step.task is not None:
            raise UsageError(f"cannot {self.event.value} step {self.step}: it is task {step.task}; take and complete that task")
        if self.event is StepEvent.fail and not self.note.strip():
            raise UsageError(f"cannot fail step {self.step} without a note: say why it failed")
        if self.event is not StepEvent.start:
            return
        if current is not None and current != self.step:
            raise UsageError(f"cannot start step {self.step}: step {current} is in progress; say first that it is done, or that it failed")
        open_before = [str(number) for number, item in enumerate(plan.steps[: self.step - 1], 1) if item.status is StepStatus.todo]
        if open_before and not self.note.strip():
            raise UsageError(
                f"cannot start step {self.step} before step {', '.join(open_before)}, which nobody has begun, without a note: say why"
            )


def bounded(output: str) -> str:
    """Cut the output of a step to what later steps are shown."""
    if len(output) <= OUTPUT_LIMIT_CHARS:
        return output
    marker = f"\n[{len(output)} characters in all; the rest is not handed on]"
    return output[: OUTPUT_LIMIT_CHARS - len(marker)] + marker
