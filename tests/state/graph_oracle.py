"""The task graph again, from the prose alone: everything is computed from scratch, slowly, out of statuses and edges.

It shares nothing with the code under test but the words of `protocols.task_status`.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from protocols.task_status import BlockerPolicy, TaskStatus

PENDING, RUNNING = TaskStatus.pending, TaskStatus.in_progress
DONE, FAILED, CANCELLED = TaskStatus.completed, TaskStatus.failed, TaskStatus.cancelled
FALLS = {BlockerPolicy.fail: FAILED, BlockerPolicy.skip: CANCELLED}
"""What becomes of a pending task under this policy when the blocker fails or is cancelled; under the others it stays pending."""


@dataclass
class Node:
    """One task."""

    id: int
    max_attempts: int
    needs: frozenset[str] = frozenset()
    exclusive: frozenset[str] = frozenset()
    assignee: str | None = None
    blockers: dict[int, BlockerPolicy] = field(default_factory=dict[int, BlockerPolicy])
    status: TaskStatus = PENDING
    owner: str | None = None
    attempts: int = 0
    lease_until: float = 0.0
    causes: frozenset[int] = frozenset()
    ready_since: int = 0  # the command that made it ready, 0 when it is not


@dataclass
class Worker:
    """One member."""

    name: str
    capabilities: frozenset[str]
    limit: int | None
    live: bool = True


class GraphOracle:
    """All tasks and workers."""

    def __init__(self, workers: list[Worker]) -> None:
        self.nodes: dict[int, Node] = {}
        self.workers = {worker.name: worker for worker in workers}
        self.steps = 0

    # -- questions ---------------------------------------------------------

    def is_over(self, task_id: int) -> bool:
        """Tell whether a task failed or was cancelled."""
        return self.nodes[task_id].status in (FAILED, CANCELLED)

    def blocked_by(self, task_id: int) -> list[int]:
        """Return the blockers that still block: not completed, and not over under the policy `run`."""
        edges = self.nodes[task_id].blockers.items()
        return sorted(
            blocker
            for blocker, policy in edges
            if self.nodes[blocker].status is not DONE and not (policy is BlockerPolicy.run and self.is_over(blocker))
        )

    def ready(self) -> list[int]:
        """Return the pending tasks that nothing blocks."""
        return sorted(node.id for node in self.nodes.values() if node.status is PENDING and not self.blocked_by(node.id))

    def owned(self, name: str) -> list[int]:
        """Return what a member has in progress."""
        return sorted(node.id for node in self.nodes.values() if node.owner == name)

    def tags_in_use(self) -> set[str]:
        """Return the exclusive tags of the tasks in progress."""
        return {tag for node in self.nodes.values() if node.status is RUNNING for tag in node.exclusive}

    def has_room(self, name: str) -> bool:
        """Tell whether a member may take one task more."""
        worker = self.workers[name]
        return worker.live and (worker.limit is None or len(self.owned(name)) < worker.limit)

    def claimable(self, name: str) -> set[int]:
        """Return the tasks that a member could take now."""
        if not self.has_room(name):
            return set()
        used, capabilities = self.tags_in_use(), self.workers[name].capabilities
        return {
            node.id
            for node in map(self.nodes.__getitem__, self.ready())
            if node.needs <= capabilities and node.assignee in (None, name) and not node.exclusive & used
        }

    def waits_for(self, start: int, goal: int) -> bool:
        """Tell whether one task waits for the other, directly or through others, or is it."""
        seen: set[int] = set()
        todo = {start}
        while todo:
            seen |= todo
            todo = {blocker for task_id in todo for blocker in self.nodes[task_id].blockers} - seen
        return goal in seen

    def is_true_cycle(self, cycle: tuple[int, ...], task_id: int, blocker: int) -> bool:
        """Tell whether each task of the list blocks the next one, the edge `blocker -> task_id` included, and the list closes."""
        edges = {(held, node.id) for node in self.nodes.values() for held in node.blockers} | {(blocker, task_id)}
        pairs = list(pairwise(cycle))
        return cycle[0] == cycle[-1] and (blocker, task_id) in pairs and all(pair in edges for pair in pairs)

    def may_have_edge(self, task_id: int, blocker: int, policy: BlockerPolicy) -> bool:
        """Tell whether the blocker exists, is another task, and has not fallen under a policy that heeds that."""
        return blocker != task_id and blocker in self.nodes and not (policy in FALLS and self.is_over(blocker))

    def ready_longer(self, task_id: int, among: set[int]) -> list[int]:
        """Return the tasks with the same demands that have been ready for longer."""
        node = self.nodes[task_id]
        demands = (node.needs, node.exclusive, node.assignee)
        others = [other for other in map(self.nodes.__getitem__, among) if (other.needs, other.exclusive, other.assignee) == demands]
        return [other.id for other in others if other.ready_since < node.ready_since]

    # -- changes -------------------------------------------------------------

    def free(self, task_id: int) -> None:
        """Make a task pending again, owned by nobody."""
        node = self.nodes[task_id]
        node.status, node.owner = PENDING, None

    def end(self, task_id: int, status: TaskStatus) -> None:
        """Complete, fail or cancel a task."""
        node = self.nodes[task_id]
        node.status, node.owner, node.causes = status, None, frozenset()

    def fall(self, roots: list[int], seen: dict[int, TaskStatus]) -> None:
        """Let everything fall that the fallen roots bring down; where two edges disagree, what was seen decides, if one of them says so."""
        fallen = set(roots)
        grown = True
        while grown:
            more = {
                node.id
                for node in self.nodes.values()
                if node.status is PENDING
                and node.id not in fallen
                and any(blocker in fallen and policy in FALLS for blocker, policy in node.blockers.items())
            }
            fallen |= more
            grown = bool(more)
        for task_id in fallen - set(roots):
            node = self.nodes[task_id]
            allowed = {FALLS[policy] for blocker, policy in node.blockers.items() if blocker in fallen and policy in FALLS}
            assert seen[task_id] in allowed, f"task {task_id} became {seen[task_id]} where its edges allow {allowed}"
            node.status = seen[task_id]
            node.causes = frozenset(blocker for blocker, policy in node.blockers.items() if blocker in fallen and policy in FALLS)

    def can_retry(self, task_id: int) -> bool:
        """Tell whether a task failed, and nothing that it waits for has fallen under a policy that would bring it down again."""
        node = self.nodes[task_id]
        return node.status is FAILED and not self._held_down(node, frozenset({task_id}))

    def _held_down(self, node: Node, risen: frozenset[int]) -> bool:
        return any(policy in FALLS and self.is_over(blocker) and blocker not in risen for blocker, policy in node.blockers.items())

    def retry(self, task_id: int, seen: dict[int, TaskStatus]) -> None:
        """Make a task pending, with at least those that failed only because of it, at most those that nothing holds down any more."""
        must, may = frozenset({task_id}), frozenset({task_id})
        for _ in self.nodes:
            for node in self.nodes.values():
                if node.status is FAILED and node.causes:
                    if node.causes <= must and not self._held_down(node, must):
                        must |= {node.id}
                    if any(blocker in may for blocker in node.blockers) and not self._held_down(node, may):
                        may |= {node.id}
        risen = {node.id for node in self.nodes.values() if node.status is FAILED and seen[node.id] is PENDING}
        assert must <= risen <= may, f"retrying task {task_id} revived {sorted(risen)}; must {sorted(must)}, may {sorted(may)}"
        for risen_id in risen:
            self.free(risen_id)
            self.nodes[risen_id].causes = frozenset()

    def tick(self) -> None:
        """Note since when each task is ready; after every command."""
        self.steps += 1
        ready = set(self.ready())
        for node in self.nodes.values():
            if node.id not in ready:
                node.ready_since = 0
            elif not node.ready_since:
                node.ready_since = self.steps
