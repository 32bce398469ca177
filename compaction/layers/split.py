"""Where a context may be cut: between rounds, never inside an atom, and never through what must stay.

An atom is what the provider takes only together: a call and its result, calls made at the same time, thinking and its calls, the call of a
provider's tool and a result that comes messages later. Cuts inside one long turn are the normal case: a worker has one request and
hundreds of rounds. Always kept: the last round whole, and the newest message of the user, which is carried over a cut.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from compaction.draft import Draft, Frame, Moved
from compaction.tokens import weigh, weigh_all
from compaction.transcript import ModelMessage, rounds, safe_cuts, spoken


class Cut(NamedTuple):
    """A place where a body is cut: `body[:at]` goes. `carried` is what the user said last, when it stands in the part that goes."""

    at: int
    carried: ModelMessage | None = None


def split(draft: Draft, frame: Frame, *, keep_turns: int, keep_tokens: int) -> Cut | None:
    """Return the oldest place where a cut leaves few enough turns and tokens, None when everything may stay.

    Args:
        keep_turns: how many turns may stay, the one that a cut shortens among them.
        keep_tokens: how much may stay; the last round stays whatever its size.
    """
    body = draft.body
    last = _last_round(body)
    allowed, tokens, turns, stop = 0, 0, 0, len(body)
    for start in reversed([index for index in safe_cuts(body) if index <= last]):
        for message in body[start:stop]:
            tokens += frame.tokens(weigh(message))
            turns += _starts_turn(message)
        if allowed and (tokens > keep_tokens or turns > keep_turns):
            break
        allowed, stop = start, start
    return Cut(allowed, _carried(body, allowed)) if allowed else None


def draft_cut(draft: Draft, cut: Cut, frame: Frame) -> Draft:
    """Return the draft without what stands before the cut; what the user said last stands in front of the rest."""
    gone, kept = draft.body[: cut.at], draft.body[cut.at :]
    count = len(gone) - (cut.carried is not None)
    moved = Moved("messages", "", str(count), frame.tokens(weigh_all(gone)))
    kept = kept if cut.carried is None else (cut.carried, *kept)
    return replace(draft, body=kept, removed_messages=draft.removed_messages + count, moved=(*draft.moved, moved))


def _last_round(body: Sequence[ModelMessage]) -> int:
    """Return where the last round begins: what the model said last, and all that came after it."""
    spans = rounds(body)
    return spans[-1].start if spans else 0


def _starts_turn(message: ModelMessage) -> bool:
    return not message.tool_results and bool(spoken(message))


def _carried(body: Sequence[ModelMessage], index: int) -> ModelMessage | None:
    """Return what the user said last, without results and remarks beside it, when a cut at this place would take it away."""
    if any(spoken(message) for message in body[index:]):
        return None
    for message in reversed(body[:index]):
        if words := spoken(message):
            return message if len(words) == len(message.content) else ModelMessage("user", words)
    return None
