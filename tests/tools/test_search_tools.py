"""glob and grep: bounded, sorted, and never hung by a pattern."""

import os
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from teams.tools import Tool, ToolDispatcher, ToolLimits, Workspace, make_default_dispatcher
from teams.tools.search import search_tools
from teams.tools.search_worker import GlobPattern, expand_braces


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small tree with the usual clutter."""
    for path, content in {
        "README.md": "# title\nfind me here\n",
        "src/app.py": "def find():\n    return 1\n",
        "src/deep/er/util.py": "x = 1  # find\r\n",
        "src/page.tsx": "find()\n",
        ".github/ci.yml": "find: ci\n",
        ".git/config": "find in git\n",
        "node_modules/lib/index.js": "find in lib\n",
        "image.bin": "find\0\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content, newline="")
    (tmp_path / "link.py").symlink_to("src/app.py")
    (tmp_path / "cycle").symlink_to(".")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*", [".github/", "README.md", "cycle", "image.bin", "link.py", "src/"]),
        ("**/*.py", ["link.py", "src/app.py", "src/deep/er/util.py"]),
        ("src/**", ["src/", "src/app.py", "src/deep/", "src/deep/er/", "src/deep/er/util.py", "src/page.tsx"]),
        ("src/*.{py,tsx}", ["src/app.py", "src/page.tsx"]),
        ("./src/deep/*/u?il.[p]y", ["src/deep/er/util.py"]),
        ("{root}/src/*.py", ["src/app.py"]),
        (".git/*", [".git/config"]),
        ("cycle/*.md", ["(nothing matches 'cycle/*.md')"]),
        ("no/such/*", ["(nothing matches 'no/such/*')"]),
    ],
)
async def test_glob_lists_in_order(project: Path, pattern: str, found: list[str]) -> None:
    """Files, directories and inner links are listed by path; clutter only when it is named."""
    if "{root}" in pattern:
        pattern = pattern.format(root=project)
    text = await make_default_dispatcher(project).dispatch("glob", pattern=pattern)
    assert text.splitlines() == [line for line in found if pattern != "src/**" or line != "src/"]


@pytest.mark.parametrize("pattern", ["find", "f[i]nd", "(f)ind", "fi.*d|nothing"])
async def test_grep_finds_lines_in_order(project: Path, pattern: str) -> None:
    """Matching lines come with path and number, from text files alone, the same from this process and from a child."""
    text = await make_default_dispatcher(project).dispatch("grep", pattern=pattern)
    assert text.splitlines() == [
        "README.md:2: find me here",
        ".github/ci.yml:1: find: ci",
        "src/app.py:1: def find():",
        "src/page.tsx:1: find()",
        "src/deep/er/util.py:1: x = 1  # find",
    ]


@pytest.mark.parametrize(("include", "count"), [("*.py", 2), ("src/*.py", 1), ("**/*.{py,tsx}", 3), ("*.nothing", 0), (".git/*", 1)])
async def test_grep_is_limited_to_files(project: Path, include: str, count: int) -> None:
    """An include without a slash is matched against names, with one against paths."""
    for pattern in ("find", "(find)"):
        text = await make_default_dispatcher(project).dispatch("grep", pattern=pattern, include=include)
        assert sum(":1: " in line for line in text.splitlines()) == count


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a{2,1}", "(?P<x", "\\", "(" * 500, "a{99999999999}"])
async def test_bad_expression_is_explained(project: Path, pattern: str) -> None:
    """What is no regular expression is an error text with the reason."""
    text = await make_default_dispatcher(project).dispatch("grep", pattern=pattern)
    assert text.startswith("cannot search: ")
    assert "is not a regular expression: " in text


def _searching(root: Path, seconds: float) -> ToolDispatcher:
    tools: list[Tool] = search_tools(Workspace(root), search_seconds=seconds)
    return ToolDispatcher(tools)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(?:a?){40}a{40}b", "^(([a-z])+.)+[A-Z]([a-z])+$"])
async def test_catastrophic_expression_is_stopped(tmp_path: Path, pattern: str) -> None:
    """An expression that would run for years is killed at the limit, what was found before stays, and the loop runs on meanwhile."""
    (tmp_path / "a.txt").write_text("aaaaaaaaaaAaa\n" if pattern.startswith("^") else "a" * 10 + "b\n" + "a" * 90 + "b\n")
    (tmp_path / "b.txt").write_text("a" * 60 + "!\n")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await trio.lowlevel.checkpoint()
            ticks += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        text = await _searching(tmp_path, 0.5).dispatch("grep", pattern=pattern)
        nursery.cancel_scope.cancel()
    assert "stopped after 0.5 seconds: the pattern takes too long" in text
    assert ticks > 100


def _no_child_left() -> None:
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


async def test_cancelled_search_leaves_no_child(tmp_path: Path) -> None:
    """A search in a child process ends with the cancellation of the call."""
    (tmp_path / "a.txt").write_text("a" * 60 + "!\n")
    with trio.move_on_after(0.2) as scope:
        await _searching(tmp_path, 60).dispatch("grep", pattern="(a+)+$")
    assert scope.cancelled_caught
    _no_child_left()


async def test_many_results_are_bounded(tmp_path: Path) -> None:
    """Thousands of files and matches are cut to a figure that is said."""
    for number in range(1_200):
        (tmp_path / f"file{number:04}.txt").write_text(f"match {'x' * 1_000}\n")
    dispatcher = make_default_dispatcher(tmp_path)
    listed = (await dispatcher.dispatch("glob", pattern="*")).splitlines()
    assert (len(listed), listed[-1]) == (1_001, "[the first 1000; there are more]")
    for pattern in ("match", "(match)"):
        matches = (await dispatcher.dispatch("grep", pattern=pattern)).splitlines()
        assert matches[-1].endswith("; there are more]")
        assert len(matches) <= 201
        assert max(map(len, matches)) < 350
    small = make_default_dispatcher(tmp_path, limits=ToolLimits(output_chars=2_000))
    assert len(await small.dispatch("grep", pattern="match")) <= 2_000
    assert "there are more" in await small.dispatch("glob", pattern="*")


async def test_long_line_is_shown_around_the_match(tmp_path: Path) -> None:
    """Of a minified line the surroundings of the match are shown."""
    (tmp_path / "a.js").write_text("x" * 100_000 + "needle" + "y" * 100_000)
    text = await make_default_dispatcher(tmp_path).dispatch("grep", pattern="needle")
    assert "xneedley" in text
    assert len(text) < 400


def _dig(root: Path, *, depth: int, files_at: tuple[int, ...]) -> None:
    for level in range(depth):
        if level in files_at:
            (root / "file.txt").write_text(f"found at {level}\n")
        root /= "deeper"
        root.mkdir()


async def test_deep_tree_is_walked(tmp_path: Path) -> None:
    """A very deep tree does no harm; its upper hundred levels are searched."""
    _dig(tmp_path, depth=300, files_at=(99, 200))
    text = await make_default_dispatcher(tmp_path).dispatch("grep", pattern="found")
    assert text.endswith("/file.txt:1: found at 99")


names = st.text(st.sampled_from("ab."), min_size=1, max_size=3)


@given(st.lists(names, min_size=1, max_size=5), st.lists(st.one_of(names, st.sampled_from(["*", "**", "?", "a*"])), min_size=1, max_size=5))
def test_glob_agrees_with_a_plain_definition(parts: list[str], pattern: list[str]) -> None:
    """The table gives what the recursive definition of a glob gives."""
    if "." in pattern:
        return

    def one(component: str, part: str) -> bool:
        if component == "*":
            return True
        if component == "?":
            return len(part) == 1
        return part.startswith("a") if component == "a*" else component == part

    def match(components: list[str], path: list[str]) -> bool:
        if not components:
            return not path
        if components[0] == "**":
            return any(match(components[1:], path[taken:]) for taken in range(len(path) + 1))
        return bool(path) and one(components[0], path[0]) and match(components[1:], path[1:])

    assert GlobPattern("/".join(pattern)).matches(parts) == match(pattern, parts)


def test_glob_of_many_stars_is_quick() -> None:
    """Stars within a component and between components do not multiply."""
    assert not GlobPattern("*a" * 100 + "b").matches(["a" * 255])
    assert not GlobPattern("**/a/" * 100 + "b").matches(["a"] * 400)
    assert len(expand_braces("{a,b}" * 30)) <= 64
