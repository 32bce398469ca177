"""Questions about the shape of the task graph, against answers by brute force, and its drawings."""

from collections.abc import Set as AbstractSet
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from protocols.task_status import BlockerPolicy, TaskEvent, TaskStatus
from teams.errors import UnknownTask
from teams.state.task_commands import CancelTask, ClaimTask, CreateTask, FinishTask
from teams.task_graph import TaskGraph
from tests.core.rig import open_rig
from tests.state.driving import Desk

dags = st.lists(st.sets(st.integers(0, 11), max_size=4), min_size=1, max_size=10).map(
    lambda rows: {number: {other + 1 for other in row if other + 1 < number} for number, row in enumerate(rows, 1)}
)
"""Blockers by task, only ever of earlier tasks."""


def make(dag: dict[int, set[int]], *, over: AbstractSet[int] = frozenset()) -> Desk:
    """Return a team with these tasks, some of them cancelled."""
    desk = Desk(watched=False)
    desk.join("ann", task_limit=None)
    for task_id, blockers in dag.items():
        desk.do(CreateTask(subject=f"t{task_id}", by="ann", blocked_by=[(blocker, BlockerPolicy.run) for blocker in sorted(blockers)]))
        assert desk.state.tasks.highest == task_id
    for task_id in sorted(over):
        desk.do(CancelTask(task_id))
    return desk


def chains(dag: dict[int, set[int]], allowed: set[int]) -> int:
    """Return the length of the longest chain among the allowed tasks, by trying all."""

    def longest(task_id: int) -> int:
        return 1 + max((longest(blocker) for blocker in dag[task_id] & allowed), default=0)

    return max(map(longest, allowed), default=0)


def reachable(edges: dict[int, set[int]], start: int) -> set[int]:
    """Return everything that the edges lead to."""
    found: set[int] = set()
    todo = set(edges[start])
    while todo:
        found |= todo
        todo = {further for task_id in todo for further in edges[task_id]} - found
    return found


@settings(max_examples=40)
@given(dag=dags, data=st.data())
def test_the_shape_of_any_graph_is_told_right(dag: dict[int, set[int]], data: st.DataObject) -> None:
    """Generations, critical path, ancestors and descendants are what brute force finds, over all tasks and over the open ones."""
    over = data.draw(st.sets(st.sampled_from(sorted(dag)), max_size=3))
    graph = TaskGraph(make(dag, over=over).state.tasks)
    steps = {task_id: number for number, step in enumerate(graph.generations()) for task_id in step}
    assert sorted(steps) == sorted(dag)
    for task_id, blockers in dag.items():
        assert steps[task_id] == max((steps[blocker] + 1 for blocker in blockers), default=0)
    behind = {task_id: {other for other, blockers in dag.items() if task_id in blockers} for task_id in dag}
    for task_id in dag:
        assert graph.ancestors(task_id) == sorted(reachable(dag, task_id))
        assert graph.descendants(task_id) == sorted(reachable(behind, task_id))
    for path, allowed in ((graph.critical_path(), set(dag) - over), (graph.critical_path(open_only=False), set(dag))):
        assert len(path) == chains(dag, allowed)
        assert set(path) <= allowed
        assert all(blocker in dag[task_id] for blocker, task_id in pairwise(path))


def test_questions_about_nothing_have_answers() -> None:
    """An empty graph has no path, no steps and a drawing that says so; an unknown task is an error."""
    graph = TaskGraph(Desk().state.tasks)
    assert (graph.critical_path(), graph.generations(), graph.ready(), graph.blocked()) == ([], [], [], {})
    assert graph.text() == "no tasks"
    assert graph.mermaid() == "flowchart TD"
    for question in (graph.ancestors, graph.descendants):
        with pytest.raises(UnknownTask, match=r"cannot look at task 1"):
            question(1)


def test_the_graph_that_is_handed_out_is_the_callers_own() -> None:
    """Changing the networkx graph changes nothing in the team."""
    desk = make({1: set(), 2: {1}})
    graph = TaskGraph(desk.state.tasks).graph()
    graph.clear()
    assert TaskGraph(desk.state.tasks).critical_path() == [1, 2]


def test_the_text_shows_every_status_in_numeric_order() -> None:
    """One line per task: mark, number, subject, owner, what blocks it, why it failed; task 10 comes last."""
    desk = make({number: set() for number in range(1, 11)})
    desk.do(CreateTask(subject="blocked", by="ann", blocked_by=[(10, BlockerPolicy.fail), (2, BlockerPolicy.fail)]))
    desk.do(ClaimTask("ann", 9.0, 1))
    for task_id, event in ((3, TaskEvent.complete), (4, TaskEvent.fail)):
        claim = desk.do(ClaimTask("ann", 9.0, task_id))
        assert claim is not None
        desk.do(FinishTask(task_id, event, "too hard", fence=claim.fence))
    desk.do(CancelTask(5, "no use"))
    lines = TaskGraph(desk.state.tasks).text().splitlines()
    assert lines[:5] == [
        "[>] 1 t1 (ann)",
        "[ ] 2 t2",
        "[x] 3 t3 done 1970-01-01T00:16:40",
        "[!] 4 t4: too hard",
        "[-] 5 t5: no use",
    ]
    assert lines[9:] == ["[ ] 10 t10", "[ ] 11 blocked <- 2, 10"]


HOSTILE = [
    'a"] --> t9["b',
    "<script>alert(1)</script>",
    "end",
    "two\nlines",
    "two\r\nlines\u2028and\u2029more\x0b\x0c\x85",
    "`code` & #quot; ; %% comment",
    'click t1 "javascript:x"',
    "[[{{((>\\",
    "x" * 500,
]


@pytest.mark.parametrize("subject", HOSTILE)
def test_no_subject_breaks_a_drawing(subject: str) -> None:
    """Whatever a model calls its task: a drawing has one line per task and one per edge, and the label stays inside its quotes."""
    desk = Desk()
    desk.do(CreateTask(subject=subject, by="ann"))
    desk.do(CreateTask(subject=subject, by="ann", blocked_by=[(1, BlockerPolicy.fail)]))
    graph = TaskGraph(desk.state.tasks)
    lines = graph.mermaid().splitlines()
    assert len(lines) == 4, "the subject made lines of its own"
    assert lines[0] == "flowchart TD"
    assert lines[3] == "    t1 --> t2"
    for number, line in enumerate(lines[1:3], 1):
        assert line.startswith(f'    t{number}["{number}: ')
        assert line.endswith('<br/>pending"]')
        label = line[len(f'    t{number}["') : -len('"]')].removesuffix("<br/>pending")
        assert not set(label) & set('"<>'), "the label can close its quotes or bring markup"
    desk.do(CancelTask(1, subject))
    assert len(graph.text().splitlines()) == 2, "the subject or the reason made lines of its own"


async def test_the_manager_shows_the_graph_of_the_moment(autojump_clock: MockClock) -> None:
    """Ready and blocked follow every change; what was blocked by a failed task under `wait` stays blocked."""
    async with open_rig() as rig:
        first = await rig.tasks.create("1")
        second = await rig.tasks.create("2", blocked_by=[(first.id, "wait")])
        assert rig.tasks.graph.blocked() == {second.id: (first.id,)}
        await rig.tasks.cancel(first.id)
        assert rig.tasks.graph.blocked() == {second.id: (first.id,)}
        assert rig.tasks.graph.ready() == []
        assert rig.tasks.get(second.id).status is TaskStatus.pending
