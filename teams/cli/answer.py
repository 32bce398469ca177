"""`teams answer DIR REQUEST TEXT`: the answer to a question that an agent asked the person."""

import argparse

from protocols.request import RequestKind
from teams.cli.exits import OK, CommandFailed
from teams.cli.facts import request_facts
from teams.cli.output import print_json
from teams.cli.reading import add_directory
from teams.cli.writing import answer_request, find_request, not_blank, with_team
from teams.client import TeamClient


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    parser.add_argument("request", metavar="REQUEST", help="its id, such as r1; 'teams requests DIR' lists those that wait")
    said = parser.add_mutually_exclusive_group(required=True)
    said.add_argument("text", metavar="TEXT", nargs="?", type=not_blank, help="your answer")
    said.add_argument("--decline", metavar="WHY", type=not_blank, help="give no answer, and say why")


def run(args: argparse.Namespace) -> int:
    """Answer and print what became of the question."""
    return with_team(args, _answer)


async def _answer(team: TeamClient, args: argparse.Namespace) -> int:
    kind = find_request(team, args.request).kind
    if kind is not RequestKind.question:
        raise CommandFailed(f"{args.request} is no question, but a {kind.value.replace('_', ' ')}; decide it with approve or reject")
    text = args.text if args.decline is None else args.decline
    request = await answer_request(team, args.request, approved=args.decline is None, feedback=text, revision=None)
    if args.json:
        print_json(request_facts(request))
    else:
        print(f"{request.id} is {request.state}: {request.asker} goes on")
    return OK
