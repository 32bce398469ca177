"""Who waits for whom: the wait that could never end fails at once and names the circle; nothing stays behind."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.lifecycle import MemberStatus
from protocols.names import RequestId
from protocols.request import Request, RequestKind, Stage, Vote, answer
from protocols.task_status import BlockerPolicy
from teams.errors import WaitCycle
from teams.state.roster import Member, MemberSpec
from teams.state.team_state import TeamState
from teams.waits import Node, TeamFacts, WaitGraph
from tests.core.wait_oracle import Job, Plan, Play, Wait, World

AT = "2026-01-01T00:00:00Z"


def graph_of(state: TeamState) -> WaitGraph:
    """Return the graph over a state."""
    return WaitGraph(TeamFacts(lambda: state))


def team(*names: str, persons: Sequence[str] = (), gone: Sequence[str] = ()) -> TeamState:
    """Return a state with these members."""
    state = TeamState()
    for name in names:
        spec = MemberSpec(name=name, kind="person" if name in persons else "teammate")
        state.roster.members[name] = Member(spec, MemberStatus.stopped if name in gone else MemberStatus.idle, 1, "here", AT, AT)
    return state


def add_task(state: TeamState, number: int, *, owner: str | None = None, **more: Any) -> None:
    """Add a task, in progress when it has an owner."""
    edges = [[blocker, more.pop("policy", BlockerPolicy.fail)] for blocker in more.pop("blocked_by", ())]
    state.tasks.apply_created(AT, {"id": number, "subject": "s", "by": "x", "blocked_by": edges, **more})
    if owner is not None:
        state.tasks.apply_changed(AT, {"id": number, "status": "in_progress", "owner": owner, "fence": 1})


def end_task(state: TeamState, number: int, status: str) -> None:
    """End a task."""
    state.tasks.apply_changed(AT, {"id": number, "status": status})


def submit(state: TeamState, author: str, *stages: Stage, votes: Sequence[Vote] = ()) -> None:
    """Submit a plan that nobody has decided."""
    request = Request(
        id=RequestId(f"r-{author}"),
        kind=RequestKind.plan_approval,
        asker=author,
        answerers=stages[0].answerers,
        quorum=stages[0].quorum,
        subject=author,
        opened_at=0.0,
        stages=stages if len(stages) > 1 else (),
        votes=tuple(votes),
    )
    state.requests.put(request)
    state.roster.set_plan(author, request=request.id, approved=None)


def refused(wait: AbstractContextManager[None]) -> WaitCycle:
    """Return the error of a wait that must be refused."""
    with pytest.raises(WaitCycle) as error, wait:
        pass
    return error.value


def allowed(wait: AbstractContextManager[None]) -> None:
    """Enter and leave a wait that must not be refused."""
    with wait:
        pass


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_circle_of_any_length_is_named_as_it_runs(length: int) -> None:
    """The waiter comes first, then whom it waits for, and so on round; who waits beside the circle is not in it."""
    names = [f"w{number}" for number in range(length)]
    graph = graph_of(team("beside", *names))
    with ExitStack() as stack:
        stack.enter_context(graph.waiting("beside", "w0"))
        for waiter, target in pairwise([*names[1:], names[0]]):
            stack.enter_context(graph.waiting(waiter, target))
        error = refused(graph.waiting("w0", names[1 % length]))
    assert error.cycle == tuple(names)
    assert error.kinds == ("reply",) * length
    assert str(error).startswith("cannot wait: w0 " + ", who ".join(f"waits for a reply from {name}" for name in [*names[1:], "w0"]) + ";")


def test_each_kind_of_wait_is_named_in_words() -> None:
    """Every edge of the circle says what is waited for."""
    state = team("ann", "ben", "cat", "dan", "eve", "fay", "gus")
    add_task(state, 1, assignee="ben")
    add_task(state, 2, blocked_by=[1])
    add_task(state, 3, owner="gus")
    submit(state, "ben", Stage(("cat",)))
    graph = graph_of(state)
    with (
        graph.waiting("cat", "dan", kind="permission"),
        graph.waiting("dan", "eve", kind="question"),
        graph.waiting("eve", "fay", kind="shutdown"),
        graph.waiting("fay", "gus", kind="join"),
        graph.waiting("gus", "ann", kind="plan"),
    ):
        error = refused(graph.waiting("ann", "task 2", kind="task"))
        by_task = refused(graph.waiting("ann", "task 3"))
    assert str(error) == (
        "cannot wait: ann waits for task 2, which is blocked by task 1, which is meant for ben, who has a plan that waits for cat, "
        "who waits for a permission from dan, who waits for an answer from eve, who waits for the shutdown of fay, "
        "who waits for the end of gus, who has a plan that waits for ann; nobody in this circle could ever go on"
    )
    assert error.cycle == ("ann", "task 2", "task 1", "ben", "cat", "dan", "eve", "fay", "gus")
    assert error.kinds == ("task", "blocker", "assignee", "plan", "permission", "question", "shutdown", "join", "plan")
    assert by_task.kinds == ("task", "owner", "plan")


def test_a_plan_holds_up_work_and_not_mail() -> None:
    """Who waits for the decision of its plan answers, decides and can be stopped; its task and its end must wait."""
    state = team("lead", "ann")
    add_task(state, 1, owner="ann")
    submit(state, "ann", Stage(("lead",)))
    graph = graph_of(state)
    for kind in ("reply", "permission", "question", "plan", "shutdown"):
        allowed(graph.waiting("lead", "ann", kind=kind))
    assert refused(graph.waiting("lead", "task 1")).cycle == ("lead", "task 1", "ann")
    assert refused(graph.waiting("lead", "ann", kind="join")).kinds == ("join", "plan")
    allowed(graph.waiting("ann", "lead"))


def test_a_submitted_plan_closes_the_circle_only_when_somebody_waits_again() -> None:
    """A plan that comes after the wait is not refused; the next wait that needs both is."""
    state = team("lead", "ann", "ben")
    add_task(state, 1, owner="ann")
    graph = graph_of(state)
    with graph.waiting("lead", "task 1"):
        submit(state, "ann", Stage(("lead",)))
        beside = refused(graph.waiting("ben", "ann", kind="join"))
        assert refused(graph.waiting("ann", "lead")).cycle == ("ann", "lead", "task 1")
    allowed(graph.waiting("ben", "ann", kind="join"))
    assert beside.cycle == ("ann", "lead", "task 1")
    assert str(beside).startswith("cannot wait: ben waits for the end of ann, who has a plan that waits for lead, who waits for task 1, ")


def test_a_plan_holds_nobody_any_more_once_it_is_rejected() -> None:
    """Who must revise its plan does that by itself; nobody is waited for."""
    state = team("lead", "ann")
    add_task(state, 1, owner="ann")
    submit(state, "ann", Stage(("lead",)))
    decided = answer(state.requests.get("r-ann"), approved=False, by="lead", at=1.0, feedback="no")
    assert decided is not None
    state.requests.put(decided)
    allowed(graph_of(state).waiting("lead", "task 1"))


def test_two_who_could_decide_a_plan_do_not_end_a_wait_as_well() -> None:
    """Each need of a member is met by itself, however many ways there are to meet another one."""
    state = team("ann", "ben", "cat", "lead")
    add_task(state, 1, owner="ann")
    submit(state, "ann", Stage(("lead",)), Stage(("cat",)))
    graph = graph_of(state)
    with graph.waiting("ann", "ben"):
        assert refused(graph.waiting("ben", "task 1")).kinds == ("task", "owner", "reply")


def test_any_approver_will_do_and_later_ones_count_too() -> None:
    """A plan stands only when nobody of this stage and the later ones can decide it, whoever has ended left out; a quorum needs so many."""
    state = team("lead", "ann", "ben", "cat", "old", "user", persons=["user"], gone=["old"])
    add_task(state, 1, owner="ann")
    graph = graph_of(state)
    submit(state, "ann", Stage(("lead", "ben")))
    allowed(graph.waiting("lead", "task 1"))
    with graph.waiting("ben", "lead"):
        assert refused(graph.waiting("lead", "task 1")).cycle == ("lead", "task 1", "ann")
        for stages in (
            [Stage(("lead",)), Stage(("cat",))],
            [Stage(("lead", "user"))],
            [Stage(("lead",)), Stage(("old",)), Stage(("user",))],
        ):
            submit(state, "ann", *stages)
            allowed(graph.waiting("lead", "task 1"))
        submit(state, "ann", Stage(("lead", "old"), 1), Stage(("ben",)))
        refused(graph.waiting("lead", "task 1"))
        submit(state, "ann", Stage(("lead", "ben", "cat"), 2))
        refused(graph.waiting("lead", "task 1"))
        submit(state, "ann", Stage(("lead", "ben", "cat"), 2), votes=[Vote("ben", True, 0.0)])
        allowed(graph.waiting("lead", "task 1"))
        submit(state, "ann", Stage(("old",)))
        allowed(graph.waiting("lead", "task 1"))


def test_a_blocked_task_needs_every_blocker_and_a_failed_one_holds_nobody() -> None:
    """One blocker of several that stands is enough to stand; what has failed under `run` or `wait` is nobody's to wait for."""
    state = team("ann", "ben")
    add_task(state, 1, owner="ben")
    add_task(state, 2, owner="ann")
    add_task(state, 3, blocked_by=[1, 2])
    add_task(state, 4, owner="ann", assignee="ann")
    add_task(state, 5, blocked_by=[4], policy=BlockerPolicy.run)
    add_task(state, 6, blocked_by=[4], policy=BlockerPolicy.wait)
    graph = graph_of(state)
    assert refused(graph.waiting("ann", "task 3")).cycle == ("ann", "task 3", "task 2")
    refused(graph.waiting("ann", "task 5"))
    end_task(state, 2, "completed")
    end_task(state, 4, "failed")
    for number in (3, 5, 6):
        allowed(graph.waiting("ann", f"task {number}"))


