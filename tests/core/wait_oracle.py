"""Who could ever go on, by playing it: whoever is not held up does everything it can, and that again until nothing moves.

No graph: waits, plans and tasks are struck off as they end. What is left stands still for ever. It shares nothing with the code under test.
"""

from dataclasses import dataclass, field
from itertools import product

PROGRESS = ("join",)
DECISIONS = ("plan", "permission", "question")


@dataclass
class Wait:
    """One member waits for any of the targets: names, or numbers of tasks."""

    waiter: str
    targets: tuple[str | int, ...]
    kind: str


@dataclass
class Plan:
    """An undecided plan: stages of (who is asked, how many must agree), the present one first; votes at the present one."""

    stages: list[tuple[tuple[str, ...], int]]
    votes: dict[str, bool] = field(default_factory=dict[str, bool])


@dataclass
class Job:
    """A task that is not over."""

    owner: str | None = None
    assignee: str | None = None
    blockers: tuple[int, ...] = ()  # those that still block it, be they open or over for good


@dataclass
class World:
    """Everything there is at one moment."""

    members: tuple[str, ...]
    persons: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    jobs: dict[int, Job] = field(default_factory=dict[int, Job])
    plans: dict[str, Plan] = field(default_factory=dict[str, Plan])
    waits: list[Wait] = field(default_factory=list[Wait])


class Play:
    """A world that has been played to its end: `waits`, `plans` and `jobs` are what never ends."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waits = [wait for wait in world.waits if wait.targets]
        self.plans = dict(world.plans)
        self.jobs = dict(world.jobs)
        while self._move():
            pass

    def reads(self, name: str) -> bool:
        """Tell whether a member gets to its mail."""
        return name in self.world.persons | self.world.gone or all(wait.waiter != name for wait in self.waits)

    def works(self, name: str) -> bool:
        """Tell whether a member gets on with its work."""
        return self.reads(name) and (name not in self.plans or name in self.world.persons | self.world.gone)

    def decides(self, name: str) -> bool:
        """Tell whether a member can give a decision."""
        return name not in self.world.gone and self.reads(name)

    def stands_still(self, target: str | int, kind: str) -> bool:
        """Tell whether a target of a wait, or of any other dependency, never does what it should."""
        if isinstance(target, int):
            return target in self.jobs
        if kind in DECISIONS:
            return not self.decides(target)
        return not (self.works(target) if kind in (*PROGRESS, "owner", "assignee") else self.reads(target))

    def _move(self) -> bool:
        waits = [wait for wait in self.waits if not self._wait_ends(wait)]
        plans = {name: plan for name, plan in self.plans.items() if not self._is_decided(plan)}
        jobs = {number: job for number, job in self.jobs.items() if not self._is_done(job)}
        moved = (len(waits), len(plans), len(jobs)) != (len(self.waits), len(self.plans), len(self.jobs))
        self.waits, self.plans, self.jobs = waits, plans, jobs
        return moved

    def _wait_ends(self, wait: Wait) -> bool:
        if wait.kind in DECISIONS and all(target in self.world.gone for target in wait.targets):
            return True  # its deadline alone ends it
        return any(not self.stands_still(target, wait.kind) for target in wait.targets)

    def _is_decided(self, plan: Plan) -> bool:
        def could(voters: set[str], stage: int) -> bool:
            asked, needed = plan.stages[stage]
            cast = plan.votes if stage == 0 else {}
            free = [name for name in sorted(voters) if name not in cast]
            for said in product((True, False), repeat=len(free)):
                votes = [*cast.values(), *said]
                if votes.count(True) >= needed or votes.count(False) > len(asked) - needed:
                    return True
            return False

        stages = range(len(plan.stages))
        if not any(could(set(plan.stages[stage][0]) - self.world.gone, stage) for stage in stages):
            return True  # its deadline alone decides it
        return any(could({name for name in plan.stages[stage][0] if self.decides(name)}, stage) for stage in stages)

    def _is_done(self, job: Job) -> bool:
        if job.owner is not None:
            return self.works(job.owner)
        return not any(number in self.jobs for number in job.blockers) and (job.assignee is None or self.works(job.assignee))
