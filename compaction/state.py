"""What the surroundings of an agent tell compaction of themselves, so that no model has to remember it."""

from typing import NamedTuple


class StateDigest(NamedTuple):
    """What the surroundings of an agent know, better than any model remembers it; lines of plain text, ready to be shown.

    `text` is the block for the newest user message: who the agent is, its team, tasks, requests, mail, plan; empty when there is none.
    The rest goes into the record of what was cut.
    """

    text: str = ""
    active_task: str = ""
    next_step: str = ""
    open_requests: tuple[str, ...] = ()
    teammates: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


NO_STATE = StateDigest()