def test_persons_and_who_has_ended_hold_nobody_up() -> None:
    """A person may wait for anybody and be waited for; who has ended ends the wait for it, and decides nothing."""
    graph = graph_of(team("user", "ann", "ben", "old", persons=["user"], gone=["old"]))
    with graph.waiting("user", "ann"), graph.waiting("ann", "user"):
        allowed(graph.waiting("ben", "ann"))
    with graph.waiting("old", "ann"), graph.waiting("ben", "ann"):
        allowed(graph.waiting("ann", "old"))
        refused(graph.waiting("ann", "ben", "old", kind="permission"))
        allowed(graph.waiting("ann", "ben", "old"))


def test_a_refused_wait_leaves_nothing_and_an_ended_one_neither() -> None:
    """After a refusal, a normal end and an error, nobody waits, and the same wait is legal."""
    graph = graph_of(team("ann", "ben"))
    with graph.waiting("ann", "ben"):
        refused(graph.waiting("ben", "ann"))
        assert graph.waits_of("ben") == ()
        assert graph.waits_of("ann") == ("ben",)
    with pytest.raises(LookupError), graph.waiting("ann", "ben"):
        raise LookupError
    assert graph.waits_of("ann") == ()
    allowed(graph.waiting("ben", "ann"))


def test_several_waits_of_one_member_are_all_needed_and_end_one_by_one() -> None:
    """A member in two waits needs both; it stands as long as one of them cannot end, and each ends by itself."""
    graph = graph_of(team("ann", "ben", "cat"))
    first, second = graph.waiting("ann", "ben"), graph.waiting("ann", "ben")
    first.__enter__()
    second.__enter__()
    with graph.waiting("ann", "cat"):
        refused(graph.waiting("ben", "ann"))
    first.__exit__(None, None, None)
    refused(graph.waiting("ben", "ann"))
    second.__exit__(None, None, None)
    assert graph.waits_of("ann") == ()
    with graph.waiting("ben", "ann"):
        pass


