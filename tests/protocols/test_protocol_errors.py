"""Errors say what could not be done, to what, and what is legal; the data are attributes too."""

import pytest

from protocols import AlreadyDecided, NotTheAnswerer, ProtocolError, UnknownRequest


def test_already_decided_says_what_by_whom_and_when() -> None:
    """Whoever comes second learns the first decision."""
    error = AlreadyDecided("r1", "rejected", "lead", 1_750_000_000.5, "approve")
    assert str(error) == "cannot approve request 'r1': it was rejected by 'lead' at 2025-06-15T15:06:40.500Z"
    assert (error.request_id, error.decided, error.by, error.at, error.asked) == ("r1", "rejected", "lead", 1_750_000_000.5, "approve")


@pytest.mark.parametrize("at", [float("inf"), float("nan"), 1e300, -1e300])
def test_already_decided_survives_any_time(at: float) -> None:
    """A time that no calendar holds does not break the message."""
    assert f"at {at!r}" in str(AlreadyDecided("r1", "approved", "lead", at, "reject"))


def test_not_the_answerer_names_who_was_asked() -> None:
    """Whoever was not asked learns who was."""
    error = NotTheAnswerer("r1", "eve", ["lead", "ann"])
    assert str(error) == "'eve' cannot answer request 'r1': it was put to 'lead', 'ann'"
    assert (error.by, error.answerers) == ("eve", ("lead", "ann"))
    assert "nobody" in str(NotTheAnswerer("r1", "eve", []))


def test_all_errors_are_protocol_errors() -> None:
    """One except clause catches whatever protocols raises."""
    error = UnknownRequest("r9")
    assert isinstance(error, ProtocolError)
    assert "'r9'" in str(error)
    assert error.request_id == "r9"
