"""Reading, writing and editing text files, and two agents on one file."""

import fcntl
import os
import stat
from pathlib import Path

import pytest
import trio
import trio.testing

from teams.tools import ToolCall, ToolContext, ToolDispatcher, ToolLimits, ToolResult, Workspace, make_default_dispatcher


class Agent:
    """An agent of some name, with the default tools of a workspace."""

    def __init__(self, name: str, dispatcher: ToolDispatcher) -> None:
        self._name, self._dispatcher = name, dispatcher

    async def _call(self, tool: str, **arguments: object) -> ToolResult:
        return await self._dispatcher.call(ToolCall("c", tool, arguments), ToolContext(self._name))

    async def read(self, path: str = "a.txt", **options: int) -> str:
        """Read and return the text, also of an error."""
        return (await self._call("read_file", path=path, **options)).text

    async def write(self, content: str, path: str = "a.txt") -> str:
        """Write the file."""
        return (await self._call("write_file", path=path, content=content)).text

    async def edit(self, old: str, new: str, path: str = "a.txt") -> str:
        """Edit the file."""
        return (await self._call("edit_file", path=path, old=old, new=new)).text


@pytest.fixture
def ann(tmp_path: Path) -> Agent:
    """An agent in an empty directory."""
    return Agent("ann", make_default_dispatcher(tmp_path))


