"""Who waits for whom, over every kind of wait: replies, ends, tasks, plans, permissions, questions, shutdowns.

Laws:
- A member in several waits needs all of them; each wait is for any of its targets.
- *Attention* is what a member gives mail: it has it when every wait in which it stands can end. *Progress* is what it gives its work: it
  needs attention, and the decision of its plan as long as that is out. Replies and decisions need attention; tasks and ends need progress.
- A task needs its owner's progress; without an owner, all its open blockers, and the progress of the member for which it is meant.
- What can go on is the least fixed point of these rules, over what can be reached from the wait that is looked at, and nothing else. The
  wait that could never end is refused at once and names the circle.
- Only what is known to stand still counts: persons, the runtime and members that have ended hold nobody up; that a task may fail, and a
  deadline may pass, lets nobody off.

The waits are in the memory of the process whose members wait; owners, blockers, and what somebody must decide come from the log
(`TeamFacts`), also for members of other processes.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple, Protocol

from protocols.request import Request, RequestKind, Stage
from protocols.task_status import TaskStatus
from teams.errors import WaitCycle
from teams.state.tasks import Tasks
from teams.state.team_state import TeamState

WaitKind = Literal["reply", "join", "task", "plan", "permission", "question", "shutdown"]
EdgeKind = Literal[WaitKind, "owner", "blocker", "assignee"]

_WORDS: Mapping[EdgeKind, str] = {
    "reply": "waits for a reply from",
    "join": "waits for the end of",
    "task": "waits for",
    "plan": "has a plan that waits for",
    "permission": "waits for a permission from",
    "question": "waits for an answer from",
    "shutdown": "waits for the shutdown of",
    "owner": "is owned by",
    "blocker": "is blocked by",
    "assignee": "is meant for",
}
_DECISIONS = frozenset({"plan", "permission", "question"})
"""A member that has ended ends who waits for its reply or its end; it decides nothing, and whoever else is asked must."""
_BLOCKING: Mapping[RequestKind, WaitKind] = {RequestKind.permission: "permission", RequestKind.question: "question"}
"""Requests for which a call of their asker waits, in whatever process."""
_OVER = (TaskStatus.completed, TaskStatus.failed, TaskStatus.cancelled)
_TASK = "task "


class Ability(Enum):
    """What a node of the graph stands for."""

    attention = "attention"
    progress = "progress"
    ending = "ending"  # of a task


class Node(NamedTuple):
    """Something that can go on or not; `name` is a member's, or `task N`."""

    ability: Ability
    name: str


class Way(NamedTuple):
    """One way to meet a need: so many of these must be able to go on."""

    targets: tuple[Node, ...]
    needed: int = 1


class Need(NamedTuple):
    """What must be met before a node can go on; any of the ways will do."""

    kind: EdgeKind
    ways: tuple[Way, ...]


class Facts(Protocol):
    """What is known beside the waits."""

    def needs(self, node: Node) -> Sequence[Need] | None:
        """Return what a node needs beside the waits of its member; None when it can go on whatever it waits for."""
        ...

    def is_gone(self, member: str) -> bool:
        """Tell whether a member has ended, so that it decides nothing any more."""
        ...


