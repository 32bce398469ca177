"""The live view of a running team, drawn by rich: who does what, plans, tasks, mail, tokens.

Laws: drawn after events, at most `FRAMES_PER_SECOND` times a second, and once a second while nothing happens, for the times on it; it ends
when the team closes, or when it is cancelled, and leaves its last frame and a sound terminal.
"""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import trio

from protocols.task_status import TaskStatus
from teams.cli.board import Board
from teams.cli.output import amount, clean, duration, names
from teams.cli.plans import find_plans
from teams.cli.sayings import arrow
from teams.cli.status import STATUS_STYLES, count_text, deadline_text, plan_text
from teams.cli.tasks import MARKS, STYLES, standing
from teams.events import Event
from teams.journal.records import utc_seconds
from teams.state.roster import Member
from teams.state.tasks import Task
from teams.state.team_state import TeamState
from teams.team import Team

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

FRAMES_PER_SECOND = 5
TICK_SECONDS = 1.0
MEMBER_LINES, TASK_LINES, MAIL_LINES, NOTICE_LINES, PLAN_LINES = 12, 10, 6, 2, 3
ECHO_CELLS = 3
"""Kept free at the right: a terminal shows ^C there, and on a full line that would shift the frame."""

FRAME_LINES = 10
"""Titles, borders and blank lines around the rest."""


