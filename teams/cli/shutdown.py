"""`teams shutdown DIR NAME`: ask a member to stop and wait for what comes of it.

A member whose process is gone cannot answer: it is marked as lost, and what it held goes back.
"""

import argparse

import trio

from protocols.lifecycle import MemberEvent
from protocols.request import Request
from protocols.shutdown import ShutdownState
from teams.cli.exits import FAILED, OK, CommandFailed
from teams.cli.output import names, print_json
from teams.cli.reading import add_directory
from teams.cli.writing import with_team
from teams.client import TeamClient
from teams.hosts import describe_host
from teams.options import ShutdownOptions
from teams.state.request_commands import RequestShutdown
from teams.state.roster import Member
from teams.state.roster_commands import ChangeStatus

LOOK_SECONDS = 1.0
"""How often to see whether the host still lives: no system tells when a lock is let go."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    parser.add_argument("name", metavar="NAME", help="who shall stop")
    parser.add_argument("--force", action="store_true", help="do not ask: cancel what it does")
    parser.add_argument("--reason", metavar="TEXT", default="", help="what the member is told")


def run(args: argparse.Namespace) -> int:
    """Shut the member down and print the outcome."""
    return with_team(args, _shutdown)


async def _shutdown(team: TeamClient, args: argparse.Namespace) -> int:
    member = team.state.roster.get(args.name, operation="shut down")
    held = tuple(team.state.tasks.owned.get(args.name, ()))
    if not member.live:
        return _report(args, str(ShutdownState.stopped), f"{args.name} does not run: it is {member.status.value}", handed_back=())
    if member.host in team.dead_hosts():
        return await _mark_lost(team, args, member)
    if member.spec.kind not in ("teammate", "lead"):
        raise CommandFailed(
            f"cannot shut down {args.name!r}: it is a {member.spec.kind}, and its own process or person decides when it ends"
        )
    command = RequestShutdown(args.name, team.person, ShutdownOptions().answer_seconds, args.reason, args.force)
    request = await team.engine.submit(command)
    closed = None if request is None else await _wait_closed(team, request, member)
    if closed is None:
        return await _mark_lost(team, args, team.state.roster.get(args.name, operation="shut down"))
    handed_back = tuple(task_id for task_id in held if team.state.tasks.by_id[task_id].owner != args.name)
    said = f": {closed.decision.feedback}" if closed.decision is not None and closed.decision.feedback else ""
    if closed.state == ShutdownState.rejected:
        return _report(args, str(closed.state), f"{args.name} does not want to stop{said}; --force stops it all the same", handed_back=())
    how = "was stopped by force" if closed.state == ShutdownState.stopped_forced else f"has stopped{said}"
    return _report(args, str(closed.state), f"{args.name} {how}", handed_back=handed_back)


async def _wait_closed(team: TeamClient, request: Request, member: Member) -> Request | None:
    """Return the request once it is closed; None when the process that should act on it has ended."""

    def closed() -> Request | None:
        now = team.state.requests.get(request.id)
        return now if now.is_closed else None

    while True:
        with trio.move_on_after(LOOK_SECONDS):
            return await team.engine.wait_until(("request", request.id), closed)
        if member.host in team.dead_hosts():
            return None


async def _mark_lost(team: TeamClient, args: argparse.Namespace, member: Member) -> int:
    host = describe_host(member.host) if member.host is not None else "the process"
    if member.live:
        lost = ChangeStatus(member.name, MemberEvent.lost, member.incarnation, f"{host}, which hosted it, has ended")
        handed_back = await team.engine.submit(lost)
    else:
        handed_back = ()
    return _report(args, "lost", f"{member.name} was lost: {host}, which hosted it, has ended", handed_back=handed_back)


def _report(args: argparse.Namespace, outcome: str, words: str, *, handed_back: tuple[int, ...]) -> int:
    if args.json:
        print_json({"name": args.name, "outcome": outcome, "handed_back": list(handed_back), "text": words})
    else:
        print(f"{words}{f'; task {names(map(str, handed_back))} can be taken again' if handed_back else ''}")
    return FAILED if outcome == ShutdownState.rejected else OK
