"""The plain view of a running team: one line for each event, for pipes, files and terminals without tricks.

Law: it ends when the team closes, or when it is cancelled; what the team buffered for it until then is printed.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

import trio

from teams.cli.board import tool_words
from teams.cli.output import Terminal, amount, cells, clean, fit
from teams.cli.sayings import Saying, arrow
from teams.events import (
    ContextCompacted,
    ContextStuck,
    Event,
    EventsLost,
    MailCommitted,
    MailStored,
    MemberChanged,
    ModelCalled,
    ModelRetry,
    RequestChanged,
    RuntimeNotice,
    SessionLarge,
    TaskChanged,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from teams.team import Team

WHO_CELLS = 18
TEXT_LIMIT = 200
"""More of a message than this is cut, also where a line could be longer."""


async def watch_plain(
    team: Team,
    *,
    terminal: Terminal,
    write: Callable[[str], None] = print,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Print a line for each event until the team closes.

    Checkpoints: always; when Cancelled, every line is whole.
    """
    async with team.events() as events:
        task_status.started()
        async for event in events:
            saying = say_event(event)
            if saying is not None:
                write(event_line(saying, terminal))


def event_line(saying: Saying, terminal: Terminal) -> str:
    """Lay one event out: the time, who, what."""
    who = fit(saying.who, WHO_CELLS + 10)
    lead = f"{datetime.now().astimezone():%H:%M:%S}  {who}{' ' * (WHO_CELLS - cells(who))}  {saying.about:<7}  "
    limit = TEXT_LIMIT if terminal.width is None else max(0, terminal.width - cells(lead))
    return f"{terminal.paint(lead[:8], 'dim')}{lead[8:]}{terminal.paint(fit(saying.what, limit), saying.style)}".rstrip()


def say_event(event: Event) -> Saying | None:
    """Put an event into words; None for a piece of a text, which comes again as a whole."""
    match event:
        case TextDelta():
            return None
        case MemberChanged():
            style = "red" if event.status == "failed" else "dim"
            reason = f": {clean(event.reason)}" if event.reason else ""
            return Saying(event.name, "", f"is {event.status.replace('_', ' ')}{reason}", style)
        case MailStored():
            kind = "" if event.type in ("message", "broadcast") else f"[{event.type.replace('_', ' ')}] "
            return Saying(arrow(event.sender, event.recipients), event.id, f"{kind}{clean(event.content)}", "bold")
        case MailCommitted():
            return Saying(event.member, event.ids[0] if event.ids else "", f"has read {', '.join(event.ids)}", "dim")
        case TaskChanged():
            text = f" ({clean(event.text)})" if event.text else ""
            verb = {"in_progress": "claimed"}.get(event.status, event.status)
            style = {"completed": "green", "failed": "red"}.get(event.status, "")
            return Saying(event.owner or "", f"task {event.id}", f"{verb}: {clean(event.subject)}{text}", style)
        case RequestChanged():
            what = f"{event.kind.replace('_', ' ')} of {event.subject}"
            revision = f", revision {event.revision}" if event.revision > 1 else ""
            feedback = f": {clean(event.feedback)}" if event.feedback else ""
            style = {"approved": "green", "rejected": "red"}.get(event.state, "yellow")
            return Saying(clean(event.by), event.id, f"{what}{revision} is {event.state.replace('_', ' ')}{feedback}", style)
        case _:
            return _say_work(event)


_Work: TypeAlias = (
    ToolStarted | ToolEnded | ModelCalled | ModelRetry | ContextCompacted | ContextStuck | SessionLarge | RuntimeNotice | EventsLost
)


def _say_work(event: _Work) -> Saying:
    match event:
        case ToolStarted():
            return Saying(event.name, "runs", tool_words(event.tool, event.input), "cyan")
        case ToolEnded():
            how = "was interrupted" if event.interrupted else "failed" if event.is_error else "gave"
            return Saying(event.name, "", f"{event.tool} {how}: {clean(event.text)}", "red" if event.is_error else "dim")
        case ModelCalled():
            used = f"({amount(event.input_tokens)} tokens in, {amount(event.output_tokens)} out)"
            return Saying(event.name, "says", f"{clean(event.text)} {used}") if event.text.strip() else Saying(event.name, "", used, "dim")
        case ContextCompacted():
            how = f"{event.trigger}: {', '.join(event.layers)}" if event.layers else event.trigger
            figures = f"{amount(event.tokens_before)} -> {amount(event.tokens_after)} tokens"
            return Saying(event.name, "", f"context compacted ({how}): {figures}", "yellow")
        case ContextStuck():
            largest = sorted(event.fills.items(), key=lambda item: -item[1])[:3]
            fills = ", ".join(f"{kind} {amount(tokens)}" for kind, tokens in largest if tokens)
            fills += f"; {amount(event.over_bytes)} bytes too long for a request" if event.over_bytes else ""
            return Saying(event.name, "", f"context cannot be made smaller; of {amount(event.window_tokens)}: {fills}", "yellow")
        case SessionLarge():
            said = f"its transcript has {amount(event.size_bytes)} bytes ({event.path}); a fork would be smaller"
            return Saying(event.name, "", said, "yellow")
        case ModelRetry():
            return Saying(event.name, "", clean(str(event)), "yellow")
        case RuntimeNotice():
            return Saying(event.name, event.level, clean(event.text), {"error": "red", "warning": "yellow"}.get(event.level, "dim"))
        case EventsLost():
            return Saying("", "", f"{event.count} events were lost: this view was too slow", "yellow")
