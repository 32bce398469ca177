"""`teams demo`: a team of three mends a small broken project before your eyes; by scripts, or with --live by a real model."""

import argparse
import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from teams.cli.bugfix import run_bugfix
from teams.cli.exits import CommandLineError
from teams.cli.live import watch_live
from teams.cli.output import find_terminal, print_json
from teams.cli.plain import watch_plain
from teams.cli.status import count_tasks
from teams.team import Team

if TYPE_CHECKING:
    from teams.models.base import Model

DEFAULT_MODEL = "claude-sonnet-4-5"
Watch = Callable[[Team], Awaitable[None]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--live", action="store_true", help="run on a real model; its key is taken from ANTHROPIC_API_KEY")
    parser.add_argument("--model", metavar="NAME", help=f"which real model, with --live (default: {DEFAULT_MODEL})")
    kept = "work in this directory: DIR/project is mended, DIR/.team is the team's"
    parser.add_argument("--keep", metavar="DIR", type=_folder, help=kept)
    parser.add_argument("--plain", action="store_true", help="print a line for each event instead of the live view")


def run(args: argparse.Namespace) -> int:
    """Run the team and return 0 when the project's tests pass in the end."""
    if args.model is not None and not args.live:
        raise CommandLineError("--model is for --live: without it the members follow scripts")
    return trio.run(_run_json if args.json else _run, args)


async def _run(args: argparse.Namespace) -> int:
    return await _with_model(args, _choose_watch(plain=args.plain), print)


async def _run_json(args: argparse.Namespace) -> int:
    lines: list[str] = []
    facts: dict[str, object] = {}

    async def watch(team: Team) -> None:
        facts["directory"] = str(team.directory)
        async with team.events() as events:
            async for _ in events:
                pass
        state = team.state
        facts["members"] = {member.name: member.status.value for member in state.roster.members.values()}
        facts["tasks"] = count_tasks(state)

    with redirect_stdout(sys.stderr):  # one document and nothing else
        code = await _with_model(args, watch, lines.append)
    print_json({"exit_code": code, **facts, "report": lines})
    return code


def _folder(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is blank; name a directory")
    if Path(text).exists() and not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a file; name a directory, new or empty")
    return Path(text)


def _choose_watch(*, plain: bool) -> Watch:
    terminal = find_terminal(sys.stdout)
    if plain or not sys.stdout.isatty():
        return partial(watch_plain, terminal=terminal)
    return watch_live


async def _with_model(args: argparse.Namespace, watch: Watch, report: Callable[[str], None]) -> int:
    if not args.live:
        return await run_bugfix(directory=args.keep, live_model=None, on_team=watch, report=report)
    from teams.models.anthropic import AnthropicModel

    model: Model = AnthropicModel(args.model or DEFAULT_MODEL)
    try:
        return await run_bugfix(directory=args.keep, live_model=model, on_team=watch, report=report)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 2.0):
            await model.aclose()