async def watch_live(
    team: Team, *, console: "Console | None" = None, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Draw the team until it closes.

    Checkpoints: always; when Cancelled, the last frame stays and the terminal is as before.
    """
    from rich.live import Live  # 0.2 s, and only a terminal needs it

    board, started = Board(), trio.current_time()
    async with team.events() as events:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

            def draw() -> None:
                elapsed, (width, height) = trio.current_time() - started, live.console.size
                live.update(render(team.name, team.state, board, elapsed=elapsed, size=(width - ECHO_CELLS, height)), refresh=True)

            draw()
            task_status.started()
            while await _take(events, board):
                draw()
                await trio.sleep(1 / FRAMES_PER_SECOND)
            draw()


async def _take(events: trio.MemoryReceiveChannel[Event], board: Board) -> bool:
    """Wait for an event or a tick, and take in all that is there; tell whether the team goes on."""
    try:
        with trio.move_on_after(TICK_SECONDS):
            board.note(await events.receive(), trio.current_time())
        while True:
            board.note(events.receive_nowait(), trio.current_time())
    except trio.WouldBlock:
        return True
    except trio.EndOfChannel:
        return False


def render(name: str, state: TeamState, board: Board, *, elapsed: float, size: tuple[int, int]) -> "RenderableType":
    """Lay one frame out, in at most so many cells and lines."""
    from rich.console import Group  # as in `watch_live`
    from rich.panel import Panel
    from rich.text import Text

    now, clock = time.time(), trio.current_time()
    width, height = size
    room = max(4, height - FRAME_LINES - len(state.roster.members))
    parts: list[RenderableType] = [_members(state, board, clock, now)]
    if plans := find_plans(state, everything=False)[:PLAN_LINES]:
        parts += [
            Text("\nplans", style="bold"),
            *(_plan_line(plan.id, plan.asker, str(plan.body.get("summary", "")), plan.answerers) for plan in plans),
        ]
        parts += [Text(f"   {deadline_text(plan, now)}", style="dim") for plan in plans[:1] if deadline_text(plan, now)]
    if state.tasks.by_id:
        parts += [Text.assemble(("\ntasks", "bold"), f"  {count_text(state)}"), _tasks(state, now, max(3, min(TASK_LINES, room // 2)))]
    if board.mail:
        shown = list(board.mail)[-max(2, min(MAIL_LINES, room // 3)) :]
        parts += [Text("\nmail", style="bold"), *(_mail_line(mail.sender, mail.recipients, mail.content) for mail in shown)]
    for notice in list(board.notices)[-NOTICE_LINES:]:
        parts.append(Text(f"{notice.level}: {clean(notice.text)}", style="yellow", no_wrap=True, overflow="ellipsis"))
    used = sum(board.tokens.values())
    title = Text.assemble((clean(name), "bold"), f"  {duration(elapsed)}  {amount(used)} tokens")
    return Panel(Group(*parts), title=title, title_align="left", border_style="dim", padding=(0, 1), width=max(width, 40))


_FIGURES = frozenset({"UNREAD", "TOKENS", "CONTEXT"})


def _grid(*columns: tuple[str, int | None]) -> "Table":
    from rich.table import Table  # as in `watch_live`

    grid = Table(box=None, show_header=bool(columns[0][0]), header_style="dim", pad_edge=False, padding=(0, 2, 0, 0), expand=True)
    for title, ratio in columns:
        grid.add_column(title, ratio=ratio, no_wrap=True, overflow="ellipsis", justify="right" if title in _FIGURES else "left")
    return grid


def _members(state: TeamState, board: Board, clock: float, now: float) -> "Table":
    from rich.text import Text  # as in `watch_live`

    grid = _grid(
        ("MEMBER", None),
        ("ROLE", None),
        ("STATUS", None),
        ("DOES", 3),
        ("PLAN", None),
        ("UNREAD", None),
        ("TOKENS", None),
        ("CONTEXT", None),
    )
    shown = [member for member in state.roster.members.values() if member.spec.kind != "person"]
    for member in shown[:MEMBER_LINES]:
        unread = len(state.mail.box(member.name))
        tokens = board.tokens.get(member.name, 0)
        style = STATUS_STYLES[member.status]
        grid.add_row(
            Text(member.name, style="bold" if member.live else "dim"),
            Text(clean(member.spec.role), style="" if member.live else "dim"),
            Text(member.status.value.replace("_", " "), style=style),
            Text(_does(state, member, board, clock, now)),
            Text(plan_text(state, member), style="yellow" if member.plan_request else "green" if member.approved_plan else "dim"),
            Text(str(unread) if unread else "", style="yellow"),
            Text(amount(tokens) if tokens else ""),
            Text(amount(board.context[member.name]) if board.context.get(member.name) else ""),
        )
    if len(shown) > MEMBER_LINES:
        grid.add_row(Text(f"and {len(shown) - MEMBER_LINES} more", style="dim"))
    return grid


def _does(state: TeamState, member: Member, board: Board, clock: float, now: float) -> str:
    held = " ".join(f"[{task_id}]" for task_id in state.tasks.owned.get(member.name, ()))
    doing = board.doing.get(member.name)
    if doing is not None and member.live:
        return f"{held} {duration(clock - doing.since)}: {doing.what}".strip()
    if member.reason and not member.live:
        return clean(member.reason)
    return f"{held} {'for' if not held else ''} {duration(now - utc_seconds(member.changed_at))}".strip()


def _plan_line(plan_id: str, author: str, summary: str, answerers: Iterable[str]) -> "RenderableType":
    from rich.text import Text  # as in `watch_live`

    waits = names(answerers, last="or")
    return Text.assemble(
        (plan_id, "bold"), f"  {author}: {clean(summary)}  ", (f"waits for {waits}", "yellow"), no_wrap=True, overflow="ellipsis"
    )


def _tasks(state: TeamState, now: float, limit: int) -> "Table":
    from rich.text import Text  # as in `watch_live`

    order = {TaskStatus.in_progress: 0, TaskStatus.failed: 1, TaskStatus.pending: 2, TaskStatus.completed: 3, TaskStatus.cancelled: 4}

    def rank(task: Task) -> tuple[int, int]:
        return order[task.status], task.id if task.status is TaskStatus.pending else -task.id

    chosen = sorted(state.tasks.by_id.values(), key=rank)[:limit]
    grid = _grid(("", None), ("", 3), ("", None), ("", 2))
    for task in sorted(chosen, key=lambda task: task.id):
        style = STYLES.get(task.status, "")
        subject = f"{task.id:>3}  {clean(task.subject)}"
        grid.add_row(
            Text(MARKS[task.status], style=style),
            Text(subject, style=style),
            Text(task.owner or "", style=style),
            Text(standing(state, task, now), style=style),
        )
    return grid


def _mail_line(sender: str, recipients: tuple[str, ...], content: str) -> "RenderableType":
    from rich.text import Text  # as in `watch_live`

    style = "dim" if sender.startswith("(") else ""
    return Text.assemble(
        (f"{arrow(sender, recipients):<20}  ", style or "cyan"),
        (clean(content[:500]), style),
        no_wrap=True,
        overflow="ellipsis",
    )
