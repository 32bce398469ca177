"""What may be chosen about compaction."""

from dataclasses import dataclass

PROTECTED_TOOLS = frozenset({"note", "recall", "submit_plan", "task_claim", "task_create", "task_get", "task_list"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """When to compact, and how far; shares are of the tokens left for messages.

    Args:
        enabled: whether triggers of size, count and time act at all; an overflow, a broken list and a request by name always do.
        trigger_share: above it, the context is compacted.
        target_share: how full it may be afterwards.
        margin_share: what is never filled, because sizes are estimates.
        backoff_share: after a compaction that freed nothing, how much the context has to grow before the next attempt.
        limit_bytes: the most that a request body may have; the provider refuses 32 MB.
        result_limit_chars: above it, a tool's output is capped as it arrives.
        keep_turns, keep_share: how many of the newest turns stay word for word, within which share.
        keep_rounds: how many of the newest rounds keep their results and inputs whole.
        elide_tokens: a result or input below it is not worth a placeholder.
        protected_tools: whose results and inputs stay whole.
        memory_share: the most that the rendered memory of what was cut may take.
        turn_tool_calls: above it, the rounds of one turn become a digest.
        elapsed_seconds: a session older than it, since its last compaction, becomes a digest.
        all_tools_messages: a history of at least so many messages that is nothing but tool calls becomes a record.
        cache_seconds: how long the provider keeps a prefix; after it an edit costs nothing extra.
        payback_calls: an edit that is made only to save must have earned its cost back after so many calls.
        gain_share: an edit that is made only to save must free at least so much.
        session_warn_bytes: a session file larger than it is worth a word, and a fork.

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
    keep_turns: int = 5
    keep_share: float = 0.25
    keep_rounds: int = 3
    elide_tokens: int = 200
    protected_tools: frozenset[str] = PROTECTED_TOOLS
    memory_share: float = 0.15
    turn_tool_calls: int = 20
    elapsed_seconds: float = 7_200
    all_tools_messages: int = 20
    cache_seconds: float = 300
    payback_calls: int = 20
    gain_share: float = 0.1
    session_warn_bytes: int = 5 * 1024 * 1024

    def __post_init__(self) -> None:
        if not 0 < self.target_share <= self.trigger_share <= 1 - self.margin_share <= 1:
            raise ValueError(
                f"the shares must satisfy 0 < target <= trigger <= 1 - margin, not target {self.target_share}, "
                f"trigger {self.trigger_share}, margin {self.margin_share}"
            )
        if self.backoff_share < 0 or self.limit_bytes < 1 or self.result_limit_chars < 1:
            raise ValueError("backoff_share cannot be negative, limit_bytes and result_limit_chars must be positive")
        if not (0 < self.keep_share <= self.target_share and 0 <= self.memory_share < 1 and 0 <= self.gain_share < 1):
            raise ValueError("keep_share must lie in (0, target_share], memory_share and gain_share in [0, 1)")
        least = (
            self.keep_turns - 1,
            self.keep_rounds,
            self.elide_tokens,
            self.turn_tool_calls,
            self.all_tools_messages,
            self.payback_calls,
        )
        if min(*least, self.session_warn_bytes) < 0 or min(self.elapsed_seconds, self.cache_seconds) < 0:
            raise ValueError("counts, seconds and bytes cannot be negative, and at least one turn is kept")
