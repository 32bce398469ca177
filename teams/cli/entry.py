"""The entry point: which command, and what a person sees when it fails.

Laws: only the module of the command that was asked for is imported; an error is one line on stderr and an exit code, never a traceback;
exception groups are unwrapped here and nowhere else.
"""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from protocols.errors import ProtocolError
from teams.cli.exits import BROKEN_PIPE, EXIT_HELP, FAILED, INTERRUPTED, NO_TEAM, USAGE, CommandFailed, CommandLineError
from teams.cli.output import complain
from teams.cli.version import ShowVersion
from teams.directory import AGENT_VARIABLE
from teams.errors import JournalDamaged, NotATeam, TeamError

COMMANDS = {
    "demo": "watch a team mend a small broken project",
    "status": "show who does what, what waits for an answer, and how far the tasks are",
    "log": "show what happened, a line for each record of the journal",
    "tasks": "show the tasks and what they wait for",
    "send": "send mail to a member",
    "inbox": "show the mail that members wrote to the person",
    "plans": "show the plans that wait for a decision",
    "plan": "show one plan whole: what its revisions changed, who decided, how far its steps are",
    "requests": "show everything that waits for an answer",
    "approve": "approve a plan, or say yes to another request",
    "reject": "reject a plan with feedback, or say no to another request",
    "answer": "answer a question of an agent",
    "rules": "show, add or remove the rules that decide calls before anybody is asked",
    "shutdown": "ask a member or all of them to stop, and wait until they have",
    "context": "show what fills a member's context",
    "compact": "have a member's context compacted before its next step",
    "recall": "find what a member's context held, also what it does not show any more",
    "import-tasks": "take in a directory of task files",
    "protocols": "check what the handshakes promise, or draw the table of one",
}
DEBUG_VARIABLE = "TEAMS_DEBUG"
DECIDING = frozenset({"answer", "approve", "compact", "import-tasks", "reject", "rules", "send", "shutdown"})
"""What a person does; an agent's shell may look, and no more."""


class CommandModule(Protocol):
    """What the module of a command holds."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments to its parser."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do it and return the exit code."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; the command line's own errors and --help end in SystemExit, as argparse does it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter shows a question mark
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    parser = argparse.ArgumentParser(prog="teams")
    try:
        parser, module = _make_parser(chosen)
        args = parser.parse_args(arguments)
        if module is None:
            parser.print_help()
            return USAGE
        if chosen in DECIDING and os.environ.get(AGENT_VARIABLE):
            raise CommandFailed(
                f"'teams {chosen}' is for people: this shell belongs to an agent of the team {os.environ[AGENT_VARIABLE]!r}"
            )
        code = module.run(args)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001  # the outermost boundary: a person gets one line, whatever happened
        return _explain(error, parser)
    else:
        return code


def _make_parser(chosen: str | None) -> tuple[argparse.ArgumentParser, CommandModule | None]:
    parser = argparse.ArgumentParser(
        prog="teams",
        description="Look into a team of agents, write to it, and decide what it asks.",
        epilog=EXIT_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=ShowVersion, help="print the version")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    module: CommandModule | None = None
    for name, sentence in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=sentence,
            description=f"{sentence[0].upper()}{sentence[1:]}.",
            epilog=EXIT_HELP,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == chosen:
            module = cast("CommandModule", import_module(f"teams.cli.{name.replace('-', '_')}"))
            module.configure(command)
            command.add_argument("--json", action="store_true", help="print JSON, for programs")
    return parser, module


def _explain(error: BaseException, parser: argparse.ArgumentParser) -> int:
    """Say what went wrong, and return the exit code for it."""
    leaf = _unwrap(error)
    if isinstance(leaf, SystemExit):
        raise leaf
    if os.environ.get(DEBUG_VARIABLE):
        raise error
    if isinstance(leaf, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(leaf, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered would complain at exit
        return BROKEN_PIPE
    if isinstance(leaf, CommandLineError):
        complain(f"{leaf}; see '{parser.prog} --help'")
        return USAGE
    if isinstance(leaf, (NotATeam, JournalDamaged)):
        complain(str(leaf))
        return NO_TEAM
    if isinstance(leaf, (CommandFailed, TeamError, ProtocolError, ValueError)):
        complain(str(leaf))
    elif isinstance(leaf, OSError):
        complain(f"{leaf.strerror or leaf}: {leaf.filename!r}" if leaf.filename is not None else str(leaf))
    else:
        complain(f"this should not happen: {type(leaf).__name__}: {leaf} ({DEBUG_VARIABLE}=1 shows where)")
    return FAILED


def _unwrap(error: BaseException) -> BaseException:
    """Return what matters most in a group of errors: an interrupt before an error, the first error before the others."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_unwrap(item) for item in cast("BaseExceptionGroup[BaseException]", error).exceptions]
    return next((leaf for leaf in leaves if not isinstance(leaf, Exception)), leaves[0])
