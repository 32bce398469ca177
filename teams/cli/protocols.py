"""`teams protocols check | draw NAME`: explore what the handshakes can come to, or draw one of their tables.

Neither needs a team: what is checked and drawn are the tables of this installation, by which every team of it runs.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

from protocols.diagrams import ALL_MACHINES, mermaid
from protocols.explore import Report, Violation, explore
from protocols.worlds import WORLDS
from teams.cli.exits import FAILED, OK, CommandLineError
from teams.cli.output import Cell, Column, find_terminal, names, plural, print_json, print_lines, table

COLUMNS = (
    Column("WORLD"),
    Column("STATES", right=True),
    Column("TRANSITIONS", right=True),
    Column("OUTCOMES", right=True),
    Column("PROMISES"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the two subcommands; each takes --json behind its own name, as other commands do."""
    commands = parser.add_subparsers(metavar="check | draw", required=True)
    check = commands.add_parser("check", help="visit every state that a protocol can reach, and look at every promise")
    check.set_defaults(work=_check)
    draw = commands.add_parser("draw", help="print the table of one state machine as a Mermaid drawing")
    draw.add_argument("name", metavar="NAME", help=f"which one: {names(sorted(ALL_MACHINES), last='or')}")
    draw.set_defaults(work=_draw)
    for command in (check, draw):
        # Suppressed, or its default would undo a --json that stands before the subcommand.
        command.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, for programs")


def run(args: argparse.Namespace) -> int:
    """Do what the subcommand says."""
    work: int = args.work(args)
    return work


def _draw(args: argparse.Namespace) -> int:
    machine = ALL_MACHINES.get(args.name)
    if machine is None:
        raise CommandLineError(f"cannot draw {args.name!r}: there is no machine of that name; there are {names(sorted(ALL_MACHINES))}")
    drawing = mermaid(machine)
    if args.json:
        transitions = [{"state": state, "event": event, "target": target} for state, event, target in machine.transitions()]
        ends = [state for state in machine.states if machine.is_final(state)]
        print_json({"name": machine.name, "initial": machine.initial, "ends": ends, "transitions": transitions, "mermaid": drawing})
    else:
        print_lines([drawing.rstrip("\n")])
    return OK


def _check(args: argparse.Namespace) -> int:
    began = perf_counter()
    reports: list[Report[Any]] = [explore(world) for world in WORLDS.values()]
    seconds = perf_counter() - began
    if args.json:
        print_json(_facts(reports, seconds))
    else:
        print_lines(_lines(reports, seconds))
    return FAILED if any(report.violations for report in reports) else OK


def _lines(reports: Sequence[Report[Any]], seconds: float) -> Iterator[str]:
    yield from table(COLUMNS, [_row(report) for report in reports], find_terminal(sys.stdout))
    states, transitions = sum(report.states for report in reports), sum(report.transitions for report in reports)
    broken = sum(len(report.violations) for report in reports)
    verdict = f"{plural(broken, 'broken promise')}" if broken else "every promise is kept"
    yield f"{plural(len(reports), 'world')}, {states:,} states, {transitions:,} transitions in {seconds:.1f} s: {verdict}"
    for report in reports:
        for violation in report.violations:
            yield from ("", f"{report.name}: {violation}", "", "```mermaid", violation.mermaid(), "```")


def _row(report: Report[Any]) -> list[str | Cell]:
    figures = [f"{figure:,}" for figure in (report.states, report.transitions, report.outcomes)]
    broken = len(report.violations)
    return [report.name, *figures, Cell(f"{broken} broken", "red") if broken else Cell("ok", "green")]


def _facts(reports: Iterable[Report[Any]], seconds: float) -> Mapping[str, Any]:
    worlds = [
        {
            "name": report.name,
            "states": report.states,
            "transitions": report.transitions,
            "outcomes": report.outcomes,
            "ok": not report.violations,
            "violations": [_violation_facts(violation) for violation in report.violations],
        }
        for report in reports
    ]
    return {"ok": all(world["ok"] for world in worlds), "seconds": round(seconds, 3), "worlds": worlds}


def _violation_facts(violation: Violation) -> dict[str, Any]:
    return {
        "promise": violation.promise,
        "path": [action._asdict() for action in violation.path],
        "cycle": [action._asdict() for action in violation.cycle],
        "mermaid": violation.mermaid(),
    }
