"""What a call means to touch, held against what was promised: the contract of a plan, and the rules of a team.

Laws: a call is inside a plan only when everything that it names is; what cannot be read is outside. A denial counts before everything
else; of the other rules the first one that fits decides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from protocols.patterns import (
    Parts,
    command_matches,
    commands_overlap,
    exact_path,
    fixed_parts,
    is_one_command,
    path_matches,
    path_parts,
    reaches_below,
    split_command,
)

RULE_LIMIT_CHARS: Final = 1024


class Reach(NamedTuple):
    """What one call of a tool names: paths relative to the work directory (None: not one that can be read), and a command line.

    A tool that names neither is known by its name alone.
    """

    tool: str
    paths: tuple[Parts | None, ...] = ()
    command: str | None = None

    def describe(self) -> str:
        """Say in a few words what the call reaches."""
        if self.command is not None:
            return f"{self.tool} `{self.command}`"
        shown = ", ".join("a path that cannot be read" if parts is None else "/".join(parts) or "." for parts in self.paths)
        return f"{self.tool} {shown}".strip()


class RuleAction(StrEnum):
    """What a rule does with a call."""

    allow = "allow"
    deny = "deny"
    ask = "ask"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a rule list: what to do with calls of a tool (a pattern), for some paths or commands only where those are given.

    `allow` needs everything that the call names to fit; `deny` and `ask` need one thing that fits. `member` is whose calls it is for, None
    for everybody's.
    """

    action: RuleAction
    tool: str = "*"
    path: str | None = None
    command: str | None = None
    member: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", RuleAction(self.action))
        for name in ("tool", "path", "command"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value.strip() and len(value) <= RULE_LIMIT_CHARS):
                raise ValueError(f"the {name} of a rule must be a text of at most {RULE_LIMIT_CHARS} characters, not {value!r:.100}")
        if self.path is not None and path_parts(self.path) is None:
            raise ValueError(f"{self.path!r} cannot be the path of a rule: legal is a relative path or pattern without '..'")

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set, as JSON values."""
        return {key: str(value) for key, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Rule":
        """Build a rule from what `to_json` returned; fields of a newer version are left out."""
        return cls(**{key: value for key, value in data.items() if key in cls.__slots__})

    def fits(self, reach: Reach) -> bool:
        """Tell whether the rule speaks about a call."""
        if not fnmatchcase(reach.tool, self.tool):
            return False
        if self.action is RuleAction.allow:
            return (self.path is None or _all_paths(self.path, reach)) and (self.command is None or _all_commands([self.command], reach))
        return (self.path is None or _any_path(self.path, reach)) and (self.command is None or _any_command(self.command, reach))

    def __str__(self) -> str:
        where = "".join(f" {name} {value}" for name, value in (("path", self.path), ("command", self.command)) if value is not None)
        return f"{self.action.value} {self.tool}{where}{f' for {self.member}' if self.member else ''}"


def judge(rules: Iterable[Rule], reach: Reach, member: str) -> Rule | None:
    """Return the rule that decides about a member's call: a denial, else the first that fits; None when no rule speaks about it.

    A denial of commands cannot see into a command line that it cannot read; then somebody is asked.
    """
    found: Rule | None = None
    unreadable: Rule | None = None
    for rule in rules:
        if rule.member is not None and rule.member != member:
            continue
        if rule.fits(reach):
            if rule.action is RuleAction.deny:
                return rule
            found = found or rule
        elif rule.action is RuleAction.deny and fnmatchcase(reach.tool, rule.tool) and _is_unreadable(rule, reach):
            unreadable = unreadable or Rule(RuleAction.ask, rule.tool, rule.path, rule.command, rule.member)
    return unreadable or found


def rule_for(reach: Reach, member: str) -> Rule:
    """Return the rule that always allows a member this very call.

    Raises:
        ValueError: no one rule holds just that: it names several paths, one that cannot be read, a command that reads as a pattern of
            others, or nothing, so that a rule would hold for whatever else its input says.
    """
    if len(reach.paths) > 1 or None in reach.paths:
        raise ValueError(f"no rule can allow just {reach.describe()}: it names several paths, or one that cannot be read")
    if reach.command is not None and not is_one_command(reach.command):
        raise ValueError(f"no rule can allow just {reach.describe()}: as a rule its last word would stand for any words")
    if not reach.paths and reach.command is None:
        raise ValueError(f"no rule can allow just this call of {reach.tool}: it names no path and no command; add a rule for the tool")
    path = exact_path(reach.paths[0]) if reach.paths and reach.paths[0] is not None else None
    return Rule(RuleAction.allow, reach.tool, path, reach.command, member)


def outside(reach: Reach, plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a call names that a plan (its JSON form) does not, in words; nothing when the call is inside."""
    files, commands = plan.get("files", ()), plan.get("commands", ())
    found: list[str] = []
    for parts in reach.paths:
        if parts is None:
            found.append("a path that cannot be read")
        elif not any(path_matches(pattern, parts) for pattern in files):
            found.append(f"{'/'.join(parts) or '.'} is none of its files ({_listed(files)})")
    if reach.command is not None:
        if not _all_commands(commands, reach):
            found.append(f"`{reach.command}` is none of its commands ({_listed(commands)})")
    elif not reach.paths and not any(command_matches(pattern, [reach.tool]) for pattern in commands):
        found.append(f"the tool {reach.tool} is none of its commands ({_listed(commands)})")
    return tuple(found)


