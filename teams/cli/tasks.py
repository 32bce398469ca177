"""`teams tasks DIR`: the tasks, who has them, what they wait for."""

import argparse
import sys
import time
from typing import Any

from protocols.task_status import TaskStatus
from teams.cli.exits import OK
from teams.cli.output import Cell, Column, Terminal, clean, duration, find_terminal, names, print_json, print_lines, table
from teams.cli.reading import add_directory, look, tell_reports
from teams.cli.status import count_text
from teams.journal.records import utc_now_text, utc_seconds
from teams.state.shown import task_view
from teams.state.tasks import Task
from teams.state.team_state import TeamState
from teams.task_graph import TaskGraph

MARKS = {
    TaskStatus.pending: "[ ]",
    TaskStatus.in_progress: "[>]",
    TaskStatus.completed: "[x]",
    TaskStatus.failed: "[!]",
    TaskStatus.cancelled: "[-]",
}
STYLES = {TaskStatus.in_progress: "green", TaskStatus.completed: "dim", TaskStatus.failed: "red", TaskStatus.cancelled: "dim"}
COLUMNS = (
    Column(""),
    Column("ID", right=True),
    Column("SUBJECT", flexible=True),
    Column("OWNER", flexible=True),
    Column("STATE", flexible=True),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--mermaid", action="store_true", help="draw the graph as a Mermaid flowchart")
    form.add_argument("--critical-path", action="store_true", help="show only the longest chain of open tasks")


def run(args: argparse.Namespace) -> int:
    """Print the tasks in one of their forms."""
    seen = look(args.directory)
    tell_reports(seen.reports)
    state, graph = seen.state, TaskGraph(seen.state.tasks)
    tasks = sorted(state.tasks.by_id.values(), key=lambda task: task.id)
    if args.critical_path:
        tasks = [state.tasks.by_id[task_id] for task_id in graph.critical_path()]
    if args.mermaid:
        print_json({"mermaid": graph.mermaid()}) if args.json else print(graph.mermaid())
    elif args.json:
        print_json([describe_task(state, task) for task in tasks])
    else:
        print_lines(render_tasks(state, tasks, time.time(), find_terminal(sys.stdout)))
    return OK


def render_tasks(state: TeamState, tasks: list[Task], now: float, terminal: Terminal) -> list[str]:
    """Lay the tasks out for a person."""
    if not tasks:
        return ["no tasks"]
    return [*table(COLUMNS, [_row(state, task, now) for task in tasks], terminal), "", count_text(state)]


def _row(state: TeamState, task: Task, now: float) -> list[str | Cell]:
    style = STYLES.get(task.status, "")
    return [
        Cell(MARKS[task.status], style),
        Cell(str(task.id), style),
        Cell(clean(task.subject), style),
        Cell(task.owner or "", style),
        Cell(standing(state, task, now), "" if style == "green" else style),
    ]


def standing(state: TeamState, task: Task, now: float) -> str:
    """Return where a task stands, beyond its status: what it waits for, since when it is over, why it failed."""
    ago = f"{duration(now - utc_seconds(task.updated_at))}"
    if task.status is TaskStatus.in_progress:
        attempt = f", attempt {task.attempts} of {task.max_attempts}" if task.attempts > 1 else ""
        return f"for {ago}{attempt}"
    if task.status is not TaskStatus.pending:
        said = task.reason if task.status is not TaskStatus.completed else task.result
        return f"{task.status.value} {ago} ago{f': {clean(said)}' if said else ''}"
    blockers = state.tasks.blocked_by(task.id)
    if blockers:
        return f"after {names(map(str, blockers))}"
    wants = [f"for {task.assignee}"] if task.assignee else []
    wants += [f"needs {names(sorted(task.needs))}"] if task.needs else []
    return ", ".join(["ready", *wants])


def describe_task(state: TeamState, task: Task) -> dict[str, Any]:
    """Return a task as JSON values: the keys of the view, and what else there is to know; `edges` holds every blocker with its policy."""
    return {
        **task_view(state, task),
        "edges": {str(blocker): policy.value for blocker, policy in state.tasks.blockers.get(task.id, {}).items()},
        "assignee": task.assignee,
        "needs": sorted(task.needs),
        "exclusive": sorted(task.exclusive),
        "attempts": task.attempts,
        "lease_until": None if task.lease_until is None else utc_now_text(task.lease_until),
        "result": task.result,
        "reason": task.reason,
        "created_by": task.created_by,
    }
