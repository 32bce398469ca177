"""The fold of `request.*` records: the protocols' own functions, replayed.

Law: a record holds what `protocols.request.answer` or `advance` was given, so a replay steps the same table that the decision stepped.
"""

from collections.abc import Mapping
from typing import Any

from protocols.request import Request, advance, answer


def opened_fields(request: Request) -> dict[str, Any]:
    """Return the fields of the record that opens this request."""
    fields = request.to_json()
    fields["request_kind"] = fields.pop("kind")  # a record has a kind of its own
    return {key: value for key, value in fields.items() if value not in (None, [])}


def apply_opened(fields: Mapping[str, Any]) -> Request:
    """Rebuild the request that a record opens."""
    data = {key: value for key, value in fields.items() if key != "request_kind"}
    return Request.from_json({**data, "kind": fields["request_kind"]})


def apply_advanced(request: Request, fields: Mapping[str, Any]) -> Request:
    """Return the request after the record: an answer where it has `approved`, any other event otherwise."""
    common: dict[str, Any] = {key: fields[key] for key in ("by", "feedback", "deadline") if key in fields}
    common["at"] = fields["time"]
    if "approved" in fields:
        return answer(request, approved=fields["approved"], **common) or request
    return advance(request, fields["event"], body=fields.get("body"), **common)
