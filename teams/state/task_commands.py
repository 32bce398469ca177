"""Commands about tasks: who may do what to which task, and what follows for the tasks behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from protocols.errors import IllegalTransition
from protocols.task_status import TASK_STATUS, BlockerPolicy, TaskEvent, TaskStatus
from teams.errors import ClaimLost, StaleLease, TaskGraphError, TaskStateError, UsageError
from teams.state.decision import Draft
from teams.state.roster import Member
from teams.state.tasks import Task, Tasks

SUBJECT_LIMIT = 500
TEXT_LIMIT = 100_000
_OVER = (TaskStatus.failed, TaskStatus.cancelled)
_HEEDING = (BlockerPolicy.fail, BlockerPolicy.skip)


class Claim(NamedTuple):
    """A lease on a task: every later write shows its fence."""

    task: Task
    fence: int
    lease_until: float


def step(task: Task, event: TaskEvent, operation: str) -> TaskStatus:
    """Return the status after the event; raise TaskStateError when the table forbids it."""
    try:
        return TASK_STATUS.step(task.status, event)
    except IllegalTransition:
        legal = [item.value for item in TASK_STATUS.legal(task.status)]
        raise TaskStateError(task.id, status=task.status.value, operation=operation, legal=legal) from None


@dataclass(slots=True, kw_only=True)
class CreateTask:
    """Add a task with its edges; the answer is the task's id."""

    subject: str
    by: str
    description: str = ""
    blocked_by: Sequence[tuple[int, BlockerPolicy]] = ()
    needs: frozenset[str] = frozenset()
    exclusive: frozenset[str] = frozenset()
    assignee: str | None = None
    worktree: str | None = None
    max_attempts: int = 3
    notify: tuple[str, ...] = ()

    def decide(self, draft: Draft) -> int:
        """Refuse a blank subject, unknown members, and edges that cannot be."""
        tasks, roster = draft.state.tasks, draft.state.roster
        if not self.subject.strip() or len(self.subject) > SUBJECT_LIMIT or len(self.description) > TEXT_LIMIT:
            raise UsageError(
                f"cannot create a task: the subject must have 1 to {SUBJECT_LIMIT} characters, the description at most {TEXT_LIMIT}"
            )
        task_id = tasks.highest + 1
        for name in (*self.notify, *([self.assignee] if self.assignee else [])):
            roster.get(name, operation="name in a task")
        for blocker, policy in self.blocked_by:
            _check_edge(draft, task_id, blocker, policy)
        fields: dict[str, Any] = {"id": task_id, "subject": self.subject, "by": self.by}
        optional = {
            "description": self.description,
            "blocked_by": [[blocker, policy] for blocker, policy in dict(self.blocked_by).items()],
            "needs": sorted(self.needs),
            "exclusive": sorted(self.exclusive),
            "assignee": self.assignee,
            "worktree": self.worktree,
            "notify": self.notify,
        }
        fields.update((key, value) for key, value in optional.items() if value)
        if self.max_attempts != 3:
            fields["max_attempts"] = self.max_attempts
        draft.add("task.created", fields)
        return task_id


@dataclass(slots=True)
class AddEdge:
    """Make a pending task wait for another one."""

    task_id: int
    blocker: int
    policy: BlockerPolicy = BlockerPolicy.fail

    def decide(self, draft: Draft) -> None:
        """Refuse an unknown task, an edge to itself, a cycle (named), and a task that has begun."""
        tasks = draft.state.tasks
        task = tasks.get(self.task_id, operation="add an edge to")
        if task.status is not TaskStatus.pending:
            raise TaskStateError(task.id, status=task.status.value, operation="add an edge to", legal=["pending tasks take edges"])
        _check_edge(draft, self.task_id, self.blocker, self.policy)
        path = tasks.find_path(self.task_id, self.blocker)
        if path:
            cycle = [*path, self.task_id]
            drawn = " -> ".join(str(item) for item in cycle)
            raise TaskGraphError(
                f"cannot make task {self.task_id} wait for task {self.blocker}: that closes the cycle {drawn}", cycle=cycle
            )
        if tasks.blockers.get(self.task_id, {}).get(self.blocker) is not self.policy:
            draft.add("task.edge", {"id": self.task_id, "blocker": self.blocker, "policy": self.policy})


