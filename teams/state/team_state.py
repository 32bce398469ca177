"""The whole state of a team: one fold of the journal.

Laws: the state is a function of the records alone; `apply` never fails for a record that `decide` made; records of kinds that a newer
version writes are passed over; two states that applied the same records are equal.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from protocols.plan_step import StepStatus
from protocols.request import Request, RequestKind
from protocols.requests import RequestLedger
from protocols.shutdown import ShutdownState
from protocols.task_status import TaskStatus
from teams.journal.records import Record
from teams.state.mailboxes import Mailboxes
from teams.state.plans import Plans, PlanStep
from teams.state.requests import apply_advanced, apply_opened
from teams.state.roster import Roster
from teams.state.rules import Rules
from teams.state.tasks import Tasks

_AS_STEP = {
    TaskStatus.pending: StepStatus.todo,
    TaskStatus.in_progress: StepStatus.in_progress,
    TaskStatus.completed: StepStatus.done,
    TaskStatus.failed: StepStatus.failed,
    TaskStatus.cancelled: StepStatus.failed,
}
SNAPSHOT_FORMAT = 4
"""Raised with every change of what `to_json` gives; a snapshot of another format is not read, and the log is replayed."""
Applier = Callable[[str, Mapping[str, Any]], None]
"""Folds one record in, given its time and fields."""


@dataclass(slots=True)
class TeamState:
    """Roster, mail, tasks, requests, plans and rules after record `seq`."""

    roster: Roster = field(default_factory=Roster)
    mail: Mailboxes = field(default_factory=Mailboxes)
    tasks: Tasks = field(default_factory=Tasks)
    requests: RequestLedger = field(default_factory=RequestLedger)
    requests_opened: int = 0
    seq: int = 0
    plans: Plans = field(default_factory=Plans)
    rules: Rules = field(default_factory=Rules)
    _appliers: Mapping[str, Applier] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # The one list of the kinds of records that this version folds; bound once, because this is the hottest call of a replay.
        self._appliers = {
            "mail.sent": self.mail.apply_sent,
            "mail.committed": self.mail.apply_committed,
            "member.joined": self.roster.apply_joined,
            "member.status": self.roster.apply_status,
            "member.noted": self.roster.apply_note,
            "member.compaction": self.roster.apply_compaction,
            "task.created": self.tasks.apply_created,
            "task.edge": self.tasks.apply_edge,
            "task.changed": self.tasks.apply_changed,
            "task.renewed": self.tasks.apply_renewed,
            "task.amended": self.tasks.apply_amended,
            "request.opened": self._request_opened,
            "request.advanced": self._request_advanced,
            "plan.step": self.plans.apply_step,
            "plan.tasks": self.plans.apply_tasks,
            "rule.added": self.rules.apply_added,
            "rule.removed": self.rules.apply_removed,
        }

    def apply(self, record: Record) -> None:
        """Fold one record in; unknown kinds change nothing but `seq`."""
        applier = self._appliers.get(record[2])
        if applier is not None:
            applier(record[1], record[3])
        self.seq = record[0]

    def _request_opened(self, _at: str, fields: Mapping[str, Any]) -> None:
        self.requests_opened += 1
        self._put(apply_opened(fields))

    def _request_advanced(self, _at: str, fields: Mapping[str, Any]) -> None:
        self._put(apply_advanced(self.requests.get(fields["id"]), fields))

    def _put(self, request: Request) -> None:
        self.requests.put(request)
        still_open = None if request.is_closed else request.id
        if request.kind is RequestKind.plan_approval:
            approved = request.is_closed and request.decision is not None and request.decision.approved
            self.roster.set_plan(request.subject, request=still_open, approved=request.id if approved else None)
            if approved:
                self.plans.approve(request)
        elif request.kind is RequestKind.shutdown:
            self.roster.set_shutdown(request.subject, still_open)
            if request.is_closed:
                decision = request.decision if request.state == ShutdownState.rejected else None
                self.roster.note_shutdown_end(request.subject, rejection=None if decision is None else decision.feedback)

    def plan_steps(self, member: str) -> list[tuple[PlanStep, StepStatus]]:
        """Return the steps of the member's approved plan with where they stand; one that has become a task stands where that does."""
        approved = self.roster.members[member].approved_plan
        plan = None if approved is None else self.plans.get(approved, member)
        return [] if plan is None else [(step, self.step_status(step)) for step in plan.steps]

    def step_status(self, step: PlanStep) -> StepStatus:
        """Return where a step stands."""
        return step.status if step.task is None else _AS_STEP[self.tasks.by_id[step.task].status]

    def copy(self) -> "TeamState":
        """Return an independent state that shares every immutable value."""
        folds = self.roster.copy(), self.mail.copy(), self.tasks.copy(), self.requests.copy()
        return TeamState(*folds, self.requests_opened, self.seq, self.plans.copy(), self.rules.copy())

    def to_json(self) -> dict[str, Any]:
        """Return the state for a snapshot."""
        return {
            "format": SNAPSHOT_FORMAT,
            "seq": self.seq,
            "roster": self.roster.to_json(),
            "mail": self.mail.to_json(),
            "tasks": self.tasks.to_json(),
            "requests": self.requests.to_json(),
            "requests_opened": self.requests_opened,
            "plans": self.plans.to_json(),
            "rules": self.rules.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "TeamState":
        """Rebuild a state from a snapshot; raise ValueError for one of another format."""
        if data.get("format") != SNAPSHOT_FORMAT:
            raise ValueError(f"cannot read a snapshot of format {data.get('format')!r}; this version reads {SNAPSHOT_FORMAT}")
        return cls(
            Roster.from_json(data["roster"]),
            Mailboxes.from_json(data["mail"]),
            Tasks.from_json(data["tasks"]),
            RequestLedger.from_json(data["requests"]),
            data["requests_opened"],
            data["seq"],
            Plans.from_json(data["plans"]),
            Rules.from_json(data["rules"]),
        )
