"""Task files of other tools become tasks of a team: all of them, or none."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from teams import MemberOptions, ScriptedModel, open_team

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def empty_team(tmp_path: Path) -> Path:
    """A team with the members ann and the person, one task of its own, and nobody who hosts it."""
    root = tmp_path / "other" / ".team"

    async def make() -> None:
        async with open_team(root, model=ScriptedModel([])) as team:
            await team.spawn("ann", role="developer", tools=[], options=MemberOptions(auto_claim=False))
            await team.tasks.create("A task that was here before")

    trio.run(make)
    return root


def _write(folder: Path, *tasks: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for task in tasks:
        (folder / f"task_{task['id']}.json").write_text(json.dumps({"subject": f"Task {task['id']}", **task}), encoding="utf-8")
    return folder


def _tasks(run: Run, team: Path) -> dict[int, dict[str, Any]]:
    return {task["id"]: task for task in json.loads(run("tasks", team, "--json")[1])}


def test_import_maps_ids_keeps_edges_and_what_is_done(empty_team: Path, tmp_path: Path, run: Run) -> None:
    """Ids are given anew after the ones that exist, edges follow them from either side, and done tasks are done."""
    source = _write(
        tmp_path / "files",
        {"id": 7, "status": "completed", "owner": "zoe", "blocks": [3]},
        {"id": 3, "status": "pending", "blockedBy": [12], "description": "Mind the cents.", "worktree": "wt/3"},
        {"id": 12, "status": "in_progress", "owner": "ann"},
        {"id": 20, "status": "pending", "owner": "zoe", "blockedBy": ["3"]},
        {"id": 21, "status": "cancelled"},
    )
    code, out, err = run("import-tasks", empty_team, source, "--json")
    assert (code, err) == (0, "")
    done = json.loads(out)
    ids = {int(old): new for old, new in done["imported"].items()}
    assert sorted(ids.values()) == [2, 3, 4, 5, 6]
    tasks = _tasks(run, empty_team)
    assert tasks[1]["subject"] == "A task that was here before"
    assert tasks[ids[7]]["status"] == "completed"
    assert tasks[ids[3]]["edges"] == {str(ids[7]): "fail", str(ids[12]): "fail"}
    assert tasks[ids[3]]["blockedBy"] == [ids[12]]
    assert (tasks[ids[3]]["description"], tasks[ids[3]]["worktree"]) == ("Mind the cents.", "wt/3")
    assert (tasks[ids[12]]["status"], tasks[ids[12]]["assignee"], tasks[ids[12]]["owner"]) == ("pending", "ann", "")
    assert tasks[ids[20]]["assignee"] is None
    assert tasks[ids[21]]["status"] == "cancelled"
    notes = "\n".join(done["notes"])
    assert "task_20.json: its owner 'zoe' is no member" in notes
    assert "task_12.json: it was in progress and is pending again, meant for ann" in notes
    assert "task_7.json" not in notes


def test_import_tells_a_person_what_became_of_each_file(empty_team: Path, tmp_path: Path, run: Run) -> None:
    """The output names each file, its new id and its subject."""
    source = _write(tmp_path / "files", {"id": 10}, {"id": 9, "blockedBy": [10]})
    code, out, _ = run("import-tasks", empty_team, source)
    assert code == 0
    assert out.splitlines() == ["2 tasks imported:", "  task_9.json   ->  task 3  Task 9", "  task_10.json  ->  task 2  Task 10"]


def test_import_takes_the_views_of_a_team(team: Path, empty_team: Path, run: Run) -> None:
    """The task files that a team itself writes come in again: the same states and the same edges."""
    shutil.copytree(team / "tasks", empty_team.parent / "copied")
    done = json.loads(run("import-tasks", empty_team, empty_team.parent / "copied", "--json")[1])
    before, after = _tasks(run, team), _tasks(run, empty_team)
    for old, task in before.items():
        twin = after[done["imported"][str(old)]]
        assert (twin["subject"], twin["status"]) == (task["subject"], task["status"])
        assert sorted(map(int, twin["edges"])) == sorted(done["imported"][blocker] for blocker in task["edges"])


def test_import_again_after_a_failure_runs_what_did_not_wait(empty_team: Path, tmp_path: Path, run: Run) -> None:
    """A task behind a failed one keeps the state that its file tells: completed, waiting, failed or cancelled."""
    behind = {2: "completed", 3: "pending", 4: "failed", 5: "cancelled"}
    source = _write(
        tmp_path / "files", {"id": 1, "status": "failed"}, *({"id": n, "status": s, "blockedBy": [1]} for n, s in behind.items())
    )
    ids = json.loads(run("import-tasks", empty_team, source, "--json")[1])["imported"]
    tasks = _tasks(run, empty_team)
    assert {n: tasks[ids[str(n)]]["status"] for n in behind} == behind
    assert tasks[ids["3"]]["blockedBy"] == [ids["1"]]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{", "task_9.json: it is not JSON"),
        ("[1]", "task_9.json: it holds no object"),
        ('{"id": 9}', "task_9.json: it has no subject"),
        ('{"id": true, "subject": "x"}', "its id is True, not a task's number"),
        ('{"id": 1, "subject": "x"}', "task_9.json: its id 1 is that of task_1.json as well"),
        ('{"id": 9, "subject": "x", "status": "done"}', "its status is 'done'; legal: pending, in_progress"),
        ('{"id": 9, "subject": "x", "blockedBy": [8]}', "it names task 8, of which there is no file"),
        ('{"id": 9, "subject": "x", "blocks": [9]}', "it waits for itself"),
        ('{"id": 9, "subject": "x", "blockedBy": 1}', "its blockedBy is not a list"),
        ('{"id": 9, "subject": "x", "blocks": [1], "blockedBy": [1]}', "cycle 1 -> 9 -> 1"),
        ('{"id": 9, "subject": "x", "status": "completed", "blockedBy": [1]}', "task_9.json, which says that it is completed"),
        ('{"id": 9, "subject": 5}', "its subject is not a text"),
    ],
)
def test_one_bad_file_and_nothing_is_imported(empty_team: Path, tmp_path: Path, run: Run, bad: str, words: str) -> None:
    """A file that cannot be taken in is named with the reason in one line, and the journal does not grow."""
    source = _write(tmp_path / "files", {"id": 1})
    (source / "task_9.json").write_text(bad, encoding="utf-8")
    before = run("log", empty_team, "--json")[1]
    code, out, err = run("import-tasks", empty_team, source)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("teams: nothing was imported: ")
    assert words in err
    assert run("log", empty_team, "--json")[1] == before


def test_import_is_one_transaction_of_the_journal(empty_team: Path, tmp_path: Path, run: Run) -> None:
    """A crash within the import leaves nothing of it: all its records stand or fall together."""
    source = _write(tmp_path / "files", {"id": 1, "status": "completed"}, {"id": 2, "blockedBy": [1]})
    before = _tasks(run, empty_team)
    assert run("import-tasks", empty_team, source)[0] == 0
    segment = next((empty_team / "journal").glob("*.jsonl"))
    data = segment.read_bytes()
    segment.write_bytes(data[:-1])
    (empty_team / "snapshot.json").unlink(missing_ok=True)
    assert _tasks(run, empty_team) == before


def test_a_folder_without_task_files_is_told(empty_team: Path, team: Path, run: Run) -> None:
    """A folder without task files is an error that points at the folder within that has some."""
    code, _, err = run("import-tasks", empty_team, team)
    assert code == 1
    assert f"{str(team / 'tasks')!r} has some" in err
