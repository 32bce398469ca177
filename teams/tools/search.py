"""glob and grep over a workspace.

- No link is followed, nothing denied is listed; results are sorted and bounded, and say when there is more.
- A regular expression never hangs the process: one without repetition, groups or alternatives costs at most text times pattern and is run
  here, file by file with checkpoints between; any other runs in a child process with a time limit.
"""

import contextlib
import json
import re
import sys
import warnings
from pathlib import Path

import trio

from teams.tools import search_worker
from teams.tools.base import Tool, ToolError, tool
from teams.tools.processes import HeadTail, run_process
from teams.tools.search_worker import GlobPattern, Match, Parts, Query, TooManyEntries
from teams.tools.shell import scrubbed_environment
from teams.tools.workspace import Workspace, WorkspaceError

MAX_PATHS = 1_000
MAX_MATCHES = 200
MAX_PATTERN_CHARS = 1_000
SEARCH_SECONDS = 20.0
_WORKERS = 2  # searches in child processes at once, per set of tools
_WORKER_BYTES = 1_000_000  # more than the most that matches can take
_NOTE_CHARS = 120

# No quantifier, group, alternative or back reference: the time of such a pattern is bounded by its length times the text's.
_BOUNDED = re.compile(r"(?:[^*+?{}()|\[\]\\]|\\[^\dg]|\[[^\[\]\\]+\])*\Z")


def search_tools(workspace: Workspace, *, output_chars: int | None = 50_000, search_seconds: float = SEARCH_SECONDS) -> list[Tool]:
    """Make the two tools over one workspace; `search_seconds` bounds a search in a child process."""
    workers = trio.CapacityLimiter(_WORKERS)

    @tool(effect="reads", time_limited=False)
    async def glob(pattern: str) -> str:
        """List files and directories of the work directory by a pattern, such as **/*.py or src/*.{ts,tsx}; directories end with a slash.

        Args:
            pattern: relative to the work directory; ** stands for any directories
        """
        found, complete = await _glob(workspace, _checked_glob(workspace, pattern))
        notes = [] if complete else [f"stopped after {search_worker.MAX_ENTRIES:,} entries; use a narrower pattern"]
        return _listed(found, MAX_PATHS, notes, output_chars) or f"(nothing matches {pattern!r})"

    @tool(effect="reads", time_limited=False)
    async def grep(pattern: str, include: str | None = None) -> str:
        """Search the text files of the work directory for a regular expression (Python's), line by line.

        Args:
            pattern: the regular expression
            include: only files that match this, such as *.py or src/**/*.ts
        """
        _check_expression(pattern)
        if include is not None:
            include = _checked_glob(workspace, include)
        query = Query(str(workspace.root), pattern, include, workspace.denied)
        if _BOUNDED.match(pattern):
            matches, notes = await _search_here(query)
        else:
            async with workers:
                matches, notes = await _search_in_child(query, search_seconds)
        lines = [f"{match.path}:{match.line}: {match.text}" for match in matches]
        return _listed(lines, MAX_MATCHES, notes, output_chars) or f"(no line matches {pattern!r})"

    return [glob, grep]


def _checked_glob(workspace: Workspace, pattern: str) -> str:
    pattern = pattern.removeprefix(f"{workspace.root}/")
    if not pattern or len(pattern) > MAX_PATTERN_CHARS or "\0" in pattern:
        raise WorkspaceError(f"cannot use this as a pattern: it must be 1 to {MAX_PATTERN_CHARS} characters without NUL")
    if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
        raise WorkspaceError(f"cannot use {pattern!r} as a pattern: it leads outside of the work directory; patterns are relative to it")
    return pattern


