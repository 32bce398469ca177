"""What may be chosen about compaction."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """When to compact, and how far; shares are of the tokens left for messages.

    Args:
        enabled: whether the size triggers at all; an overflow and a request by name always do.
        trigger_share: above it, the context is compacted.
        target_share: how full it may be afterwards.
        margin_share: what is never filled, because sizes are estimates.
        backoff_share: after a compaction that freed nothing, how much the context has to grow before the next attempt.
        limit_bytes: the most that a request body may have; the provider refuses 32 MB.
        result_limit_chars: above it, a tool's output is capped as it arrives.

    Raises:
        ValueError: a figure is out of its range.
    """

    enabled: bool = True
    trigger_share: float = 0.7
    target_share: float = 0.5
    margin_share: float = 0.05
    backoff_share: float = 0.1
    limit_bytes: int = 30_000_000
    result_limit_chars: int = 50_000

    def __post_init__(self) -> None:
        if not 0 < self.target_share <= self.trigger_share <= 1 - self.margin_share <= 1:
            raise ValueError(
                f"the shares must satisfy 0 < target <= trigger <= 1 - margin, not target {self.target_share}, "
                f"trigger {self.trigger_share}, margin {self.margin_share}"
            )
        if self.backoff_share < 0 or self.limit_bytes < 1 or self.result_limit_chars < 1:
            raise ValueError("backoff_share cannot be negative, limit_bytes and result_limit_chars must be positive")
