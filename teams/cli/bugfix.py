"""The bug-fix team: three agents mend a small broken project in a git repository of its own, and its tests say whether they did.

Laws: the project's tests are run before and after, and only they, untouched, make the exit code 0; everything that happened is in `.team`
beside the project, which stays; the run is bounded in time, and so is each agent in rounds.
"""

import os
import shlex
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import trio

from teams.cli.bugfix_report import BugfixRun, Story, TestsRun, render, succeeded
from teams.cli.bugfix_scripts import SCRIPTS
from teams.cli.demo_project import TEST_COMMAND, materialize
from teams.errors import UsageError
from teams.models.base import Model
from teams.models.scripted import ScriptedModel
from teams.opening import open_team
from teams.options import AgentOptions, TeamOptions
from teams.team import Team

if TYPE_CHECKING:
    from protocols.plan import Plan

OnTeam: TypeAlias = Callable[[Team], Awaitable[None]]

SCRIPTED_SECONDS = 120.0
LIVE_SECONDS = 1_200.0
MAX_ROUNDS = 60
"""Model calls of an agent in one turn: a real model needs about fifteen."""

LAST_LOOK_SECONDS = 2.0
"""How long a view may go on once the team is closed, to show the last events."""

SOURCES = "invoicing"

SYSTEM = f"""\
Your work directory is a git repository with a small Python project. Its tests say what is right and are never changed. \
Run the tests with `{shlex.join(TEST_COMMAND)}`; names after it, such as tests.test_money.MoneyTest.test_show, run these tests alone. \
Change as little as possible, and commit nothing."""

DEVELOPER = """\
You are a developer. A task to mend something names the function, the failing tests and what they told. Read the source, find the \
cause, change it, and run the failing tests until they pass. Then ask cora for a review with send_message: the path, what you changed \
and why, and which tests pass now. Complete the task without waiting for her answer, with one line about the change. If you cannot make \
the tests pass, take your changes back and fail the task: say what you tried. A task to run all tests is completed when all pass, and \
failed with the names of those that do not."""

REVIEWER = """\
You are the reviewer. First you diagnose: run the tests and find the function to which each failure points. For each function at fault \
create one task: the subject says what to mend, the description the path, the function, the failing tests and what they told; blocked by \
your own task, assigned to the developers ann and ben in turn. Failures that only follow from another fault get no task. Then create a \
task to review the whole change, blocked by the fixes, assigned to yourself, and a task to run all tests, blocked by the review, \
assigned to ben. Complete the diagnosis. When a developer asks for a review, look at the diff, run the tests, and answer with \
send_message and the id of the request: approved, or what must change. In the review of the whole change, see that nothing was changed \
that nobody asked you about, and that the tests are as they were."""

MEMBERS = ("ann", "ben", "cora")


async def run_bugfix(
    *,
    directory: Path | None,
    live_model: Model | None,
    on_team: OnTeam | None = None,
    report: Callable[[str], None] = print,
) -> int:
    """Let the team mend the project, report, and return 0 when its tests pass afterwards, otherwise 1.

    Args:
        directory: where `project` and `.team` go, and stay; a temporary one when None. A `project` that is there is taken as it is.
        live_model: a real model for all members; their scripts play when None. The caller closes it.
        on_team: runs beside the team, to watch it; cancelled a moment after the team is closed.
        report: takes the lines of the report: one before the team opens, the others after it is closed.

    Raises: UsageError when the directory has a team already, or git is missing; what `open_team` raises, in a group.
    """
    root = await trio.to_thread.run_sync(_prepare, directory)
    project = root / "project"
    before = await _run_tests(project)
    report(f"{project}: {before.summary}")
    if before.passed:
        report("There is nothing to mend.")
        return 0
    story = Story()
    await _run_team(root, live_model, on_team, story)
    after = await _run_tests(project)
    tests_changed = tuple(line[3:] for line in (await _git(project, "status", "--porcelain", "tests")).splitlines())
    run = BugfixRun(root, before, after, await _git(project, "diff", "--stat"), tests_changed)
    for line in render(run, story):
        report(line)
    return 0 if succeeded(run, story) else 1


async def _run_team(root: Path, live_model: Model | None, on_team: OnTeam | None, story: Story) -> None:
    model = live_model or ScriptedModel(SCRIPTS)
    options = TeamOptions(agents=AgentOptions(max_rounds=MAX_ROUNDS), system_prompt=SYSTEM)
    # The watchers are outside: they see the team's events to the last one, and end when it has closed.
    async with trio.open_nursery() as watchers:
        async with open_team(root / ".team", model=model, workdir=root / "project", name="bug-fix", options=options) as team:
            await _watch(watchers, team, story, on_team)
            with trio.move_on_after(SCRIPTED_SECONDS if live_model is None else LIVE_SECONDS):
                await _lead(team, story)
                story.outcome = await team.wait_quiescent()
            late = story.outcome is None
            reason = "the time is over" if late else "the work is done"
            story.shutdowns = [await team.shutdown(name, reason=reason, force=late) for name in MEMBERS]
            story.close(team)
        watchers.cancel_scope.deadline = trio.current_time() + LAST_LOOK_SECONDS


async def _watch(watchers: trio.Nursery, team: Team, story: Story, on_team: OnTeam | None) -> None:
    await watchers.start(story.follow, team)
    if on_team is not None:
        watchers.start_soon(on_team, team)


async def _lead(team: Team, story: Story) -> None:
    """Bring the team together, give it the first task, and decide plans until nothing moves any more."""
    await team.spawn("ann", role="developer", prompt=DEVELOPER, plan="required")
    await team.spawn("ben", role="developer", prompt=DEVELOPER)
    await team.spawn("cora", role="reviewer", prompt=REVIEWER)
    await team.tasks.create("Diagnose the failing tests", "Run all tests, and make a task of each fault.", assignee="cora")
    async for request in team.plan_requests():
        story.plans[request.id, request.revision] = request.plan
        if problems := _objections(request.plan):
            await request.reject(" ".join(problems))
        else:
            await request.approve()


def _objections(plan: "Plan") -> list[str]:
    """Say what must change in a plan: it stays in the sources, and it ends with proof."""
    problems: list[str] = []
    if not plan.touches_only(SOURCES):
        problems.append(f"Touch only {SOURCES}/: the tests say what is right.")
    if not any("run" in step.lower() and "test" in step.lower() for step in plan.steps):
        problems.append("Add a last step that runs the failing tests again.")
    return problems


def _prepare(directory: Path | None) -> Path:
    root = Path(tempfile.mkdtemp(prefix="teams-demo-")) if directory is None else directory
    if (root / ".team").exists():
        raise UsageError(f"cannot run the bug-fix team in {str(root)!r}: a team worked there already; choose a new directory")
    project = root / "project"
    if not project.exists():
        materialize(project)
    elif not (project / ".git").exists():
        raise UsageError(f"cannot run the bug-fix team over {str(project)!r}: it is no git repository; choose a new directory")
    return root.resolve()


async def _run_tests(project: Path) -> TestsRun:
    done = await trio.run_process(TEST_COMMAND, cwd=project, capture_stdout=True, capture_stderr=True, check=False)
    return TestsRun.of(done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace"))


async def _git(project: Path, *arguments: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # of a hook that runs us, for example
    done = await trio.run_process(("git", *arguments), cwd=project, env=inherited, capture_stdout=True, check=False)
    return done.stdout.decode("utf-8", "replace").rstrip()