@pytest.mark.parametrize("shared", [True, False])
async def test_two_agents_cannot_overwrite_each_other_unseen(tmp_path: Path, shared: bool) -> None:
    """Of two agents that read the same content, the second to write is refused until it has read again; nothing is lost."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    dispatcher = make_default_dispatcher(Workspace(tmp_path))
    ann, ben = Agent("ann", dispatcher), Agent("ben", dispatcher if shared else make_default_dispatcher(tmp_path))
    await ann.read()
    await ben.read()
    assert await ann.edit("one", "ONE") == "edited a.txt at line 1"
    refused = "cannot write 'a.txt': it changed since you read it: read it again, then repeat your change on the new content"
    assert await ben.edit("two", "TWO") == refused
    assert await ben.write("all of it") == refused
    assert (tmp_path / "a.txt").read_text() == "ONE\ntwo\n"
    assert await ben.read() == "ONE\ntwo"
    assert await ben.edit("two", "TWO") == "edited a.txt at line 2"
    assert await ann.edit("ONE", "1") == refused
    assert (tmp_path / "a.txt").read_text() == "ONE\nTWO\n"


async def test_many_agents_editing_at_once_lose_nothing(tmp_path: Path) -> None:
    """Twenty agents that each append a line by read and edit, again when refused, end with twenty lines."""
    dispatcher = make_default_dispatcher(tmp_path)
    (tmp_path / "a.txt").write_text("end")

    async def append(number: int) -> None:
        agent = Agent(f"agent{number}", dispatcher)
        while True:
            await agent.read()
            if (await agent.edit("end", f"{number}\nend")).startswith("edited"):
                return

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(append, number)
    lines = (tmp_path / "a.txt").read_text().split("\n")
    assert sorted(lines[:-1], key=int) == [str(number) for number in range(20)]


async def test_existing_file_must_be_read_first(tmp_path: Path, ann: Agent) -> None:
    """A file that the agent never saw is neither overwritten nor edited; a new one is made at once, and its maker has seen it."""
    (tmp_path / "a.txt").write_text("old")
    assert "you have not read it; read it first" in await ann.write("new")
    assert "you have not read it; read it first" in await ann.edit("old", "new")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert await ann.write("x\ny", "deep/er/b.txt") == "created deep/er/b.txt (2 lines)"
    assert await ann.write("z\n", "deep/er/b.txt") == "replaced deep/er/b.txt (1 lines)"
    assert (tmp_path / "deep/er/b.txt").read_text() == "z\n"


async def test_one_agents_reading_is_not_anothers(tmp_path: Path) -> None:
    """That one agent read a file gives another no right to overwrite it."""
    dispatcher = make_default_dispatcher(tmp_path)
    (tmp_path / "a.txt").write_text("old")
    await Agent("ann", dispatcher).read()
    assert "you have not read it" in await Agent("ben", dispatcher).write("new")


async def test_change_by_a_shell_is_seen(tmp_path: Path, ann: Agent) -> None:
    """A change made past the tools, even of the same length and time, or a removal, stops a write that does not know of it."""
    target = tmp_path / "a.txt"
    target.write_text("old")
    await ann.read()
    status = target.stat()
    target.write_text("odd")
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "it changed since you read it" in await ann.write("new")
    await ann.read()
    target.unlink()
    assert "it was removed since you read it; write it again if it shall exist" in await ann.write("new")
    assert not target.exists()
    assert await ann.write("new") == "created a.txt (1 lines)"


async def test_same_file_by_another_path_is_the_same(tmp_path: Path, ann: Agent) -> None:
    """What was read through a link may be written by name, and the link stays a link."""
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "link").symlink_to("a.txt")
    await ann.read("link")
    assert await ann.write("new", "link") == "replaced a.txt (1 lines)"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "new"


async def test_mode_bits_survive_and_nothing_else_is_left(tmp_path: Path, ann: Agent) -> None:
    """A script stays executable when it is edited, and no temporary file stays behind, also after a refusal."""
    script = tmp_path / "a.txt"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o751)
    await ann.read()
    await ann.edit("exit 1", "exit 0")
    await ann.edit("not there", "x")
    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("absent", "x", "'old' does not occur in it"),
        ("b", "x", "'old' occurs 3 times in it"),
        ("bb", "x", "'old' occurs 2 times in it"),
        ("", "x", "'old' is empty"),
        ("a", "a", "'old' and 'new' are the same"),
        ("a\nbbb", "\ud800", "a lone surrogate"),
    ],
)
async def test_edit_that_is_not_exact_changes_nothing(tmp_path: Path, ann: Agent, old: str, new: str, said: str) -> None:
    """No match, several matches (overlapping ones too) and empty wishes are explained, with the number of matches."""
    (tmp_path / "a.txt").write_text("a\nbbb\n")
    await ann.read()
    text = await ann.edit(old, new)
    assert text.startswith(("cannot edit 'a.txt': ", "the text cannot be written"))
    assert said in text
    assert (tmp_path / "a.txt").read_text() == "a\nbbb\n"


async def test_edit_keeps_line_ends_and_other_bytes(tmp_path: Path, ann: Agent) -> None:
    """A file with carriage returns is edited by the text that the model saw, and keeps its line ends."""
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree")
    await ann.read()
    assert await ann.edit("one\ntwo", "1\n2\n2b") == "edited a.txt at line 1"
    assert (tmp_path / "a.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n2b\r\nthree"


async def test_edit_of_what_is_no_text_is_refused(tmp_path: Path, ann: Agent) -> None:
    """Bytes that are not UTF-8 are shown with replacements and never written back."""
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 bar")
    assert "not valid UTF-8" in await ann.read()
    assert "it is not UTF-8 text (byte 3)" in await ann.edit("bar", "x")
    assert (tmp_path / "a.txt").read_bytes() == b"caf\xe9 bar"


async def test_reading_shows_lines_as_they_are(tmp_path: Path, ann: Agent) -> None:
    """Offset and limit pick lines, and a note says where the rest is."""
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 11)))
    assert await ann.read(offset=9) == "line 9\nline 10\n[lines 9 to 10 of 10]"
    assert await ann.read(offset=2, limit=2) == "line 2\nline 3\n[lines 2 to 3 of 10; continue with offset=4]"
    assert await ann.read(limit=1) == "line 1\n[lines 1 to 1 of 10; continue with offset=2]"
    assert await ann.read(offset=11) == "(the file has 10 lines; line 11 is after its end)"
    assert "count from 1" in await ann.read(offset=0)


@pytest.mark.parametrize(
    ("content", "shown"),
    [(b"", "(the file is empty)"), (b"\x7fELF\0\0", "(a binary file of 6 bytes; not shown)"), (b"\n", "(no output)"), (b"x", "x")],
)
async def test_odd_content_is_named(tmp_path: Path, ann: Agent, content: bytes, shown: str) -> None:
    """An empty or binary file is said to be so."""
    (tmp_path / "a.txt").write_bytes(content)
    assert await ann.read() in (shown, "")


@pytest.mark.parametrize("limit", [1, 300, 1_000, 50_000])
@pytest.mark.parametrize("content", ["x" * 1_000_000, "short line\n" * 50_000, ("y" * 5_000 + "\n") * 50])
async def test_reading_is_bounded_and_goes_on(tmp_path: Path, limit: int, content: str) -> None:
    """However long a file or its lines are, what is shown keeps the limit and the note's next line is the right one."""
    (tmp_path / "a.txt").write_text(content)
    agent = Agent("ann", make_default_dispatcher(tmp_path, limits=ToolLimits(output_chars=limit)))
    text = await agent.read()
    assert len(text) <= limit
    if limit == 50_000 and content.startswith("short"):
        assert text.endswith("continue with offset=2001]")
        assert text.count("short line") == 2_000


async def test_too_large_a_file_is_refused(tmp_path: Path, ann: Agent) -> None:
    """A file of 50 MB is neither read nor written, and the text says what to do."""
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(50_000_000)
    assert "over the limit of 20,000,000 bytes" in await ann.read()
    assert "50,000,000 bytes is over the limit" in await ann.write("x" * 50_000_000, "b.txt")
    assert not (tmp_path / "b.txt").exists()


async def test_foreign_lock_is_waited_for_and_reported(tmp_path: Path, ann: Agent, autojump_clock: trio.testing.MockClock) -> None:
    """A directory locked by another program holds up one write for a while, then it is refused; the loop is never blocked."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert "holds the lock of its directory" in await ann.write("x")
    assert 5 <= trio.current_time() < 6
    os.close(descriptor)
    assert await ann.write("x") == "created a.txt (1 lines)"


async def test_cancelled_write_has_not_happened(tmp_path: Path, ann: Agent) -> None:
    """A write that is cancelled leaves no file and no directory lock."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await ann.write("x")
    assert scope.cancelled_caught
    assert os.listdir(tmp_path) == []
    assert await ann.write("x") == "created a.txt (1 lines)"
