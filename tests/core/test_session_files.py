"""Transcripts and artifacts on disk: written at once, durable when asked, and few files open however many members write."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from compaction.errors import NotASession
from compaction.transcript import ModelMessage
from teams.artifacts import ArtifactStore
from teams.errors import InvalidName, UsageError
from teams.sessions import OPEN_FILES, SessionStore


@asynccontextmanager
async def running(directory: Path | None) -> AsyncGenerator[SessionStore]:
    """A store at work, as a team runs it."""
    sessions = SessionStore(directory, wall_clock=lambda: 1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sessions.run)
        yield sessions
        nursery.cancel_scope.cancel()
    sessions.close()


def said(number: int) -> ModelMessage:
    """Return the message of this number."""
    return ModelMessage("user" if number % 2 == 0 else "assistant", f"message {number}")


async def texts(sessions: SessionStore, name: str) -> list[str]:
    """Return what a member's transcript says."""
    loaded = await sessions.load(name)
    assert loaded is not None
    return [message.text for message in loaded.view.messages]


@pytest.mark.parametrize("in_memory", [True, False])
async def test_lines_come_back_in_the_order_in_which_they_were_added(tmp_path: Path, in_memory: bool) -> None:
    """Each member's transcript is its own, whether it was synced or not, and holds the ids of the mail that it took in."""
    async with running(None if in_memory else tmp_path) as sessions:
        for number in range(4):
            for name in ("ann", "ben"):
                sessions.log(name).add(said(number), mail=[f"m{number}"] if name == "ann" else ())
            if number == 1:
                await sessions.log("ann").sync()
        assert sessions.exists("ann")
        assert not sessions.exists("cat")
        loaded = await sessions.load("ann")
        assert loaded is not None
        assert set(loaded.mail_ids) == {f"m{number}" for number in range(4)}
        for name in ("ann", "ben"):
            assert await texts(sessions, name) == [f"message {number}" for number in range(4)]