def _check_expression(pattern: str) -> None:
    if not pattern or len(pattern) > MAX_PATTERN_CHARS or "\0" in pattern:
        raise ToolError(f"cannot search: the pattern must be 1 to {MAX_PATTERN_CHARS} characters without NUL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "possible nested set" is a hint to the author of a program
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolError(
            f"cannot search: {pattern!r} is not a regular expression: {error}; escape characters that are meant literally"
        ) from error


async def _glob(workspace: Workspace, pattern: str) -> tuple[list[str], bool]:
    compiled = GlobPattern(pattern)
    found: list[str] = []
    start = _literal_start(pattern)
    if start and start != workspace.resolve("/".join(start)):
        start = ()  # a link on the way: the walk, which follows none, says what there is
    with contextlib.closing(search_worker.walk(str(workspace.root), start, workspace.denied, compiled.names)) as listings:
        try:
            for listing in listings:
                await trio.lowlevel.checkpoint()
                parts = listing.parts
                found += ["/".join((*parts, name)) for name in listing.files if compiled.matches((*parts, name))]
                found += ["/".join((*parts, name, "")) for name in listing.directories if compiled.matches((*parts, name))]
                found += [
                    path for name in listing.links if compiled.matches((*parts, name)) and (path := _inside(workspace, (*parts, name)))
                ]
        except TooManyEntries:
            return sorted(found), False
    return sorted(found), True


def _literal_start(pattern: str) -> Parts:
    """Find the directory in which a walk can begin: the components before the first magic one, without the last."""
    start: list[str] = []
    for part in [part for part in pattern.split("/") if part not in ("", ".")][:-1]:
        if any(character in part for character in "*?[{}"):
            break
        start.append(part)
    return tuple(start)


def _inside(workspace: Workspace, parts: Parts) -> str | None:
    """Name a link that leads to something inside; one that leads outside is not listed."""
    path = "/".join(parts)
    try:
        workspace.resolve(path)
    except WorkspaceError:
        return None
    return path


async def _search_here(query: Query) -> tuple[list[Match], list[str]]:
    matches: list[Match] = []
    with contextlib.closing(search_worker.search(query)) as found:
        try:
            for match in found:
                if match is None:
                    await trio.lowlevel.checkpoint()
                else:
                    matches.append(match)
                    if len(matches) > MAX_MATCHES:
                        break
        except TooManyEntries:
            return matches, [f"stopped after {search_worker.MAX_ENTRIES:,} entries"]
    return matches, []


async def _search_in_child(query: Query, seconds: float) -> tuple[list[Match], list[str]]:
    asked = json.dumps({**query._asdict(), "limit": MAX_MATCHES})
    kept = HeadTail(2 * _WORKER_BYTES)
    argv = (sys.executable, "-I", "-S", "-W", "ignore", str(Path(search_worker.__file__)))
    try:
        code, timed_out = await run_process(
            argv, cwd=Path(query.root), environment=scrubbed_environment({}), time_seconds=seconds, output=kept, stdin=asked.encode()
        )
    except OSError as error:
        raise ToolError(f"cannot search: the search process could not be started: {error}") from error
    matches, ending = _read_answer(kept)
    if timed_out:
        return matches, [f"stopped after {seconds:g} seconds: the pattern takes too long; make it simpler, or narrow 'include'"]
    if ending == "too many entries":
        return matches, [f"stopped after {search_worker.MAX_ENTRIES:,} entries"]
    if ending != "done":
        raise ToolError(f"cannot search: the search process failed with exit code {code}")
    return matches, []


def _read_answer(kept: HeadTail) -> tuple[list[Match], str | None]:
    head, tail, _ = kept.parts()
    matches: list[Match] = []
    for line in (head + tail).split(b"\n"):
        with contextlib.suppress(ValueError):  # the last line of a child that was killed
            answer = json.loads(line)
            if len(answer) == 1:
                return matches, answer[0]
            matches.append(Match(*answer))
    return matches, None


def _listed(lines: list[str], limit: int, notes: list[str], output_chars: int | None) -> str:
    shown = lines[:limit]
    if output_chars is not None:
        room = output_chars - _NOTE_CHARS
        for count, line in enumerate(shown):
            room -= len(line) + 1
            if room < 0 and count:
                del shown[count:]
                break
    if len(shown) < len(lines):
        notes = [f"the first {len(shown)}; there are more", *notes]
    return "\n".join([*shown, f"[{'; '.join(notes)}]"] if notes else shown)
