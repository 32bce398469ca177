"""`teams approve DIR REQUEST`: yes to a plan, or to another request that waits for the person."""

import argparse

from protocols.request import Request
from teams.cli.exits import OK
from teams.cli.reading import add_directory
from teams.cli.writing import add_answer, answer_request, find_request, print_decided, with_team
from teams.client import TeamClient
from teams.state.permission_commands import AnswerPermission


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    add_answer(parser, several=True)
    together = parser.add_mutually_exclusive_group()
    together.add_argument("--alike", action="store_true", help="also every other open permission for the same call")
    together.add_argument("--always", action="store_true", help="also add the rule that the member may always make this very call")
    parser.add_argument("--feedback", metavar="TEXT", default="", help="what to mind")


def run(args: argparse.Namespace) -> int:
    """Answer and print what became of the request."""
    return with_team(args, _answer)


async def _answer(team: TeamClient, args: argparse.Namespace) -> int:
    decided: list[Request] = []
    now = team.engine.now
    for request_id in args.request:
        find_request(team, request_id)  # an unknown one must not leave half of them decided
    for request_id in args.request:
        if any(request.id == request_id for request in decided):
            continue
        if args.alike or args.always:
            command = AnswerPermission(request_id, team.person, True, args.feedback, alike=args.alike, always=args.always)
            decided += await team.engine.submit(command)
        else:
            decided.append(await answer_request(team, request_id, approved=True, feedback=args.feedback, revision=args.revision))
    print_decided(decided, args, "goes on", before=now)
    return OK
