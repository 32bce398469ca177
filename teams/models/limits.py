"""The windows of the models that are known by name.

Source: the provider's model pages, autumn 2026. A name that is not known gets the smaller window: too small costs a
compaction, too large costs refused requests.
"""

# First match counts. part of the name -> (context window, largest max_tokens)
_LIMITS: tuple[tuple[str, tuple[int, int]], ...] = (
    ("claude-3-7", (200_000, 64_000)),
    ("claude-3-5", (200_000, 8_192)),
    ("claude-3", (200_000, 4_096)),
    ("haiku-4-5", (200_000, 64_000)),
    ("sonnet-4-5", (200_000, 64_000)),
    ("opus-4-5", (200_000, 64_000)),
    ("opus-4-1", (200_000, 32_000)),
    ("opus-4-0", (200_000, 32_000)),
    ("opus-4-2", (200_000, 32_000)),  # a date follows: the first Opus 4
    ("sonnet-4-0", (200_000, 64_000)),
    ("sonnet-4-2", (200_000, 64_000)),
    ("opus-4-", (1_000_000, 128_000)),
    ("opus-5", (1_000_000, 128_000)),
    ("sonnet-4-6", (1_000_000, 128_000)),
    ("sonnet-5", (1_000_000, 128_000)),
    ("fable-5", (1_000_000, 128_000)),
    ("mythos", (1_000_000, 128_000)),
    ("haiku-5", (1_000_000, 128_000)),
)
SMALLEST = (200_000, 8_192)


def known_limits(name: str) -> tuple[int, int]:
    """Return (context window, largest max_tokens) in tokens for a model's name."""
    return next((limits for part, limits in _LIMITS if part in name), SMALLEST)
