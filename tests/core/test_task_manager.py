"""Tasks as their callers meet them: the verbs, waiting without polling, and races for the same task."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from protocols.task_status import BlockerPolicy, TaskStatus
from teams.errors import ClaimLost, StaleLease, TaskGraphError, TaskStateError, UnknownTask, UsageError, WaitCycle
from teams.journal import MemoryJournal, MemoryLog
from teams.state.task_commands import ExpireLeases
from teams.testing.team import run_seeded
from tests.core.rig import open_rig


async def test_every_verb_returns_the_task_as_it_then_is(autojump_clock: MockClock) -> None:
    """Create, block, amend, claim, release, fail, retry, complete and cancel answer with the new state of the task."""
    async with open_rig() as rig:
        tasks = rig.tasks
        first = await tasks.create("design", "with care", needs={"dev"}, assignee=None, max_attempts=2)
        assert (first.id, first.status, first.description, first.max_attempts) == (1, TaskStatus.pending, "with care", 2)
        assert first.needs == {"dev"}
        second = await tasks.create("build")
        assert second.created_by == "ann"
        await tasks.add_blocked_by(second.id, first.id)
        third = await tasks.create("test", blocked_by=[first.id, (second.id, "skip")])
        assert [task.id for task in tasks.get_ready_tasks()] == [first.id]
        assert [tasks.is_blocked(task.id) for task in (first, second, third)] == [False, True, True]
        assert (await tasks.amend(second.id, subject="build it", assignee="cat")).subject == "build it"
        with pytest.raises(ClaimLost, match=r"it needs dev"):
            await tasks.claim(first.id, "ann")
        await rig.join("dev", capabilities=("dev",), task_limit=None)
        claim = await tasks.claim(first.id, "dev")
        assert claim.lease_until == rig.engine.now + 300.0
        assert [task.id for task in tasks.owned_by("dev")] == [first.id]
        assert (await tasks.release(first.id, "later", by="dev")).status is TaskStatus.pending
        claim = await tasks.claim(first.id, "dev")
        assert (await tasks.fail(first.id, "no", fence=claim.fence)).reason == "no"
        assert [task.status for task in tasks.list_all()] == [TaskStatus.failed, TaskStatus.failed, TaskStatus.failed]
        assert (await tasks.retry(first.id)).status is TaskStatus.pending
        assert [task.id for task in tasks.list_pending()] == [1, 2, 3]
        claim = await tasks.claim(first.id, "dev")
        assert (await tasks.complete(first.id, "drawn", fence=claim.fence)).result == "drawn"
        assert (await tasks.cancel(second.id, "not needed")).reason == "not needed"
        assert tasks.get(third.id).status is TaskStatus.cancelled
        assert await tasks.claim_next("ann") is None


async def test_wrong_calls_say_what_is_wrong(autojump_clock: MockClock) -> None:
    """An unknown id, an unknown policy, a write without a right, and a status that forbids it each have their error."""
    async with open_rig() as rig:
        with pytest.raises(UnknownTask, match=r"cannot look at task 1: no such task; there are no tasks yet"):
            rig.tasks.get(1)
        task = await rig.tasks.create("x")
        for call in (
            rig.tasks.claim(7, "ann"),
            rig.tasks.complete(7, by="ann"),
            rig.tasks.retry(7),
            rig.tasks.cancel(7),
            rig.tasks.wait(7),
        ):
            with pytest.raises(UnknownTask, match=r"task 7: no such task; ids run from 1 to 1"):
                await call
        with pytest.raises(UsageError, match=r"policy 'maybe'; legal: fail, skip, wait, run"):
            await rig.tasks.create("y", blocked_by=[(task.id, "maybe")])
        with pytest.raises(TaskGraphError, match=r"wait for itself"):
            await rig.tasks.add_blocked_by(task.id, task.id)
        with pytest.raises(TaskStateError, match=r"cannot complete task 1: it is pending; legal now"):
            await rig.tasks.complete(task.id, by="ann")
        with pytest.raises(UsageError, match=r"show the fence of your claim"):
            await rig.tasks.complete(task.id)
        assert len(rig.tasks.list_all()) == 1


async def test_edges_are_added_with_one_policy_or_one_for_each(autojump_clock: MockClock) -> None:
    """A single id, a list of ids and a list of pairs are all taken, and `policy` is for those that name none."""
    async with open_rig() as rig:
        ids = [(await rig.tasks.create(str(number))).id for number in range(4)]
        task = await rig.tasks.create("last")
        await rig.tasks.add_blocked_by(task.id, ids[0])
        await rig.tasks.add_blocked_by(task.id, [ids[1], (ids[2], BlockerPolicy.run)], policy="wait")
        policies = {"1": "fail", "2": "wait", "3": "run"}
        assert {str(blocker): policy.value for blocker, policy in rig.engine.state.tasks.blockers[task.id].items()} == policies


# -- waiting ---------------------------------------------------------------------------


async def test_a_wait_ends_with_the_task_and_polls_nothing(autojump_clock: MockClock) -> None:
    """Completed, failed and cancelled end a wait at the very moment, a task that is over already at once; waiting writes nothing."""
    async with open_rig() as rig, trio.open_nursery() as nursery:
        tasks = [await rig.tasks.create(str(number)) for number in range(3)]
        ended: dict[str, float] = {}

        async def wait(task_id: int) -> None:
            task = await rig.tasks.wait(task_id)
            ended[task.status.value] = trio.current_time()

        for task in tasks:
            nursery.start_soon(wait, task.id)
        seq, begin = rig.engine.state.seq, trio.current_time()
        await trio.sleep(1_000)
        assert (rig.engine.state.seq, ended) == (seq, {})
        await rig.tasks.complete(tasks[0].id, fence=(await rig.tasks.claim(tasks[0].id, "ann")).fence)
        await rig.tasks.fail(tasks[1].id, "no", fence=(await rig.tasks.claim(tasks[1].id, "ann")).fence)
        await trio.sleep(1_000)
        await rig.tasks.cancel(tasks[2].id)
        await wait_all_tasks_blocked()
        assert ended == {"completed": begin + 1_000, "failed": begin + 1_000, "cancelled": begin + 2_000}
        assert (await rig.tasks.wait(tasks[0].id)).result == ""


async def test_a_wait_for_what_falls_with_its_blocker_ends_too(autojump_clock: MockClock) -> None:
    """Who waits for a dependent is woken when the failure reaches it."""
    async with open_rig() as rig, trio.open_nursery() as nursery:
        first = await rig.tasks.create("1")
        second = await rig.tasks.create("2", blocked_by=[first.id])
        third = await rig.tasks.create("3", blocked_by=[(second.id, "skip")])
        ended: list[str] = []

        async def wait() -> None:
            ended.append((await rig.tasks.wait(third.id)).status.value)

        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        await rig.tasks.cancel(first.id)
        await wait_all_tasks_blocked()
        assert ended == ["cancelled"]


async def test_waits_for_tasks_and_for_members_make_one_graph(autojump_clock: MockClock) -> None:
    """Ann waits for a task that is blocked by one that ben has, and ben asks ann: the circle is named with the tasks in it."""
    async with open_rig() as rig, trio.open_nursery() as nursery:
        first = await rig.tasks.create("1")
        second = await rig.tasks.create("2", blocked_by=[first.id])
        await rig.tasks.claim(first.id, "ben")
        nursery.start_soon(lambda: rig.tasks.wait(second.id, waiter="ann"))
        await wait_all_tasks_blocked()
        with pytest.raises(
            WaitCycle, match=r"ben waits for a reply from ann, who waits for task 2, which is blocked by task 1, which is owned by ben;"
        ):
            await rig.bus.ask("ben", "ann", "are you done?")
        with pytest.raises(WaitCycle, match=r"ben waits for task 1, which is owned by ben;"):
            await rig.tasks.wait(first.id, waiter="ben")
        await rig.tasks.complete(first.id, by="ben")
        await rig.tasks.cancel(second.id)
        await wait_all_tasks_blocked()
        assert rig.waits.waits_of("ann") == ()
        nursery.cancel_scope.cancel()


# -- races -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(50))
def test_eight_agents_take_eight_tasks_once_each(seed: int) -> None:
    """However the scheduler runs them: eight who all try for all eight tasks end with one each; each loser is told the true owner."""
    names = [f"w{number}" for number in range(8)]

    async def main() -> None:
        async with open_rig(members=names, task_limit=1) as rig:
            for number in range(8):
                await rig.tasks.create(str(number))
            won: dict[int, str] = {}
            lost: list[tuple[int, str | None]] = []

            async def work(name: str) -> None:
                for task_id in range(1, 9):
                    try:
                        claim = await rig.tasks.claim(task_id, name)
                    except ClaimLost as error:
                        lost.append((task_id, error.owner))
                        continue
                    assert claim.task.id not in won
                    won[claim.task.id] = name
                    return

            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(work, name)
            assert sorted(won) == list(range(1, 9))
            assert sorted(won.values()) == names
            assert all(owner == won[task_id] for task_id, owner in lost)
            assert {task.owner for task in rig.tasks.list_all()} == set(names)

    run_seeded(main, seed=seed)


@pytest.mark.parametrize("seed", range(10))
def test_agents_that_take_whatever_is_next_finish_a_graph(seed: int) -> None:
    """Four who ask for the next task and wait for readiness run layers of tasks, each task once, no blocker after its dependent."""

    async def main() -> None:
        async with open_rig(members=["w0", "w1", "w2", "w3"], task_limit=1) as rig:
            layers: list[list[int]] = []
            for layer in range(4):
                ids = [(await rig.tasks.create(f"{layer}.{number}", blocked_by=layers[-1] if layers else ())).id for number in range(3)]
                layers.append(ids)
            order: list[int] = []

            async def work(name: str) -> None:
                while rig.engine.state.tasks.unfinished:
                    claim = await rig.tasks.claim_next(name)
                    if claim is None:
                        await rig.engine.park(("any", ""))
                        continue
                    await trio.lowlevel.checkpoint()
                    await rig.tasks.complete(claim.task.id, fence=claim.fence)
                    order.append(claim.task.id)

            async with trio.open_nursery() as nursery:
                for name in ("w0", "w1", "w2", "w3"):
                    nursery.start_soon(work, name)
            assert sorted(order) == [task_id for ids in layers for task_id in ids]
            places = {task_id: place for place, task_id in enumerate(order)}
            for before, after in pairwise(layers):
                assert max(places[task_id] for task_id in before) < min(places[task_id] for task_id in after)

    run_seeded(main, seed=seed)


async def test_a_thousand_claims_of_ten_tasks_have_ten_winners(autojump_clock: MockClock) -> None:
    """A hundred members all try for each of ten tasks at once: every task has one winner, and everybody else is refused."""
    names = [f"w{number}" for number in range(100)]
    log = MemoryLog()
    async with open_rig(MemoryJournal(log), members=names) as rig:
        for number in range(10):
            await rig.tasks.create(str(number))
        outcomes: Counter[str] = Counter()
        fences: dict[int, int] = {}

        async def claim(task_id: int, name: str) -> None:
            try:
                claimed = await rig.tasks.claim(task_id, name)
            except ClaimLost:
                outcomes["lost"] += 1
                return
            outcomes["won"] += 1
            assert claimed.fence > fences.get(task_id, 0)
            fences[task_id] = claimed.fence

        async with trio.open_nursery() as nursery:
            for name in names:
                for task_id in range(1, 11):
                    nursery.start_soon(claim, task_id, name)
        assert outcomes == {"won": 10, "lost": 990}


async def test_a_worker_that_lost_its_lease_cannot_finish(autojump_clock: MockClock) -> None:
    """Without renewal the lease ends, another takes the task, and the first one's result is refused; with renewal it stays."""
    async with open_rig() as rig:
        task, kept = await rig.tasks.create("x"), await rig.tasks.create("y")
        stale = await rig.tasks.claim(task.id, "ann")
        await rig.tasks.claim(kept.id, "ben")
        await trio.sleep(200)
        assert await rig.tasks.renew("ben") == 1
        await trio.sleep(100)
        assert await rig.engine.submit(ExpireLeases()) == (task.id,)
        current = await rig.tasks.claim(task.id, "cat")
        with pytest.raises(StaleLease, match=r"with fence 1: the lease ended, the fence is 3 and it is owned by 'cat' now"):
            await rig.tasks.complete(task.id, "mine", fence=stale.fence)
        assert (await rig.tasks.complete(task.id, "cat's", fence=current.fence)).result == "cat's"


async def test_one_bad_argument_does_not_end_the_team(autojump_clock: MockClock) -> None:
    """A script that passes something that is no text gets an error of its own; everybody else goes on."""
    async with open_rig() as rig:
        wrong: list[dict[str, Any]] = [
            {"subject": None},
            {"subject": 5},
            {"subject": "x", "assignee": 5},
            {"subject": "x", "description": None},
        ]
        for arguments in wrong:
            with pytest.raises((UsageError, TypeError, ValueError, AttributeError)):
                await rig.tasks.create(**arguments)
        assert (await rig.tasks.create("good")).id == 1