def test_waiting_for_any_of_several_is_refused_only_when_none_can_wake() -> None:
    """As long as one of those who could end the wait is free, it is no circle; also where somebody else waits so."""
    graph = graph_of(team("ann", "ben", "cat"))
    with graph.waiting("ben", "ann"):
        allowed(graph.waiting("ann", "ben", "cat"))
        with graph.waiting("cat", "ben"):
            refused(graph.waiting("ann", "ben", "cat"))
    with graph.waiting("ben", "ann", "cat"):
        allowed(graph.waiting("ann", "ben"))


def test_a_look_costs_what_can_be_reached_and_not_what_there_is() -> None:
    """Who waits for a free member looks at that one, among thousands who wait; a chain costs its length, once."""
    names = [f"w{number}" for number in range(2_000)]
    state = team(*names, "ann", "ben")

    class Counting(TeamFacts):
        looked = 0

        def needs(self, node: Node) -> Any:
            self.looked += 1
            return super().needs(node)

    facts = Counting(lambda: state)
    graph = WaitGraph(facts)
    with ExitStack() as stack:
        for waiter, target in reversed(list(pairwise(names))):
            stack.enter_context(graph.waiting(target, waiter))
        facts.looked = 0
        allowed(graph.waiting("ann", "ben"))
        assert facts.looked == 1
        refused(graph.waiting("w0", "w1999"))
        assert facts.looked == 1 + 2_000


