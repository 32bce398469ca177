"""The task graph: the fold of `task.*` records.

Laws: a task is ready exactly when it is pending and every blocker is settled by its edge's policy; readiness is kept incrementally, so
an event costs the task's own edges; a task has at most one owner, and its fence grows with every change of hands, so that a write which
shows an older fence can be refused; ids are never used twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from protocols.task_status import BlockerPolicy, TaskStatus
from teams.errors import UnknownTask

_STATUSES = {status.value: status for status in TaskStatus}
BucketKey = tuple[frozenset[str], frozenset[str], str | None]
"""What a ready task demands of its owner: capabilities, exclusive tags, and who it must be."""


_NO_TAGS = frozenset[str]()


def _set(tags: Iterable[str] | None) -> frozenset[str]:
    return frozenset(tags) if tags else _NO_TAGS  # shared: most tasks have none


class Task(NamedTuple):
    """One task as the log tells it; immutable."""

    id: int
    subject: str
    description: str
    status: TaskStatus
    created_at: str
    updated_at: str
    created_by: str
    owner: str | None = None
    fence: int = 0
    lease_until: float | None = None  # seconds since the epoch
    attempts: int = 0
    max_attempts: int = 3
    needs: frozenset[str] = frozenset()
    exclusive: frozenset[str] = frozenset()
    assignee: str | None = None
    worktree: str | None = None
    result: str | None = None
    reason: str | None = None
    because_of: int | None = None
    notify: tuple[str, ...] = ()


_STATUS, _FIRST_SET = Task._fields.index("status"), Task._fields.index("needs")
"""Where a task's row in a snapshot needs care: the status, and `needs` with `exclusive` behind it. The last field is a tuple."""


def settles(status: TaskStatus, policy: BlockerPolicy) -> bool:
    """Tell whether a blocker in this status no longer blocks under this policy."""
    if status is TaskStatus.completed:
        return True
    return policy is BlockerPolicy.run and status in (TaskStatus.failed, TaskStatus.cancelled)


