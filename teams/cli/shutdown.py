"""`teams shutdown DIR NAME | --all`: ask members to stop and wait for what comes of it.

A member whose process is gone cannot answer: it is marked as lost, and what it held goes back.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import trio

from protocols.lifecycle import MemberEvent, MemberStatus
from protocols.request import Request
from protocols.shutdown import ShutdownState
from teams.cli.exits import FAILED, OK, CommandFailed, CommandLineError
from teams.cli.output import clean, names, print_json
from teams.cli.reading import add_directory
from teams.cli.writing import with_team
from teams.client import TeamClient
from teams.hosts import describe_host
from teams.options import ShutdownOptions
from teams.state.decision import AGENT_KINDS
from teams.state.request_commands import RequestShutdown, describe_rejections
from teams.state.roster import Member
from teams.state.roster_commands import ChangeStatus

LOOK_SECONDS = 1.0
"""How often to see whether the host still lives: no system tells when a lock is let go."""

END_SECONDS = ShutdownOptions().end_seconds
"""How long a member that is being cancelled is waited for; its host's own options are not known here."""

_UNDONE = frozenset({ShutdownState.rejected, ShutdownState.cancelling})


class Ended(NamedTuple):
    """What came of one request, and how to say it."""

    name: str
    outcome: str
    text: str
    handed_back: tuple[int, ...] = ()
    unread_mail: tuple[str, ...] = ()
    rejected_before: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The whole of it for a person."""
        tail = f"; task {names(map(str, self.handed_back))} can be taken again" if self.handed_back else ""
        return clean(f"{self.text}{tail}")

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        lists = ("handed_back", "unread_mail", "rejected_before")
        return {"name": self.name, "outcome": self.outcome, **{key: list(getattr(self, key)) for key in lists}, "text": self.text}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    parser.add_argument("name", metavar="NAME", nargs="?", help="who shall stop")
    parser.add_argument("--all", action="store_true", help="every teammate and lead that runs, all at once")
    parser.add_argument("--force", action="store_true", help="do not ask: cancel what they do")
    parser.add_argument("--reason", metavar="TEXT", default="", help="what they are told")


def run(args: argparse.Namespace) -> int:
    """Shut them down and print how each of them ended; 1 when one of them has not."""
    if args.all and args.name is not None:
        raise CommandLineError(f"NAME and --all exclude each other: leave out {args.name!r} to stop everybody, or --all to stop it alone")
    if not args.all and args.name is None:
        raise CommandLineError("nobody is named to shut down: give a NAME, or --all for every teammate and lead that runs")
    return with_team(args, _shutdown_all if args.all else _shutdown)


async def _shutdown(team: TeamClient, args: argparse.Namespace) -> int:
    member = team.state.roster.get(args.name, operation="shut down")
    if member.live and member.host not in team.dead_hosts() and member.spec.kind not in AGENT_KINDS:
        raise CommandFailed(
            f"cannot shut down {args.name!r}: it is a {member.spec.kind}, and its own process or person decides when it ends"
        )
    ended = await _stop(team, args, member)
    if args.json:
        print_json(ended.to_json())
    else:
        print(ended.line)
    return _exit_code([ended])


async def _shutdown_all(team: TeamClient, args: argparse.Namespace) -> int:
    """Ask all at once, and show each as it ends."""
    members = [member for member in team.state.roster.live() if member.spec.kind in AGENT_KINDS]
    by_name: dict[str, Ended] = {}

    async def stop(member: Member) -> None:
        by_name[member.name] = ended = await _stop(team, args, member)
        if not args.json:
            print(ended.line, flush=True)

    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(stop, member)
    if args.json:
        print_json([by_name[member.name].to_json() for member in members])
    elif not members:
        print("nobody runs")
    return _exit_code(list(by_name.values()))


def _exit_code(ended: Sequence[Ended]) -> int:
    return FAILED if any(one.outcome in _UNDONE for one in ended) else OK


async def _stop(team: TeamClient, args: argparse.Namespace, member: Member) -> Ended:
    name = member.name
    if not member.live:
        return _ended(team, name, str(ShutdownState.stopped), f"{name} does not run: it is {member.status.value}")
    if member.host in team.dead_hosts():
        return await _mark_lost(team, member)
    command = RequestShutdown(name, team.person, ShutdownOptions().answer_seconds, args.reason, args.force)
    request = await team.engine.submit(command)
    closed = None if request is None else await _wait_closed(team, request, member)
    if closed is None:
        return await _mark_lost(team, team.state.roster.get(name, operation="shut down"))
    member, outcome = team.state.roster.get(name, operation="shut down"), str(closed.state)
    said = f": {closed.decision.feedback}" if closed.decision is not None and closed.decision.feedback else ""
    before = tuple(closed.body.get("rejected_before", ()))
    if member.status is MemberStatus.failed:
        outcome, text = member.status.value, f"{name} failed on the way: {member.reason}"
    elif closed.state == ShutdownState.rejected:
        again = f" (it rejected before: {describe_rejections(before)})" if before else ""
        text = f"{name} does not want to stop{said}{again}; --force stops it all the same"
    elif closed.state == ShutdownState.cancelling:
        text = f"{name} is cancelled, and has not ended yet: a tool of it holds on"
    else:
        text = f"{name} {'was stopped by force' if closed.state == ShutdownState.stopped_forced else f'has stopped{said}'}"
    return _ended(team, name, outcome, text, handed_back=member.handed_back, rejected_before=before)


async def _wait_closed(team: TeamClient, request: Request, member: Member) -> Request | None:
    """Return the request once it is closed, or cancelling for too long; None when the process that should act on it has ended."""
    cancelling_since = math.inf

    def closed() -> Request | None:
        if request.id not in team.state.requests:  # closed, and with many others, so that it is not remembered
            return replace(request, state=ShutdownState.stopped)
        now = team.state.requests.get(request.id)
        return now if now.is_closed else None

    while True:
        with trio.move_on_after(LOOK_SECONDS):
            return await team.engine.wait_until(("request", request.id), closed)
        if member.host in team.dead_hosts():
            return None
        if request.id in team.state.requests and (now := team.state.requests.get(request.id)).state == ShutdownState.cancelling:
            cancelling_since = min(cancelling_since, trio.current_time())
            if trio.current_time() - cancelling_since >= END_SECONDS:
                return now


async def _mark_lost(team: TeamClient, member: Member) -> Ended:
    host = describe_host(member.host) if member.host is not None else "the process"
    handed_back: tuple[int, ...] = ()
    if member.live:
        lost = ChangeStatus(member.name, MemberEvent.lost, member.incarnation, f"{host}, which hosted it, has ended")
        handed_back = await team.engine.submit(lost)
    return _ended(team, member.name, "lost", f"{member.name} was lost: {host}, which hosted it, has ended", handed_back=handed_back)


def _ended(
    team: TeamClient, name: str, outcome: str, text: str, *, handed_back: tuple[int, ...] = (), rejected_before: tuple[str, ...] = ()
) -> Ended:
    return Ended(name, outcome, text, handed_back, tuple(team.state.mail.box(name)), rejected_before)
