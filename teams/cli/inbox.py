"""`teams inbox DIR`: the mail that members wrote to the person, and the words that answer it."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

from teams.cli.exits import OK
from teams.cli.output import Terminal, find_terminal, plural, print_json, print_lines
from teams.cli.plans import prose
from teams.cli.reading import add_directory, fold_state, open_log, read_records, tell_reports
from teams.client import person_of
from teams.options import TeamOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    parser.add_argument("--for", dest="member", metavar="NAME", help="the mail of this member; the person's when left out")
    parser.add_argument("--limit", metavar="N", type=int, default=20, help="show at most so many, the newest (default: 20; 0: all)")


def run(args: argparse.Namespace) -> int:
    """Print the mail, newest last."""
    with open_log(args.directory) as store:
        state, _ = fold_state(store)
        name = args.member or person_of(state, TeamOptions().person)
        state.roster.get(name, operation="show the mail of")
        mails = [
            {"at": record.at, **record.fields}
            for record in read_records(store, 0)
            if record.kind == "mail.sent" and name in record.fields["to"]
        ]
        tell_reports(tuple(store.reports))
    shown = mails[-args.limit :] if args.limit > 0 else mails
    if args.json:
        print_json(shown)
        return OK
    terminal = find_terminal(sys.stdout)
    if not mails:
        print(f"nobody has written to {name}")
    for at, mail in enumerate(shown):
        print_lines([*([""] if at else []), *_render(mail, args.directory, terminal)])
    if len(shown) < len(mails):
        print(f"\n{plural(len(mails) - len(shown), 'older message')} not shown; --limit 0 shows all")
    return OK


def _render(mail: dict[str, Any], directory: Path, terminal: Terminal) -> Iterator[str]:
    request_id = mail.get("request_id")
    answers = f"  answers {request_id}" if request_id else ""
    yield f"{terminal.paint(mail['from'], 'bold')}  {mail['at'][:19].replace('T', ' ')} UTC  {mail['id']}{answers}"
    yield from prose(str(mail["content"]), terminal)
    if not mail["from"].startswith("("):
        to = request_id if str(request_id).startswith("r") else mail["id"]  # a question is answered by its own id
        yield terminal.paint(f'    teams send {quote(str(directory))} {mail["from"]} "..." --reply-to {to}', "cyan")
