"""`teams reject DIR REQUEST`: no to a plan, with what must change, or to another request that waits for the person."""

import argparse

from teams.cli.exits import OK
from teams.cli.reading import add_directory
from teams.cli.writing import add_answer, answer_request, find_request, not_blank, print_decided, with_team
from teams.client import TeamClient


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    add_answer(parser, several=True)
    parser.add_argument("--feedback", metavar="TEXT", required=True, type=not_blank, help="what must change")


def run(args: argparse.Namespace) -> int:
    """Answer and print what became of the request."""
    return with_team(args, _answer)


async def _answer(team: TeamClient, args: argparse.Namespace) -> int:
    for request_id in args.request:
        find_request(team, request_id)  # an unknown one must not leave half of them decided
    now = team.engine.now
    decided = [
        await answer_request(team, request_id, approved=False, feedback=args.feedback, revision=args.revision)
        for request_id in args.request
    ]
    print_decided(decided, args, "is told why", before=now)
    return OK
