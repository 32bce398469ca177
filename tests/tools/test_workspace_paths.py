"""No path of a model's leads out of the work directory, whatever it is made of."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import trio

from teams.tools import ToolCall, ToolContext, ToolDispatcher, Workspace, WorkspaceError, make_default_dispatcher

SECRET = "the secret outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A work directory full of traps, beside a secret."""
    root = tmp_path / "desk"
    root.mkdir()
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "desktop").mkdir()
    (tmp_path / "desktop" / "secret.txt").write_text(SECRET)
    (root / "inside").mkdir()
    (root / "inside" / "file.txt").write_text("inside\n")
    for name, target in {
        "to_parent": "..",
        "to_secret": "../secret.txt",
        "to_secret_absolute": str(tmp_path / "secret.txt"),
        "chain1": "chain2",
        "chain2": "inside/chain3",
        "inside/chain3": "../../secret.txt",
        "up_and_down": "inside/../../desk/../secret.txt",
        "loop1": "loop2",
        "loop2": "loop1",
        "self": "self",
        "dangling": "../not_yet.txt",
        "dangling_directory": "../not_yet",
        "proc_root": "/proc/self/root",
        "dev": "/dev",
        "good": "inside/file.txt",
        "good_directory": "inside",
    }.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")
    return root


HOSTILE: list[Any] = [
    "../secret.txt",
    "../../../../../../../../etc/passwd",
    "inside/../../secret.txt",
    "inside/../../desktop/secret.txt",
    "./.././secret.txt",
    "missing/../../secret.txt",
    "inside//..//..//secret.txt",
    "../desktop/secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "/",
    "..",
    ".",
    "",
    "inside",
    "inside/file.txt/../../../secret.txt/x",
    "~",
    "~/.ssh/id_rsa",
    "~root/.profile",
    "to_parent/secret.txt",
    "to_parent/desk/to_parent/secret.txt",
    "to_secret",
    "to_secret_absolute",
    "chain1",
    "inside/chain3",
    "up_and_down",
    "loop1",
    "self",
    "self/x",
    "dangling",
    "dangling_directory/x",
    "proc_root/etc/passwd",
    "dev/null",
    "dev/zero",
    "dev/tty",
    "/dev/zero",
    "/dev/stdin",
    "/proc/self/environ",
    "/proc/self/fd/0",
    "fifo",
    "inside\0/../../secret.txt",
    "\0",
    "inside/file.txt/x",
    "x" * 300,
    "y/" * 3000,
    "\udcff\ud800",
    None,
    7,
    ["../secret.txt"],
    {"path": "../secret.txt"},
    b"../secret.txt",
    True,
]


def _outside(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.parent.rglob("*") if path.is_file() and not path.is_relative_to(root)}


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: repr(path)[:40])
async def test_hostile_path_reads_and_writes_nothing_outside(root: Path, path: Any) -> None:
    """Every file tool answers a hostile path with an error, shows nothing of the outside, makes nothing there, and does not hang."""
    dispatcher = make_default_dispatcher(root)
    before = _outside(root)
    for name, arguments in {
        "read_file": {"path": path},
        "write_file": {"path": path, "content": "overwritten"},
        "edit_file": {"path": path, "old": "secret", "new": "public"},
    }.items():
        result = await dispatcher.call(ToolCall("c", name, arguments), ToolContext("ann"))
        assert result.is_error, (name, result)
        assert SECRET not in result.text
        assert "root:" not in result.text
        assert len(result.text) < 2_000
        result.text.encode()
    assert _outside(root) == before


def _is_inside(root: Path, path: str) -> bool:
    return Path(os.path.realpath(root / path)).is_relative_to(root)


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: repr(path)[:40])
async def test_hostile_pattern_finds_nothing_outside(root: Path, path: Any) -> None:
    """As a pattern for glob and as grep's include, a hostile path finds nothing that is not inside."""
    dispatcher = make_default_dispatcher(root)
    for name, arguments in {"glob": {"pattern": path}, "grep": {"pattern": "secret", "include": path}}.items():
        result = await dispatcher.call(ToolCall("c", name, arguments), ToolContext("ann"))
        assert SECRET not in result.text
        assert "secret.txt:" not in result.text
        for line in result.text.splitlines():
            assert result.is_error or line.startswith("(") or _is_inside(root, line)


@pytest.mark.parametrize(
    "path", ["inside/file.txt", "./inside/../inside/file.txt", "good", "good_directory/file.txt", "{root}/inside/file.txt"]
)
async def test_path_that_ends_inside_is_read(root: Path, path: str) -> None:
    """Links, dots and absolute paths are fine as long as they end inside."""
    assert await make_default_dispatcher(root).dispatch("read_file", path=path.format(root=root)) == "inside"


