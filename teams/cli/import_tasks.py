"""`teams import-tasks DIR FROM`: task files of another tool become tasks of the team.

Laws: everything is checked first, and all that is imported is one transaction of the journal: a bad file, a refused command or a crash
leaves nothing half imported. Ids are given anew; edges are kept. What is over is over; what somebody had begun is to be begun again,
by the same member where the team has one of that name.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from protocols.task_status import BlockerPolicy, TaskEvent, TaskStatus
from teams.cli.exits import OK, CommandFailed, CommandLineError
from teams.cli.output import clean, plural, print_json
from teams.cli.reading import add_directory
from teams.cli.task_files import FoundTask, FoundTasks, read_task_files
from teams.cli.writing import with_team
from teams.client import TeamClient
from teams.errors import UsageError
from teams.journal.records import Record, utc_now_text
from teams.state.decision import Command, Draft, decide
from teams.state.task_commands import CancelTask, ClaimTask, CreateTask, FinishTask
from teams.state.team_state import TeamState

FELL = (TaskStatus.failed, TaskStatus.cancelled)
POLICY_AFTER_FALL = {
    TaskStatus.completed: BlockerPolicy.run,
    TaskStatus.in_progress: BlockerPolicy.run,
    TaskStatus.pending: BlockerPolicy.wait,
    TaskStatus.failed: BlockerPolicy.fail,
    TaskStatus.cancelled: BlockerPolicy.skip,
}
"""Task files know no policies: which edge from a blocker that did not complete explains where its dependent stands."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    parser.add_argument("source", metavar="FROM", type=Path, help="a directory of task_<id>.json files")


def run(args: argparse.Namespace) -> int:
    """Import and print what became of each file."""
    if not args.source.is_dir():
        what = "it is no directory" if args.source.exists() else "there is no such directory"
        raise CommandLineError(f"cannot import tasks from {str(args.source)!r}: {what}")
    return with_team(args, _import)


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of the files: the new id of each old one, and what was not taken as it was."""

    ids: Mapping[int, int]
    notes: tuple[str, ...]


async def _import(team: TeamClient, args: argparse.Namespace) -> int:
    found = await trio.to_thread.run_sync(read_task_files, args.source)
    done = await team.engine.submit(ImportTasks(found, team.person))
    if args.json:
        print_json({"imported": {str(old): new for old, new in done.ids.items()}, "notes": list(done.notes)})
        return OK
    print(f"{plural(len(done.ids), 'task')} imported:")
    width = max(len(task.path.name) for task in found.by_id.values())
    for old, new in sorted(done.ids.items()):
        task = found.by_id[old]
        print(f"  {task.path.name:<{width}}  ->  task {new}  {clean(task.subject)}")
    for note in done.notes:
        print(f"note: {note}")
    return OK


class ImportTasks:
    """Add all tasks and bring each to its status; the answer is an `Imported`."""

    def __init__(self, found: FoundTasks, by: str) -> None:
        self._found, self._by = found, by

    def decide(self, draft: Draft) -> Imported:
        """Refuse what any of the commands refuses that this is made of; then nothing is imported."""
        ahead = _Ahead(draft)
        ids: dict[int, int] = {}
        notes: list[str] = []
        for task in self._found.by_id.values():
            ids[task.id] = ahead.carry_out(task, self._creation(task, ids, draft.state, notes))
        for task in self._found.by_id.values():
            self._settle(ahead, task, ids[task.id])
        return Imported(ids, tuple(notes))

    def _creation(self, task: FoundTask, ids: Mapping[int, int], state: TeamState, notes: list[str]) -> CreateTask:
        assignee: str | None = None
        over = task.status in (TaskStatus.completed, *FELL)
        if task.owner and not over:
            if task.owner in state.roster.members:
                assignee = task.owner
            else:
                notes.append(f"{task.path.name}: its owner {clean(task.owner)!r} is no member; anybody may take it")
        if task.status is TaskStatus.in_progress:
            whom = f", meant for {assignee}" if assignee else ""
            notes.append(f"{task.path.name}: it was in progress and is pending again{whom}")
        edges = [(ids[blocker], self._policy(blocker, task)) for blocker in sorted(self._found.blockers[task.id])]
        return CreateTask(
            subject=task.subject,
            by=self._by,
            description=task.description,
            blocked_by=edges,
            assignee=assignee,
            worktree=task.worktree or None,
        )

    def _policy(self, blocker: int, task: FoundTask) -> BlockerPolicy:
        fell = self._found.by_id[blocker].status in FELL
        return POLICY_AFTER_FALL[task.status] if fell else BlockerPolicy.fail

    def _settle(self, ahead: "_Ahead", task: FoundTask, task_id: int) -> None:
        """Bring a task that is over to where its file says; its blockers, which come first, may have taken it there."""
        if ahead.state.tasks.by_id[task_id].status is task.status or task.status in (TaskStatus.pending, TaskStatus.in_progress):
            return
        said = f"imported from {task.path.name}" + (f", done by {clean(task.owner)}" if task.owner else "")
        if task.status is TaskStatus.cancelled:
            ahead.carry_out(task, CancelTask(task_id, said))
            return
        event = TaskEvent.complete if task.status is TaskStatus.completed else TaskEvent.fail
        claim = ahead.carry_out(task, ClaimTask(self._by, lease_seconds=60.0, task_id=task_id))
        assert claim is not None
        ahead.carry_out(task, FinishTask(task_id, event, said, self._by, claim.fence))


class _Ahead:
    """A copy of the state in which the commands before have happened already, so that many commands become one draft."""

    def __init__(self, draft: Draft) -> None:
        self.state = draft.state.copy()
        self._draft = draft
        self._at = utc_now_text(draft.now)

    def carry_out(self, task: FoundTask, command: Command[Any]) -> Any:
        """Decide a command, keep its records, and return its answer; what it refuses is told with the file's name."""
        try:
            decided = decide(self.state, command, self._draft.now)
        except UsageError as error:
            raise CommandFailed(f"nothing was imported: {task.path.name}, which says that it is {task.status.value}: {error}") from error
        for kind, fields in decided.records:
            self._draft.add(kind, fields)
            self.state.apply(Record(self.state.seq + 1, self._at, kind, fields))
        return decided.result
