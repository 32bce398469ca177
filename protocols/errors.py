"""Every error that protocols raises.

ProtocolError
├── IllegalTransition   an event met a state that does not know it
├── UnknownRequest      no open or recently closed request has the id
├── AlreadyDecided      the request was decided before, in another way
└── NotTheAnswerer      the answer came from somebody who was not asked

Wrong arguments stay TypeError and ValueError; malformed messages raise pydantic's ValidationError.
"""

from collections.abc import Collection
from datetime import UTC, datetime


class ProtocolError(Exception):
    """The base of every error that protocols raises."""


class IllegalTransition(ProtocolError):
    """An event met a state in which it is not legal."""

    def __init__(self, machine: str, state: str, event: str, legal: Collection[str]) -> None:
        names = ", ".join(sorted(str(name) for name in legal)) or "nothing"
        super().__init__(f"{machine}: event {str(event)!r} is not legal in state {str(state)!r}; legal now: {names}")
        self.machine, self.state, self.event, self.legal = machine, state, event, frozenset(legal)


class UnknownRequest(ProtocolError):
    """No request has this id, or it was closed so long ago that it is forgotten."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"there is no request {request_id!r}, neither open nor recently closed")
        self.request_id = request_id


class AlreadyDecided(ProtocolError):
    """A request that was decided was asked to become something else; the first decision stands."""

    def __init__(self, request_id: str, decided: str, by: str, at: float, asked: str) -> None:
        super().__init__(f"cannot {asked} request {request_id!r}: it was {decided} by {by!r} at {_moment(at)}")
        self.request_id, self.decided, self.by, self.at, self.asked = request_id, decided, by, at, asked


class NotTheAnswerer(ProtocolError):
    """An answer came from somebody who was not asked."""

    def __init__(self, request_id: str, by: str, answerers: Collection[str]) -> None:
        whom = ", ".join(repr(name) for name in answerers) or "nobody"
        super().__init__(f"{by!r} cannot answer request {request_id!r}: it was put to {whom}")
        self.request_id, self.by, self.answerers = request_id, by, tuple(answerers)


def _moment(at: float) -> str:
    """Write seconds since the epoch as UTC; whatever the calendar does not hold stays a number."""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return repr(at)
