"""`teams plan DIR ID`: one plan whole: its revisions with what each changed, who decided them, and how far its steps are."""

import argparse
import sys
import time
from collections.abc import Iterator

from protocols.plan_step import StepStatus
from protocols.plan_text import plan_changes
from protocols.request import Request
from teams.cli.exits import OK, CommandFailed
from teams.cli.facts import request_facts
from teams.cli.output import Terminal, find_terminal, names, print_json, print_lines
from teams.cli.plans import find_plans, prose, render_plan
from teams.cli.reading import Seen, add_directory, look, tell_reports
from teams.state.plans import PlanStep

MARKS = {StepStatus.todo: "[ ]", StepStatus.in_progress: "[>]", StepStatus.done: "[x]", StepStatus.failed: "[!]"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    parser.add_argument("plan", metavar="ID", help="the plan's id, such as r1; 'teams plans DIR --all' lists them")


def run(args: argparse.Namespace) -> int:
    """Print the plan."""
    seen = look(args.directory)
    tell_reports(seen.reports)
    plan = _find(seen, args.plan)
    steps = _steps(seen, plan)
    if args.json:
        facts = [_step_json(number, step, status) for number, (step, status) in enumerate(steps, 1)]
        print_json({**request_facts(plan), "steps": facts})
        return OK
    terminal = find_terminal(sys.stdout)
    print_lines(_render(plan, steps, seen, terminal))
    return OK


def _find(seen: Seen, plan_id: str) -> Request:
    plans: dict[str, Request] = {plan.id: plan for plan in find_plans(seen.state, everything=True)}
    if plan_id in plans:
        return plans[plan_id]
    if plan_id in seen.state.requests:
        kind = seen.state.requests.get(plan_id).kind.value.replace("_", " ")
        raise CommandFailed(f"{plan_id} is no plan, but a {kind}; plans: {names(list(plans)) or 'none'}")
    raise CommandFailed(f"there is no plan {plan_id!r}; plans: {names(list(plans)) or 'none'}")


def _steps(seen: Seen, plan: Request) -> list[tuple[PlanStep, StepStatus]]:
    approved = seen.state.plans.get(plan.id, plan.subject)
    return [] if approved is None else [(step, seen.state.step_status(step)) for step in approved.steps]


def _render(plan: Request, steps: list[tuple[PlanStep, StepStatus]], seen: Seen, terminal: Terminal) -> Iterator[str]:
    yield from render_plan(plan, seen.directory, time.time(), terminal)
    if plan.body_before is not None:
        yield ""
        yield terminal.paint(f"Changed since revision {plan.revision - 1}", "bold")
        for line in plan_changes(plan.body_before, plan.body):
            yield from prose(line, terminal, style="green" if line.startswith("+") else "red")
    votes = plan.votes if plan.decision is None else plan.decision.votes
    if votes:
        yield ""
        yield terminal.paint("Votes", "bold")
        for vote in votes:
            said = f": {vote.feedback}" if vote.feedback else ""
            yield from prose(f"{vote.by} {'approves' if vote.approved else 'rejects'}{said}", terminal)
    if not plan.is_closed and plan.stages:
        yield ""
        yield terminal.paint("Asked one after the other", "bold")
        for at, stage in enumerate(plan.stages):
            quorum = f" ({stage.quorum} of {len(stage.answerers)})" if stage.quorum > 1 else ""
            yield from prose(f"{'> ' if at == plan.stage else ''}{names(stage.answerers, last='or')}{quorum}", terminal)
    if steps:
        yield ""
        yield terminal.paint("Steps", "bold")
        for number, (step, status) in enumerate(steps, 1):
            yield from _render_step(number, step, status, terminal)


def _render_step(number: int, step: PlanStep, status: StepStatus, terminal: Terminal) -> Iterator[str]:
    tries = f", attempt {step.attempts}" if step.attempts > 1 else ""
    task = f", task {step.task}" if step.task is not None else ""
    yield from prose(f"{step.text}{task}{tries}", terminal, first=f"    {MARKS[status]} {number}. ")
    if step.note:
        yield from prose(f"note: {step.note}", terminal, first="        ")
    if step.output:
        yield from prose(f"output: {step.output}", terminal, first="        ")


def _step_json(number: int, step: PlanStep, status: StepStatus) -> dict[str, object]:
    return {
        "step": number,
        "text": step.text,
        "status": status.value,
        "attempts": step.attempts,
        "note": step.note,
        "output": step.output,
        "task": step.task,
    }
