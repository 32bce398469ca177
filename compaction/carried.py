"""What earlier edits leave in a view beside its messages: which blocks are whose, and what is known as data.

Law: what compaction wrote is known by its place, never by its text; so a user's own words are never taken for a summary.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from compaction.record import CompressedHistory

MemoryKind: TypeAlias = Literal["", "summary", "digest", "record"]
"""Which form the memory of what was cut has in the view; empty while nothing was."""


class Carried(NamedTuple):
    """What a view carries from edit to edit; stored with its checkpoint.

    The first message holds the task (its first `task_blocks` blocks; all of them when None) and then what the last edit wrote
    (`memory_blocks`), which the next edit replaces. `state_block` is where the team's state was rendered (message, block); the next edit
    takes it out. `recorded` messages at the start are folded into `record` already. `summary` is the prose of the last summary.
    """

    task_blocks: int | None = None
    memory_blocks: int = 0
    memory_kind: MemoryKind = ""
    state_block: tuple[int, int] | None = None
    recorded: int = 0
    record: "CompressedHistory | None" = None
    summary: str = ""
    removed_messages: int = 0


NOTHING_CARRIED = Carried()
