"""When to compact, and by which layers: one table, which whoever needs another one may replace.

A rule is a function of the situation; it neither measures nor decides anything else, so looking at all of them costs the same
for every context. Rules are looked at in order. Causes without a test here are raised by name, by whoever sees them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from compaction.options import CompactionOptions


class Cause(StrEnum):
    """Why a context is edited."""

    SIZE = "size"
    TOOL_CALLS = "tool_calls"
    ELAPSED = "elapsed"
    ALL_TOOLS = "all_tools"
    COLD_CACHE = "cold_cache"
    STEP_BOUNDARY = "step_boundary"
    OVERFLOW = "overflow"
    ASKED = "asked"
    REPAIR = "repair"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the rules look at; tokens and bytes are those of the messages alone.

    `elapsed_seconds` since the session began or was last compacted; `idle_seconds` since the last call of the model.
    """

    used_tokens: int
    budget_tokens: int
    size_bytes: int
    sendable: bool
    messages: int = 0
    calls_in_turn: int = 0
    tool_run: int = 0
    elapsed_seconds: float = 0.0
    idle_seconds: float = 0.0


Test: TypeAlias = Callable[[Situation, CompactionOptions], bool]


class Rule(NamedTuple):
    """One line of the table.

    `saves` marks an edit that is made only to save: it has to free enough, and to earn back what it costs. An edit without it must happen.
    """

    cause: Cause
    layers: tuple[str, ...]
    saves: bool = False
    holds: Test | None = None


def too_large(situation: Situation, options: CompactionOptions) -> bool:
    """Tell whether the messages fill more than their share, or the body is too long."""
    over = situation.used_tokens > options.trigger_share * situation.budget_tokens
    return options.enabled and (over or situation.size_bytes > options.limit_bytes)


def broken(situation: Situation, options: CompactionOptions) -> bool:  # noqa: ARG001  # a rule like the others
    """Tell whether the messages could not be sent as they are."""
    return not situation.sendable


def only_tools(situation: Situation, options: CompactionOptions) -> bool:
    """Tell whether everything after the task is calls and their results."""
    run = situation.tool_run
    return options.enabled and run >= max(1, options.all_tools_messages) and run >= situation.messages - 1


def many_calls(situation: Situation, options: CompactionOptions) -> bool:
    """Tell whether one turn has called too many tools."""
    return options.enabled and situation.calls_in_turn > options.turn_tool_calls


def long_ago(situation: Situation, options: CompactionOptions) -> bool:
    """Tell whether too much time has passed."""
    return options.enabled and situation.elapsed_seconds > options.elapsed_seconds


def cold(situation: Situation, options: CompactionOptions) -> bool:
    """Tell whether the provider has forgotten the prefix, so that what was put off for its sake can be done."""
    return options.enabled and situation.idle_seconds > options.cache_seconds


RULES: tuple[Rule, ...] = (
    Rule(Cause.SIZE, ("elide", "summary"), holds=too_large),
    Rule(Cause.REPAIR, (), holds=broken),
    Rule(Cause.ALL_TOOLS, ("elide", "record"), saves=True, holds=only_tools),
    Rule(Cause.TOOL_CALLS, ("elide", "digest"), saves=True, holds=many_calls),
    Rule(Cause.ELAPSED, ("elide", "digest"), saves=True, holds=long_ago),
    Rule(Cause.COLD_CACHE, ("elide",), saves=True, holds=cold),
    Rule(Cause.STEP_BOUNDARY, ("elide", "digest"), saves=True),
    Rule(Cause.OVERFLOW, ("elide", "summary", "trim")),
    Rule(Cause.ASKED, ("elide", "summary")),
)


def due(situation: Situation, options: CompactionOptions, rules: Sequence[Rule] = RULES) -> Iterator[Rule]:
    """Yield the rules that hold, the first one first."""
    return (rule for rule in rules if rule.holds is not None and rule.holds(situation, options))


def rule_of(cause: Cause, rules: Sequence[Rule] = RULES) -> Rule:
    """Return the rule of a cause that is raised by name; the one for being asked where the table has none."""
    found = {rule.cause: rule for rule in (*RULES, *rules)}
    return found.get(cause, found[Cause.ASKED])
