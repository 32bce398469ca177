"""What programs are given: values under stable names, every time as ISO 8601 in UTC, as in the journal."""

from collections.abc import Mapping
from typing import Any

from protocols.request import Request
from teams.journal.records import Record, utc_now_text

USAGE = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "calls")
"""The names of the figures that a record of a turn holds, in their order."""


def request_facts(request: Request) -> dict[str, Any]:
    """Return a request as JSON values."""
    data = request.to_json()
    data["opened_at"] = utc_now_text(request.opened_at)
    data["deadline"] = None if request.deadline is None else utc_now_text(request.deadline)
    data["decision"] = None if data["decision"] is None else _decision(data["decision"])
    data["earlier"] = [_decision(item) for item in data["earlier"]]
    data["votes"] = [_vote(vote) for vote in data["votes"]]
    return data


def _decision(data: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, "at": utc_now_text(data["at"]), "votes": [_vote(vote) for vote in data["votes"]]}


def _vote(vote: Any) -> dict[str, Any]:
    by, approved, at, feedback, stage = vote
    return {"by": by, "approved": approved, "at": utc_now_text(at), "feedback": feedback, "stage": stage}


def record_facts(record: Record) -> dict[str, Any]:
    """Return a record of the journal as JSON values: its seq, time and kind, and its fields, with the figures of a turn by their names."""
    fields = dict(record.fields)
    if "usage" in fields:
        fields["usage"] = dict(zip(USAGE, fields["usage"], strict=False))
    for name in ("time", "deadline", "until", "opened_at"):
        if isinstance(fields.get(name), int | float):
            fields[name] = utc_now_text(fields[name])
    return {"seq": record.seq, "at": record.at, "kind": record.kind, **fields}
