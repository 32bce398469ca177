"""The plans that were approved: what they promise, and how far their steps are. The fold of `plan.*` records and of approvals.

Laws: a member has at most one plan in force, and that one is never forgotten; steps move by the table of `protocols.plan_step` alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from protocols.plan_step import PLAN_STEP, StepStatus
from protocols.request import Request

KEPT_PAST = 200
"""How many plans that are not in force any more are remembered with their steps."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step; `output` is what it hands on, `note` why it failed or was started out of turn, `task` the task that it has become."""

    text: str
    status: StepStatus = StepStatus.todo
    attempts: int = 0
    output: str = ""
    note: str = ""
    task: int | None = None


@dataclass(frozen=True, slots=True)
class ApprovedPlan:
    """A plan from its approval on; `body` is its JSON form."""

    id: str
    member: str
    revision: int
    body: Mapping[str, Any]
    steps: tuple[PlanStep, ...]

    @property
    def current_step(self) -> int | None:
        """The number, from 1, of the step in progress."""
        return next((number for number, step in enumerate(self.steps, 1) if step.status is StepStatus.in_progress), None)

    def to_json(self) -> dict[str, Any]:
        """Return the plan for a snapshot."""
        steps = [[step.text, step.status.value, step.attempts, step.output, step.note, step.task] for step in self.steps]
        return {"id": self.id, "member": self.member, "revision": self.revision, "body": dict(self.body), "steps": steps}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ApprovedPlan":
        """Rebuild a plan from a snapshot."""
        steps = tuple(PlanStep(text, StepStatus(status), *rest) for text, status, *rest in data["steps"])
        return cls(data["id"], data["member"], data["revision"], data["body"], steps)


@dataclass(slots=True)
class Plans:
    """The plan in force of each member, and the newest of those that were."""

    current: dict[str, ApprovedPlan] = field(default_factory=dict[str, ApprovedPlan])
    past: dict[str, ApprovedPlan] = field(default_factory=dict[str, ApprovedPlan])

    def get(self, plan_id: str, member: str) -> ApprovedPlan | None:
        """Return an approved plan of a member, in force or not."""
        plan = self.current.get(member)
        return plan if plan is not None and plan.id == plan_id else self.past.get(plan_id)

    def approve(self, request: Request) -> None:
        """Put a plan in force; the one before it is past."""
        before = self.current.pop(request.subject, None)
        if before is not None:
            self.past[before.id] = before
            while len(self.past) > KEPT_PAST:
                del self.past[next(iter(self.past))]
        steps = tuple(PlanStep(str(text)) for text in request.body.get("steps", ()))
        self.current[request.subject] = ApprovedPlan(request.id, request.subject, request.revision, request.body, steps)

    def apply_step(self, _at: str, fields: Mapping[str, Any]) -> None:
        """Move one step of a member's plan."""
        plan = self.current[fields["member"]]
        at = int(fields["step"]) - 1
        step = plan.steps[at]
        status = PLAN_STEP.step(step.status, fields["event"])
        moved = replace(
            step,
            status=status,
            attempts=step.attempts + (status is StepStatus.in_progress),
            note=fields.get("note", ""),
            output=fields.get("output", step.output),
        )
        self._put(plan, at, moved)

    def apply_tasks(self, _at: str, fields: Mapping[str, Any]) -> None:
        """Remember which tasks the steps of a plan have become."""
        for at, task_id in enumerate(fields["tasks"]):
            plan = self.current[fields["member"]]
            self._put(plan, at, replace(plan.steps[at], task=task_id))

    def _put(self, plan: ApprovedPlan, at: int, step: PlanStep) -> None:
        self.current[plan.member] = replace(plan, steps=(*plan.steps[:at], step, *plan.steps[at + 1 :]))

    def copy(self) -> "Plans":
        """Return an independent fold that shares the immutable plans."""
        return Plans(dict(self.current), dict(self.past))

    def to_json(self) -> dict[str, Any]:
        """Return the fold for a snapshot."""
        return {
            "current": [plan.to_json() for plan in self.current.values()],
            "past": [plan.to_json() for plan in self.past.values()],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Plans":
        """Rebuild the fold from a snapshot."""
        current, past = ([ApprovedPlan.from_json(item) for item in data[key]] for key in ("current", "past"))
        return cls({plan.member: plan for plan in current}, {plan.id: plan for plan in past})
