"""Walking a directory tree and searching its files, without ever following a link.

- Imports nothing but the standard library, and runs as a program as well: `re` cannot be interrupted from inside its process (it holds the
  interpreter's lock), so a pattern that may take for ever is run in a child that can be killed.
- Every step yields to the caller: nothing here runs longer than one directory or one file.
- As a program: one JSON object on standard input, one JSON list `[path, line, text]` per match on standard output,
  then `["done"]` or `["too many entries"]`.
"""

import fnmatch
import json
import os
import re
import sys
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import NamedTuple

MAX_ENTRIES = 200_000  # of a tree: about two seconds of walking
MAX_DEPTH = 100  # of directories: opening one costs its depth, because each component is opened for itself
MAX_SEARCHED_BYTES = 5_000_000  # of one file
MAX_LINE_CHARS = 300
_BEFORE_CHARS = 80  # shown before a match in a long line
_SNIFF_BYTES = 8_192

# What nobody means when searching a project; a pattern that names one of them finds it.
SKIPPED = frozenset(
    [".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"]
)

Parts = tuple[str, ...]


class Listing(NamedTuple):
    """One directory: its place under the root, an open descriptor of it (closed by the walk), and its sorted names."""

    parts: Parts
    descriptor: int
    directories: list[str]
    files: list[str]
    links: list[str]


class Match(NamedTuple):
    """One line that matches."""

    path: str
    line: int
    text: str


class TooManyEntries(Exception):
    """The tree is larger than `MAX_ENTRIES`."""


class Query(NamedTuple):
    """What to search for, and where; `include` None means every file."""

    root: str
    pattern: str
    include: str | None
    denied: Sequence[Sequence[str]]


def open_beneath(root: str | os.PathLike[str], parts: Sequence[str]) -> int:
    """Open a directory under the root, component by component, following no link below the root. The caller closes it.

    Raises:
        OSError: a component is absent, a link, or no directory.
    """
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for part in parts:
        try:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


def walk(root: str, start: Parts, denied: Collection[Parts], named: Collection[str]) -> Generator[Listing, None, None]:
    """List directories depth first, in order of their names, without those denied, unreadable, deeper than `MAX_DEPTH`,
    or skipped and not `named`.

    Raises:
        TooManyEntries: after `MAX_ENTRIES` names.
    """
    pending = [start]
    count = 0
    while pending:
        parts = pending.pop()
        try:
            descriptor = open_beneath(root, parts)
        except OSError:  # gone, exchanged for a link, or not readable
            continue
        try:
            listing = Listing(parts, descriptor, [], [], [])
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    count += 1
                    if count > MAX_ENTRIES:
                        raise TooManyEntries
                    _sort_in(listing, entry, denied, named)
            for names in (listing.directories, listing.files, listing.links):
                names.sort()
            yield listing
        finally:
            os.close(descriptor)
        if len(parts) < MAX_DEPTH:
            pending.extend((*parts, name) for name in reversed(listing.directories))


def _sort_in(listing: Listing, entry: "os.DirEntry[str]", denied: Collection[Parts], named: Collection[str]) -> None:
    if entry.name in SKIPPED and entry.name not in named:
        return
    if denied and (*listing.parts, entry.name) in denied:
        return
    if entry.is_symlink():
        listing.links.append(entry.name)
    elif entry.is_dir(follow_symlinks=False):
        listing.directories.append(entry.name)
    elif entry.is_file(follow_symlinks=False):
        listing.files.append(entry.name)


