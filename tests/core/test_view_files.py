"""The files that people and other tools read: their names, their keys, and that they are whole and current."""

import json
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from teams.journal import MemoryJournal, MemoryLog
from teams.testing.team import EPOCH_SECONDS
from teams.views import ViewWriter
from tests.core.rig import Rig, open_rig


@asynccontextmanager
async def viewed(root: Path, log: MemoryLog | None = None) -> AsyncGenerator[tuple[Rig, ViewWriter]]:
    """A team whose views are written into a folder."""
    async with open_rig(MemoryJournal(log), wall_clock=lambda: EPOCH_SECONDS) as rig:
        yield rig, ViewWriter(rig.engine, root, team_name="the team", interval_seconds=0.01)


def read(path: Path) -> Any:
    """Return what a JSON file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def lines(path: Path) -> list[Any]:
    """Return what a file of JSON lines holds; a line ends at a newline and at nothing else."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n")]


def files(root: Path) -> list[str]:
    """Return every file below a folder."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


AT = "2001-09-09T01:46:40.000000Z"


async def test_each_view_has_the_keys_that_other_tools_know(tmp_path: Path) -> None:
    """Members, tasks and unread mail stand in their files, in these keys and no others."""
    async with viewed(tmp_path) as (rig, views):
        await rig.join("dan", role="developer")
        first = await rig.tasks.create("design", "with\ncare")
        await rig.tasks.create("build", blocked_by=[first.id])
        await rig.tasks.claim(first.id, "ann")
        await rig.bus.send("ann", "ben", "hé \u2028 \ud800\nx")
        await rig.bus.send("cat", "ben", "two", request_id="m1")
        await views.flush()
        assert files(tmp_path) == ["config.json", "inbox/ben.jsonl", "tasks/task_1.json", "tasks/task_2.json"]
        config = read(tmp_path / "config.json")
        assert set(config) == {"team_name", "members"}
        assert config["team_name"] == "the team"
        assert config["members"][-1] == {"name": "dan", "role": "developer", "status": "idle"}
        assert [member["name"] for member in config["members"]] == ["ann", "ben", "cat", "dan"]
        assert read(tmp_path / "tasks" / "task_1.json") == {
            "id": 1,
            "subject": "design",
            "description": "with\ncare",
            "status": "in_progress",
            "owner": "ann",
            "worktree": "",
            "blockedBy": [],
            "blocks": [2],
            "created_at": AT,
            "updated_at": AT,
        }
        assert read(tmp_path / "tasks" / "task_2.json")["blockedBy"] == [1]
        first_line, second_line = lines(tmp_path / "inbox" / "ben.jsonl")
        known = {"type": "message", "from": "ann", "to": "ben", "timestamp": AT, "id": "m1", "request_id": None}
        assert known.items() <= first_line.items()
        assert (first_line["content"].startswith("hé \u2028"), second_line["content"], second_line["request_id"]) == (True, "two", "m1")


async def test_views_follow_what_happens(tmp_path: Path) -> None:
    """A completed blocker leaves `blockedBy`, a new edge shows on both sides, read mail disappears, an empty inbox has no file."""
    async with viewed(tmp_path) as (rig, views):
        first, second = await rig.tasks.create("1"), await rig.tasks.create("2")
        await rig.bus.send("ann", "ben", "one")
        await rig.bus.send("ann", "ben", "two")
        await views.flush()
        await rig.tasks.add_blocked_by(second.id, first.id)
        await rig.bus.acknowledge("ben", "m1")
        await views.flush()
        assert read(tmp_path / "tasks" / "task_1.json")["blocks"] == [2]
        assert read(tmp_path / "tasks" / "task_2.json")["blockedBy"] == [1]
        assert [line["id"] for line in lines(tmp_path / "inbox" / "ben.jsonl")] == ["m2"]
        claim = await rig.tasks.claim(first.id, "ann")
        await rig.tasks.complete(first.id, fence=claim.fence)
        await rig.bus.acknowledge("ben", "m2")
        await rig.leave("cat")
        await views.flush()
        assert read(tmp_path / "tasks" / "task_1.json")["status"] == "completed"
        assert read(tmp_path / "tasks" / "task_2.json")["blockedBy"] == []
        assert files(tmp_path) == ["config.json", "tasks/task_1.json", "tasks/task_2.json"]
        assert {member["name"]: member["status"] for member in read(tmp_path / "config.json")["members"]}["cat"] == "stopped"


async def test_views_are_right_again_after_reopening(tmp_path: Path) -> None:
    """Whatever stood in the files when the team opens, the first pass shows the state, and an inbox that is empty by now is gone."""
    log = MemoryLog()
    async with viewed(tmp_path, log) as (rig, views):
        await rig.tasks.create("1")
        await rig.bus.send("ann", "ben", "one")
        await rig.bus.send("ann", "cat", "two")
        await views.flush()
    (tmp_path / "tasks" / "task_1.json").write_text("{damaged")
    (tmp_path / "config.json").unlink()
    async with open_rig(MemoryJournal(log)) as rig:  # a process without views
        await rig.bus.acknowledge("ben", "m1")
    async with viewed(tmp_path, log) as (rig, views):
        await views.flush()
        assert files(tmp_path) == ["config.json", "inbox/cat.jsonl", "tasks/task_1.json"]
        assert read(tmp_path / "tasks" / "task_1.json")["subject"] == "1"


async def test_a_view_is_never_seen_half_written(tmp_path: Path) -> None:
    """A reader that holds the old file keeps all of it: the new one takes the name and does not touch the bytes; nothing else is left."""
    async with viewed(tmp_path) as (rig, views):
        await rig.bus.send("ann", "ben", "one")
        await rig.tasks.create("1")
        await views.flush()
        with (tmp_path / "inbox" / "ben.jsonl").open() as inbox, (tmp_path / "tasks" / "task_1.json").open() as task:
            inodes = [os.fstat(file.fileno()).st_ino for file in (inbox, task)]
            await rig.bus.send("ann", "ben", "two")
            await rig.tasks.cancel(1)
            await views.flush()
            assert len(inbox.read().splitlines()) == 1
            assert json.loads(task.read())["status"] == "pending"
            paths = [tmp_path / "inbox" / "ben.jsonl", tmp_path / "tasks" / "task_1.json"]
            assert all(path.stat().st_ino != inode for path, inode in zip(paths, inodes, strict=True))
        assert [name for name in files(tmp_path) if "tmp" in name] == []


async def test_a_pass_that_was_cancelled_is_made_up_for_by_the_next(tmp_path: Path) -> None:
    """What a cancelled pass did not write is written by the next one, in the same process too."""
    async with viewed(tmp_path) as (rig, views):
        await rig.bus.send("ann", "ben", "one")
        await rig.tasks.create("1")
        with trio.CancelScope() as scope:
            scope.cancel()
            await views.flush()
        await views.flush()
        assert files(tmp_path) == ["config.json", "inbox/ben.jsonl", "tasks/task_1.json"]


async def test_views_are_written_without_being_asked(tmp_path: Path) -> None:
    """While `run` runs, every change is in its file soon, and many changes between two passes are written once."""
    async with viewed(tmp_path) as (rig, views), trio.open_nursery() as nursery:
        nursery.start_soon(views.run)
        for number in range(5):
            await rig.bus.send("ann", "ben", str(number))
        path = tmp_path / "inbox" / "ben.jsonl"
        while not path.exists() or len(lines(path)) < 5:  # noqa: ASYNC110  # another thread writes it
            await trio.sleep(0.005)
        await rig.bus.acknowledge("ben", *[f"m{number}" for number in range(1, 6)])
        while path.exists():  # noqa: ASYNC110  # as above
            await trio.sleep(0.005)
        nursery.cancel_scope.cancel()


def _everything(root: Path) -> Iterator[Path]:
    yield from root.parent.rglob("*")


@pytest.mark.parametrize("hostile", ["../../evil", "/tmp/evil", "a/../../b", "..\\..\\evil", "\x00", "con", "x" * 300])
async def test_no_word_of_a_model_becomes_a_path(tmp_path: Path, hostile: str) -> None:
    """Names, subjects and bodies that look like paths make no file outside the team's folder, and none under their own name."""
    root = tmp_path / "inside" / "team"
    root.mkdir(parents=True)
    before = set(_everything(root))
    async with viewed(root) as (rig, views):
        for call in (
            rig.join(hostile),
            rig.bus.send("ann", hostile, "x"),
            rig.bus.send(hostile, "ann", "x"),
            rig.bus.receive(hostile),
            rig.tasks.create("x", assignee=hostile),
        ):
            with pytest.raises(Exception, match=r"cannot be a name|no member of the team"):
                await call
        await rig.tasks.create(hostile, hostile)
        await rig.bus.send("ann", "ben", hostile)
        await views.flush()
    made = {str(path.relative_to(root)) for path in set(_everything(root)) - before}
    assert made == {"config.json", "inbox", "inbox/ben.jsonl", "tasks", "tasks/task_1.json"}
