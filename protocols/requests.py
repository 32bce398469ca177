"""The ledger of requests: every open one, and the recently closed ones, so that who answers late learns what was decided.

Laws: a request is open until its state is final; questions about open requests never look at closed ones; of the closed ones only the
newest are kept.
The ledger is the one mutable value of this package; `copy` is cheap, because what it holds never changes.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
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

    __slots__ = ("_closed", "_deadlines", "_keep_closed", "_of_answerer", "_of_asker", "_open")

    def __init__(self, *, keep_closed: int = KEEP_CLOSED) -> None:
        if keep_closed < 0:
            raise ValueError(f"keep_closed must be at least 0, not {keep_closed}")
        self._keep_closed = keep_closed
        self._open: dict[str, Request] = {}
        self._closed: dict[str, Request] = {}
        self._deadlines: list[tuple[float, str]] = []  # of open requests whose deadline means something, sorted
        self._of_asker: dict[str, dict[str, None]] = {}  # the open ones
        self._of_answerer: dict[str, dict[str, None]] = {}  # those that wait for an answer

    def put(self, request: Request) -> None:
        """Add a request, or replace the one of the same id."""
        before = self._open.get(request.id)
        if before is not None:
            self._forget(before)
        if request.is_closed:
            self._open.pop(request.id, None)
            self._closed[request.id] = request
            while len(self._closed) > self._keep_closed:
                del self._closed[next(iter(self._closed))]
            return
        self._closed.pop(request.id, None)
        self._open[request.id] = request
        self._of_asker.setdefault(request.asker, {})[request.id] = None
        if request.decision is None:
            for name in request.answerers:
                self._of_answerer.setdefault(name, {})[request.id] = None
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
            for request in self._candidates(asker, answerer)
            if (kind is None or request.kind == kind)
            and (asker is None or request.asker == asker)
            and (subject is None or request.subject == subject)
            and (answerer is None or (request.decision is None and answerer in request.answerers))
        ]
        found.sort(key=_opened_at)
        return tuple(found)

    def _candidates(self, asker: str | None, answerer: str | None) -> Iterable[Request]:
        """Return the open requests among which those are that match; who asks for a member's does not look at all."""
        if asker is None and answerer is None:
            return self._open.values()
        ids = self._of_asker.get(asker, {}) if asker is not None else self._of_answerer.get(answerer or "", {})
        return (self._open[request_id] for request_id in ids)

    def closed(self) -> Iterable[Request]:
        """Iterate over the closed requests that are remembered, the newest first."""
        return reversed(self._closed.values())

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
        twin._of_asker = {name: ids.copy() for name, ids in self._of_asker.items()}
        twin._of_answerer = {name: ids.copy() for name, ids in self._of_answerer.items()}
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

    def _forget(self, request: Request) -> None:
        """Take an open request out of what leads to it."""
        if request.deadline is not None and request.deadline_event is not None:
            del self._deadlines[bisect_left(self._deadlines, (request.deadline, request.id))]
        _drop(self._of_asker, request.asker, request.id)
        for name in request.answerers:
            _drop(self._of_answerer, name, request.id)


def _drop(index: dict[str, dict[str, None]], name: str, request_id: str) -> None:
    ids = index.get(name)
    if ids is not None:
        ids.pop(request_id, None)
        if not ids:
            del index[name]


def _opened_at(request: Request) -> float:
    return request.opened_at
