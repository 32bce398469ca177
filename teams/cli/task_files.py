"""Task files of other tools, read and checked as a whole before anything is made of them.

A file `task_<id>.json` holds id, subject, description, status, owner, worktree, blockedBy and blocks. An edge may stand on either side or
on both: tools take a completed task out of its dependents' `blockedBy`, and only its own `blocks` still tells of the edge.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, TypeGuard, cast

from protocols.task_status import TaskStatus
from teams.cli.exits import CommandFailed
from teams.state.task_commands import SUBJECT_LIMIT, TEXT_LIMIT

FILE_LIMIT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FoundTask:
    """One task as its file tells it."""

    path: Path
    id: int
    subject: str
    description: str
    status: TaskStatus
    owner: str
    worktree: str
    blocked_by: frozenset[int]
    blocks: frozenset[int]


@dataclass(frozen=True, slots=True)
class FoundTasks:
    """Everything in a directory: the tasks by id, blockers before what they block, and all edges."""

    by_id: Mapping[int, FoundTask]
    blockers: Mapping[int, frozenset[int]]


class _Bad(Exception):
    """A file cannot be taken in."""


def read_task_files(directory: Path) -> FoundTasks:
    """Read every task file of a directory.

    Raises: CommandFailed, which names the first bad file and counts the others; OSError.
    """
    paths = sorted(directory.glob("task_*.json"))
    if not paths:
        inner = directory / "tasks"
        hint = f"; {str(inner)!r} has some" if any(inner.glob("task_*.json")) else ""
        raise CommandFailed(f"there are no task files (task_<id>.json) in {str(directory)!r}{hint}")
    tasks: dict[int, FoundTask] = {}
    problems: list[str] = []
    for path in paths:
        try:
            task = _read(path)
            if task.id in tasks:
                raise _Bad(f"its id {task.id} is that of {tasks[task.id].path.name} as well")
            tasks[task.id] = task
        except _Bad as bad:
            problems.append(f"{path.name}: {bad}")
    _raise_if(problems)
    blockers = _edges(tasks)
    return FoundTasks({task_id: tasks[task_id] for task_id in _order(tasks, blockers)}, blockers)


def _raise_if(problems: list[str]) -> None:
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise CommandFailed(f"nothing was imported: {problems[0]}{more}")


def _edges(tasks: Mapping[int, FoundTask]) -> dict[int, frozenset[int]]:
    edges: dict[int, set[int]] = {task_id: set(task.blocked_by) for task_id, task in tasks.items()}
    problems = [
        f"{task.path.name}: it names task {other}, of which there is no file"
        for task in tasks.values()
        for other in sorted((task.blocked_by | task.blocks) - tasks.keys())
    ]
    _raise_if(problems)
    for task in tasks.values():
        for dependent in task.blocks:
            edges[dependent].add(task.id)
    return {task_id: frozenset(blockers) for task_id, blockers in edges.items()}


def _order(tasks: Mapping[int, FoundTask], blockers: Mapping[int, frozenset[int]]) -> list[int]:
    try:
        return list(TopologicalSorter({task_id: sorted(blockers[task_id]) for task_id in sorted(tasks)}).static_order())
    except CycleError as error:
        cycle = " -> ".join(map(str, cast("list[int]", error.args[1])))
        raise CommandFailed(f"nothing was imported: the tasks wait for each other in the cycle {cycle}") from None


def _read(path: Path) -> FoundTask:
    try:
        if path.stat().st_size > FILE_LIMIT_BYTES:
            raise _Bad(f"it has more than {FILE_LIMIT_BYTES} bytes")
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _Bad(f"it is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise _Bad("it holds no object")
    fields = cast("dict[str, Any]", data)
    task_id = _number(fields.get("id"), "id")
    subject = _text(fields, "subject", SUBJECT_LIMIT)
    if not subject.strip():
        raise _Bad("it has no subject")
    status = fields.get("status", "pending")
    if status not in list(TaskStatus):
        raise _Bad(f"its status is {status!r}; legal: {', '.join(TaskStatus)}")
    blocked_by, blocks = _numbers(fields, "blockedBy"), _numbers(fields, "blocks")
    if task_id in blocked_by | blocks:
        raise _Bad("it waits for itself")
    return FoundTask(
        path,
        task_id,
        subject,
        _text(fields, "description", TEXT_LIMIT),
        TaskStatus(status),
        _text(fields, "owner", SUBJECT_LIMIT),
        _text(fields, "worktree", SUBJECT_LIMIT),
        blocked_by,
        blocks,
    )


def _text(fields: Mapping[str, Any], key: str, limit: int) -> str:
    value = fields.get(key) or ""
    if not isinstance(value, str) or len(value) > limit:
        raise _Bad(f"its {key} is not a text of at most {limit} characters")
    return value


def _number(value: Any, key: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _Bad(f"its {key} is {value!r}, not a task's number")
    return value


def _numbers(fields: Mapping[str, Any], key: str) -> frozenset[int]:
    value: Any = fields.get(key)
    if value is None:
        return frozenset()
    if not _is_list(value):
        raise _Bad(f"its {key} is not a list")
    return frozenset(_number(item, key) for item in value)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
