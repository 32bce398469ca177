"""When to compact, and by which layers: two tables.

A rule is a function of the situation; it neither measures nor decides anything else, so looking at all of them costs the same
for every context. Causes without a rule here are raised by name, by whoever sees them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

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
    """What the rules look at; figures of the messages alone."""

    used_tokens: int
    budget_tokens: int
    size_bytes: int
    sendable: bool


def too_large(situation: Situation, options: CompactionOptions) -> bool:
    """Tell whether the messages fill more than their share, or the body is too long."""
    over = situation.used_tokens > options.trigger_share * situation.budget_tokens
    return options.enabled and (over or situation.size_bytes > options.limit_bytes)


def broken(situation: Situation, options: CompactionOptions) -> bool:  # noqa: ARG001  # a rule like the others
    """Tell whether the messages could not be sent as they are."""
    return not situation.sendable


Rule = Callable[[Situation, CompactionOptions], bool]

RULES: tuple[tuple[Cause, Rule], ...] = (
    (Cause.SIZE, too_large),
    (Cause.REPAIR, broken),
)

LAYERS: Mapping[Cause, tuple[str, ...]] = {
    Cause.SIZE: ("trim",),
    Cause.OVERFLOW: ("trim",),
    Cause.ASKED: ("trim",),
    Cause.REPAIR: (),
}


def due(situation: Situation, options: CompactionOptions) -> Cause | None:
    """Return the first cause whose rule holds, None when nothing is to be done."""
    return next((cause for cause, rule in RULES if rule(situation, options)), None)
