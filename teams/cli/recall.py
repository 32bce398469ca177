"""`teams recall DIR NAME TEXT`: find what a member's context held, by an id, a message number, or any exact words."""

import argparse
import sys

from compaction.recall import Recalled, Search
from compaction.sessionfile import SessionArchive
from teams.cli.exits import OK, CommandFailed, CommandLineError
from teams.cli.output import Column, clean, find_terminal, plural, print_json, print_lines, table
from teams.cli.reading import add_directory, find_agent, look, tell_reports
from teams.tools.base import ToolError
from teams.tools.recall import parse_lines


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    parser.add_argument("name", metavar="NAME", help="whose context")
    parser.add_argument(
        "text",
        metavar="TEXT",
        help="an id such as r0123456789ab, m17 for the 17th message of this context (mail has numbers of its own), or exact words",
    )
    parser.add_argument("--lines", metavar="A-B", type=_lines, help="show only these lines of what an id names")
    parser.add_argument("--limit", metavar="N", type=_places, default=20, help="show at most so many places (default: 20)")


def run(args: argparse.Namespace) -> int:
    """Print what is found."""
    seen = look(args.directory)
    tell_reports(seen.reports)
    find_agent(seen, args.name)
    if not args.text:
        raise CommandFailed("cannot search for an empty text")
    archive = SessionArchive(args.directory / "sessions" / f"{args.name}.jsonl").update()
    found = archive.get(args.text)
    if found is not None:
        return _print_body(_cut(found, args), args)
    if args.lines is not None:
        raise CommandLineError(f"--lines is for what an id names, and {args.text!r} is no id here; leave it out to search for the words")
    search = archive.find(args.text, limit=max(1, args.limit))
    if not search.found:
        raise CommandFailed(f"nothing in the {plural(len(archive), 'message')} of {args.name!r} is {args.text!r}")
    return _print_places(search, args)


def _cut(found: Recalled, args: argparse.Namespace) -> Recalled:
    if args.lines is None:
        return found
    first, last = args.lines
    lines = found.text.split("\n")
    if first > len(lines):
        raise CommandFailed(f"cannot show line {first} of {args.text}: it has {plural(len(lines), 'line')}")
    return found._replace(text="\n".join(lines[first - 1 : last]))


def _print_body(found: Recalled, args: argparse.Namespace) -> int:
    if args.json:
        print_json({"id": found.recall_id, "message": found.message, "name": found.name, "text": found.text, "media": len(found.media)})
    else:
        print_lines(clean(line) if not line.isprintable() else line for line in found.text.split("\n"))
    return OK


def _print_places(search: Search, args: argparse.Namespace) -> int:
    if args.json:
        hits = [
            {"message": hit.message, "role": hit.role, "name": hit.name, "id": hit.recall_id, "snippet": hit.snippet}
            for hit in search.found
        ]
        print_json({"found": hits, "more": search.more})
        return OK
    columns = [Column("message"), Column("by"), Column("id"), Column("", flexible=True)]
    rows = [(f"m{hit.message}", clean(hit.name), hit.recall_id, clean(hit.snippet)) for hit in search.found]
    print_lines(table(columns, rows, find_terminal(sys.stdout)))
    if search.more:
        print(f"and {plural(search.more, 'more place')}; --limit shows more")
    return OK


def _lines(text: str) -> tuple[int, int]:
    try:
        lines = parse_lines(text)
    except ToolError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if lines is None:
        raise argparse.ArgumentTypeError("it is blank; give lines as 10-40")
    return lines


def _places(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of places; give 1 or more")
    return int(text)
