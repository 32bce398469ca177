"""`teams plans DIR`: the plans that wait for a decision, whole, with the words that decide them."""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote
from textwrap import wrap

from protocols.plan_approval import PlanState
from protocols.request import Decision, Request, RequestKind
from teams.cli.exits import OK
from teams.cli.facts import request_facts
from teams.cli.output import Terminal, clean, duration, find_terminal, names, print_json, print_lines
from teams.cli.reading import add_directory, look, tell_reports
from teams.cli.status import deadline_text
from teams.state.team_state import TeamState

STYLES = {PlanState.submitted: "yellow", PlanState.approved: "green", PlanState.rejected: "red"}
READABLE_CELLS = 100
"""Prose is wrapped here, also on wider terminals and where there is none."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    parser.add_argument("--all", "-a", action="store_true", help="also those that are decided or being revised")


def run(args: argparse.Namespace) -> int:
    """Print the plans."""
    seen = look(args.directory)
    tell_reports(seen.reports)
    plans = find_plans(seen.state, everything=args.all)
    if args.json:
        print_json([request_facts(plan) for plan in plans])
        return OK
    terminal, now = find_terminal(sys.stdout), time.time()
    if not plans:
        hidden = len(find_plans(seen.state, everything=True))
        print(f"no plan waits for a decision{f'; --all shows {hidden} more' if hidden else ''}")
    for at, plan in enumerate(plans):
        print_lines(["", *render_plan(plan, seen.directory, now, terminal)] if at else render_plan(plan, seen.directory, now, terminal))
    return OK


def find_plans(state: TeamState, *, everything: bool) -> list[Request]:
    """Return the plans that wait for a decision, oldest first; or all that are remembered."""
    plans = [request for request in state.requests.open(kind=RequestKind.plan_approval) if everything or request.is_undecided]
    if everything:
        plans += [request for request in state.requests.closed() if request.kind is RequestKind.plan_approval]
    return sorted(plans, key=lambda request: request.opened_at)


def render_plan(plan: Request, directory: Path, now: float, terminal: Terminal) -> Iterator[str]:
    """Lay one plan out for a person."""
    paint = terminal.paint
    head = [paint(plan.id, "bold"), paint(plan.asker, "bold"), paint(str(plan.state), STYLES.get(PlanState(plan.state), "dim"))]
    if plan.revision > 1:
        head.append(f"revision {plan.revision}")
    if plan.is_undecided:
        left = deadline_text(plan, now)
        head.append(f"waits for {names(plan.answerers, last='or')}{f', {left}' if left else ''}")
    yield "  ".join(head)
    yield from prose(str(plan.body.get("summary", "")), terminal)
    for number, step in enumerate(plan.body.get("steps", ()), start=1):
        yield from prose(str(step), terminal, first=f"    {number}. ")
    files = [clean(str(file)) for file in plan.body.get("files", ())]
    if files:
        yield from prose(", ".join(files), terminal, first="    files: ")
    commands = [clean(str(command)) for command in plan.body.get("commands", ())]
    if commands:
        yield from prose(", ".join(commands), terminal, first="    commands: ")
    if plan.body.get("risk"):
        yield from prose(str(plan.body["risk"]), terminal, first="    risk: ")
    for at, decision in enumerate(plan.earlier, start=1):
        yield from _decided(decision, f"revision {at} was {decision.outcome}", now, terminal)
    if plan.decision is not None:
        yield from _decided(plan.decision, str(plan.decision.outcome), now, terminal)
    if plan.is_undecided:
        place = f"{quote(str(directory))} {plan.id}"
        yield paint(f"    teams approve {place}", "cyan")
        yield paint(f'    teams reject {place} --feedback "..."', "cyan")


def _decided(decision: Decision, what: str, now: float, terminal: Terminal) -> Iterable[str]:
    feedback = f": {decision.feedback}" if decision.feedback else ""
    return prose(f"{what} by {decision.by} {duration(now - decision.at)} ago{feedback}", terminal)


def prose(text: str, terminal: Terminal, *, first: str = "    ", style: str = "") -> list[str]:
    """Wrap what somebody wrote, without control characters, under an indent."""
    width = min(terminal.width or READABLE_CELLS, READABLE_CELLS)
    lines = wrap(clean(text), max(width, 30), initial_indent=first, subsequent_indent=" " * max(len(first), 4))
    return [terminal.paint(line, style) for line in lines] if style else lines