# -- against the play ------------------------------------------------------------------------------

NAMES = ("ann", "ben", "cat", "dan")
KINDS = ("reply", "join", "plan", "permission", "question", "shutdown")
TASKS = 3
a_name = st.sampled_from(NAMES)


@st.composite
def plans(draw: st.DrawFn, author: str) -> Plan:
    """Make a plan of one to three stages, with some votes that decide nothing yet."""
    others = [name for name in NAMES if name != author]
    stages: list[tuple[tuple[str, ...], int]] = []
    for _ in range(draw(st.integers(1, 3))):
        asked = tuple(draw(st.lists(st.sampled_from(others), min_size=1, max_size=3, unique=True)))
        stages.append((asked, draw(st.integers(1, len(asked)))))
    asked, needed = stages[0]
    votes: dict[str, bool] = {}
    for name in asked:
        said = draw(st.sampled_from([None, None, True, False]))
        cast = [*votes.values(), said]
        if said is not None and cast.count(True) < needed and cast.count(False) <= len(asked) - needed:
            votes[name] = said
    return Plan(stages, votes)


@st.composite
def jobs(draw: st.DrawFn, number: int) -> Job:
    """Make a task; its blockers have lower numbers."""
    blockers = draw(st.lists(st.integers(1, number - 1), max_size=2, unique=True)) if number > 1 else []
    free = st.none() | a_name
    return Job(draw(free), draw(st.none() | free), tuple(blockers))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Make a team with its tasks and plans, in which nobody waits yet."""
    gone = frozenset(draw(st.sets(a_name, max_size=1)))
    persons = frozenset(draw(st.sets(a_name, max_size=1))) - gone
    authors = draw(st.sets(a_name, max_size=2))
    return World(
        NAMES,
        persons,
        gone,
        {number: draw(jobs(number)) for number in range(1, TASKS + 1) if draw(st.sampled_from([True, True, False]))},
        {name: draw(plans(name)) for name in sorted(authors)},
    )


a_wait = st.tuples(
    st.just("wait"),
    a_name,
    st.lists(a_name, min_size=1, max_size=2, unique=True) | st.lists(st.integers(1, TASKS), min_size=1, max_size=2, unique=True),
    st.sampled_from(KINDS),
)
a_change = st.one_of(
    st.tuples(st.just("end"), st.integers(0, 3)),
    st.tuples(st.just("submit"), a_name, st.sampled_from(NAMES).flatmap(plans)),
    st.tuples(st.just("claim"), a_name, st.integers(1, TASKS)),
)
steps = st.lists(st.one_of(a_wait, a_wait, a_wait, a_change), min_size=8, max_size=16)


def state_of(world: World) -> TeamState:
    """Return the team's state that says what the world is; tasks that the world has not are over."""
    state = team(*world.members, persons=sorted(world.persons), gone=sorted(world.gone))
    for number in range(1, TASKS + 1):
        job = world.jobs.get(number, Job())
        policies = {blocker: BlockerPolicy.fail if blocker in world.jobs else BlockerPolicy.wait for blocker in job.blockers}
        add_task(state, number, assignee=job.assignee)
        for blocker, policy in policies.items():
            state.tasks.apply_edge(AT, {"id": number, "blocker": blocker, "policy": policy})
        if number not in world.jobs:
            end_task(state, number, "failed")
        elif job.owner is not None:
            state.tasks.apply_changed(AT, {"id": number, "status": "in_progress", "owner": job.owner, "fence": 1})
    for author, plan in world.plans.items():
        votes = [Vote(name, said, 0.0) for name, said in plan.votes.items()]
        submit(state, author, *(Stage(asked, needed) for asked, needed in plan.stages), votes=votes)
    return state