async def test_what_was_synced_is_on_disk_and_what_was_not_is_there_after_the_end(tmp_path: Path) -> None:
    """When `sync` returns another process reads the lines; those that nobody synced are written at the close; later ones come behind."""
    async with running(tmp_path) as sessions:
        sessions.log("ann").add(said(0))
        await sessions.log("ann").sync()
        async with running(tmp_path) as other:
            assert await texts(other, "ann") == ["message 0"]
        sessions.log("ann").add(said(1))
        sessions.log("ben").add(said(0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ann.jsonl", "ben.jsonl"]
    async with running(tmp_path) as sessions:
        sessions.log("ann").add(said(2))
        assert await texts(sessions, "ann") == ["message 0", "message 1", "message 2"]
        assert await texts(sessions, "ben") == ["message 0"]


async def test_lines_that_come_while_the_first_ones_are_written_stand_behind_them(tmp_path: Path) -> None:
    """Whatever falls together, the order of the lines is that of the calls."""
    async with running(tmp_path) as sessions, trio.open_nursery() as nursery:
        for number in range(60):
            sessions.log("ann").add(said(number))
            nursery.start_soon(sessions.sync, "ann")
            if number % 7 == 0:
                await trio.lowlevel.checkpoint()
        await sessions.sync("ann")
        assert await texts(sessions, "ann") == [f"message {number}" for number in range(60)]


async def test_a_line_that_a_crash_cut_does_not_hide_the_others(tmp_path: Path) -> None:
    """The torn end is cut off and kept aside, what was whole is read, and the next line is whole again; a foreign file is an error."""
    async with running(tmp_path) as sessions:
        for number in range(3):
            sessions.log("ann").add(said(number))
    path = tmp_path / "ann.jsonl"
    path.write_bytes(path.read_bytes()[:-7])
    async with running(tmp_path) as sessions:
        assert await texts(sessions, "ann") == ["message 0", "message 1"]
        sessions.log("ann").add(said(2))
        assert await texts(sessions, "ann") == ["message 0", "message 1", "message 2"]
        (tmp_path / "ben.jsonl").write_text("a shopping list\nmilk\n")
        with pytest.raises(NotASession):
            await sessions.load("ben")


async def test_one_worker_serves_all_who_sync(tmp_path: Path) -> None:
    """Any number of members that sync at once return, also again after more lines; a sync with nothing to do returns at once."""
    async with running(tmp_path) as sessions:
        for round_number in range(3):
            async with trio.open_nursery() as writers:
                for number in range(30):
                    log = sessions.log(f"w{number}")
                    log.add(said(round_number))
                    writers.start_soon(log.sync)
        for name in ("w0", "nobody"):
            await sessions.sync(name)
        assert await texts(sessions, "w29") == ["message 0", "message 1", "message 2"]


async def test_few_files_are_open_however_many_members_write(tmp_path: Path) -> None:
    """Members by the hundred that all write before anybody syncs do not use up the file descriptors, in their first turn or later."""
    count, before = OPEN_FILES * 3, len(os.listdir("/dev/fd"))
    async with running(tmp_path) as sessions:
        for round_number in range(2):
            for number in range(count):
                sessions.log(f"w{number}").add(said(round_number))
            assert len(os.listdir("/dev/fd")) - before <= OPEN_FILES + 20, f"in round {round_number}"
            async with trio.open_nursery() as writers:
                for number in range(count):
                    writers.start_soon(sessions.sync, f"w{number}")
        assert await texts(sessions, f"w{count - 1}") == ["message 0", "message 1"]
    assert len(list(tmp_path.iterdir())) == count


@pytest.mark.parametrize("names", [["ann"], ["ann", "ben", "cat"]])
async def test_a_disk_that_refuses_is_told_to_each_who_syncs(tmp_path: Path, names: list[str]) -> None:
    """An error of the disk reaches every member that waits, as OSError with its name, and ends nobody else."""
    directory = tmp_path / "sessions"
    directory.mkdir()
    told: list[str] = []

    async def sync(sessions: SessionStore, name: str) -> None:
        with pytest.raises(OSError, match=rf"cannot keep the transcript of '{name}'"):
            await sessions.sync(name)
        told.append(name)

    sessions = SessionStore(directory, wall_clock=lambda: 1.0)
    for name in names:
        sessions.log(name).add(said(0))
    directory.rmdir()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sessions.run)
        async with trio.open_nursery() as writers:
            for name in names:
                writers.start_soon(sync, sessions, name)
        nursery.cancel_scope.cancel()
    assert sorted(told) == names


@pytest.mark.parametrize("in_memory", [True, False])
async def test_an_artifact_is_kept_once_and_comes_back_whole(tmp_path: Path, in_memory: bool) -> None:
    """The same text has the same id and is one file; another owner has its own; an unknown id is an error."""
    artifacts = ArtifactStore(None if in_memory else tmp_path)
    text = "a\r\n\x00é\ud800" * 1_000
    first = await artifacts.save("ann", text)
    assert first == artifacts.name(text) == await artifacts.save("ann", text) == artifacts.save_now("ann", text)
    assert await artifacts.load("ann", first) == text
    with pytest.raises(UsageError, match=r"cannot load artifact .* of 'ben': there is none of that id"):
        await artifacts.load("ben", first)
    assert in_memory or [path.name for path in tmp_path.rglob("*") if path.is_file()] == [first]


@pytest.mark.parametrize("hostile", ["../x", "..", "/etc/passwd", "a/b", "", "x\x00"])
async def test_an_artifact_is_never_outside_its_folder(tmp_path: Path, hostile: str) -> None:
    """An owner or an id that is no plain name is refused, for reading too."""
    root = tmp_path / "artifacts"
    artifacts = ArtifactStore(root)
    with pytest.raises(InvalidName):
        await artifacts.save(hostile, "x")
    for owner, artifact_id in ((hostile, "abc"), ("ann", hostile)):
        with pytest.raises(InvalidName):
            await artifacts.load(owner, artifact_id)
    assert list(tmp_path.iterdir()) == []