@dataclass(slots=True)
class ClaimTask:
    """Take a ready task, or the first ready one when no id is given; the answer is the claim, or None when nothing is ready."""

    owner: str
    lease_seconds: float
    task_id: int | None = None
    announce: bool = False
    incarnation: int | None = None

    def decide(self, draft: Draft) -> Claim | None:
        """Refuse a named task that this owner cannot have, and say who has it; one decision, so nobody gets it twice."""
        member = draft.state.roster.check_incarnation(self.owner, self.incarnation)
        tasks = draft.state.tasks
        if self.task_id is None:
            if self._limit_reason(draft, member) is not None:
                return None
            task = next(iter(tasks.claimable(frozenset(member.spec.capabilities), self.owner)), None)
            return None if task is None else self._take(draft, task)
        task = tasks.get(self.task_id, operation="claim")
        if task.owner == self.owner and task.lease_until is not None:
            return Claim(task, task.fence, task.lease_until)
        reason = self._refusal(draft, task, member)
        if reason is not None:
            raise ClaimLost(task.id, claimant=self.owner, reason=reason, owner=task.owner)
        return self._take(draft, task)

    def _refusal(self, draft: Draft, task: Task, member: Member) -> str | None:
        tasks = draft.state.tasks
        if task.status is TaskStatus.in_progress:
            return f"{task.owner!r} has it"
        if task.status is not TaskStatus.pending:
            return f"it is {task.status.value}; only pending tasks can be claimed"
        blocked_by = tasks.blocked_by(task.id)
        if blocked_by:
            return f"it is blocked by {', '.join(f'task {blocker} ({tasks.by_id[blocker].status.value})' for blocker in blocked_by)}"
        missing = task.needs - frozenset(member.spec.capabilities)
        if missing:
            return (
                f"it needs {', '.join(sorted(missing))}, and {member.name!r} has {', '.join(member.spec.capabilities) or 'no capabilities'}"
            )
        if task.assignee not in (None, member.name):
            return f"it is meant for {task.assignee!r}"
        for tag in sorted(task.exclusive):
            if tag in tasks.tags_in_use:
                return f"its exclusive tag {tag!r} is in use by task {tasks.tags_in_use[tag]}"
        return self._limit_reason(draft, member)

    def _limit_reason(self, draft: Draft, member: Member) -> str | None:
        held, limit = draft.state.tasks.owned.get(member.name, {}), member.spec.task_limit
        if not member.live:
            return f"{member.name!r} is {member.status.value}"
        if limit is not None and len(held) >= limit:
            return f"{member.name!r} already has task {', '.join(map(str, held))} and may have {limit} at a time"
        return None

    def _take(self, draft: Draft, task: Task) -> Claim:
        fence, until = task.fence + 1, draft.now + self.lease_seconds
        status = step(task, TaskEvent.claim, "claim")
        fields = {"id": task.id, "status": status, "owner": self.owner, "fence": fence, "until": until, "attempts": task.attempts + 1}
        draft.add("task.changed", fields)
        if self.announce:
            text = f"You have claimed task {task.id}: {task.subject}\n{task.description}".strip()
            draft.tell(self.owner, "task_assignment", text, extra={"task_id": task.id})
        claimed = task._replace(status=status, owner=self.owner, fence=fence, lease_until=until, attempts=task.attempts + 1)
        return Claim(claimed, fence, until)


@dataclass(slots=True)
class FinishTask:
    """Complete a task, or fail it; `by` or `fence` shows the right to."""

    task_id: int
    event: TaskEvent
    text: str = ""
    by: str | None = None
    fence: int | None = None
    incarnation: int | None = None

    def decide(self, draft: Draft) -> None:
        """Refuse a stale lease, a foreign owner and a status that forbids it; dependents of a failure follow their edges."""
        operation = self.event.value
        task = draft.state.tasks.get(self.task_id, operation=operation)
        if self.by is not None:
            draft.state.roster.check_incarnation(self.by, self.incarnation)
        check_right(task, operation, by=self.by, fence=self.fence)
        status = step(task, self.event, operation)
        said = "result" if self.event is TaskEvent.complete else "reason"
        draft.add("task.changed", {"id": task.id, "status": status, "fence": task.fence + 1, said: self.text[:TEXT_LIMIT]})
        self._report(draft, task, status)
        if status in _OVER:
            cascade(draft, task.id)

    def _report(self, draft: Draft, task: Task, status: TaskStatus) -> None:
        for name in task.notify:
            if name != task.owner:
                text = f"Task {task.id} ({task.subject}) is {status.value}, done by {task.owner}. {self.text}".strip()
                draft.tell(name, "notice", text, extra={"task_id": task.id})