@dataclass(slots=True)
class Tasks:
    """All tasks, the edges in both directions, and the ready ones by what they need."""

    by_id: dict[int, Task] = field(default_factory=dict[int, Task])
    blockers: dict[int, dict[int, BlockerPolicy]] = field(default_factory=dict[int, dict[int, BlockerPolicy]])
    dependents: dict[int, dict[int, None]] = field(default_factory=dict[int, dict[int, None]])
    open_blockers: dict[int, int] = field(default_factory=dict[int, int])
    ready: dict[BucketKey, dict[int, None]] = field(default_factory=dict[BucketKey, dict[int, None]])
    owned: dict[str, dict[int, None]] = field(default_factory=dict[str, dict[int, None]])
    tags_in_use: dict[str, int] = field(default_factory=dict[str, int])
    unfinished: int = 0
    highest: int = 0

    def get(self, task_id: int, *, operation: str) -> Task:
        """Return the task, or raise UnknownTask."""
        task = self.by_id.get(task_id)
        if task is None:
            raise UnknownTask(task_id, operation=operation, highest=self.highest)
        return task

    def blocked_by(self, task_id: int) -> tuple[int, ...]:
        """Return the blockers that still block, in numeric order."""
        edges = self.blockers.get(task_id)
        if not edges or not self.open_blockers.get(task_id):
            return ()
        return tuple(sorted(blocker for blocker, policy in edges.items() if not settles(self.by_id[blocker].status, policy)))

    def is_ready(self, task: Task) -> bool:
        """Tell whether nothing but an owner is missing."""
        return task.status is TaskStatus.pending and not self.open_blockers.get(task.id)

    def claimable(self, capabilities: frozenset[str], owner: str) -> Iterable[Task]:
        """Iterate over the ready tasks that this owner could take, longest ready first within what they need.

        Buckets that need more, are meant for somebody else, or whose exclusive tags are in use, are passed over whole.
        """
        for (needs, exclusive, assignee), bucket in self.ready.items():
            fits = needs <= capabilities and assignee in (None, owner)
            if fits and not any(tag in self.tags_in_use for tag in exclusive):
                for task_id in bucket:
                    yield self.by_id[task_id]

    def find_path(self, start: int, goal: int) -> list[int]:
        """Return a path of dependents from one task down to another, empty when there is none."""
        came_from: dict[int, int] = {start: start}
        stack = [start]
        while stack:
            here = stack.pop()
            if here == goal:
                path = [here]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            for further in self.dependents.get(here, ()):
                if further not in came_from:
                    came_from[further] = here
                    stack.append(further)
        return []

    # -- applying records --------------------------------------------------

    def apply_created(self, at: str, fields: Mapping[str, Any]) -> None:
        """Add a task with its edges."""
        get = fields.get
        task = Task(
            fields["id"],
            fields["subject"],
            get("description", ""),
            TaskStatus.pending,
            at,
            at,
            fields["by"],
            max_attempts=get("max_attempts", 3),
            needs=_set(get("needs")),
            exclusive=_set(get("exclusive")),
            assignee=get("assignee"),
            worktree=get("worktree"),
            notify=tuple(get("notify", ())),
        )
        self.by_id[task.id] = task
        self.highest = max(self.highest, task.id)
        self.unfinished += 1
        edges = get("blocked_by")
        if edges:
            self.blockers[task.id] = {}
            for blocker, policy in edges:
                self._link(task.id, blocker, BlockerPolicy(policy))
        if not self.open_blockers.get(task.id):
            self._enter_ready(task)

    def apply_edge(self, at: str, fields: Mapping[str, Any]) -> None:
        """Add one edge to a pending task."""
        task = self.by_id[fields["id"]]
        was_ready = self.is_ready(task)
        self.blockers.setdefault(task.id, {})
        self._link(task.id, fields["blocker"], BlockerPolicy(fields["policy"]))
        if was_ready and not self.is_ready(task):
            self._leave_ready(task)
        elif self.is_ready(task) and not was_ready:  # a softer policy for an edge that was there
            self._enter_ready(task)
        self.by_id[task.id] = task._replace(updated_at=at)

    def apply_changed(self, at: str, fields: Mapping[str, Any]) -> None:
        """Move a task to another status, owner and fence."""
        before = self.by_id[fields["id"]]
        get = fields.get
        after = Task(
            before.id,
            before.subject,
            before.description,
            _STATUSES[fields["status"]],
            before.created_at,
            at,
            before.created_by,
            get("owner"),
            get("fence", before.fence),
            get("until"),
            get("attempts", before.attempts),
            before.max_attempts,
            before.needs,
            before.exclusive,
            before.assignee,
            before.worktree,
            get("result", before.result),
            get("reason"),
            get("because_of"),
            before.notify,
        )
        self._swap(before, after)

    def apply_renewed(self, _at: str, fields: Mapping[str, Any]) -> None:
        """Extend the leases of several tasks."""
        for task_id in fields["ids"]:
            self.by_id[task_id] = self.by_id[task_id]._replace(lease_until=fields["until"])

    def apply_amended(self, at: str, fields: Mapping[str, Any]) -> None:
        """Change the words of a task, or for whom it is meant."""
        before = self.by_id[fields["id"]]
        changes = {key: fields[key] for key in ("subject", "description", "assignee", "worktree") if key in fields}
        after = before._replace(updated_at=at, **changes)
        if after.assignee != before.assignee:
            self._swap(before, after)
        else:  # other words do not send it to the end of the queue
            self.by_id[after.id] = after

    def _link(self, task_id: int, blocker: int, policy: BlockerPolicy) -> None:
        edges = self.blockers[task_id]
        open_before = blocker in edges and not settles(self.by_id[blocker].status, edges[blocker])
        if blocker not in edges:
            self.dependents.setdefault(blocker, {})[task_id] = None
        edges[blocker] = policy
        open_now = not settles(self.by_id[blocker].status, policy)
        if open_now != open_before:
            self.open_blockers[task_id] = self.open_blockers.get(task_id, 0) + (1 if open_now else -1)

    def _swap(self, before: Task, after: Task) -> None:
        if self.is_ready(before):
            self._leave_ready(before)
        if before.owner is not None:
            held = self.owned[before.owner]
            held.pop(before.id, None)
            if not held:
                del self.owned[before.owner]
            for tag in before.exclusive:
                self.tags_in_use.pop(tag, None)
        self.by_id[after.id] = after
        if after.owner is not None and after.status is TaskStatus.in_progress:
            self.owned.setdefault(after.owner, {})[after.id] = None
            for tag in after.exclusive:
                self.tags_in_use[tag] = after.id
        if before.status is not after.status:
            done_before, done_after = _is_over(before.status), _is_over(after.status)
            self.unfinished += done_before - done_after
            if done_before or done_after:
                self._tell_dependents(before.status, after)
        if self.is_ready(after):
            self._enter_ready(after)

    def _tell_dependents(self, status_before: TaskStatus, after: Task) -> None:
        for task_id in self.dependents.get(after.id, ()):
            policy = self.blockers[task_id][after.id]
            settled, settles_now = settles(status_before, policy), settles(after.status, policy)
            if settled == settles_now:
                continue
            dependent = self.by_id[task_id]
            was_ready = self.is_ready(dependent)
            self.open_blockers[task_id] = self.open_blockers.get(task_id, 0) + (-1 if settles_now else 1)
            if self.is_ready(dependent) and not was_ready:
                self._enter_ready(dependent)
            elif was_ready and not self.is_ready(dependent):
                self._leave_ready(dependent)

    def _enter_ready(self, task: Task) -> None:
        self.ready.setdefault((task.needs, task.exclusive, task.assignee), {})[task.id] = None

    def _leave_ready(self, task: Task) -> None:
        key = (task.needs, task.exclusive, task.assignee)
        bucket = self.ready[key]
        del bucket[task.id]
        if not bucket:
            del self.ready[key]

    # -- snapshot ----------------------------------------------------------

    def copy(self) -> "Tasks":
        """Return an independent fold that shares the immutable tasks."""
        return Tasks(
            dict(self.by_id),
            {task_id: dict(edges) for task_id, edges in self.blockers.items()},
            {task_id: dict(held) for task_id, held in self.dependents.items()},
            dict(self.open_blockers),
            {key: dict(bucket) for key, bucket in self.ready.items()},
            {owner: dict(held) for owner, held in self.owned.items()},
            dict(self.tags_in_use),
            self.unfinished,
            self.highest,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fold for a snapshot; what can be derived is left out."""
        tasks = [[*task[:_FIRST_SET], sorted(task.needs), sorted(task.exclusive), *task[_FIRST_SET + 2 :]] for task in self.by_id.values()]
        edges = [[task_id, blocker, policy] for task_id, held in self.blockers.items() for blocker, policy in held.items()]
        ready = [task_id for bucket in self.ready.values() for task_id in bucket]
        return {"highest": self.highest, "tasks": tasks, "edges": edges, "ready": ready}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Tasks":
        """Rebuild the fold from a snapshot."""
        tasks = cls(highest=data["highest"])
        for row in data["tasks"]:
            row[_STATUS] = _STATUSES[row[_STATUS]]
            row[_FIRST_SET], row[_FIRST_SET + 1], row[-1] = frozenset(row[_FIRST_SET]), frozenset(row[_FIRST_SET + 1]), tuple(row[-1])
            task = Task._make(row)
            tasks.by_id[task.id] = task
            tasks.unfinished += not _is_over(task.status)
            if task.owner is not None and task.status is TaskStatus.in_progress:
                tasks.owned.setdefault(task.owner, {})[task.id] = None
                tasks.tags_in_use.update(dict.fromkeys(task.exclusive, task.id))
        for task_id, blocker, policy in data["edges"]:
            tasks.blockers.setdefault(task_id, {})
            tasks._link(task_id, blocker, BlockerPolicy(policy))
        for task_id in data["ready"]:
            tasks._enter_ready(tasks.by_id[task_id])
        return tasks


def _is_over(status: TaskStatus) -> bool:
    return status in (TaskStatus.completed, TaskStatus.failed, TaskStatus.cancelled)