def judge_plan(rules: Iterable[Rule], plan: Mapping[str, Any], member: str) -> RuleAction | None:
    """Return what a rule list says of a whole plan: `allow` when every file and command is covered, `deny` when one is forbidden.

    None where the list does not say: somebody else must decide. A rule covers a path of a plan only with everything below it, and only
    a rule for all tools covers anything, since a plan does not say by which tool it is done.
    """
    applying = [rule for rule in rules if rule.member in (None, member)]
    denials = [rule for rule in applying if rule.action is RuleAction.deny]
    files = [fixed_parts(file) for file in plan.get("files", ())]
    commands = [split_command(command) for command in plan.get("commands", ())]
    for parts in files:
        if parts is not None and any(rule.path and path_matches(rule.path, parts, loosely=True) for rule in denials):
            return RuleAction.deny
    for words in (words for programs in commands for words in programs or ()):
        if any(rule.command and command_matches(rule.command, words, loosely=True) for rule in denials):
            return RuleAction.deny
    if any(rule.path is None and rule.command is None for rule in denials):
        return None  # of a whole tool, by which the plan may be done
    covered = [parts is not None and _covered(parts, applying) for parts in files]
    covered += [programs is not None and all(_command_covered(words, applying) for words in programs) for programs in commands]
    return RuleAction.allow if covered and all(covered) else None


def _covered(parts: Parts, rules: Sequence[Rule]) -> bool:
    """Tell whether rules allow a path and all below it, before one that may speak about a part of it says otherwise."""
    if any(rule.action is RuleAction.deny and rule.path and _overlap(rule.path, parts) for rule in rules):
        return False
    for rule in rules:
        if rule.action is RuleAction.ask and (_overlap(rule.path, parts) if rule.path else rule.command is None):
            return False
        pattern = rule.path if rule.action is RuleAction.allow and rule.tool == "*" and rule.command is None else None
        if pattern and path_matches(pattern, parts) and reaches_below(pattern):
            return True
    return False


def _command_covered(words: Sequence[str], rules: Sequence[Rule]) -> bool:
    """Tell the same of one program of a plan's command."""
    if any(rule.action is RuleAction.deny and rule.command and commands_overlap(rule.command, words) for rule in rules):
        return False
    for rule in rules:
        if rule.action is RuleAction.ask and (commands_overlap(rule.command, words) if rule.command else rule.path is None):
            return False
        pattern = rule.command if rule.action is RuleAction.allow and rule.tool == "*" and rule.path is None else None
        if pattern and command_matches(pattern, words):
            return True
    return False


def _overlap(pattern: str, parts: Parts) -> bool:
    """Tell whether something below a path may lie in a pattern."""
    fixed = tuple(part.casefold() for part in fixed_parts(pattern) or ())
    folded = tuple(part.casefold() for part in parts)
    shorter = min(len(fixed), len(folded))
    return fixed[:shorter] == folded[:shorter]


def _all_paths(pattern: str, reach: Reach) -> bool:
    return bool(reach.paths) and all(parts is not None and path_matches(pattern, parts) for parts in reach.paths)


def _any_path(pattern: str, reach: Reach) -> bool:
    return any(parts is not None and path_matches(pattern, parts, loosely=True) for parts in reach.paths)


def _all_commands(patterns: Sequence[str], reach: Reach) -> bool:
    if reach.command is None:
        return False
    if reach.command in patterns:  # to the letter
        return True
    programs = split_command(reach.command)
    return programs is not None and all(any(command_matches(pattern, words) for pattern in patterns) for words in programs)


def _any_command(pattern: str, reach: Reach) -> bool:
    programs = split_command(reach.command) if reach.command is not None else None
    return programs is not None and any(command_matches(pattern, words, loosely=True) for words in programs)


def _is_unreadable(rule: Rule, reach: Reach) -> bool:
    path = rule.path is not None and None in reach.paths
    return path or (rule.command is not None and reach.command is not None and split_command(reach.command) is None)


def _listed(patterns: Sequence[str]) -> str:
    return ", ".join(patterns[:20]) + (" ..." if len(patterns) > 20 else "") or "it names none"
