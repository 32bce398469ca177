"""`teams status DIR`: who does what, who hosts them, which requests are open, how far the tasks are."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compaction.models import model_facts
from compaction.sessionfile import last_call
from protocols.lifecycle import MemberStatus
from protocols.request import Request
from protocols.task_status import TaskStatus
from teams.cli.exits import OK
from teams.cli.facts import request_facts
from teams.cli.output import Cell, Column, Terminal, amount, clean, duration, find_terminal, names, plural, print_json, print_lines, table
from teams.cli.reading import Seen, add_directory, look, tell_reports
from teams.hosts import describe_host
from teams.journal.records import utc_now_text, utc_seconds
from teams.state.decision import AGENT_KINDS
from teams.state.roster import Member, Spending
from teams.state.team_state import TeamState

STATUS_STYLES = {
    MemberStatus.working: "green",
    MemberStatus.awaiting_plan_approval: "yellow",
    MemberStatus.draining: "yellow",
    MemberStatus.failed: "red",
    MemberStatus.stopped: "dim",
    MemberStatus.idle: "dim",
    MemberStatus.spawning: "cyan",
}
COLUMNS = (
    Column("MEMBER", flexible=True),
    Column("ROLE", flexible=True),
    Column("STATUS", flexible=True),
    Column("SINCE", right=True),
    Column("TASK", flexible=True),
    Column("PLAN", flexible=True),
    Column("UNREAD", right=True),
    Column("TOKENS", right=True),
    Column("CONTEXT", right=True),
    Column("REASON", flexible=True),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)


def run(args: argparse.Namespace) -> int:
    """Print the status once."""
    seen = look(args.directory)
    now = time.time()
    tell_reports(seen.reports)
    if args.json:
        print_json(describe_team(seen, now))
    else:
        print_lines(render_status(seen, now, find_terminal(sys.stdout)))
    return OK


def render_status(seen: Seen, now: float, terminal: Terminal) -> list[str]:
    """Lay the status out for a person."""
    state = seen.state
    last = f"last record {_ago(seen.last_at, now)}" if seen.last_at else "nothing has happened yet"
    about = f"{plural(len(state.roster.members), 'member')}, {plural(state.seq, 'record')}, {last}"
    lines = [f"{terminal.paint(clean(seen.name), 'bold')}  {terminal.paint(about, 'dim')}", *_hosts(seen, now, terminal)]
    rows = [_row(seen, member, now) for member in state.roster.members.values()]
    if rows:
        lines += ["", *table(COLUMNS, rows, terminal)]
    requests = state.requests.open()
    if requests:
        lines += ["", terminal.paint("open requests", "bold"), *table(REQUEST_COLUMNS, [_request_row(r, now) for r in requests], terminal)]
    lines += ["", f"{terminal.paint('tasks', 'bold')}  {count_text(state)}"]
    return lines


def count_tasks(state: TeamState) -> dict[str, int]:
    """Return how many tasks there are of each kind; pending ones are split into ready and blocked."""
    tasks = state.tasks
    counts = Counter(task.status.value for task in tasks.by_id.values())
    blocked = sum(1 for task in tasks.by_id.values() if task.status is TaskStatus.pending and tasks.open_blockers.get(task.id))
    pending = counts.pop(TaskStatus.pending.value, 0)
    kinds = ("completed", "in_progress", "failed", "cancelled")
    return {"total": len(tasks.by_id), "ready": pending - blocked, "blocked": blocked, **{kind: counts[kind] for kind in kinds}}


def count_text(state: TeamState) -> str:
    """Return the counts in words, without the kinds that there are none of."""
    counts = count_tasks(state)
    words = ("completed", "in_progress", "ready", "blocked", "failed", "cancelled")
    return ", ".join(f"{counts[word]} {word.replace('_', ' ')}" for word in words if counts[word]) or "none yet"


def deadline_text(request: Request, now: float) -> str:
    """Return what is due when, if a deadline means something in the request's state."""
    if request.deadline is None or request.deadline_event is None:
        return ""
    left = request.deadline - now
    return f"{duration(left)} left" if left > 0 else f"{duration(-left)} overdue"


def plan_text(state: TeamState, member: Member) -> str:
    """Return where a member stands with its plan."""
    if member.plan_request is not None:
        request = state.requests.get(member.plan_request)
        revision = f" (revision {request.revision})" if request.revision > 1 else ""
        return f"{request.id} {request.state}{revision}"
    if member.approved_plan is not None:
        return f"{member.approved_plan} approved"
    return "required" if member.spec.plan_required and member.live else ""


def _hosts(seen: Seen, now: float, terminal: Terminal) -> Iterable[str]:
    hosts = host_facts(seen)
    if not hosts:
        yield f"{terminal.paint('closed', 'dim')}  no process hosts it"
    for host in hosts:
        who = names(clean(name) for name in host["members"])
        if host["alive"]:
            since = f" for {duration(now - host['since'])}" if host["since"] is not None else ""
            yield f"{terminal.paint('alive', 'green')}  {describe_host(host['host'])} hosts {who}{since}"
        else:
            left = names(clean(name) for name in host["left"])
            tail = f"; {left} {'waits' if len(host['left']) == 1 else 'wait'} for somebody to open the team again" if left else ""
            yield f"{terminal.paint('gone', 'red')}   {describe_host(host['host'])} has ended{tail}"