class GlobPattern:
    """A path pattern: `*`, `?`, `[...]` within a component, `**` for any number of components, `{a,b}` for alternatives.

    Matching costs at most the product of pattern and path, whatever the pattern: components are matched by `fnmatch`, whose translation
    does not backtrack over stars, and `**` by filling a table.
    """

    def __init__(self, pattern: str) -> None:
        self.alternatives = [self._compile(option) for option in expand_braces(pattern)]
        self.names = frozenset(pattern.split("/"))

    @staticmethod
    def _compile(pattern: str) -> "list[re.Pattern[str] | None]":
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        return [None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts]

    def matches(self, parts: Sequence[str]) -> bool:
        """Tell whether a whole path, given in components, matches."""
        return any(self._match(components, parts) for components in self.alternatives)

    @staticmethod
    def _match(components: "list[re.Pattern[str] | None]", parts: Sequence[str]) -> bool:
        # row[i]: the components so far can match the first i parts
        row = [True, *([False] * len(parts))]
        for component in components:
            following = [False] * (len(parts) + 1)
            if component is None:
                reached = False
                for index, here in enumerate(row):
                    reached = reached or here
                    following[index] = reached
            else:
                for index, part in enumerate(parts):
                    following[index + 1] = row[index] and component.match(part) is not None
            row = following
        return row[-1]


def expand_braces(pattern: str, limit: int = 64) -> list[str]:
    """Write out `{a,b}`; nested ones too, at most `limit` alternatives in all, the rest stays as it is written."""
    done: list[str] = []
    pending = [pattern]
    while pending:
        option = pending.pop(0)
        found = re.search(r"\{([^{}]*,[^{}]*)\}", option)
        if found is None or len(done) + len(pending) >= limit:
            done.append(option)
        else:
            pending.extend(f"{option[: found.start()]}{choice}{option[found.end() :]}" for choice in found[1].split(","))
    return done[:limit]


def search(query: Query) -> Generator[Match | None, None, None]:
    """Search all files for a regular expression, line by line; yields None after every file, so that the caller can pause.

    Binary files and those over `MAX_SEARCHED_BYTES` are passed over.

    Raises:
        TooManyEntries: as `walk`.
    """
    expression = re.compile(query.pattern, re.MULTILINE)
    include = None if query.include is None else GlobPattern(query.include)
    by_name = query.include is not None and "/" not in query.include
    denied = frozenset(tuple(parts) for parts in query.denied)
    for listing in walk(query.root, (), denied, include.names if include else ()):
        for name in listing.files:
            if include is None or include.matches((name,) if by_name else (*listing.parts, name)):
                text = _read_text(listing.descriptor, name)
                if text:
                    yield from _matches(expression, text, "/".join((*listing.parts, name)))
            yield None


def _read_text(directory: int, name: str) -> str | None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        data = file.read(MAX_SEARCHED_BYTES + 1)
    if len(data) > MAX_SEARCHED_BYTES or b"\0" in data[:_SNIFF_BYTES]:
        return None
    return data.decode("utf-8", "replace")


def _matches(expression: "re.Pattern[str]", text: str, path: str) -> Iterator[Match]:
    line, counted, position = 1, 0, 0
    while position <= len(text) and (found := expression.search(text, position)):
        start = text.rfind("\n", 0, found.start()) + 1
        end = text.find("\n", found.start())
        end = len(text) if end < 0 else end
        if start == len(text) and text.endswith("\n"):
            return  # an empty match after the last line end is on no line
        line += text.count("\n", counted, start)
        counted = start
        yield Match(path, line, _excerpt(text[start:end].rstrip("\r"), found.start() - start))
        position = end + 1


def _excerpt(line: str, column: int) -> str:
    if len(line) <= MAX_LINE_CHARS:
        return line
    first = max(0, min(column - _BEFORE_CHARS, len(line) - MAX_LINE_CHARS))
    return f"{'...' if first else ''}{line[first : first + MAX_LINE_CHARS]}{'...' if first + MAX_LINE_CHARS < len(line) else ''}"


def main() -> None:
    """Answer the query on standard input; stops after its `limit` of matches."""
    asked = json.load(sys.stdin)
    limit = asked.pop("limit")
    query = Query(**asked)
    ending = "done"
    count = 0
    try:
        for match in search(query):
            if match is None:
                continue
            sys.stdout.write(json.dumps(match) + "\n")
            sys.stdout.flush()  # what was found stays found when the time is up
            count += 1
            if count > limit:
                break
    except TooManyEntries:
        ending = "too many entries"
    sys.stdout.write(json.dumps([ending]) + "\n")


if __name__ == "__main__":
    main()
