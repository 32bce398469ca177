"""Text as a terminal shows it: columns, widths, times, colours.

Laws: nothing that came from a model or a file reaches the terminal as a control sequence (`clean`); a line is cut to the width of a
terminal and to nothing where there is none; there are no colours where no terminal is, or where NO_COLOR asks for none.
"""

import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TextIO

STYLES = {"": "", "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
GAP = "  "
NARROWEST = 8
"""A column that gives way keeps at least this many cells."""


class Terminal(NamedTuple):
    """How output is laid out: cells per line (None: no limit), and whether colours are shown."""

    width: int | None = None
    colour: bool = False

    def paint(self, text: str, style: str) -> str:
        """Return the text in a style, or as it is where colours are not shown."""
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self.colour and style and text else text


class Cell(NamedTuple):
    """A text in a table, and its style."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """A column of a table; a flexible one gives way when the line is too long."""

    title: str
    right: bool = False
    flexible: bool = False


def find_terminal(stream: TextIO) -> Terminal:
    """Describe where a stream leads: COLUMNS counts for its width, NO_COLOR and TERM=dumb switch colours off."""
    given = os.environ.get("COLUMNS", "")
    width = int(given) if given.isdecimal() and int(given) > 0 else None
    if not stream.isatty():
        return Terminal(width)
    if width is None:
        try:
            width = os.get_terminal_size(stream.fileno()).columns or None
        except (OSError, ValueError):
            width = 80
    return Terminal(width, not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


def clean(text: str) -> str:
    """Return the text as one line without anything that a terminal would obey: controls, directions, lone surrogates."""
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)


def cells(text: str) -> int:
    """Return how many cells a clean text takes."""
    if text.isascii():
        return len(text)
    return sum(_CELLS.get(unicodedata.east_asian_width(char), 1) for char in text if not unicodedata.combining(char))


_CELLS = {"W": 2, "F": 2}


def fit(text: str, width: int | None) -> str:
    """Return the text cut to so many cells, with an ellipsis where something is missing."""
    if width is None or cells(text) <= width:
        return text
    taken, used = "", 0
    for char in text:
        used += cells(char)
        if used > width - 1:
            break
        taken += char
    return f"{taken.rstrip()}…" if width > 0 else ""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], terminal: Terminal, *, indent: str = "") -> list[str]:
    """Lay out rows under their titles; a column that is empty in every row is left out."""
    grid = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    used = [at for at in range(len(columns)) if any(row[at].text for row in grid)]
    widths = {at: max(cells(columns[at].title), *(cells(row[at].text) for row in grid)) for at in used}
    if terminal.width is not None:
        _shrink(widths, columns, terminal.width - len(indent))
    titles = [Cell(column.title, "dim") for column in columns]
    lines = [titles, *grid] if any(column.title for column in columns) else grid
    return [indent + _line(line, columns, widths, terminal) for line in lines]


def _shrink(widths: dict[int, int], columns: Sequence[Column], available: int) -> None:
    excess = sum(widths.values()) + len(GAP) * (len(widths) - 1) - available
    flexible = [at for at in widths if columns[at].flexible]
    while excess > 0 and flexible:
        widest = max(flexible, key=widths.__getitem__)
        if widths[widest] <= NARROWEST:
            return
        widths[widest] -= 1
        excess -= 1


def _line(line: Sequence[Cell], columns: Sequence[Column], widths: dict[int, int], terminal: Terminal) -> str:
    parts: list[str] = []
    last = max(widths, default=0)
    left = terminal.width
    for at, width in widths.items():
        text = fit(line[at].text, width if left is None else max(0, min(width, left)))
        padding = " " * (width - cells(text))
        painted = terminal.paint(text, line[at].style)
        parts.append(padding + painted if columns[at].right else painted if at == last else painted + padding)
        if left is not None:
            left -= width + len(GAP)
    return GAP.join(parts).rstrip()


def duration(seconds: float) -> str:
    """Return a span of time in one unit: `4 s`, `12 min`, `3 h`, `5 d`."""
    seconds = max(0.0, seconds)
    for limit, unit, name in ((100, 1, "s"), (100 * 60, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} d"


def amount(number: int) -> str:
    """Return a number in at most five characters: `950`, `12.4k`, `3.1M`."""
    for limit, unit, name in ((1_000, 1, ""), (999_950, 1_000, "k"), (999_950_000, 1_000_000, "M")):
        if number < limit:
            return str(number) if unit == 1 else f"{number / unit:.1f}{name}"
    return f"{number / 1_000_000_000:.1f}G"


def plural(count: int, word: str) -> str:
    """Return `1 task`, `2 tasks`."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def names(items: Iterable[str], *, last: str = "and") -> str:
    """Return a list in words: `ann, ben and cleo`."""
    listed = list(items)
    return f" {last} ".join((", ".join(listed[:-1]), listed[-1])) if len(listed) > 1 else "".join(listed)


def print_json(value: Any) -> None:
    """Print one JSON document; escaped, so that any text survives any encoding."""
    print(json.dumps(value, indent=2))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines."""
    print("\n".join(lines))


def complain(text: str) -> None:
    """Say something beside the output: one line on stderr."""
    print(f"teams: {clean(text)}", file=sys.stderr, flush=True)
