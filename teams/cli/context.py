"""`teams context DIR NAME`: what fills a member's context, as a bar and in numbers."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from compaction.budget import ContextBudget
from compaction.errors import NotASession
from compaction.fill import Fill, fill
from compaction.models import model_facts
from compaction.session import LoadedSession, load
from compaction.tokens import TokenMeter, weigh_all
from compaction.transcript import last_assistant
from teams.cli.exits import OK, CommandFailed
from teams.cli.output import Column, Terminal, amount, find_terminal, plural, print_json, print_lines, table
from teams.cli.reading import add_directory, find_agent, look, tell_reports
from teams.options import AgentOptions

BAR_CELLS = 50
STYLES = {"task": "bold", "memory": "cyan", "user": "green", "assistant": "", "results": "yellow", "calls": "yellow"}


class ContextFigures(NamedTuple):
    """A context as its session tells it."""

    model: str
    epoch: int
    messages: int
    compactions: int
    fill: Fill


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    parser.add_argument("name", metavar="NAME", help="whose context")


def run(args: argparse.Namespace) -> int:
    """Print the figures."""
    seen = look(args.directory)
    tell_reports(seen.reports)
    member = find_agent(seen, args.name)
    figures = read_context(args.directory / "sessions" / f"{args.name}.jsonl", member.spec.model or "")
    if args.json:
        found = figures.fill
        print_json(
            {
                "member": args.name,
                "model": figures.model,
                "epoch": figures.epoch,
                "messages": figures.messages,
                "compactions": figures.compactions,
                "window_tokens": found.window_tokens,
                "used_tokens": found.used,
                "free_tokens": found.free,
                "tokens": {"system_and_tools": found.system, "reply": found.reply, **found.messages},
            }
        )
        return OK
    print_lines(render(args.name, figures, find_terminal(sys.stdout)))
    return OK


def read_context(path: Path, model: str = "") -> ContextFigures:
    """Measure the context that a session file holds; system and tools by what the provider reported for them.

    Raises: CommandFailed where there is none.
    """
    try:
        with path.open("rb") as file:
            loaded = load(file)
    except FileNotFoundError:
        raise CommandFailed(f"there is no context yet: {str(path)!r} does not exist") from None
    except NotASession as error:
        raise CommandFailed(f"cannot read {str(path)!r}: {error.reason}") from error
    name = loaded.model or model
    facts = model_facts(name)
    meter = TokenMeter(facts)
    fixed = _fixed_tokens(loaded, meter)
    reply = min(AgentOptions().max_reply_tokens, facts.output_tokens)
    budget = ContextBudget(window_tokens=max(facts.window_tokens, fixed + reply + 1), reply_tokens=reply, system_tokens=fixed)
    return ContextFigures(name, loaded.epoch, len(loaded.view), len(loaded.checkpoints), fill(loaded.view, meter, budget))


def _fixed_tokens(loaded: LoadedSession, meter: TokenMeter) -> int:
    """Return what system and tools took in the newest call: what was reported less the messages that it sent."""
    usage = loaded.last_usage or {}
    reported = sum(count for key, count in usage.items() if key != "output_tokens")
    sent = loaded.messages[: max(0, last_assistant(loaded.messages))]
    return max(0, reported - meter.tokens(weigh_all(sent))) if reported else 0


def render(name: str, figures: ContextFigures, terminal: Terminal) -> Iterator[str]:
    """Lay a context out for a person."""
    found = figures.fill
    used = found.used
    share = 100 * used / found.window_tokens
    model = f" of {figures.model}" if figures.model else ""
    yield terminal.paint(f"{name}: {amount(used)} of {amount(found.window_tokens)} tokens{model} ({share:.0f} %)", "bold")
    parts = [("system and tools", found.system), *found.messages.items(), ("kept for the reply", found.reply)]
    yield _bar([(kind, tokens) for kind, tokens in parts if tokens], found.window_tokens, terminal)
    rows = [(kind, f"{tokens:,}", f"{100 * tokens / found.window_tokens:.1f} %") for kind, tokens in parts if tokens]
    rows.append(("free", f"{found.free:,}", f"{100 * found.free / found.window_tokens:.1f} %"))
    yield from table([Column("what"), Column("tokens", right=True), Column("share", right=True)], rows, terminal, indent="  ")
    yield f"  {plural(figures.messages, 'message')}, {plural(figures.compactions, 'compaction')}; tokens are estimates"


def _bar(parts: list[tuple[str, int]], window: int, terminal: Terminal) -> str:
    cells = ""
    left = BAR_CELLS
    for kind, tokens in parts:
        width = min(left, round(BAR_CELLS * tokens / window))
        left -= width
        cells += terminal.paint(kind[0].upper() * width, STYLES.get(kind, "dim"))
    return f"  [{cells}{'.' * left}]"
