"""The ledger of requests: every open one, and the recently closed ones, so that who answers late learns what was decided.

Laws: a request is open until its state is final; questions about open requests never look at closed ones; of the closed ones only the
newest are kept.
The ledger is the one mutable value of this package; `copy` is cheap, because what it holds never changes.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from typing import Any, Final

from protocols.errors import UnknownRequest
from protocols.names import RequestId
from protocols.request import MACHINES, Decision, Request, RequestKind, advance, answer

__all__ = ["KEEP_CLOSED", "MACHINES", "Decision", "Request", "RequestId", "RequestKind", "RequestLedger", "advance", "answer"]

KEEP_CLOSED: Final = 1000
"""How many closed requests are remembered, unless the owner of the ledger says otherwise."""

_AFTER_EVERY_ID: Final = "\U0010ffff"


class RequestLedger:
    """All requests by id."""

    __slots__ = ("_closed", "_deadlines", "_keep_closed", "_open")

    def __init__(self, *, keep_closed: int = KEEP_CLOSED) -> None:
        if keep_closed < 0:
            raise ValueError(f"keep_closed must be at least 0, not {keep_closed}")
        self._keep_closed = keep_closed
        self._open: dict[str, Request] = {}
        self._closed: dict[str, Request] = {}
        self._deadlines: list[tuple[float, str]] = []  # of open requests whose deadline means something, sorted

    def put(self, request: Request) -> None:
        """Add a request, or replace the one of the same id."""
        self._forget_deadline(self._open.get(request.id))
        if request.is_closed:
            self._open.pop(request.id, None)
            self._closed[request.id] = request
            while len(self._closed) > self._keep_closed:
                del self._closed[next(iter(self._closed))]
            return
        self._closed.pop(request.id, None)
        self._open[request.id] = request
        if request.deadline is not None and request.deadline_event is not None:
            insort(self._deadlines, (request.deadline, request.id))

    def get(self, request_id: str) -> Request:
        """Return a request, open or recently closed.

        Raises:
            UnknownRequest: there is none of this id.
        """
        request = self._open.get(request_id) or self._closed.get(request_id)
        if request is None:
            raise UnknownRequest(request_id)
        return request

    def open(
        self, kind: RequestKind | None = None, asker: str | None = None, answerer: str | None = None, subject: str | None = None
    ) -> tuple[Request, ...]:
        """Return the open requests that match everything given, the oldest first.

        With `answerer`, only those that still wait for an answer of that member. Open is everything that is not final: also a rejected
        plan that may be revised and an approved shutdown that drains; `Request.is_undecided` tells them apart.
        """
        found = [
            request
            for request in self._open.values()
            if (kind is None or request.kind == kind)
            and (asker is None or request.asker == asker)
            and (subject is None or request.subject == subject)
            and (answerer is None or (request.decision is None and answerer in request.answerers))
        ]
        found.sort(key=_opened_at)
        return tuple(found)

    def next_deadline(self) -> float | None:
        """Return the earliest deadline of an open request, None when nothing is ever due."""
        return self._deadlines[0][0] if self._deadlines else None

    def due(self, now: float) -> tuple[Request, ...]:
        """Return the open requests whose deadline is `now` or earlier, the earliest first; each is due its `deadline_event`."""
        end = bisect_right(self._deadlines, (now, _AFTER_EVERY_ID))
        return tuple(self._open[request_id] for _, request_id in self._deadlines[:end])

    def copy(self) -> "RequestLedger":
        """Return an independent ledger with the same requests."""
        twin = RequestLedger(keep_closed=self._keep_closed)
        twin._open, twin._closed, twin._deadlines = self._open.copy(), self._closed.copy(), self._deadlines.copy()
        return twin

    def to_json(self) -> dict[str, Any]:
        """Return the ledger as JSON values; `from_json` takes them back."""
        return {
            "open": [request.to_json() for request in self._open.values()],
            "closed": [request.to_json() for request in self._closed.values()],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, keep_closed: int = KEEP_CLOSED) -> "RequestLedger":
        """Build a ledger from what `to_json` returned."""
        ledger = cls(keep_closed=keep_closed)
        for item in (*data["closed"], *data["open"]):
            ledger.put(Request.from_json(item))
        return ledger

    def __len__(self) -> int:
        """Return the number of open requests."""
        return len(self._open)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._open or request_id in self._closed

    def __repr__(self) -> str:
        return f"<RequestLedger: {len(self._open)} open, {len(self._closed)} closed kept>"

    def _forget_deadline(self, request: Request | None) -> None:
        if request is not None and request.deadline is not None and request.deadline_event is not None:
            del self._deadlines[bisect_left(self._deadlines, (request.deadline, request.id))]


def _opened_at(request: Request) -> float:
    return request.opened_at
