"""`teams send DIR NAME TEXT`: mail to a member, as the person or as another member that no model drives."""

import argparse
import sys

from teams.bus import PRIORITIES
from teams.cli.exits import OK
from teams.cli.output import print_json
from teams.cli.reading import add_directory
from teams.cli.writing import with_team
from teams.client import TeamClient
from teams.hosts import describe_host
from teams.state.roster import Member

WHEN = {"turn": "when it next idles", "tool": "at its next tool call or turn", "now": "at once"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    parser.add_argument("name", metavar="NAME", help="who gets it")
    parser.add_argument("text", metavar="TEXT", help="what it says; - reads it from the input")
    parser.add_argument(
        "--priority",
        choices=PRIORITIES,
        default="tool",
        help="when it is seen: when the member next idles, at its next tool call (default), at once",
    )
    parser.add_argument("--reply-to", metavar="ID", help="the message that this one answers; an open question is answered by it")
    parser.add_argument("--from", dest="sender", metavar="NAME", help="send as this member instead of the person")


def run(args: argparse.Namespace) -> int:
    """Send and print the receipt."""
    if args.text == "-":
        args.text = sys.stdin.read()
    return with_team(args, _send)


async def _send(team: TeamClient, args: argparse.Namespace) -> int:
    sender = args.sender or team.person
    receipt = await team.bus.send(sender, args.name, args.text, priority=args.priority, request_id=args.reply_to)
    member = team.state.roster.members[args.name]
    if args.json:
        print_json({"id": receipt.id, "from": sender, "to": receipt.recipient, "state": receipt.state, "priority": args.priority})
    else:
        print(f"{receipt.id} is stored for {args.name}; {_when(member, args.priority, team.dead_hosts())}")
    return OK


def _when(member: Member, priority: str, dead: frozenset[str]) -> str:
    if member.spec.kind not in ("teammate", "lead"):
        return f"it is a {member.spec.kind} and reads it by itself"
    if member.host in dead:
        return f"{describe_host(member.host or '')}, which hosted it, has ended: it reads it when the team is opened again"
    return f"it is {member.status.value.replace('_', ' ')} and sees it {WHEN[priority]}"
