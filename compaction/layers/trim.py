"""The deterministic last resort: the oldest rounds go, then the last one is cut inside.

Laws: the task (the leading blocks of the first message) and the newest user message stay word for word; the last assistant message and
all that follows it stays, though its results, inputs and texts may be shortened; no call is parted from its result. The result fits, or
tells by how much it cannot. Linear: every message is measured once, and what was shortened once more.

The input must be valid, and without thinking. The output is, once neighbours of one role are joined.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from compaction.layers.shorten import shorten
from compaction.tokens import Weight, weigh
from compaction.transcript import Block, ModelMessage, rounds, spoken

MARKER = "[... {count} earlier messages were removed from this conversation to save space ...]"
_MARKER_TOKENS = 40


class Limits(NamedTuple):
    """Where to stop: the target when whole rounds go, the limits where it has to fit."""

    target_tokens: int
    limit_tokens: int
    limit_bytes: int = 30_000_000
    limit_messages: int = 90_000


class TrimResult(NamedTuple):
    """What trimming left, and an account of it.

    `removed` are ranges of the input; `shortened` counts messages that were cut inside; `over_tokens` and `over_bytes` are what
    could not be freed; `task_blocks` are the leading blocks of the first message that are the task.
    """

    messages: list[ModelMessage]
    removed: tuple[range, ...]
    shortened: int
    tokens: int
    over_tokens: int
    over_bytes: int
    task_blocks: int

    @property
    def removed_messages(self) -> int:
        """How many messages went."""
        return sum(len(span) for span in self.removed)


class _Parts(NamedTuple):
    """A list taken apart: the task, what may go (oldest first), what may not, and the newest user message among the former."""

    task: ModelMessage
    spare: list[tuple[range, list[ModelMessage]]]
    tail: list[ModelMessage]
    newest: int


def trim(
    messages: Sequence[ModelMessage],
    limits: Limits,
    tokens: Callable[[Weight], int],
    *,
    task_blocks: int | None = None,
    removed_before: int = 0,
) -> TrimResult:
    """Return the messages that fit.

    Args:
        messages: a valid list.
        limits: where to stop.
        tokens: the model's tokens of a weight.
        task_blocks: how many leading blocks of the first message are the task; all when None.
        removed_before: how many messages earlier edits removed; the marker counts them too.

    Raises:
        ValueError: there are no messages.
    """
    if not messages:
        raise ValueError("cannot trim a list without messages")
    parts = _take_apart(messages, task_blocks)
    keep_from, carried = _drop(parts, limits, tokens)
    removed = _removed(parts, keep_from, carried)
    count = removed_before + sum(len(span) for span in removed)
    lead: list[Block] = list(parts.task.content)
    if count:
        lead.append({"type": "text", "text": MARKER.format(count=count)})
    if carried is not None:
        lead.extend(carried.content)
    first = messages[0] if _same(lead, messages[0].content) else ModelMessage("user", lead)
    kept = [first, *(message for _, group in parts.spare[keep_from:] for message in group)]
    room = limits.limit_tokens - _cost(kept, tokens)
    room_bytes = limits.limit_bytes - _bytes(kept)
    tail = parts.tail
    if _cost(tail, tokens) > room or _bytes(tail) > room_bytes:
        tail = shorten(tail, room, room_bytes, tokens)
    whole = [*kept, *tail]
    used = _cost(whole, tokens)
    return TrimResult(
        whole,
        removed,
        sum(1 for a, b in zip(tail, parts.tail, strict=True) if a is not b),
        used,
        max(0, used - limits.limit_tokens),
        max(0, _bytes(whole) - limits.limit_bytes),
        len(parts.task.content),
    )


def _take_apart(messages: Sequence[ModelMessage], task_blocks: int | None) -> _Parts:
    first = messages[0].content
    size = len(first) if task_blocks is None else max(1, min(task_blocks, len(first)))
    rest = first[size:]
    task = messages[0] if size == len(first) else ModelMessage("user", first[:size])
    spare: list[tuple[range, list[ModelMessage]]] = []
    if rest:  # user messages that an earlier edit put behind the task
        spare.append((range(1), [ModelMessage("user", rest)]))
    spans = rounds(messages)
    tail_start = spans[-1].start if spans else len(messages)
    newest = 0 if rest else -1
    at = 1
    for span in [*spans[:-1], range(tail_start, tail_start)]:
        spare.extend((range(i, i + 1), [messages[i]]) for i in range(at, span.start))
        if span:
            spare.append((span, list(messages[span.start : span.stop])))
        at = span.stop
    for place, (_, group) in enumerate(spare):
        if any(spoken(message) for message in group):
            newest = place
    if any(spoken(message) for message in messages[tail_start:]):
        newest = -1
    return _Parts(task, spare, list(messages[tail_start:]), newest)


def _drop(parts: _Parts, limits: Limits, tokens: Callable[[Weight], int]) -> tuple[int, ModelMessage | None]:
    """Return how many of the spare parts go, and what is carried over of them: the newest user message, if it is there."""
    sizes = [(_cost(group, tokens), _bytes(group), len(group)) for _, group in parts.spare]
    carried = _newest_user(parts)
    always = [parts.task, *parts.tail] if carried is None else [parts.task, *parts.tail, carried]
    fixed = _cost(always, tokens) + _MARKER_TOKENS
    # What cannot go may be over the target already: then the rest gets half of what is left up to the limit.
    target = limits.target_tokens if fixed <= limits.target_tokens else fixed + (limits.limit_tokens - fixed) // 2
    used, size_bytes, count = fixed, _bytes(always), len(always)
    keep_from = len(sizes)
    # From the newest to the oldest, as many as fit: the same place as dropping from the oldest on, in one pass.
    for place in range(len(sizes) - 1, -1, -1):
        used, size_bytes, count = used + sizes[place][0], size_bytes + sizes[place][1], count + sizes[place][2]
        if used > target or size_bytes > limits.limit_bytes or count > limits.limit_messages:
            break
        keep_from = place
    return keep_from, carried if parts.newest < keep_from else None


def _newest_user(parts: _Parts) -> ModelMessage | None:
    """Return what the user last said, without results and remarks beside it, where it stands in a part that may go."""
    if parts.newest < 0:
        return None
    message = next(message for message in reversed(parts.spare[parts.newest][1]) if spoken(message))
    words = spoken(message)
    return message if len(words) == len(message.content) else ModelMessage("user", words)


def _removed(parts: _Parts, keep_from: int, carried: ModelMessage | None) -> tuple[range, ...]:
    spans: list[range] = []
    for place, (span, group) in enumerate(parts.spare[:keep_from]):
        gone = span
        if carried is not None and place == parts.newest:
            if len(group) == 1:
                continue
            gone = range(span.start, span.stop - 1)
        if spans and spans[-1].stop == gone.start:
            spans[-1] = range(spans[-1].start, gone.stop)
        else:
            spans.append(gone)
    return tuple(spans)


def _cost(messages: Sequence[ModelMessage], tokens: Callable[[Weight], int]) -> int:
    return sum(tokens(weigh(message)) for message in messages)


def _bytes(messages: Sequence[ModelMessage]) -> int:
    return sum(message.size_bytes + 1 for message in messages)


def _same(blocks: Sequence[Block], others: Sequence[Block]) -> bool:
    return len(blocks) == len(others) and all(a is b for a, b in zip(blocks, others, strict=True))
