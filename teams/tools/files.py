"""read_file, write_file, edit_file: text files of a workspace.

- Output is bounded by lines and characters, and says how to go on.
- A binary file is named, not dumped.
- An edit changes exactly one place or nothing; the bytes around it, line ends included, stay as they are.
"""

from collections.abc import Callable

import trio

from teams.tools.base import Tool, ToolContext, Touches, tool
from teams.tools.workspace import Workspace, WorkspaceError

MAX_LINES = 2_000
MAX_LINE_CHARS = 4_000
_SNIFF_BYTES = 8_192
_NOTE_CHARS = 200  # kept free for the note about what was left out


def file_tools(workspace: Workspace, *, output_chars: int | None = 50_000) -> list[Tool]:
    """Make the three tools over one workspace; `output_chars` bounds what one read shows."""
    room = max(1, output_chars - _NOTE_CHARS) if output_chars is not None else None
    touches = Touches(paths=("path",), resolve=workspace.resolve)

    @tool(effect="reads", time_limited=False, touches=touches)
    async def read_file(path: str, context: ToolContext, offset: int | None = None, limit: int | None = None) -> str:
        """Read a text file of the work directory, whole or a part of its lines. Read a file before you change it.

        Args:
            path: relative to the work directory
            offset: number of the first line to show, from 1
            limit: how many lines to show
        """
        if (offset is not None and offset < 1) or (limit is not None and limit < 1):
            raise WorkspaceError(f"cannot show lines of {path!r}: offset and limit count from 1")
        await trio.lowlevel.checkpoint()
        return show_text(workspace.read(context.agent, path), offset or 1, min(limit or MAX_LINES, MAX_LINES), room)

    @tool(effect="writes", time_limited=False, touches=touches)
    async def write_file(path: str, content: str, context: ToolContext) -> str:
        """Write a whole text file of the work directory; directories on the way are made.
        An existing file must have been read by you before, and must not have changed since.

        Args:
            path: relative to the work directory
            content: the complete new content
        """
        data = _encode(content)
        written = await workspace.replace(context.agent, path, lambda _: data)
        lines = content.count("\n") + (content != "" and not content.endswith("\n"))
        return f"{'created' if written.created else 'replaced'} {written.path} ({lines} lines)"

    @tool(effect="writes", time_limited=False, touches=touches)
    async def edit_file(path: str, old: str, new: str, context: ToolContext) -> str:
        """Replace one piece of text in a file of the work directory.
        The file must have been read by you before, and must not have changed since.

        Args:
            path: relative to the work directory
            old: the exact text to replace, with enough of its surroundings to occur only once
            new: the text to put there
        """
        lines: list[int] = []
        written = await workspace.replace(context.agent, path, edit_of(path, old, new, lines.append))
        return f"edited {written.path} at line {lines[0]}"

    return [read_file, write_file, edit_file]


def show_text(data: bytes, first: int, limit: int, room: int | None) -> str:
    """Show some lines of a file's content within `room` characters, with a note on what is not shown."""
    if not data:
        return "(the file is empty)"
    if b"\0" in data[:_SNIFF_BYTES]:
        return f"(a binary file of {len(data):,} bytes; not shown)"
    try:
        text, notes = data.decode("utf-8"), list[str]()
    except UnicodeDecodeError:
        text, notes = data.decode("utf-8", "replace"), ["not valid UTF-8: shown with replacements, edit_file cannot change it"]
    lines = text.splitlines(keepends=True) if "\n" not in text and "\r" in text else text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if first > len(lines):
        return f"(the file has {len(lines)} lines; line {first} is after its end)"
    shown, last = _fit(lines, first, limit, room)
    if any(len(line) > MAX_LINE_CHARS for line in lines[first - 1 : last]):
        notes.append(f"lines over {MAX_LINE_CHARS:,} characters are cut")
    if first > 1 or last < len(lines):
        more = f"; continue with offset={last + 1}" if last < len(lines) else ""
        notes.insert(0, f"lines {first} to {last} of {len(lines)}{more}")
    return "\n".join([*shown, f"[{'; '.join(notes)}]"] if notes else shown)


def _fit(lines: list[str], first: int, limit: int, room: int | None) -> tuple[list[str], int]:
    """Take lines from `first` on while they fit, at least one; return them and the number of the last one."""
    shown: list[str] = []
    used = 0
    last = first - 1
    for line in lines[first - 1 : first - 1 + limit]:
        cut = line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}[... {len(line) - MAX_LINE_CHARS:,} characters left out]"
        used += len(cut) + 1
        if room is not None and used > room and shown:
            break
        shown.append(cut)
        last += 1
    return shown, last


def edit_of(path: str, old: str, new: str, at_line: Callable[[int], None]) -> Callable[[bytes | None], bytes]:
    """Make the change of one exact, unique match; `at_line` is told where it was.

    The change raises `WorkspaceError` when there is no file, no match, more than one, or nothing to change.
    """
    if not old:
        raise WorkspaceError(f"cannot edit {path!r}: 'old' is empty; give the text to replace, or use write_file")
    if old == new:
        raise WorkspaceError(f"cannot edit {path!r}: 'old' and 'new' are the same")

    def change(present: bytes | None) -> bytes:
        if present is None:
            raise WorkspaceError(f"cannot edit {path!r}: there is no such file; use write_file to make it")
        wanted, replacement = _encode(old), _encode(new)
        if (
            wanted not in present and b"\r\n" in present and b"\r\n" not in wanted
        ):  # a model rarely sees, and never writes, carriage returns
            wanted, replacement = wanted.replace(b"\n", b"\r\n"), replacement.replace(b"\n", b"\r\n")
        _decodable(present, path)
        first = present.find(wanted)
        if first < 0:
            raise WorkspaceError(f"cannot edit {path!r}: 'old' does not occur in it; copy the text exactly, with its spaces and line ends")
        if present.find(wanted, first + 1) >= 0:  # also a match that overlaps the first: which of them was meant is not known
            count = _count_overlapping(present, wanted)
            raise WorkspaceError(f"cannot edit {path!r}: 'old' occurs {count} times in it; add surrounding text until it occurs once")
        at_line(present.count(b"\n", 0, first) + 1)
        return present[:first] + replacement + present[first + len(wanted) :]

    return change


def _count_overlapping(data: bytes, wanted: bytes) -> int:
    count, at = 0, data.find(wanted)
    while at >= 0:
        count, at = count + 1, data.find(wanted, at + 1)
    return count


def _decodable(data: bytes, path: str) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WorkspaceError(f"cannot edit {path!r}: it is not UTF-8 text (byte {error.start})") from error


def _encode(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise WorkspaceError(f"the text cannot be written: it holds a lone surrogate at character {error.start}") from error
