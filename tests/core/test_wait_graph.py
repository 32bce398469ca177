"""Who waits for whom: the wait that would close a circle fails at once and names the circle; nothing stays behind."""

from collections.abc import Iterable
from contextlib import ExitStack
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teams.errors import WaitCycle
from teams.waits import WaitGraph


def depends(**nodes: Iterable[str]) -> WaitGraph:
    """Return a graph in which nodes that are no waiting members depend on others as given."""
    return WaitGraph(lambda node: nodes.get(node.replace(" ", "_"), ()))


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_circle_of_any_length_is_named_as_it_runs(length: int) -> None:
    """The waiter comes first, then whom it waits for, and so on round; who waits beside the circle is not in it."""
    names = [f"w{number}" for number in range(length)]
    graph = depends()
    with ExitStack() as stack:
        stack.enter_context(graph.waiting("beside", "w0"))
        for waiter, target in pairwise([*names[1:], names[0]]):
            stack.enter_context(graph.waiting(waiter, target))
        with pytest.raises(WaitCycle) as refused, graph.waiting("w0", names[1 % length]):
            pass
    assert refused.value.cycle == tuple(names)
    assert str(refused.value).startswith(f"cannot wait: {' waits for '.join([*names, 'w0'])}")


def test_a_circle_runs_through_tasks_and_their_owners() -> None:
    """A task depends on its owner, a blocked one on its blockers: the circle is found through them."""
    graph = depends(task_2=["task 1"], task_1=["ben"])
    with graph.waiting("ann", "task 2"), pytest.raises(WaitCycle) as refused, graph.waiting("ben", "ann"):
        pass
    assert refused.value.cycle == ("ben", "ann", "task 2", "task 1")


def test_a_refused_wait_leaves_nothing_and_an_ended_one_neither() -> None:
    """After a refusal, a normal end and an error, nobody waits, and the same wait is legal."""
    graph = depends()
    with graph.waiting("ann", "ben"):
        with pytest.raises(WaitCycle), graph.waiting("ben", "ann"):
            pass
        assert graph.waits_of("ben") == ()
        assert graph.waits_of("ann") == ("ben",)
    with pytest.raises(LookupError), graph.waiting("ann", "ben"):
        raise LookupError
    assert graph.waits_of("ann") == ()
    with graph.waiting("ben", "ann"):
        pass


def test_several_waits_of_one_member_end_one_by_one() -> None:
    """Two tasks of one member wait for the same other: the edge stands until both have ended."""
    graph = depends()
    first, second = graph.waiting("ann", "ben"), graph.waiting("ann", "ben", "cat")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with pytest.raises(WaitCycle), graph.waiting("ben", "ann"):
        pass
    second.__exit__(None, None, None)
    assert graph.waits_of("ann") == ()
    with graph.waiting("ben", "ann"):
        pass


def test_waiting_for_any_of_several_is_refused_only_when_none_can_wake() -> None:
    """As long as one of those who could end the wait is free, it is no circle."""
    graph = depends()
    with graph.waiting("ben", "ann"):
        with graph.waiting("ann", "ben", "cat"):
            pass
        with graph.waiting("cat", "ben"), pytest.raises(WaitCycle), graph.waiting("ann", "ben", "cat"):
            pass


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_waits_are_refused_exactly_when_they_would_close_a_circle(pairs: list[tuple[int, int]]) -> None:
    """Whatever waits there are: a new one is refused if and only if its target already waits, through others, for the waiter."""
    graph, edges = depends(), dict[str, set[str]]()

    def waits(start: str, goal: str) -> bool:
        seen, todo = set[str](), {start}
        while todo:
            seen |= todo
            todo = {further for node in todo for further in edges.get(node, ())} - seen
        return goal in seen

    with ExitStack() as stack:
        for waiter, target in ((f"w{first}", f"w{second}") for first, second in pairs):
            if waits(target, waiter):
                with pytest.raises(WaitCycle) as refused, graph.waiting(waiter, target):
                    pass
                cycle = refused.value.cycle
                assert (cycle[0], cycle[1 % len(cycle)]) == (waiter, target)
                for here, there in pairwise([*cycle[1:], cycle[0]]):
                    assert there in edges[here]
            else:
                stack.enter_context(graph.waiting(waiter, target))
                edges.setdefault(waiter, set()).add(target)
