"""What the commands that write have in common: they join the team as its person, for a moment, through `connect_team`."""

import argparse
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches

import trio

from protocols.request import Request, RequestKind
from teams.cli.exits import CommandFailed
from teams.cli.facts import request_facts
from teams.cli.output import duration, names, print_json
from teams.cli.reading import tell_reports
from teams.client import TeamClient, connect_team
from teams.state.request_commands import AnswerRequest


def with_team(args: argparse.Namespace, work: Callable[[TeamClient, argparse.Namespace], Awaitable[int]]) -> int:
    """Do something in the team that the arguments name, and return its exit code.

    Raises: what `work` raises, in a group.
    """

    async def connected() -> int:
        async with connect_team(args.directory) as team:
            tell_reports(team.reports)
            return await work(team, args)

    return trio.run(connected)


def find_request(team: TeamClient, request_id: str) -> Request:
    """Return a request; raise CommandFailed with the ids that there are."""
    ledger = team.state.requests
    if request_id in ledger:
        return ledger.get(request_id)
    waiting: Sequence[str] = [request.id for request in ledger.open(answerer=team.person)]
    near = get_close_matches(request_id, waiting, n=2)
    hint = f"did you mean {names(near, last='or')}?" if near else f"waiting for {team.person}: {names(waiting) or 'nothing'}"
    raise CommandFailed(f"there is no request {request_id!r}, neither open nor recently closed; {hint}")


async def answer_request(team: TeamClient, request_id: str, *, approved: bool, feedback: str, revision: int | None) -> Request:
    """Answer a request as the person, durably.

    Raises: CommandFailed for an unknown one; AlreadyDecided, NotTheAnswerer.
    """
    request = find_request(team, request_id)
    if revision is not None and revision > request.revision:
        raise CommandFailed(f"cannot answer revision {revision} of request {request_id!r}: the newest is {request.revision}")
    return await team.engine.submit(AnswerRequest(request_id, team.person, approved=approved, feedback=feedback, revision=revision))


def print_decided(requests: Sequence[Request], args: argparse.Namespace, follows: str, *, before: float) -> None:
    """Say what became of requests, and what it means for who asked; the JSON of one request is an object, of several a list.

    What was decided earlier than `before` (seconds since the epoch) was repeated, and changed nothing.
    """
    if args.json:
        found = [request_facts(request) for request in requests]
        print_json(found[0] if len(args.request) == len(found) == 1 else found)
        return
    for request in requests:
        if request.is_undecided:
            yes = sum(vote.approved for vote in request.votes)
            print(f"{request.id} waits for more votes: {yes} yes, {len(request.votes) - yes} no, {request.quorum} of them decide")
        elif request.decision is not None and request.decision.at < before:
            ago = duration(before - request.decision.at)
            print(f"{request.id} was {request.decision.outcome} already, by {request.decision.by} {ago} ago; nothing has changed")
        else:
            who = request.subject if request.kind is RequestKind.shutdown else request.asker
            print(f"{request.id} is {request.state}: {who} {follows}")


def add_answer(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add the arguments of an answer."""
    told = "its id, such as r1; 'teams requests DIR' lists those that wait"
    parser.add_argument("request", metavar="REQUEST", nargs="+" if several else None, help=told)
    parser.add_argument(
        "--revision", metavar="N", type=int, help="answer this revision alone: refused when there is a newer one that you have not read"
    )


def not_blank(text: str) -> str:
    """Return a text that says something, for argparse."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is blank; say something")
    return text