def check_circle(error: WaitCycle, world: World, waiter: str) -> None:
    """Every edge of the named circle is there, and nobody in it could do what the one before needs."""
    play = Play(world)
    assert error.cycle[0] == waiter or waiter not in error.cycle
    for here, kind, there in zip(error.cycle, error.kinds, [*error.cycle[1:], error.cycle[0]], strict=True):
        target: str | int = int(there[5:]) if there.startswith("task ") else there
        assert play.stands_still(target, kind), (here, kind, there)
        if here.startswith("task "):
            job = world.jobs[int(here[5:])]
            assert target in {"owner": (job.owner,), "assignee": (job.assignee,), "blocker": job.blockers}[kind]
            continue
        waits = [wait for wait in world.waits if wait.waiter == here and target in wait.targets]
        planned = kind == "plan" and here in world.plans and any(target in asked for asked, _ in world.plans[here].stages)
        assert planned or any(kind == ("task" if isinstance(target, int) else wait.kind) for wait in waits)


@settings(max_examples=200)
@given(worlds(), steps)
def test_a_wait_is_refused_exactly_when_playing_on_would_never_end_it(world: World, steps: list[tuple[Any, ...]]) -> None:
    """Whatever plans, tasks and waits there are and come: a new wait is refused if and only if nobody who moves could ever end it."""
    state = state_of(world)
    graph = WaitGraph(TeamFacts(lambda: state))
    open_waits: list[tuple[Wait, AbstractContextManager[None]]] = []
    for step in steps:
        if step[0] == "end" and step[1] < len(open_waits):
            wait, entered = open_waits.pop(step[1])
            world.waits.remove(wait)
            entered.__exit__(None, None, None)
        elif step[0] == "submit":
            if all(step[1] not in asked for asked, _ in step[2].stages):
                world.plans[step[1]] = step[2]
        elif step[0] == "claim" and step[2] in world.jobs:
            world.jobs[step[2]].owner = step[1]
        if step[0] in ("submit", "claim"):
            state = state_of(world)
        if step[0] != "wait":
            continue
        _, waiter, aims, kind = step
        wait = Wait(waiter, tuple(aims), kind)
        world.waits.append(wait)
        entered = graph.waiting(waiter, *(f"task {aim}" if isinstance(aim, int) else aim for aim in aims), kind=kind)
        if any(left is wait for left in Play(world).waits):
            check_circle(refused(entered), world, waiter)
            world.waits.remove(wait)
        else:
            entered.__enter__()
            open_waits.append((wait, entered))
    for _, entered in reversed(open_waits):
        entered.__exit__(None, None, None)
