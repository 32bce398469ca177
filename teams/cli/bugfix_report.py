"""The report of the bug-fix team, laid out for reading.

Laws: it tells what happened, from the team's events and its end, in an order that does not depend on who was faster; lines fit a
terminal of 100 columns where the words allow it.
"""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from teams.cli.bugfix_findings import read_test_run
from teams.events import Event, MailStored, RequestChanged, RuntimeNotice, TaskChanged
from teams.manager import ShutdownOutcome
from teams.state.roster import Spending
from teams.state.tasks import Task
from teams.team import Quiescence, Team

if TYPE_CHECKING:
    from protocols.plan import Plan

WIDTH = 100
INDENT = 10
MARKS = {"completed": "[x]", "failed": "[!]", "cancelled": "[-]", "in_progress": "[>]", "pending": "[ ]"}


@dataclass(frozen=True, slots=True)
class TestsRun:
    """What one run of the project's tests came to."""

    passed: bool
    count: int
    failing: tuple[str, ...]

    @classmethod
    def of(cls, code: int, output: str) -> "TestsRun":
        """Read a run from its exit code and output; a run without a test is no proof."""
        run = read_test_run(output, ())
        return cls(code == 0 and run.total > 0, run.total, tuple(sorted(failure.test for failure in run.failures)))

    @property
    def summary(self) -> str:
        """How many ran, and how many failed."""
        verdict = "all pass" if self.passed else f"{len(self.failing)} fail" if self.failing else "the run itself failed"
        return f"{self.count} tests, {verdict}"


@dataclass(frozen=True, slots=True)
class BugfixRun:
    """The project before and after; `changes` is git's summary, `tests_changed` names test files that are not as they were."""

    root: Path
    before: TestsRun
    after: TestsRun
    changes: str
    tests_changed: tuple[str, ...]


