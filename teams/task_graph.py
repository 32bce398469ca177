"""Questions about the shape of the task graph, answered by networkx: order, critical path, ancestors, drawings.

Readiness is not computed here: `teams.state.tasks` keeps it with every record. The graph is built when somebody asks, once per state of the
tasks; that costs a walk over all tasks (about 30 ms for 10,000), and no command depends on it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from protocols.task_status import TaskStatus
from teams.state.tasks import Task, Tasks

if TYPE_CHECKING:
    import networkx as nx

_MARKS = {
    TaskStatus.pending: "[ ]",
    TaskStatus.in_progress: "[>]",
    TaskStatus.completed: "[x]",
    TaskStatus.failed: "[!]",
    TaskStatus.cancelled: "[-]",
}


class TaskGraph:
    """The dependency graph of one moment: an edge runs from a blocker to the task that waits for it."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def ready(self) -> list[Task]:
        """Return the tasks that wait for an owner only, by id."""
        return sorted((self._tasks.by_id[task_id] for bucket in self._tasks.ready.values() for task_id in bucket), key=_by_id)

    def blocked(self) -> dict[int, tuple[int, ...]]:
        """Return for each pending task that is blocked the blockers that still block."""
        waiting = (task for task in self._tasks.by_id.values() if task.status is TaskStatus.pending)
        return {task.id: blockers for task in waiting if (blockers := self._tasks.blocked_by(task.id))}

    def graph(self) -> "nx.DiGraph[int]":
        """Return the graph as networkx holds it; changing it changes nothing here."""
        import networkx as nx  # 0.2 s and 25 MB; only questions about shape need it

        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(sorted(self._tasks.by_id))
        graph.add_edges_from((blocker, task_id) for task_id, edges in self._tasks.blockers.items() for blocker in edges)
        return graph

    def generations(self) -> list[list[int]]:
        """Return the tasks in steps: all of one step could run at the same time, after the steps before it."""
        import networkx as nx  # as in `graph`

        return [sorted(generation) for generation in nx.topological_generations(self.graph())]

    def critical_path(self, *, open_only: bool = True) -> list[int]:
        """Return the longest chain of tasks; by default of those that are not over."""
        import networkx as nx  # as in `graph`

        graph = self.graph()
        if open_only:
            graph.remove_nodes_from([task.id for task in self._tasks.by_id.values() if task.status not in _OPEN])
        return list(nx.dag_longest_path(graph))

    def ancestors(self, task_id: int) -> list[int]:
        """Return everything that must be settled before the task, by id."""
        import networkx as nx  # as in `graph`

        self._tasks.get(task_id, operation="look at")
        return sorted(nx.ancestors(self.graph(), task_id))

    def descendants(self, task_id: int) -> list[int]:
        """Return everything that waits for the task, by id."""
        import networkx as nx  # as in `graph`

        self._tasks.get(task_id, operation="look at")
        return sorted(nx.descendants(self.graph(), task_id))

    def text(self) -> str:
        """Draw one line per task: mark, id, subject, owner, and what it is blocked by."""
        return "\n".join(describe(self._tasks, task) for task in sorted(self._tasks.by_id.values(), key=_by_id)) or "no tasks"

    def mermaid(self) -> str:
        """Draw the graph as a Mermaid flowchart."""
        lines = ["flowchart TD"]
        for task in sorted(self._tasks.by_id.values(), key=_by_id):
            label = _one_line(task.subject).translate(_MERMAID)
            lines.append(f'    t{task.id}["{task.id}: {label}<br/>{task.status.value}"]')
        for task_id, edges in sorted(self._tasks.blockers.items()):
            lines += [f"    t{blocker} --> t{task_id}" for blocker in sorted(edges)]
        return "\n".join(lines)


def describe(tasks: Tasks, task: Task) -> str:
    """Return one line about a task: `[>] 3 Build the API (ann)`, `[ ] 4 Test it <- 3`."""
    parts = [_MARKS[task.status], str(task.id), _one_line(task.subject)]
    if task.owner:
        parts.append(f"({task.owner})")
    blocked_by: Sequence[int] = tasks.blocked_by(task.id)
    if blocked_by and task.status is TaskStatus.pending:
        parts.append(f"<- {', '.join(map(str, blocked_by))}")
    if task.status is TaskStatus.completed:
        parts.append(f"done {task.updated_at[:19]}")
    line = " ".join(parts)
    if task.reason and task.status in (TaskStatus.failed, TaskStatus.cancelled):
        line += f": {_one_line(task.reason)}"
    return line


def _one_line(text: str) -> str:
    return " ".join(text.split())


_OPEN = (TaskStatus.pending, TaskStatus.in_progress)
_MERMAID = {ord('"'): "#quot;", ord("<"): "#lt;", ord(">"): "#gt;", ord("\n"): " ", ord("["): "(", ord("]"): ")"}


def _by_id(task: Task) -> int:
    return task.id
