"""`teams rules DIR`: the rules that decide calls before anybody is asked: show, add, remove those that people added."""

import argparse
import sys

from protocols.contract import Rule, RuleAction
from teams.cli.exits import OK
from teams.cli.output import Column, find_terminal, print_json, print_lines, table
from teams.cli.reading import add_directory, look, tell_reports
from teams.cli.writing import with_team
from teams.client import TeamClient
from teams.state.permission_commands import AddRule, RemoveRule

COLUMNS = (
    Column("ID"),
    Column("ACTION"),
    Column("TOOL"),
    Column("PATH", flexible=True),
    Column("COMMAND", flexible=True),
    Column("FOR"),
    Column("BY"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_directory(parser)
    change = parser.add_mutually_exclusive_group()
    for action in RuleAction:
        change.add_argument(f"--{action.value}", metavar="TOOL", help=f"add a rule that says {action.value} to calls of a tool ('*': all)")
    change.add_argument("--remove", metavar="ID", help="remove a rule")
    parser.add_argument("--path", metavar="PATTERN", help="of the new rule: only calls that name such a path")
    parser.add_argument("--command", dest="line", metavar="PATTERN", help="of the new rule: only such commands, as in 'git push *'")
    parser.add_argument("--member", metavar="NAME", help="of the new rule: only calls of this member")


def run(args: argparse.Namespace) -> int:
    """Show the rules, or change them."""
    if args.remove is not None or any(getattr(args, action.value) is not None for action in RuleAction):
        return with_team(args, _change)
    seen = look(args.directory)
    tell_reports(seen.reports)
    rules = seen.state.rules
    if args.json:
        print_json([{"id": key, **rule.to_json(), "by": rules.added_by[key]} for key, rule in rules.by_id.items()])
    elif not rules.by_id:
        print("nobody added a rule")
    else:
        rows = [
            [key, rule.action.value, rule.tool, rule.path or "", rule.command or "", rule.member or "all", rules.added_by[key]]
            for key, rule in reversed(rules.by_id.items())
        ]
        print_lines(table(COLUMNS, rows, find_terminal(sys.stdout)))
    return OK


async def _change(team: TeamClient, args: argparse.Namespace) -> int:
    if args.remove is not None:
        rule = await team.engine.submit(RemoveRule(args.remove, team.person))
        rule_id, done = args.remove, "removed"
    else:
        action = next(action for action in RuleAction if getattr(args, action.value) is not None)
        if args.member is not None:
            team.state.roster.get(args.member, operation="make a rule for")
        rule = Rule(action, getattr(args, action.value), args.path, args.line, args.member)
        rule_id, done = await team.engine.submit(AddRule(rule, team.person)), "added"
    if args.json:
        print_json({"id": rule_id, **rule.to_json()})
    else:
        print(f"{done} {rule_id}: {rule}")
    return OK
