"""A context while it is edited: taken apart, changed by the layers, put together again.

Laws: the task and the newest words of the user stay as they were written; what the last edit wrote is taken out and written anew; a draft
is never changed, each layer returns another one. The messages that stay are shared with the view, not copied.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from compaction.carried import MemoryKind
from compaction.models import ModelFacts
from compaction.options import CompactionOptions
from compaction.record import EMPTY_RECORD, CompressedHistory
from compaction.state import NO_STATE, StateDigest
from compaction.tokens import Weight
from compaction.transcript import Block, ModelMessage


class Moved(NamedTuple):
    """What an edit took out of sight.

    `recall_id` finds a body again; whole messages have none, their words are found by a search. `name` is that of the tool; of messages it
    is their number. `tokens` is by how much the context became smaller.
    """

    kind: str  # result | input | image | document | messages
    recall_id: str
    name: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Within what a layer works: sizes in the model's tokens, and how they are measured."""

    options: CompactionOptions
    facts: ModelFacts
    budget_tokens: int
    target_tokens: int
    limit_tokens: int
    tokens: Callable[[Weight], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The parts of a context.

    `task` are the pinned blocks; `body` is everything after them but for what compaction itself wrote: valid as to pairs, and without
    thinking that an edit would break. Its first message may be of any role.
    """

    task: tuple[Block, ...]
    body: tuple[ModelMessage, ...]
    record: CompressedHistory = EMPTY_RECORD
    summary: str = ""
    kind: MemoryKind = ""
    state: StateDigest = NO_STATE
    moved: tuple[Moved, ...] = ()
    removed_messages: int = 0
