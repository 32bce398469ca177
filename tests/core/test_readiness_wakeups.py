"""Who is woken when a task is ready: somebody who can take it, however many sleep, and nobody for nothing."""

from collections.abc import Iterable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from protocols.lifecycle import MemberEvent
from teams.readiness import Claimers
from teams.state.roster_commands import ChangeStatus
from teams.state.task_commands import ExpireLeases
from teams.testing.team import run_seeded
from tests.core.rig import Rig, open_rig


class Sleepers:
    """Members that do what a teammate does between turns: look for a task, and sleep until woken."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.claimers = rig, Claimers(rig.engine)
        self.done: list[tuple[str, int]] = []
        self.looked: dict[str, int] = {}
        self.keep: set[str] = set()

    async def live(self, name: str, scope: trio.CancelScope | None = None) -> None:
        """Take what is ready, finish it unless told to keep it, sleep; say so when cancelled."""
        engine = self.rig.engine
        capabilities = frozenset(engine.state.roster.members[name].spec.capabilities)
        try:
            with scope or trio.CancelScope():
                while True:
                    self.looked[name] = self.looked.get(name, 0) + 1
                    claim = await self.rig.tasks.claim_next(name)
                    if claim is None:
                        self.claimers.add(name, capabilities)
                        try:
                            await engine.park(("member", name))
                        finally:
                            self.claimers.discard(name)
                    elif name not in self.keep:
                        await self.rig.tasks.complete(claim.task.id, fence=claim.fence)
                        self.done.append((name, claim.task.id))
        finally:
            if scope is not None and engine.is_open:
                engine.post(ChangeStatus(name, MemberEvent.exited, None))

    def ready(self) -> list[int]:
        return [task.id for task in self.rig.tasks.get_ready_tasks()]


async def hire(rig: Rig, names: Iterable[str], *, task_limit: int | None = 1, capabilities: tuple[str, ...] = ()) -> None:
    """Put members on the roster that claim by themselves."""
    await rig.join(*names, task_limit=task_limit, capabilities=capabilities, kind="script")


async def test_each_ready_task_wakes_one_who_can_take_it_and_nobody_else(autojump_clock: MockClock) -> None:
    """Of many sleepers as many wake as there are tasks; those without the capability sleep on."""
    async with open_rig(members=()) as rig, trio.open_nursery() as nursery:
        await hire(rig, ["dev1", "dev2", "dev3"], capabilities=("dev",))
        await hire(rig, ["ops1"], capabilities=("ops",))
        sleepers = Sleepers(rig)
        for name in ("dev1", "dev2", "dev3", "ops1"):
            nursery.start_soon(sleepers.live, name)
        await wait_all_tasks_blocked()
        before = dict(sleepers.looked)
        await rig.tasks.create("x", needs={"dev"})
        await wait_all_tasks_blocked()
        assert [task_id for _, task_id in sleepers.done] == [1]
        assert sleepers.looked["ops1"] == before["ops1"]
        assert sum(sleepers.looked[name] > before[name] for name in before) == 1, "more were woken than there was work for"
        for _ in range(3):
            await rig.tasks.create("y", needs={"dev"})
        await wait_all_tasks_blocked()
        assert sleepers.ready() == []
        nursery.cancel_scope.cancel()


async def test_a_sleeper_that_may_take_no_more_does_not_keep_the_wake_up_of_one_who_may(autojump_clock: MockClock) -> None:
    """Ann sleeps first and still has a task, as many as she may have; ben is free: the ready task is ben's and is not stranded."""
    async with open_rig(members=()) as rig, trio.open_nursery() as nursery:
        await hire(rig, ["ann", "ben"])
        sleepers = Sleepers(rig)
        sleepers.keep.add("ann")
        await rig.tasks.create("kept", assignee="ann")
        nursery.start_soon(sleepers.live, "ann")
        await wait_all_tasks_blocked()
        nursery.start_soon(sleepers.live, "ben")
        await wait_all_tasks_blocked()
        assert rig.tasks.get(1).owner == "ann"
        await rig.tasks.create("free")
        await wait_all_tasks_blocked()
        assert sleepers.done == [("ben", 2)]
        nursery.cancel_scope.cancel()


async def test_who_is_woken_and_cancelled_strands_nothing(autojump_clock: MockClock) -> None:
    """The one that was picked is cancelled before it looks: its end wakes the next, who takes the task."""
    async with open_rig(members=()) as rig, trio.open_nursery() as nursery:
        await hire(rig, ["ann", "ben"])
        sleepers = Sleepers(rig)
        scopes = {"ann": trio.CancelScope(), "ben": trio.CancelScope()}
        for name, scope in scopes.items():
            nursery.start_soon(sleepers.live, name, scope)
            await wait_all_tasks_blocked()
        woken = rig.engine.state.seq

        async def cancel_the_first() -> None:
            await rig.engine.wait_until(("task", 1), lambda: True if rig.engine.state.seq > woken else None)
            scopes["ann"].cancel()

        nursery.start_soon(cancel_the_first)
        await rig.tasks.create("x")
        await wait_all_tasks_blocked()
        assert sleepers.ready() == []
        assert rig.tasks.get(1).status.value == "completed"
        nursery.cancel_scope.cancel()


