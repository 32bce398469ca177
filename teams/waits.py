"""Who waits for whom, over every kind of wait: replies, joins, tasks, approvals.

Law: the wait that would close a cycle fails at once and names it; the graph is in the memory of the process whose members wait.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from teams.errors import WaitCycle

Node = str
"""A member's name, or `task N`."""


class WaitGraph:
    """The open waits of one process; `further` says whom a node that is no waiting member depends on (a task on its owner)."""

    def __init__(self, further: Callable[[Node], Iterable[Node]]) -> None:
        self._further = further
        self._edges: dict[Node, dict[Node, int]] = {}

    @contextmanager
    def waiting(self, waiter: Node, *targets: Node) -> Generator[None]:
        """Register a wait for as long as the block runs; waiting for any of several targets counts only when all of them close a cycle.

        Raises: WaitCycle when the waiter could never be woken.
        """
        cycles = [self._find_cycle(waiter, target) for target in targets]
        if cycles and all(cycles):
            raise WaitCycle(cycles[0])
        edges = self._edges.setdefault(waiter, {})
        for target in targets:
            edges[target] = edges.get(target, 0) + 1
        try:
            yield
        finally:
            for target in targets:
                edges[target] -= 1
                if not edges[target]:
                    del edges[target]
            if not edges:
                self._edges.pop(waiter, None)

    def waits_of(self, waiter: Node) -> tuple[Node, ...]:
        """Return what a member waits for now."""
        return tuple(self._edges.get(waiter, ()))

    def _find_cycle(self, waiter: Node, target: Node) -> list[Node]:
        came_from: dict[Node, Node] = {target: waiter}
        stack = [target]
        while stack:
            here = stack.pop()
            if here == waiter:
                path: list[Node] = []
                step = came_from[here]
                while step != waiter:
                    path.append(step)
                    step = came_from[step]
                return [waiter, *reversed(path)]
            for further in (*self._edges.get(here, ()), *self._further(here)):
                if further not in came_from:
                    came_from[further] = here
                    stack.append(further)
        return []
