"""What an agent loop lives in: where its transcript is kept, and who tells it of mail, stops, compactions and forbidden calls."""

from collections.abc import Sequence
from typing import Protocol

import trio

from compaction.compactor import Around, Checkpoint
from compaction.transcript import Block, ModelMessage
from compaction.triggers import Cause
from teams.models.base import ModelReply
from teams.tools.base import Tool, ToolCall
from teams.tools.dispatcher import Verdict


class TranscriptLog(Protocol):
    """Where a transcript is kept; written in the order of the calls."""

    def add(self, message: ModelMessage, *, mail: Sequence[str] = (), reply: ModelReply | None = None, epoch: int = 0) -> None:
        """Write a message behind the ones before it; it survives the process, not yet a power failure."""
        ...

    def compacted(self, checkpoint: Checkpoint) -> None:
        """Write a compaction checkpoint."""
        ...

    async def sync(self) -> None:
        """Return when everything added so far is on disk."""
        ...


class Surroundings:
    """What an agent lives in; the parts of this class do nothing, a teammate's do."""

    def take_mail(self) -> tuple[list[Block], Sequence[str]]:
        """Return what must be said to the agent at a tool boundary, and the ids of the messages in it."""
        return [], ()

    def must_stop(self) -> bool:
        """Tell, at a tool boundary, whether the turn must end."""
        return False

    def is_called(self) -> bool:
        """Tell whether something waits that must be seen at once; `AgentLoop.interrupt` says so while a call runs."""
        return False

    def around(self) -> Around:
        """Return what the compactor is given: state, clock, hooks; the loop adds the summarizer."""
        return Around(clock=trio.current_time)

    def take_compaction(self) -> Cause | None:
        """Return why the context shall be compacted before the next call, if somebody wants that, and forget it."""
        return None

    def gate(self, tool: Tool, call: ToolCall) -> Verdict:
        """Return None when a call may run, why it may not, or what must be waited for first."""
        del tool, call
        return None
