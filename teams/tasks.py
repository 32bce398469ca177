"""The task manager: tasks that members take from a shared graph.

Laws: a claim is one decision, so a task has at most one owner; every later write shows the claim's fence, or comes from the member that
holds the task; a claim ends by complete, fail, release, the end of its owner, or the end of its lease; waiting for a task wakes on change.
"""

from collections.abc import Iterable, Sequence

from protocols.task_status import BlockerPolicy, TaskEvent, TaskStatus
from teams.engine import Engine
from teams.errors import UsageError
from teams.options import TaskOptions
from teams.state.task_commands import (
    AddEdge,
    AmendTask,
    CancelTask,
    Claim,
    ClaimTask,
    CreateTask,
    FinishTask,
    ReleaseTask,
    RenewLeases,
    RetryTask,
)
from teams.state.tasks import Task
from teams.task_graph import TaskGraph
from teams.waits import WaitGraph

Blocker = int | tuple[int, BlockerPolicy | str]
OVER = (TaskStatus.completed, TaskStatus.failed, TaskStatus.cancelled)


class TaskManager:
    """Tasks of one team, as one process sees them."""

    def __init__(self, engine: Engine, waits: WaitGraph, options: TaskOptions, *, author: str) -> None:
        self._engine, self._waits, self._options, self._author = engine, waits, options, author

    # -- making the graph ----------------------------------------------------

    async def create(
        self,
        subject: str,
        description: str = "",
        *,
        blocked_by: Sequence[Blocker] = (),
        needs: str | Iterable[str] = (),
        exclusive: str | Iterable[str] = (),
        assignee: str | None = None,
        max_attempts: int = 3,
    ) -> Task:
        """Add a task; durable when this returns.

        Args:
            blocked_by: ids of tasks that must be settled first; a pair gives the policy for a blocker that fails: `fail` (default), `skip`
                (cancel this one), `wait` (for its retry), `run` (all the same).
            needs: capabilities that the owner must have.
            exclusive: tags of which only one task in progress may hold each.
            assignee: the only member that may take it.
            max_attempts: claims after which an owner that dies or lets its lease end leaves the task failed.

        Raises: TaskGraphError for an unknown blocker; UnknownMember; UsageError for a blank subject.
        Checkpoints: always; when Cancelled, nothing was created.
        """
        command = CreateTask(
            subject=subject,
            description=description,
            by=self._author,
            blocked_by=[_edge(blocker) for blocker in blocked_by],
            needs=_words(needs),
            exclusive=_words(exclusive),
            assignee=assignee,
            max_attempts=max_attempts,
        )
        return self.get(await self._engine.submit(command))

    async def add_blocked_by(
        self, task_id: int, blockers: int | Sequence[Blocker], *, policy: BlockerPolicy | str = BlockerPolicy.fail
    ) -> Task:
        """Make a pending task wait for others.

        Raises: TaskGraphError for an unknown task, an edge to itself, or a cycle, which it names; TaskStateError when it has begun.
        Checkpoints: always; when Cancelled, some of the edges may be there.
        """
        for blocker in (blockers,) if isinstance(blockers, int) else blockers:
            other, chosen = _edge(blocker, BlockerPolicy(policy))
            await self._engine.submit(AddEdge(task_id, other, chosen))
        return self.get(task_id)

    async def amend(self, task_id: int, *, subject: str | None = None, description: str | None = None, assignee: str | None = None) -> Task:
        """Change the words of a pending task, or for whom it is meant.

        Raises: UnknownTask, UnknownMember, TaskStateError.
        Checkpoints: always.
        """
        await self._engine.submit(AmendTask(task_id, subject, description, assignee))
        return self.get(task_id)

    # -- working on tasks ------------------------------------------------------

    async def claim(self, task_id: int, owner: str, *, incarnation: int | None = None) -> Claim:
        """Take a task for a member; the claim holds its fence and the end of its lease (seconds since the epoch).

        Raises: ClaimLost, which says why and who has it; UnknownTask, UnknownMember.
        Checkpoints: always; when Cancelled, nothing was claimed.
        """
        claim = await self._engine.submit(ClaimTask(owner, self._options.lease_seconds, task_id, incarnation=incarnation))
        assert claim is not None
        return claim

    async def claim_next(self, owner: str, *, announce: bool = False, incarnation: int | None = None) -> Claim | None:
        """Take the first ready task that the member can take; None when there is none.

        Args: `announce` sends the owner the task as mail, in the same decision.
        Checkpoints: always; when Cancelled, nothing was claimed.
        """
        return await self._engine.submit(ClaimTask(owner, self._options.lease_seconds, announce=announce, incarnation=incarnation))

    async def complete(self, task_id: int, result: str = "", *, by: str | None = None, fence: int | None = None) -> Task:
        """Say that a task is done; shows the claim's fence, or who holds it.

        Raises: StaleLease when the claim ended meanwhile; TaskStateError; UnknownTask.
        Checkpoints: always.
        """
        await self._engine.submit(FinishTask(task_id, TaskEvent.complete, result, by, fence))
        return self.get(task_id)

    async def fail(self, task_id: int, reason: str, *, by: str | None = None, fence: int | None = None) -> Task:
        """Say that a task cannot be done; its dependents follow their edges. Raises and checkpoints as `complete`."""
        await self._engine.submit(FinishTask(task_id, TaskEvent.fail, reason, by, fence))
        return self.get(task_id)

    async def release(self, task_id: int, reason: str = "", *, by: str | None = None, fence: int | None = None) -> Task:
        """Hand a task back for others. Raises and checkpoints as `complete`."""
        await self._engine.submit(ReleaseTask(task_id, reason, by, fence))
        return self.get(task_id)

    async def retry(self, task_id: int) -> Task:
        """Make a failed task pending again, and those that failed because of it.

        Raises: TaskStateError; TaskGraphError when a blocker of it has failed.
        Checkpoints: always.
        """
        await self._engine.submit(RetryTask(task_id))
        return self.get(task_id)

    async def cancel(self, task_id: int, reason: str = "") -> Task:
        """Take a task out of the plan; its owner is told.

        Raises: TaskStateError; UnknownTask.
        Checkpoints: always.
        """
        await self._engine.submit(CancelTask(task_id, reason))
        return self.get(task_id)

    async def renew(self, *owners: str) -> int:
        """Extend the leases of what these members own; return how many tasks that were. The runtime does this for its teammates.

        Checkpoints: always.
        """
        return await self._engine.submit(RenewLeases(owners, self._options.lease_seconds))

    # -- looking -----------------------------------------------------------------

    def get(self, task_id: int) -> Task:
        """Return a task; raise UnknownTask."""
        return self._engine.state.tasks.get(task_id, operation="look at")

    def list_all(self) -> list[Task]:
        """Return every task, by id."""
        return sorted(self._engine.state.tasks.by_id.values(), key=lambda task: task.id)

    def list_pending(self) -> list[Task]:
        """Return the tasks that nobody has begun, by id."""
        return [task for task in self.list_all() if task.status is TaskStatus.pending]

    def get_ready_tasks(self) -> list[Task]:
        """Return the tasks that wait for an owner only, by id."""
        return self.graph.ready()

    def is_blocked(self, task_id: int) -> bool:
        """Tell whether a blocker still stands before the task."""
        self.get(task_id)
        return bool(self._engine.state.tasks.open_blockers.get(task_id))

    def owned_by(self, owner: str) -> list[Task]:
        """Return what a member has in progress, by id."""
        tasks = self._engine.state.tasks
        return [tasks.by_id[task_id] for task_id in sorted(tasks.owned.get(owner, ()))]

    @property
    def graph(self) -> TaskGraph:
        """The graph of this moment."""
        return TaskGraph(self._engine.state.tasks)

    # -- waiting -------------------------------------------------------------------

    async def wait(self, task_id: int, *, waiter: str | None = None) -> Task:
        """Wait until a task is completed, failed or cancelled, and return it.

        Args: `waiter` is the member that waits; a wait that would close a cycle is refused.
        Raises: UnknownTask, WaitCycle.
        Checkpoints: always.
        """
        self.get(task_id)
        if waiter is None:
            return await self._wait_over(task_id)
        with self._waits.waiting(waiter, f"task {task_id}", kind="task"):
            return await self._wait_over(task_id)

    async def _wait_over(self, task_id: int) -> Task:
        def over() -> Task | None:
            task = self.get(task_id)
            return task if task.status in OVER else None

        return await self._engine.wait_until(("task", task_id), over)


def _words(words: str | Iterable[str]) -> frozenset[str]:
    # One word is one word, and not the set of its letters.
    return frozenset((words,) if isinstance(words, str) else words)


def _edge(blocker: Blocker, policy: BlockerPolicy = BlockerPolicy.fail) -> tuple[int, BlockerPolicy]:
    if isinstance(blocker, int):
        return blocker, policy
    other, chosen = blocker
    try:
        return other, BlockerPolicy(chosen)
    except ValueError:
        raise UsageError(f"cannot make an edge with policy {chosen!r}; legal: {', '.join(BlockerPolicy)}") from None
