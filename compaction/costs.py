"""What an edit costs and when it has earned that back, in a world where a prefix that was sent before is cheap to send again.

Unit: the price of one input token. Every call reads what is cached at `r` (0.10 and less); what stands after an edit must be written again
at `w` (1.25). An edit of a cold cache costs nothing extra: everything is written anyway.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from compaction.models import ModelFacts
from compaction.transcript import ModelMessage


class EditCost(NamedTuple):
    """The bill of one edit.

    `freed_tokens` are no longer sent with each call; `rewritten_tokens` must enter the cache again; `price` is what the edit costs in input
    tokens, a summary's call included; `payback_calls` is after how many calls it has earned that back: 0 at once, None never.
    """

    freed_tokens: int = 0
    rewritten_tokens: int = 0
    price: float = 0.0
    payback_calls: float | None = 0.0


FREE = EditCost()


def edit_cost(
    *, freed_tokens: int, rewritten_tokens: int, cold: bool, facts: ModelFacts, summary_usage: Mapping[str, int] | None = None
) -> EditCost:
    """Return what an edit costs.

    Args:
        freed_tokens: how much smaller the context became.
        rewritten_tokens: what stands after the first changed message.
        cold: whether the provider has forgotten the prefix.
        summary_usage: what the calls for a summary used, by the provider's names.
    """
    read, write = facts.cache_read_factor, facts.cache_write_factor
    price = summary_price(summary_usage or {}, facts)
    if not cold:
        price += rewritten_tokens * (write - read)
    if freed_tokens <= 0:
        return EditCost(freed_tokens, rewritten_tokens, price, None if price else 0.0)
    saved_at_once = freed_tokens * write if cold else freed_tokens * read
    payback = max(0.0, price - saved_at_once) / (freed_tokens * read)
    return EditCost(freed_tokens, rewritten_tokens, price, payback)


def summary_price(usage: Mapping[str, int], facts: ModelFacts) -> float:
    """Return what calls cost, in input tokens."""
    output = facts.output_price / facts.input_price if facts.input_price else 5.0
    return (
        usage.get("input_tokens", 0)
        + usage.get("cache_creation_input_tokens", 0) * facts.cache_write_factor
        + usage.get("cache_read_input_tokens", 0) * facts.cache_read_factor
        + usage.get("output_tokens", 0) * output
    )


def unchanged(before: Sequence[ModelMessage], after: Sequence[ModelMessage]) -> int:
    """Return how many leading messages are the same, so that their cached prefix holds."""
    same = 0
    for old, new in zip(before, after, strict=False):
        if old is not new and old != new:
            break
        same += 1
    return same