class WaitGraph:
    """The open waits of one process."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._waits: dict[str, list[Need]] = {}

    @contextmanager
    def waiting(self, waiter: str, *targets: str, kind: WaitKind = "reply") -> Generator[None]:
        """Register a wait for any of the targets, for as long as the block runs.

        Args:
            targets: names of members, or `task N`, which needs no kind.
            kind: what is waited for; it decides what the targets need for it, and is named in the error.

        Raises: WaitCycle when the wait could never end.
        """
        ability = Ability.progress if kind in ("join", "task") else Ability.attention
        nodes = tuple(Node(Ability.ending if name.startswith(_TASK) else ability, name) for name in dict.fromkeys(targets))
        need = Need(kind, (Way(nodes),) if nodes else ())
        held = self._waits.setdefault(waiter, [])
        held.append(need)
        try:
            self._refuse_endless(waiter, need)
            yield
        finally:
            held.remove(need)
            if not held:
                del self._waits[waiter]

    def waits_of(self, waiter: str) -> tuple[str, ...]:
        """Return what a member waits for now."""
        return tuple(dict.fromkeys(node.name for need in self._waits.get(waiter, ()) for way in need.ways for node in way.targets))

    def _refuse_endless(self, waiter: str, wait: Need) -> None:
        first = self._reduced([wait])
        region = _Region(self._needs)
        if not first or region.can_end(first[0]):
            return
        edges, start = region.find_circle(waiter, first[0])
        names = [edge[0] for edge in edges]
        clauses = [f"{_WORDS[kind]} {target}" for _, kind, target in edges]
        links = [", which " if name.startswith(_TASK) else ", who " for name in names[1:]]
        sentence = f"{waiter} " + "".join(part for pair in zip(clauses, [*links, ""], strict=True) for part in pair)
        raise WaitCycle(names[start:], [kind for _, kind, _ in edges[start:]], sentence)

    def _needs(self, node: Node) -> list[Need]:
        known = self._facts.needs(node)
        if known is None:
            return []
        return self._reduced(known if node.ability is Ability.ending else [*self._waits.get(node.name, ()), *known])

    def _reduced(self, needs: Iterable[Need]) -> list[Need]:
        """Take out those who cannot decide any more, and the ways, and at last the needs, that are left to a deadline by that."""
        kept: list[Need] = []
        for need in needs:
            if need.kind not in _DECISIONS:
                kept += [need] if need.ways else []
                continue
            present = [Way(tuple(node for node in way.targets if not self._facts.is_gone(node.name)), way.needed) for way in need.ways]
            ways = tuple(way for way in present if len(way.targets) >= way.needed)
            kept += [Need(need.kind, ways)] if ways else []
        return kept


Edge = tuple[str, EdgeKind, str]


@dataclass(slots=True, eq=False)
class _OpenWay:
    """A way to meet one need of a node, and how many of its targets are not yet known to go on."""

    node: Node
    number: int
    missing: int


class _Region:
    """What can be reached from one wait, and which of it can go on."""

    def __init__(self, needs: Callable[[Node], list[Need]]) -> None:
        self._look_up = needs
        self._needs: dict[Node, list[Need]] = {}
        self._free: set[Node] = set()

    def can_end(self, wait: Need) -> bool:
        """Tell whether the wait can end, whatever becomes of the waiter's other ones."""
        self._reach(wait)
        self._settle()
        return self._is_met(wait)

    def _is_met(self, need: Need) -> bool:
        return any(sum(node in self._free for node in way.targets) >= way.needed for way in need.ways)

    def _reach(self, wait: Need) -> None:
        todo = [node for way in wait.ways for node in way.targets]
        while todo:
            node = todo.pop()
            if node not in self._needs:
                self._needs[node] = found = self._look_up(node)
                todo += [target for need in found for way in need.ways for target in way.targets]

    def _settle(self) -> None:
        """Let go on, from those who need nothing, whoever has all needs met; each edge is looked at once."""
        unmet = {node: len(needs) for node, needs in self._needs.items()}
        helped: dict[Node, list[_OpenWay]] = {}
        for node, needs in self._needs.items():
            for number, need in enumerate(needs):
                for way in need.ways:
                    open_way = _OpenWay(node, number, way.needed)
                    for target in way.targets:
                        helped.setdefault(target, []).append(open_way)
        met = set[tuple[Node, int]]()
        todo = [node for node, count in unmet.items() if not count]
        while todo:
            node = todo.pop()
            self._free.add(node)
            for open_way in helped.get(node, ()):
                open_way.missing -= 1
                of = open_way.node
                if not open_way.missing and (of, open_way.number) not in met:
                    met.add((of, open_way.number))
                    unmet[of] -= 1
                    if not unmet[of]:
                        todo.append(of)

    def _blocked(self, needs: Iterable[Need]) -> list[tuple[EdgeKind, Node]]:
        """Return those who hold up these needs; never empty for a node that cannot go on."""
        unmet = [need for need in needs if not self._is_met(need)]
        return [(_edge_kind(need, node), node) for need in unmet for way in need.ways for node in way.targets if node not in self._free]

    def find_circle(self, waiter: str, wait: Need) -> tuple[list[Edge], int]:
        """Return the edges from the waiter on, the shortest way back to it where there is one, and at which of them the circle begins."""
        came_from: dict[Node, tuple[Node | None, Edge]] = {}
        todo = deque[Node | None]([None])
        while todo:
            here = todo.popleft()
            name = waiter if here is None else here.name
            for kind, node in self._blocked([wait] if here is None else self._needs[here]):
                if node not in came_from:
                    came_from[node] = here, (name, kind, node.name)
                    todo.append(node)
                if node.name == waiter:  # both its nodes have the new wait
                    return _back(came_from, node), 0
        return self._walk(waiter, wait)

    def _walk(self, waiter: str, wait: Need) -> tuple[list[Edge], int]:
        """Follow whoever holds up, until somebody comes again: a circle that the waiter would only wait beside."""
        edges, reached = list[Edge](), dict[Node, int]()
        name, needs = waiter, [wait]
        while True:
            kind, node = self._blocked(needs)[0]
            edges.append((name, kind, node.name))
            if node in reached:
                return edges, reached[node]
            reached[node] = len(edges)
            name, needs = node.name, self._needs[node]


