"""`teams compact DIR NAME`: have a member's context compacted before its next call of the model."""

import argparse

from teams.cli.exits import OK
from teams.cli.output import print_json
from teams.cli.reading import add_directory
from teams.cli.writing import with_team
from teams.client import TeamClient
from teams.state.roster_commands import AskCompaction


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    parser.add_argument("name", metavar="NAME", help="whose context")


def run(args: argparse.Namespace) -> int:
    """Ask for it."""
    return with_team(args, _compact)


async def _compact(team: TeamClient, args: argparse.Namespace) -> int:
    await team.engine.submit(AskCompaction(args.name, team.person))
    member = team.state.roster.members[args.name]
    if args.json:
        print_json({"member": args.name, "status": member.status.value, "asked": True})
    else:
        print(f"{args.name} is {member.status.value.replace('_', ' ')}; its context is compacted before its next step")
    return OK