async def test_a_task_that_nobody_can_take_hides_no_other(autojump_clock: MockClock) -> None:
    """Ready tasks for which nobody has the capability, the tag or the room stay behind; those after them are taken."""
    async with open_rig(members=("boss",)) as rig, trio.open_nursery() as nursery:
        await hire(rig, ["ann"])
        sleepers = Sleepers(rig)
        nursery.start_soon(sleepers.live, "ann")
        await rig.tasks.create("too hard", needs={"magic"})
        await rig.tasks.create("for boss", assignee="boss", exclusive={"db"})
        await rig.tasks.claim(2, "boss")
        await rig.tasks.create("tagged", exclusive={"db"})
        await wait_all_tasks_blocked()
        await rig.tasks.create("plain")
        await wait_all_tasks_blocked()
        assert sleepers.done == [("ann", 4)]
        assert sleepers.ready() == [1, 3]
        nursery.cancel_scope.cancel()


async def test_a_task_for_somebody_wakes_that_one(autojump_clock: MockClock) -> None:
    """An assigned task wakes its assignee alone; when that one has stopped, it waits for its return."""
    async with open_rig(members=()) as rig, trio.open_nursery() as nursery:
        await hire(rig, ["ann", "ben"])
        sleepers = Sleepers(rig)
        scope = trio.CancelScope()
        nursery.start_soon(sleepers.live, "ben", scope)
        nursery.start_soon(sleepers.live, "ann", trio.CancelScope())
        await wait_all_tasks_blocked()
        await rig.tasks.create("x", assignee="ben")
        await wait_all_tasks_blocked()
        assert sleepers.done == [("ben", 1)]
        scope.cancel()
        await wait_all_tasks_blocked()
        await rig.tasks.create("y", assignee="ben")
        await wait_all_tasks_blocked()
        assert sleepers.ready() == [2]
        await hire(rig, ["ben"])
        nursery.start_soon(sleepers.live, "ben", trio.CancelScope())
        await wait_all_tasks_blocked()
        assert sleepers.done == [("ben", 1), ("ben", 2)]
        nursery.cancel_scope.cancel()


async def test_a_task_that_becomes_ready_in_any_way_is_taken(autojump_clock: MockClock) -> None:
    """By completion of its blocker, its retry, release, an expired lease, the end of its owner, and a free tag: a sleeper takes it."""
    async with open_rig(members=("boss",)) as rig, trio.open_nursery() as nursery:
        await hire(rig, ["ann"])
        sleepers = Sleepers(rig)
        nursery.start_soon(sleepers.live, "ann")

        async def is_done(task_id: int, how: str) -> None:
            await wait_all_tasks_blocked()
            assert rig.tasks.get(task_id).status.value == "completed", f"not taken after {how}"

        async def mine(**wishes: object) -> int:
            task = await rig.tasks.create("x", assignee="boss", **wishes)  # type: ignore[arg-type]  # wishes of `create`
            await rig.tasks.claim(task.id, "boss")
            return task.id

        blocker = await mine()
        behind = await rig.tasks.create("behind", blocked_by=[blocker])
        await rig.tasks.complete(blocker, by="boss")
        await is_done(behind.id, "the blocker completed")
        failing = await mine()
        behind = await rig.tasks.create("behind", blocked_by=[(failing, "run")])
        await rig.tasks.fail(failing, "no", by="boss")
        await is_done(behind.id, "the blocker failed under `run`")
        tagged = await mine(exclusive={"db"})
        waiting = await rig.tasks.create("tagged too", exclusive={"db"})
        await wait_all_tasks_blocked()
        await rig.tasks.complete(tagged, by="boss")
        await is_done(waiting.id, "the tag was free")
        await rig.tasks.amend((await rig.tasks.create("for boss", assignee="boss")).id, assignee="ann")
        await is_done(waiting.id + 1, "it was given to another")
        sleepers.keep.add("ann")
        again = await rig.tasks.create("again")
        await wait_all_tasks_blocked()
        sleepers.keep.clear()
        await trio.sleep(400)
        await rig.engine.submit(ExpireLeases())
        await is_done(again.id, "the lease ended")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(10))
def test_no_mix_of_demands_strands_a_task_that_somebody_could_take(seed: int) -> None:
    """Sleepers of several kinds, tasks of several demands, edges and tags: when all is quiet, every task was taken and done."""

    async def main() -> None:
        async with open_rig(members=()) as rig, trio.open_nursery() as nursery:
            await hire(rig, ["dev1", "dev2"], capabilities=("dev",))
            await hire(rig, ["ops1"], capabilities=("ops",), task_limit=2)
            await hire(rig, ["both1"], capabilities=("dev", "ops"))
            sleepers = Sleepers(rig)
            for name in ("dev1", "dev2", "ops1", "both1"):
                nursery.start_soon(sleepers.live, name)

            async def plan(kind: int) -> None:
                previous: list[int] = []
                for number in range(6):
                    needs = ({"dev"}, {"ops"}, {"dev", "ops"}, set[str]())[(kind + number) % 4]
                    task = await rig.tasks.create("x", needs=needs, exclusive={"db"} if number % 2 else (), blocked_by=previous[-1:])
                    previous.append(task.id)

            async with trio.open_nursery() as planners:
                for kind in range(4):
                    planners.start_soon(plan, kind)
            await wait_all_tasks_blocked()
            assert sleepers.ready() == []
            assert len(sleepers.done) == 24
            nursery.cancel_scope.cancel()

    run_seeded(main, seed=seed)
