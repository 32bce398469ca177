"""`teams approve DIR REQUEST`: yes to a plan, or to another request that waits for the person."""

import argparse

from teams.cli.exits import OK
from teams.cli.output import print_json
from teams.cli.reading import add_directory
from teams.cli.writing import add_answer, answer_request, with_team
from teams.client import TeamClient


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    add_answer(parser)
    parser.add_argument("--feedback", metavar="TEXT", default="", help="what to mind")


def run(args: argparse.Namespace) -> int:
    """Answer and print what became of the request."""
    return with_team(args, _answer)


async def _answer(team: TeamClient, args: argparse.Namespace) -> int:
    request = await answer_request(team, args.request, approved=True, feedback=args.feedback, revision=args.revision)
    if args.json:
        print_json(request.to_json())
    else:
        print(f"{request.id} is {request.state}: {request.subject} goes on")
    return OK
