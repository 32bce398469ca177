"""The ledger answers as a plain list of all requests would, whatever was put into it in whatever order."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols import MACHINES, Decision, Request, RequestId, RequestKind, RequestLedger, UnknownRequest

NAMES = st.sampled_from(["ann", "ben", "kim"])
TIMES = st.sampled_from([1.0, 2.0, 2.5, 3.0, 7.0])


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Draw a request in any state, one of a few ids, so that many replace each other."""
    kind = draw(st.sampled_from(list(RequestKind)))
    machine = MACHINES[kind]
    state = draw(st.sampled_from(machine.states))
    return Request(
        id=RequestId(draw(st.sampled_from("abcdefgh"))),
        kind=kind,
        asker=draw(NAMES),
        answerers=("lead", draw(st.sampled_from(["x", "y"]))),
        subject=draw(NAMES),
        state=state,
        decision=None if state == machine.initial else Decision(True, "lead", 1.0),
        opened_at=draw(TIMES),
        deadline=draw(st.none() | TIMES),
    )


def filled(puts: list[Request], keep_closed: int = 1000) -> RequestLedger:
    """Put all of them into a new ledger."""
    ledger = RequestLedger(keep_closed=keep_closed)
    for request in puts:
        ledger.put(request)
    return ledger


def newest(puts: list[Request]) -> list[Request]:
    """What a plain list knows: the newest of each id."""
    return list({request.id: request for request in puts}.values())


def is_final(request: Request) -> bool:
    """Tell by hand what is over."""
    return request.state in {"stopped", "stopped_forced", "withdrawn", "answered", "used"} or (
        request.state in {"approved", "rejected", "expired"}
        and not (request.kind is RequestKind.shutdown and request.state != "rejected")
        and not (request.kind is RequestKind.plan_approval and request.state == "rejected")
        and not (request.kind is RequestKind.permission and request.state == "approved")
    )


def ids(found: tuple[Request, ...]) -> list[str]:
    """Name what was found."""
    return sorted(request.id for request in found)


@given(
    st.lists(requests(), max_size=25),
    st.none() | st.sampled_from(list(RequestKind)),
    st.none() | NAMES,
    st.none() | st.sampled_from(["lead", "x"]),
    st.none() | NAMES,
)
def test_open_finds_exactly_what_matches(
    puts: list[Request], kind: RequestKind | None, asker: str | None, answerer: str | None, subject: str | None
) -> None:
    """The open requests that match are found, oldest first, and no closed one."""
    rules: list[Callable[[Request], bool]] = [
        lambda request: not is_final(request),
        lambda request: kind is None or request.kind is kind,
        lambda request: asker is None or request.asker == asker,
        lambda request: answerer is None or (answerer in request.answerers and request.state in ("requested", "submitted", "asked")),
        lambda request: subject is None or request.subject == subject,
    ]
    found = filled(puts).open(kind=kind, asker=asker, answerer=answerer, subject=subject)
    assert ids(found) == sorted(request.id for request in newest(puts) if all(rule(request) for rule in rules))
    assert [request.opened_at for request in found] == sorted(request.opened_at for request in found)


@given(st.lists(requests(), max_size=25), TIMES)
def test_due_is_what_a_list_would_say(puts: list[Request], now: float) -> None:
    """Due are the open requests whose deadline came and means something in their state; the next deadline is the earliest of those."""
    ledger = filled(puts)
    meaningful = [
        request
        for request in newest(puts)
        if not is_final(request)
        and request.deadline is not None
        and request.state != "cancelling"
        and (request.kind, request.state) != (RequestKind.permission, "approved")
    ]
    deadlines = [request.deadline for request in meaningful if request.deadline is not None]
    assert ledger.next_deadline() == min(deadlines, default=None)
    due = ledger.due(now)
    assert ids(due) == sorted(request.id for request in meaningful if request.deadline is not None and request.deadline <= now)
    assert [request.deadline for request in due] == sorted(request.deadline for request in due if request.deadline is not None)


@given(st.lists(requests(), max_size=25), st.integers(0, 4))
def test_ledger_keeps_the_newest_closed_ones(puts: list[Request], keep: int) -> None:
    """Every open request can be got, and of the closed ones as many as were asked for; the rest is unknown."""
    ledger = filled(puts, keep_closed=keep)
    closed = [request for request in newest(puts) if is_final(request)]
    kept = 0
    for request in newest(puts):
        if request.id in ledger:
            assert ledger.get(request.id) == request
            kept += is_final(request)
        else:
            assert is_final(request)
            with pytest.raises(UnknownRequest, match=repr(request.id)):
                ledger.get(request.id)
    assert kept <= keep
    assert kept == len(closed) or kept <= keep < len(puts)
    assert len(ledger) == len(newest(puts)) - len(closed)


@settings(max_examples=50)
@given(st.lists(requests(), max_size=25), requests(), TIMES)
def test_ledger_round_trips_and_copies_are_independent(puts: list[Request], extra: Request, now: float) -> None:
    """A ledger survives JSON, and what is put into a copy or into the original stays there."""
    ledger = filled(puts)
    before = ledger.to_json()
    again = RequestLedger.from_json(json.loads(json.dumps(before)))
    assert again.to_json() == before
    assert (again.due(now), again.next_deadline(), again.open()) == (ledger.due(now), ledger.next_deadline(), ledger.open())
    twin = ledger.copy()
    twin.put(extra)
    assert ledger.to_json() == before
    assert ledger.copy().to_json() == before
    assert twin.get(extra.id) == extra


def test_ledger_forgets_the_oldest_closed_first() -> None:
    """When too many are closed, the one that was closed first is forgotten."""

    def closed(name: str) -> Request:
        return Request(
            id=RequestId(name), kind=RequestKind.question, asker="a", answerers=("b",), subject="s", opened_at=1.0, state="answered"
        )

    ledger = filled([closed("one"), closed("two"), closed("three")], keep_closed=2)
    assert [name in ledger for name in ("one", "two", "three")] == [False, True, True]
    with pytest.raises(ValueError, match="keep_closed"):
        RequestLedger(keep_closed=-1)