def _edge_kind(need: Need, target: Node) -> EdgeKind:
    return "task" if target.ability is Ability.ending and need.kind != "blocker" else need.kind


def _back(came_from: Mapping[Node, tuple[Node | None, Edge]], last: Node) -> list[Edge]:
    edges: list[Edge] = []
    node: Node | None = last
    while node is not None:
        node, edge = came_from[node]
        edges.append(edge)
    return edges[::-1]


class TeamFacts:
    """What the log of a team says: who owns a task, what blocks it, and whose plan waits for whom."""

    def __init__(self, state: Callable[[], TeamState]) -> None:
        self._state = state

    def is_gone(self, member: str) -> bool:
        """Tell whether a member has ended."""
        known = self._state().roster.members.get(member)
        return known is not None and not known.live

    def needs(self, node: Node) -> Sequence[Need] | None:
        """Return what a task, or a member's work, needs; None for a person, the runtime, and who has ended."""
        state = self._state()
        if node.ability is Ability.ending:
            return _task_needs(state.tasks, int(node.name[len(_TASK) :]))
        member = state.roster.members.get(node.name)
        if member is None or not member.live or member.spec.kind == "person":
            return None
        asked = (request for request in state.requests.open(asker=node.name) if request.is_undecided and request.kind in _BLOCKING)
        needs = [Need(_BLOCKING[request.kind], tuple(_ways_to_decide(request))) for request in asked]
        if node.ability is Ability.progress and member.plan_request is not None:
            plan = state.requests.get(member.plan_request)
            needs += [Need("plan", tuple(_ways_to_decide(plan)))] if plan.is_undecided else []
        return needs


def _task_needs(tasks: Tasks, task_id: int) -> list[Need]:
    task = tasks.by_id.get(task_id)
    if task is None or task.status in _OVER:  # one that failed and still blocks (policy `wait`) waits for a retry, which is anybody's
        return []
    if task.owner is not None:
        return [Need("owner", (Way((Node(Ability.progress, task.owner),)),))]
    needs = [Need("blocker", (Way((Node(Ability.ending, f"{_TASK}{blocker}"),)),)) for blocker in tasks.blocked_by(task_id)]
    if task.assignee is not None:
        needs.append(Need("assignee", (Way((Node(Ability.progress, task.assignee),)),)))
    return needs


def _ways_to_decide(request: Request) -> Iterable[Way]:
    """Return how many of whom could decide, at each stage that is still to come: together they all say yes, or all say no."""
    stages = request.stages[request.stage :] or (Stage(request.answerers, request.quorum),)
    for ahead, stage in enumerate(stages):
        votes = {} if ahead else {vote.by: vote.approved for vote in request.votes if vote.stage == request.stage}
        asked = dict.fromkeys(stage.answerers)
        yes = sum(votes.values())
        missing = min(stage.quorum - yes, len(asked) - stage.quorum + 1 - (len(votes) - yes))
        yield Way(tuple(Node(Ability.attention, name) for name in asked if name not in votes), max(1, missing))
