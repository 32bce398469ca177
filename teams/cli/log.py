"""`teams log DIR`: what happened, a line for each record, and with --follow what happens from now on.

Following sleeps until the operating system tells that the journal has grown; nothing is polled where the platform has such an event.
"""

import argparse
import json
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path

from teams.cli.exits import OK, CommandLineError
from teams.cli.facts import record_facts
from teams.cli.output import Terminal, cells, find_terminal, fit, names
from teams.cli.reading import add_directory, fold_state, open_log, read_records, tell_reports
from teams.cli.sayings import KINDS, Narrator
from teams.journal.records import Record
from teams.state.team_state import TeamState

WHO_CELLS, WHO_LIMIT = 18, 28
ABOUT_CELLS = 7


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    parser.add_argument("--follow", "-f", action="store_true", help="go on with what happens from now on, until Ctrl-C")
    parser.add_argument("--last", "-n", metavar="N", type=_count, help="only the last N records")
    parser.add_argument(
        "--kind",
        "-k",
        metavar="KIND",
        action="append",
        default=[],
        help="only records of this kind, such as mail or task.changed; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Print the log, and follow it if asked."""
    kinds = tuple(args.kind)
    _check_kinds(kinds)
    with open_log(args.directory) as store:
        printer: Printer
        if args.json:
            printer = JsonPrinter(lines=args.follow)
        else:
            state, _ = fold_state(store)
            printer = TextPrinter(state, find_terminal(sys.stdout))
        end = store.at.seq
        last: int | None = args.last
        found: Iterable[Record] = read_records(store, 0 if last is None or kinds else max(0, end - last))
        if kinds:
            found = (record for record in found if matches(record.kind, kinds))
        printer.show(found if last is None else deque(found, maxlen=last))
        end = store.at.seq
        tell_reports(tuple(store.reports))
    if args.follow:
        import trio  # 0.25 s, and who does not follow has no use for it

        trio.run(follow, args.directory / "journal", end, kinds, printer)
    else:
        printer.end()
    return OK


def matches(kind: str, wanted: Sequence[str]) -> bool:
    """Tell whether a record's kind is one of those wanted, by its whole name or by the part before the dot."""
    return any(kind == name or kind.startswith(f"{name}.") for name in wanted)


async def follow(journal: Path, after_seq: int, kinds: tuple[str, ...], printer: "Printer") -> None:
    """Show what is appended to a journal after a record, until cancelled; kinds limit what is shown.

    Raises: JournalDamaged.
    Checkpoints: always.
    """
    from teams.journal.file import FileJournal  # brings trio, as above

    handle = await FileJournal.open(journal)
    async with aclosing(handle):
        while True:
            records = await handle.read(after_seq)
            if records:
                after_seq = records[-1].seq
                printer.fold(records)
                printer.show([record for record in records if not kinds or matches(record.kind, kinds)])
            await handle.wait_grown(after_seq)


class Printer:
    """Shows records, as they come."""

    def fold(self, records: Iterable[Record]) -> None:
        """Take note of records that came after the state was read."""

    def show(self, records: Iterable[Record]) -> None:
        """Print records."""
        raise NotImplementedError

    def end(self) -> None:
        """Print what ends the output."""


class TextPrinter(Printer):
    """A line for a person: local time, who, about what, what happened; a line for the date where a day begins."""

    def __init__(self, state: TeamState, terminal: Terminal) -> None:
        self._state, self._terminal = state, terminal
        self._narrator = Narrator(state)
        self._day = ""
        self._who_cells = WHO_CELLS

    def fold(self, records: Iterable[Record]) -> None:
        """Let the state know of the tasks and requests that are about to be named."""
        for record in records:
            self._state.apply(record)

    def show(self, records: Iterable[Record]) -> None:
        """Print a line for each record."""
        for record in records:
            self._show(record)
        sys.stdout.flush()

    def _show(self, record: Record) -> None:
        paint, width = self._terminal.paint, self._terminal.width
        when = datetime.fromisoformat(record.at).astimezone()
        if (day := when.strftime("%A, %Y-%m-%d")) != self._day:
            self._day = day
            print(paint(day, "dim"))
        who, about, what, style = self._narrator.say(record)
        who = fit(who, WHO_LIMIT)
        self._who_cells = max(self._who_cells, cells(who))
        lead = f"{when:%H:%M:%S}  {who}{' ' * (self._who_cells - cells(who))}  {about:<{ABOUT_CELLS}}  "
        text = fit(what, None if width is None else max(0, width - cells(lead)))
        print(f"{paint(lead[:8], 'dim')}{lead[8:]}{paint(text, style)}".rstrip())


class JsonPrinter(Printer):
    """One JSON array, or a JSON object per line for who follows."""

    def __init__(self, *, lines: bool) -> None:
        self._lines = lines
        self._count = 0

    def show(self, records: Iterable[Record]) -> None:
        """Print an object for each record: its seq, at and kind, and its fields."""
        for record in records:
            text = json.dumps(record_facts(record))
            before = "" if self._lines else ",\n" if self._count else "[\n"
            sys.stdout.write(f"{before}{text}{chr(10) if self._lines else ''}")
            self._count += 1
        sys.stdout.flush()

    def end(self) -> None:
        """Close the array."""
        if not self._lines:
            print("\n]" if self._count else "[]")


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of records; give 1 or more")
    return int(text)


def _check_kinds(kinds: Sequence[str]) -> None:
    groups = sorted({kind.partition(".")[0] for kind in KINDS})
    for kind in kinds:
        if kind not in groups and kind not in KINDS:
            near = get_close_matches(kind, [*groups, *KINDS], n=2)
            hint = (
                f"did you mean {names(near, last='or')}?"
                if near
                else f"legal: {names(groups, last='or')}, or a whole kind such as mail.sent"
            )
            raise CommandLineError(f"there is no kind {kind!r}; {hint}")
