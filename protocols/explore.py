"""Walk through every state that a protocol can reach, and show that each keeps its promises.

A world is a pure description of who can do what next; the real tables and functions of this package step inside it, there is no second
model of them. What is found wrong is given as the shortest way to it.

Laws that are checked: what a world calls wrong is reached by no way; nothing that was decided changes; no state is stuck before an outcome;
from every state an outcome can be reached; and when whatever is fair (a deadline that has passed, a process that was killed) happens in the
end, an outcome cannot be avoided for ever.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import networkx as nx

S = TypeVar("S", bound=Hashable)

STATE_LIMIT = 2_000_000
"""A world with more states is not explored to its end, and that is an error: a check that stops early proves nothing."""


class Action(NamedTuple):
    """Something that can happen: who does it, to whom, and what.

    `fair` marks what happens in the end when it stays possible.
    """

    actor: str
    target: str
    what: str
    fair: bool = False

    def __str__(self) -> str:
        return f"{self.actor} -> {self.target}: {self.what}"


class World(Protocol[S]):
    """What is explored. All of it is pure."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def initial(self) -> S:
        """Return the state in which everything begins."""
        ...

    def actions(self, state: S) -> Iterable[tuple[Action, S]]:
        """Yield everything that can happen in a state, and the state after it."""
        ...

    def is_outcome(self, state: S) -> bool:
        """Tell whether the request has ended, and everybody may go."""
        ...

    def wrong(self, state: S) -> Iterable[str]:
        """Yield what must never be so in a state."""
        ...

    def wrong_step(self, before: S, after: S) -> Iterable[str]:
        """Yield what must never happen from one state to the next."""
        ...


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that is broken, and the shortest way there.

    `cycle` is what can go on for ever behind the path, where that is what is wrong.
    """

    promise: str
    path: tuple[Action, ...]
    cycle: tuple[Action, ...] = ()

    def __str__(self) -> str:
        lines = [self.promise, *(f"  {number}. {action}" for number, action in enumerate(self.path, 1))]
        if self.cycle:
            lines += ["  then for ever:", *(f"     {action}" for action in self.cycle)]
        return "\n".join(lines)

    def mermaid(self) -> str:
        """Return the path as a Mermaid sequence diagram."""
        lines = ["sequenceDiagram"]
        lines += [f"    {action.actor}->>{action.target}: {_plain(action.what)}" for action in self.path]
        if self.cycle:
            lines += ["    loop for ever", *(f"        {a.actor}->>{a.target}: {_plain(a.what)}" for a in self.cycle), "    end"]
        return "\n".join([*lines, f"    Note over {self.path[-1].target if self.path else 'world'}: {_plain(self.promise)}"])


@dataclass(frozen=True, slots=True)
class Report(Generic[S]):
    """What an exploration found: how much there is, and what is wrong with it, one violation for each promise."""

    name: str
    states: int
    transitions: int
    outcomes: int
    violations: tuple[Violation, ...]


class _Found(Generic[S]):
    """Everything that can be reached, with the way to each state; what lies behind a broken promise is not looked at."""

    def __init__(self, world: World[S], limit: int) -> None:
        first = world.initial()
        self.came_from: dict[S, tuple[S, Action] | None] = {first: None}
        self.next: dict[S, list[tuple[Action, S]]] = {}
        self.broken: set[S] = set()
        self.violations: list[Violation] = []
        todo = [first]
        for state in todo:  # grows while it is walked: breadth first, so that the first way to a state is a shortest one
            self.next[state] = []
            broken = [Violation(promise, self.path(state)) for promise in world.wrong(state)]
            if broken:
                self._break(state, broken)
                continue
            for action, after in world.actions(state):
                if broken := [Violation(promise, (*self.path(state), action)) for promise in world.wrong_step(state, after)]:
                    self._break(state, broken)
                    continue
                self.next[state].append((action, after))
                if after not in self.came_from:
                    self.came_from[after] = (state, action)
                    todo.append(after)
            if len(todo) > limit:
                raise RuntimeError(f"the world {world.name!r} has more than {limit:,} states; bound it")

    def _break(self, state: S, violations: list[Violation]) -> None:
        self.broken.add(state)
        self.violations += violations

    def path(self, state: S) -> tuple[Action, ...]:
        """Return a shortest way to a state."""
        steps: list[Action] = []
        while (step := self.came_from[state]) is not None:
            state, action = step
            steps.append(action)
        return tuple(reversed(steps))


def explore(world: World[S], *, limit: int = STATE_LIMIT) -> Report[S]:
    """Visit every state of a world and check every promise.

    Raises:
        RuntimeError: there are more states than the limit.
    """
    found = _Found(world, limit)
    outcomes = {state for state in found.next if world.is_outcome(state)}
    first_of: dict[str, Violation] = {}
    for violation in (*found.violations, *_liveness(found, outcomes | found.broken)):
        first_of.setdefault(violation.promise, violation)
    transitions = sum(len(steps) for steps in found.next.values())
    return Report(world.name, len(found.next), transitions, len(outcomes), tuple(first_of.values()))


def _liveness(found: _Found[S], outcomes: set[S]) -> Iterator[Violation]:
    import networkx as nx  # 0.2 s, and only who explores needs it

    graph: nx.DiGraph[Any] = nx.DiGraph()
    for state, steps in found.next.items():
        graph.add_node(state)
        graph.add_edges_from((state, after) for _, after in steps)
        if not steps and state not in outcomes:
            yield Violation("no state is stuck before an outcome", found.path(state))
    hopeful: set[S] = _ancestors(graph, outcomes)
    doomed = set(found.next) - hopeful
    for state in found.next:  # in the order of their distance
        if state in doomed:
            yield Violation("from every state an outcome can be reached", found.path(state))
            break
    open_states = graph.subgraph(set(graph) - outcomes)
    for component in nx.strongly_connected_components(open_states):
        cycle = _unfair_cycle(found, component)
        if cycle is not None:
            start = next(state for state in found.next if state in component)
            yield Violation("when deadlines pass an outcome comes", found.path(start), cycle)


def _ancestors(graph: "nx.DiGraph[Any]", targets: set[S]) -> set[S]:
    """Return the targets and all from which one of them can be reached."""
    seen, todo = set(targets), list(targets)
    while todo:
        for before in graph.predecessors(todo.pop()):
            if before not in seen:
                seen.add(before)
                todo.append(before)
    return seen


def _unfair_cycle(found: _Found[S], component: set[S]) -> tuple[Action, ...] | None:
    """Return what can go on for ever in a component although everything fair happens, None when nothing can.

    A run may stay inside for ever unless something fair is possible in every state of it and always leads out (weak fairness).
    """
    inside = {state: [step for step in found.next[state] if step[1] in component] for state in component}
    if not any(inside.values()):
        return None
    leaving = [{action.what for action, after in found.next[state] if action.fair and after not in component} for state in component]
    ways_out = leaving[0].intersection(*leaving)
    ways_round = {action.what for steps in inside.values() for action, _ in steps}
    if ways_out - ways_round:
        return None
    state, seen, actions = next(state for state, steps in inside.items() if steps), set[S](), list[Action]()
    while state not in seen and inside[state]:
        seen.add(state)
        action, state = inside[state][0]
        actions.append(action)
    return tuple(actions)


def _plain(text: str) -> str:
    """Return a text that a Mermaid line can hold."""
    return text.replace(";", ",").replace("\n", " ")
