"""The steps of an approved plan: one at a time, in order unless a reason is given, with attempts, notes and bounded outputs."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from compaction.compactor import Compactor, Prepared
from compaction.triggers import Cause
from compaction.view import View
from teams import ScriptedModel, Team, TeamOptions, open_team
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, say, spoken
from teams.state.plan_commands import OUTPUT_LIMIT_CHARS
from teams.testing.team import StrictModel, virtual_wall_clock, wait_for

BEGIN = call("plan_step", step=1, status="in_progress")
DONE = call("plan_step", step=1, status="done", output="the port is 8080")


class Walk:
    """Plays a member that makes one call after the other once its plan is approved, and keeps what each came to."""

    def __init__(self, *calls: Reply) -> None:
        self.calls, self.came_to = list(calls), list[str]()

    def __call__(self, request: ModelRequest) -> Reply:
        """Answer as the script says."""
        newest = request.messages[-1]
        if "begin" in spoken(newest):
            return call("submit_plan", summary="s", steps=["one", "two", "three"])
        if newest.tool_results and "is submitted" not in str(newest.tool_results[0]["content"]):
            self.came_to.append(str(newest.tool_results[0]["content"]))
        elif 'approve="true"' not in spoken(newest):
            return say("waiting")
        return self.calls.pop(0) if self.calls else say("done")


@asynccontextmanager
async def walked(walk: Walk, options: TeamOptions | None = None) -> AsyncGenerator[Team]:
    """Run a team whose one member walks its plan to the end."""
    async with open_team(None, model=StrictModel(ScriptedModel({"ann": walk})), options=options, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", plan="required", tools=[])
        await (await anext(team.plan_requests())).approve()
        await team.wait_quiescent()
        yield team


async def test_steps_are_walked_in_order_and_hand_on_what_they_found(autojump_clock: MockClock) -> None:
    """Begun, done, failed with a note and begun again; a later step is shown the outputs of those before; the rest is handed back."""
    second = call("plan_step", step=2, status="in_progress")
    walk = Walk(BEGIN, DONE, second, call("plan_step", step=2, status="failed", note="no disk"), second)
    async with walked(walk) as team:
        assert walk.came_to == [
            "step 1 is in progress: one",
            "step 1 is done; open: 2, 3",
            "step 2 is in progress: two\nOutput of step 1: the port is 8080",
            "step 2 is failed; open: 3",
            "step 2 is in progress, attempt 2: two\nOutput of step 1: the port is 8080",
        ]
        steps = [(str(status), step.attempts, step.note, step.output) for step, status in team.state.plan_steps("ann")]
        assert steps == [("done", 1, "", "the port is 8080"), ("in_progress", 2, "", ""), ("todo", 0, "", "")]
        assert (await team.shutdown("ann")).steps == ("2. two", "3. three")


WRONG: list[tuple[tuple[Reply, ...], str]] = [
    ((call("plan_step", step=4, status="in_progress"),), "plan r1 has the steps 1 to 3"),
    ((call("plan_step", step=0, status="in_progress"),), "plan r1 has the steps 1 to 3"),
    ((call("plan_step", step=2, status="in_progress"),), "before step 1, which nobody has begun, without a note"),
    ((BEGIN, call("plan_step", step=2, status="in_progress", note="first")), "step 1 is in progress; say first that it is done"),
    ((BEGIN, call("plan_step", step=1, status="failed")), "cannot fail step 1 without a note"),
    ((DONE,), "event 'finish' is not legal in state 'todo'; legal now: start"),
    ((BEGIN, DONE, BEGIN), "done"),
    ((BEGIN, BEGIN), "in_progress"),
]


@pytest.mark.parametrize(("calls", "words"), WRONG)
async def test_what_the_steps_do_not_allow_is_refused_in_words(autojump_clock: MockClock, calls: tuple[Reply, ...], words: str) -> None:
    """A wrong move says what is legal and changes nothing."""
    walk = Walk(*calls)
    async with walked(walk) as team:
        assert words in walk.came_to[-1]
        before = Walk(*calls[:-1])
        async with walked(before) as other:
            assert team.state.plan_steps("ann") == other.state.plan_steps("ann")


async def test_step_ahead_of_others_needs_a_reason_and_an_output_is_bounded(autojump_clock: MockClock) -> None:
    """With a note a later step may be begun first; of a long output so much is kept, and the member is told."""
    ahead = call("plan_step", step=3, status="in_progress", note="the others need it")
    walk = Walk(ahead, call("plan_step", step=3, status="done", output="x" * 9_000))
    async with walked(walk) as team:
        assert "its output was cut to 4000 characters" in walk.came_to[-1]
        step, _ = team.state.plan_steps("ann")[2]
        assert len(step.output) == OUTPUT_LIMIT_CHARS
        assert "9000 characters in all" in step.output


@pytest.mark.parametrize(("calls", "asked"), [((BEGIN, DONE), True), ((BEGIN, BEGIN), False)])
async def test_done_step_is_a_place_to_compact_at(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, calls: tuple[Reply, ...], asked: bool
) -> None:
    """After the end of a step the compactor is asked with that cause, and after nothing else."""
    causes: list[Cause | None] = []
    prepare = Compactor.prepare

    async def spy(self: Compactor, view: View, *, cause: Cause | None = None) -> Prepared:
        causes.append(cause)
        return await prepare(self, view, cause=cause)

    monkeypatch.setattr(Compactor, "prepare", spy)
    async with walked(Walk(*calls)):
        assert (Cause.STEP_BOUNDARY in causes) is asked


async def test_member_takes_no_task_while_its_plan_waits(autojump_clock: MockClock) -> None:
    """A task that becomes ready meanwhile goes to who can work on it, or waits for the decision."""
    scripts: dict[str, Callable[[ModelRequest], Reply]] = {"ann": Walk(), "ben": lambda request: claimed(request, "ben")}
    async with open_team(None, model=ScriptedModel(scripts), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", plan="required", tools=[])
        request = await anext(team.plan_requests())
        task = await team.tasks.create("Build")
        assert team.tasks.get(task.id).owner is None
        await team.spawn("ben", tools=[])
        await wait_for(team, lambda: team.tasks.get(task.id).status == "completed")
        assert team.tasks.get(task.id).result == "by ben"
        later = await team.tasks.create("Build more", assignee="ann")
        await trio.testing.wait_all_tasks_blocked()
        assert team.tasks.get(later.id).owner is None
        await request.approve()
        await wait_for(team, lambda: team.tasks.get(later.id).owner == "ann")


def claimed(request: ModelRequest, name: str) -> Reply:
    """Complete a task that was given."""
    newest = spoken(request.messages[-1])
    return call("task_complete", task_id=1, result=f"by {name}") if 'task_id="1"' in newest else say("ready")
