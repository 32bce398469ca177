"""`teams requests DIR`: everything that waits for an answer, whole, with the words that give it."""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from protocols.request import Request, RequestKind
from teams.cli.exits import OK
from teams.cli.facts import request_facts
from teams.cli.output import Terminal, clean, find_terminal, names, print_json, print_lines
from teams.cli.plans import prose, render_plan
from teams.cli.reading import add_directory, look, tell_reports
from teams.cli.status import deadline_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    parser.add_argument("--for", dest="member", metavar="NAME", help="only what waits for this member")


def run(args: argparse.Namespace) -> int:
    """Print the requests."""
    seen = look(args.directory)
    tell_reports(seen.reports)
    if args.member is not None:
        seen.state.roster.get(args.member, operation="show the requests of")
    waiting = [one for one in seen.state.requests.open(answerer=args.member) if one.is_undecided]
    if args.json:
        print_json([request_facts(request) for request in waiting])
        return OK
    terminal, now = find_terminal(sys.stdout), time.time()
    if not waiting:
        print(f"nothing waits for {args.member or 'an answer'}")
    for at, request in enumerate(waiting):
        print_lines([*([""] if at else []), *render_request(request, seen.directory, now, terminal)])
    return OK


def render_request(request: Request, directory: Path, now: float, terminal: Terminal) -> Iterator[str]:
    """Lay one request out for a person."""
    if request.kind is RequestKind.plan_approval:
        yield from render_plan(request, directory, now, terminal)
        return
    left = deadline_text(request, now)
    waits = f"waits for {names(request.answerers, last='or')}{f', {left}' if left else ''}"
    yield "  ".join([terminal.paint(request.id, "bold"), terminal.paint(request.asker, "bold"), request.kind.value, waits])
    place = f"{quote(str(directory))} {request.id}"
    if request.kind is RequestKind.permission:
        body = request.body
        yield from prose(f"asks to run {body.get('what', '')}", terminal)
        yield from prose(str(body.get("why", "")), terminal)
        for name, value in body.get("input", {}).items():
            yield from prose(f"{name}: {value}", terminal, first="      ")
        if body.get("artifact"):
            whole = directory / "artifacts" / request.asker / str(body["artifact"])
            yield from prose(f"the whole input: {whole}", terminal)
        ways = [f"teams approve {place}", f"teams approve {place} --always", f'teams reject {place} --feedback "..."']
    elif request.kind is RequestKind.question:
        yield from prose(clean(str(request.body.get("question", ""))), terminal)
        ways = [f'teams answer {place} "..."']
    else:
        yield from prose(f"is asked to stop{f': {why}' if (why := str(request.body.get('reason', ''))) else ''}", terminal)
        ways = []
    for way in ways:
        yield terminal.paint(f"    {way}", "cyan")