@dataclass(slots=True)
class Story:
    """What is worth telling of the team's events, and of its end; `outcome` is None when the time ran out."""

    plans: dict[tuple[str, int], "Plan"] = field(default_factory=dict[tuple[str, int], "Plan"])  # by request and revision
    decisions: list[RequestChanged] = field(default_factory=list[RequestChanged])
    mail: list[MailStored] = field(default_factory=list[MailStored])
    handshakes: list[RequestChanged] = field(default_factory=list[RequestChanged])
    owners: dict[int, str] = field(default_factory=dict[int, str])
    errors: list[str] = field(default_factory=list[str])
    outcome: Quiescence | None = None
    shutdowns: list[ShutdownOutcome] = field(default_factory=list[ShutdownOutcome])
    tasks: list[Task] = field(default_factory=list[Task])
    blockers: Mapping[int, Sequence[int]] = field(default_factory=dict[int, Sequence[int]])
    spending: Mapping[str, Spending] = field(default_factory=dict[str, Spending])

    async def follow(self, team: Team, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take note of the team's events until it closes."""
        async with team.events() as events:
            task_status.started()
            async for event in events:
                self._note(event)

    def close(self, team: Team) -> None:
        """Take note of where the tasks and the spending stand."""
        self.tasks, self.spending = team.tasks.list_all(), team.spending
        self.blockers = {task.id: sorted(team.state.tasks.blockers.get(task.id, ())) for task in self.tasks}

    def _note(self, event: Event) -> None:
        if isinstance(event, MailStored) and event.type == "message" and event.sender != "lead":
            self.mail.append(event)
        elif isinstance(event, RequestChanged):
            (self.decisions if event.kind == "plan_approval" else self.handshakes).append(event)
        elif isinstance(event, TaskChanged) and event.owner is not None:
            self.owners[event.id] = event.owner
        elif isinstance(event, RuntimeNotice) and event.level == "error":
            self.errors.append(event.text)


def succeeded(run: BugfixRun, story: Story) -> bool:
    """Tell whether the work is done: all tests pass, untouched, and every task is completed."""
    return run.after.passed and not run.tests_changed and story.outcome is not None and story.outcome.all_done


def render(run: BugfixRun, story: Story) -> list[str]:
    """Return the lines of the report."""
    home = run.root / ".team"
    tests = [f"before: {run.before.summary}", *_bullets(run.before.failing), f"after: {run.after.summary}", *_bullets(run.after.failing)]
    sections: list[tuple[str, Iterable[str]]] = [
        ("Tests", tests),
        ("Changes", [line.strip() for line in run.changes.splitlines()]),
        ("Plans", _plans(story)),
        ("Review", _mail(story.mail)),
        ("Tasks", _tasks(story)),
        ("Shutdown", [_shutdown(outcome, story.handshakes) for outcome in story.shutdowns]),
        ("Tokens", [_spent(name, spent) for name, spent in story.spending.items()]),
        ("Errors", story.errors),
    ]
    lines = ["", *textwrap.wrap(_verdict(run, story), WIDTH)]
    for title, told in sections:
        if (section := _section(title, told)) or title != "Errors":
            lines += ["", *(section or [f"{title:<{INDENT}}none"])]
    return [
        *lines,
        "",
        f"The project is {run.root / 'project'}",
        f"The team is    {home}",
        f"    {_command()} status {home}",
        f"    {_command()} log {home}",
    ]


def _verdict(run: BugfixRun, story: Story) -> str:
    if succeeded(run, story):
        return f"Done: {run.after.count} tests, all pass; before, {len(run.before.failing)} failed."
    if run.tests_changed:
        return f"Not done: the tests were changed: {', '.join(run.tests_changed)}."
    reasons = [*story.errors, *(f"Task {task.id} failed: {task.reason}" for task in story.tasks if task.status == "failed")]
    if story.outcome is None:
        reasons.insert(0, "The time ran out.")
    elif not reasons:
        reasons += [f"Task {task}: {reason}" for task, reason in story.outcome.stalled.items()]
    return " ".join([f"Not done: {run.after.summary}.", *reasons[:1]])


def _section(title: str, lines: Iterable[str]) -> list[str]:
    """Put a title to the left of its lines, and wrap those."""
    made: list[str] = []
    for line in lines:
        text = line.lstrip(" ")
        margin = INDENT + len(line) - len(text)
        hang = " " * (margin + (4 if text.startswith("[") else 2 if text.startswith("- ") else 0))
        label = "" if made else title
        made += textwrap.wrap(f"{label:<{margin}}{text}", WIDTH, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)
    return made


def _bullets(names: Iterable[str]) -> list[str]:
    return [f"  - {name}" for name in names]


def _plans(story: Story) -> list[str]:
    lines: list[str] = []
    for step in story.decisions:
        plan = story.plans.get((step.id, step.revision))
        if step.state == "submitted":
            if step.revision == 1:
                lines.append(f"{step.id} of {step.subject}: {plan.summary if plan is not None else 'never decided'}")
            continue
        files = ", ".join(plan.files) if plan is not None else ""
        feedback = f": {step.feedback}" if step.feedback else ""
        lines.append(f"  - revision {step.revision}, for {files or 'no file'}, is {step.state} by {step.by}{feedback}")
    return lines


def _mail(messages: Sequence[MailStored]) -> list[str]:
    """Tell each question with its answer, whoever was faster."""
    answers = {mail.request_id: mail for mail in messages if mail.request_id}
    lines: list[str] = []
    for asked in sorted((mail for mail in messages if not mail.request_id), key=lambda mail: (mail.sender, int(mail.id[1:]))):
        lines.append(f"{asked.sender} to {', '.join(asked.recipients)}: {_first_line(asked.content)}")
        if (answer := answers.get(asked.id)) is not None:
            lines.append(f"  - {answer.sender} to {', '.join(answer.recipients)}: {_first_line(answer.content)}")
    return lines


def _tasks(story: Story) -> list[str]:
    lines: list[str] = []
    for task in story.tasks:
        after = f", after {', '.join(map(str, story.blockers[task.id]))}" if story.blockers.get(task.id) else ""
        lines.append(f"{MARKS[task.status]} {task.id} {task.subject}{after}")
        stalled = story.outcome.stalled.get(task.id, "") if story.outcome is not None else ""
        told = task.result if task.status == "completed" else task.reason or stalled
        if told:
            lines.append(f"    {story.owners.get(task.id, 'not begun')}: {told}")
    return lines


def _shutdown(outcome: ShutdownOutcome, changes: Sequence[RequestChanged]) -> str:
    steps: list[str] = []
    for change in (change for change in changes if change.subject == outcome.name):
        by = "" if change.by.startswith("(") else f" by {change.by}"
        step = f"{'asked' if change.state == 'requested' else change.state}{by}"
        steps.append(f"{step} ({change.feedback})" if change.feedback else step)
    return f"{outcome.name}: {', '.join(steps) or outcome.reason}"


def _spent(name: str, spent: Spending) -> str:
    read = spent.input_tokens + spent.cache_creation_input_tokens + spent.cache_read_input_tokens
    return f"{name}: {spent.calls} calls, {read:,} in ({spent.cache_read_input_tokens:,} from the cache), {spent.output_tokens:,} out"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _command() -> str:
    """Return how the reader can call the command: by its name where the shell finds it."""
    if shutil.which("teams"):
        return "teams"
    beside = Path(sys.executable).with_name("teams")
    if not beside.exists():
        return f"{sys.executable} -m teams"
    here = Path.cwd()
    return str(beside.relative_to(here)) if beside.is_relative_to(here) else str(beside)