@dataclass(slots=True)
class ReleaseTask:
    """Hand a task back so that somebody else may take it."""

    task_id: int
    reason: str
    by: str | None = None
    fence: int | None = None

    def decide(self, draft: Draft) -> None:
        """Refuse a stale lease or a foreign owner."""
        task = draft.state.tasks.get(self.task_id, operation="release")
        check_right(task, "release", by=self.by, fence=self.fence)
        release(draft, task, self.reason, TaskEvent.release)


@dataclass(slots=True)
class RetryTask:
    """Make a failed task pending again, under its own id, and with it those that failed only because of it."""

    task_id: int

    def decide(self, draft: Draft) -> None:
        """Refuse a task that has not failed, and one whose blocker has failed."""
        tasks = draft.state.tasks
        task = tasks.get(self.task_id, operation="retry")
        status = step(task, TaskEvent.retry, "retry")
        holding = _holding_down(tasks, task.id)
        if holding:
            blocker = tasks.by_id[min(holding)]
            raise TaskGraphError(f"cannot retry task {task.id}: its blocker {blocker.id} is {blocker.status.value}; retry that one first")
        draft.add("task.changed", {"id": task.id, "status": status, "fence": task.fence + 1})
        revived = {task.id}
        queue = [task.id]
        while queue:
            for dependent_id in tasks.dependents.get(queue.pop(), ()):
                dependent = tasks.by_id[dependent_id]
                falls_with_it = dependent.status is TaskStatus.failed and dependent.because_of is not None
                if falls_with_it and dependent_id not in revived and _holding_down(tasks, dependent_id) <= revived:
                    revived.add(dependent_id)
                    queue.append(dependent_id)
                    draft.add("task.changed", {"id": dependent_id, "status": step(dependent, TaskEvent.retry, "retry")})


@dataclass(slots=True)
class CancelTask:
    """Take a task out of the plan; its owner is told, its dependents follow their edges."""

    task_id: int
    reason: str = ""

    def decide(self, draft: Draft) -> None:
        """Refuse a task that is completed or cancelled already."""
        task = draft.state.tasks.get(self.task_id, operation="cancel")
        status = step(task, TaskEvent.cancel, "cancel")
        draft.add("task.changed", {"id": task.id, "status": status, "fence": task.fence + 1, "reason": self.reason})
        if task.owner is not None:
            draft.tell(
                task.owner, "notice", f"Task {task.id} ({task.subject}) was cancelled. {self.reason}".strip(), extra={"task_id": task.id}
            )
        cascade(draft, task.id)


@dataclass(slots=True)
class AmendTask:
    """Change the words of a task or for whom it is meant; None leaves a field as it is."""

    task_id: int
    subject: str | None = None
    description: str | None = None
    assignee: str | None = None

    def decide(self, draft: Draft) -> None:
        """Refuse an unknown member and a task that is over."""
        task = draft.state.tasks.get(self.task_id, operation="amend")
        if task.status is not TaskStatus.pending:
            raise TaskStateError(task.id, status=task.status.value, operation="amend", legal=["pending tasks can be amended"])
        if self.assignee is not None:
            draft.state.roster.get(self.assignee, operation="name in a task")
        given = {"subject": self.subject, "description": self.description, "assignee": self.assignee}
        changes = {key: value for key, value in given.items() if value is not None}
        if changes:
            draft.add("task.amended", {"id": task.id, **changes})