def host_facts(seen: Seen) -> list[dict[str, Any]]:
    """Return each host of live members, whether its process is alive, and since when it hosts (None: not known any more).

    A person needs no host.
    """
    by_host: dict[str, list[Member]] = {}
    for member in seen.state.roster.live():
        if member.host is not None and member.spec.kind != "person":
            by_host.setdefault(member.host, []).append(member)
    return [
        {
            "host": host,
            "alive": host not in seen.dead,
            "since": _host_since(seen.directory / "hosts" / host) if host not in seen.dead else None,
            "members": [member.name for member in members],
            "left": [member.name for member in members if member.spec.kind in ("teammate", "lead")],
        }
        for host, members in by_host.items()
    ]


def _host_json(host: dict[str, Any]) -> dict[str, Any]:
    since = None if host["since"] is None else utc_now_text(host["since"])
    return {**{key: value for key, value in host.items() if key != "left"}, "since": since}


def _host_since(path: Path) -> float | None:
    try:
        return path.stat().st_mtime  # nothing is ever written to it: this is when it was made
    except OSError:
        return None


def _row(seen: Seen, member: Member, now: float) -> list[str | Cell]:
    state = seen.state
    gone = member.host in seen.dead
    person = member.spec.kind == "person"
    status = Cell(member.status.value.replace("_", " "), STATUS_STYLES[member.status])
    if person:
        status = Cell("")
    elif gone:
        status = Cell(f"{status.text}, host gone", "red")
    tasks = [f"{task_id} {clean(state.tasks.by_id[task_id].subject)}" for task_id in state.tasks.owned.get(member.name, ())]
    unread = len(state.mail.box(member.name))
    spent = state.roster.spending.get(member.name)
    return [
        Cell(member.name, "bold" if member.live and not gone else "dim"),
        clean(member.spec.role),
        status,
        "" if person else duration(now - utc_seconds(member.changed_at)),
        "; ".join(tasks),
        plan_text(state, member),
        Cell(str(unread), "yellow") if unread else "",
        amount(spent.total_tokens) if spent else "",
        context_text(context_of(seen.directory, member)),
        Cell(clean(seen.retries[member.name]), "yellow") if member.name in seen.retries else Cell(clean(member.reason), "dim"),
    ]


def context_of(directory: Path, member: Member) -> tuple[int, int] | None:
    """Return how many tokens a member's newest call sent, and its model's window; None where nothing is known."""
    if member.spec.kind not in AGENT_KINDS:
        return None
    found = last_call(directory / "sessions" / f"{member.name}.jsonl")
    return None if found is None else (found[0], model_facts(found[1]).window_tokens)


def context_text(context: tuple[int, int] | None) -> str:
    """Return how full a window is: `6 %`; teams context has the figures."""
    return "" if context is None else f"{100 * context[0] / context[1]:.0f} %"


REQUEST_COLUMNS = (
    Column("ID"),
    Column("KIND", flexible=True),
    Column("FROM", flexible=True),
    Column("ABOUT", flexible=True),
    Column("STATE", flexible=True),
    Column("WAITS FOR", flexible=True),
    Column("DEADLINE", right=True),
)


def _request_row(request: Request, now: float) -> list[str | Cell]:
    body = request.body
    about = body.get("summary") or body.get("reason") or body.get("what") or body.get("question") or request.subject
    state = f"{request.state}{f' (revision {request.revision})' if request.revision > 1 else ''}"
    waits = names(request.answerers, last="or") if request.is_undecided else ""
    return [
        Cell(request.id, "bold"),
        request.kind.value.replace("_", " "),
        request.asker,
        clean(str(about)),
        Cell(state, "yellow"),
        waits,
        deadline_text(request, now),
    ]


def _ago(at: str, now: float) -> str:
    return f"{duration(now - utc_seconds(at))} ago"


def describe_team(seen: Seen, now: float) -> dict[str, Any]:
    """Return the status as JSON values; times are ISO 8601 in UTC."""
    state = seen.state
    return {
        "team": seen.name,
        "directory": str(seen.directory),
        "now": utc_now_text(now),
        "records": state.seq,
        "last_record_at": seen.last_at,
        "hosts": [_host_json(host) for host in host_facts(seen)],
        "members": [_member_facts(seen, member) for member in state.roster.members.values()],
        "requests": [request_facts(request) for request in state.requests.open()],
        "tasks": count_tasks(state),
        "reports": [report.message for report in seen.reports],
    }


def _member_facts(seen: Seen, member: Member) -> dict[str, Any]:
    state = seen.state
    context = context_of(seen.directory, member)
    plan = None if member.plan_request is None else state.requests.get(member.plan_request)
    return {
        "name": member.name,
        "role": member.spec.role,
        "kind": member.spec.kind,
        "status": member.status.value,
        "since": member.changed_at,
        "reason": member.reason,
        "retry": seen.retries.get(member.name),
        "live": member.live,
        "host": member.host,
        "host_alive": None if member.host is None else member.host not in seen.dead,
        "tasks": list(state.tasks.owned.get(member.name, ())),
        "plan": {
            "required": member.spec.plan_required,
            "approved": member.approved_plan,
            "request": None if plan is None else plan.id,
            "state": None if plan is None else str(plan.state),
        },
        "unread": len(state.mail.box(member.name)),
        "context": None if context is None else {"used_tokens": context[0], "window_tokens": context[1]},
        "spending": asdict(state.roster.spending.get(member.name) or Spending()),
    }