@pytest.mark.parametrize("path", ["%2e%2e/secret.txt", "..\\secret.txt", "...", "~name", "a\nb", "\u202e.txt", "-rf", "con", "a b"])
async def test_odd_name_is_only_a_name(root: Path, path: str) -> None:
    """What looks like a trick in another language is a plain file name, and its file is inside."""
    dispatcher = make_default_dispatcher(root)
    before = _outside(root)
    assert (await dispatcher.dispatch("write_file", path=path, content="x")).startswith("created ")
    assert (root / path).read_text() == "x"
    assert _outside(root) == before


async def test_socket_and_fifo_do_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no regular file is named and not opened."""
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        os.mkfifo("fifo")
        dispatcher = make_default_dispatcher(tmp_path)
        assert "it is a socket" in await dispatcher.dispatch("read_file", path="sock")
        assert "it is a FIFO" in await dispatcher.dispatch("read_file", path="fifo")
        assert "it is a FIFO" in await dispatcher.dispatch("write_file", path="fifo", content="x")
        assert await dispatcher.dispatch("grep", pattern="x") == "(no line matches 'x')"


def test_link_put_there_after_the_check_is_not_followed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever exchanges a directory for a link between check and use gets an error, not the outside."""
    workspace = Workspace(root)
    resolve = workspace.resolve

    def resolve_and_exchange(path: object) -> tuple[str, ...]:
        parts = resolve(path)
        (root / "inside").rename(root / "moved")
        (root / "inside").symlink_to(root.parent / "desktop")
        return parts

    (root / "inside" / "secret.txt").write_text("mine")
    monkeypatch.setattr(workspace, "resolve", resolve_and_exchange)
    with pytest.raises(WorkspaceError, match="not a directory"):
        workspace.read("ann", "inside/secret.txt")


async def test_hard_link_to_the_outside_is_not_written_through(root: Path) -> None:
    """A write replaces the name inside and leaves the other name of the same file as it was."""
    os.link(root.parent / "secret.txt", root / "twin.txt")
    dispatcher = make_default_dispatcher(root)
    await dispatcher.dispatch("read_file", path="twin.txt")
    await dispatcher.dispatch("write_file", path="twin.txt", content="mine")
    assert (root / "twin.txt").read_text() == "mine"
    assert (root.parent / "secret.txt").read_text() == SECRET


@pytest.mark.parametrize("path", [".team", ".team/team.json", "{root}/.team/new", "inside/../.team/journal/x", "to_team/team.json"])
async def test_denied_directory_is_out_of_reach(root: Path, path: str) -> None:
    """What the owner denies cannot be read, written, listed or searched, by no spelling."""
    (root / ".team").mkdir()
    (root / ".team" / "team.json").write_text(SECRET)
    (root / "to_team").symlink_to(".team")
    dispatcher = make_default_dispatcher(root, denied=[".team"])
    spelt = path.format(root=root)
    assert "is not for tools" in await dispatcher.dispatch("read_file", path=spelt)
    assert "is not for tools" in await dispatcher.dispatch("write_file", path=spelt, content="x")
    assert ".team" not in await dispatcher.dispatch("glob", pattern="**")
    assert "team.json" not in await dispatcher.dispatch("glob", pattern=".team/*")
    assert await dispatcher.dispatch("grep", pattern="secret out") == "(no line matches 'secret out')"
    assert sorted(entry.name for entry in (root / ".team").iterdir()) == ["team.json"]


def test_workspace_needs_a_directory(tmp_path: Path) -> None:
    """A root that does not exist is the owner's mistake and is said at once."""
    with pytest.raises(NotADirectoryError, match="cannot be a workspace"):
        Workspace(tmp_path / "missing")


async def test_no_descriptor_leaks(root: Path) -> None:
    """After many reads, writes, errors and searches as many descriptors are open as before."""
    dispatcher: ToolDispatcher = make_default_dispatcher(root)

    async def use() -> None:
        for path in ("inside/file.txt", "fifo", "to_secret", "loop1", "inside", "deep/er/file"):
            await dispatcher.dispatch("read_file", path=path)
            await dispatcher.dispatch("write_file", path=path, content="x")
        await dispatcher.dispatch("grep", pattern="inside")
        await dispatcher.dispatch("grep", pattern="(inside)+")
        await dispatcher.dispatch("glob", pattern="**")
        await dispatcher.dispatch("bash", command="cat inside/file.txt")

    await use()
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        await use()
    await trio.lowlevel.checkpoint()
    assert len(os.listdir("/dev/fd")) == before