@dataclass(slots=True)
class RenewLeases:
    """Extend the leases of everything that these members own; the answer is how many tasks that were."""

    owners: tuple[str, ...]
    lease_seconds: float

    def decide(self, draft: Draft) -> int:
        """Never refuses; members without a task change nothing."""
        owned = draft.state.tasks.owned
        ids = [task_id for name in self.owners for task_id in owned.get(name, ())]
        if ids:
            draft.add("task.renewed", {"ids": ids, "until": draft.now + self.lease_seconds})
        return len(ids)


@dataclass(slots=True)
class ExpireLeases:
    """Free every task whose lease is over; one that was tried too often fails. The answer is their ids."""

    def decide(self, draft: Draft) -> tuple[int, ...]:
        """Never refuses."""
        expired: list[int] = []
        tasks = draft.state.tasks
        for held in tasks.owned.values():
            for task_id in held:
                task = tasks.by_id[task_id]
                if task.lease_until is not None and task.lease_until <= draft.now:
                    expired.append(task_id)
                    release(draft, task, f"the lease of {task.owner!r} ended", TaskEvent.lease_expired)
        return tuple(expired)


def release(draft: Draft, task: Task, reason: str, event: TaskEvent) -> None:
    """Free a task that is in progress; after too many attempts it fails instead."""
    status = step(task, event, "release")
    if event is TaskEvent.lease_expired and task.attempts >= task.max_attempts:
        status = step(task, TaskEvent.fail, "fail")
        reason = f"given up after {task.attempts} attempts: {reason}"
    draft.add("task.changed", {"id": task.id, "status": status, "fence": task.fence + 1, "reason": reason})
    if status is TaskStatus.failed:
        cascade(draft, task.id)


def check_right(task: Task, operation: str, *, by: str | None, fence: int | None) -> None:
    """Refuse whoever does not hold the task: by fence where one is shown, by name otherwise."""
    if fence is None and by is None:
        raise UsageError(f"cannot {operation} task {task.id}: show the fence of your claim, or say by whom")
    stale = fence is not None and fence != task.fence
    if stale or (by is not None and task.owner is not None and task.owner != by):
        raise StaleLease(task.id, operation=operation, fence=fence if fence is not None else -1, current=task.fence, owner=task.owner)


def cascade(draft: Draft, task_id: int) -> None:
    """Let the pending dependents of a task that will not complete fail or be cancelled, as their edges say, and theirs in turn."""
    tasks = draft.state.tasks
    fallen = draft.fallen
    fallen.add(task_id)
    queue = [task_id]
    while queue:
        cause = queue.pop()
        for dependent_id in tasks.dependents.get(cause, ()):
            dependent, policy = tasks.by_id[dependent_id], tasks.blockers[dependent_id][cause]
            event = {BlockerPolicy.fail: TaskEvent.blocker_failed, BlockerPolicy.skip: TaskEvent.cancel}.get(policy)
            if event is None or dependent_id in fallen or dependent.status is not TaskStatus.pending:
                continue
            fallen.add(dependent_id)
            queue.append(dependent_id)
            fields = {
                "id": dependent_id,
                "status": step(dependent, event, "settle"),
                "reason": f"task {cause} did not complete",
                "because_of": cause,
            }
            draft.add("task.changed", fields)


def _holding_down(tasks: Tasks, task_id: int) -> set[int]:
    """Return the fallen blockers under which the task could not stand."""
    edges = tasks.blockers.get(task_id, {}).items()
    return {blocker for blocker, policy in edges if policy in _HEEDING and tasks.by_id[blocker].status in _OVER}


def _check_edge(draft: Draft, task_id: int, blocker: int, policy: BlockerPolicy) -> None:
    if blocker == task_id:
        raise TaskGraphError(f"cannot make task {task_id} wait for itself", cycle=(task_id, task_id))
    known = draft.state.tasks.by_id.get(blocker)
    if known is None:
        highest = draft.state.tasks.highest
        ids = f"ids run from 1 to {highest}" if highest else "there are no tasks yet"
        raise TaskGraphError(f"cannot make task {task_id} wait for task {blocker}: no such task; {ids}")
    if known.status in _OVER and policy in _HEEDING:
        raise TaskGraphError(
            f"cannot make task {task_id} wait for task {blocker}: it is {known.status.value}; retry it first, or use policy run or wait"
        )
