"""Each kind of message has its model; what is unknown is kept, what is malformed is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from protocols import (
    AGENT_KINDS,
    MESSAGE_TYPES,
    RUNTIME_KINDS,
    Message,
    Priority,
    UnknownMessage,
    make_message,
    parse_message,
    render_envelope,
)

COMMON: dict[str, Any] = {"id": "m1", "from": "ann", "to": "ben", "content": "hello", "timestamp": "2026-01-01T00:00:00.000000Z"}
KINDS: dict[str, dict[str, Any]] = {
    "message": {},
    "broadcast": {"priority": "turn"},
    "shutdown_request": {"request_id": "r1", "reason": "done", "force": True, "rejected_before": "once because: busy", "priority": "now"},
    "shutdown_response": {"request_id": "r1", "approve": False, "reason": "busy"},
    "plan_approval_request": {"request_id": "r1", "revision": 3},
    "plan_approval_response": {"request_id": "r1", "approve": True, "feedback": "go", "revision": 3},
    "task_assignment": {"task_id": 7},
    "permission_request": {"request_id": "r1", "artifact": "a1"},
    "permission_response": {"request_id": "r1", "approve": False, "feedback": "no"},
    "notice": {},
}
MALFORMED: list[dict[str, Any]] = [
    {"type": "message", "from": ""},
    {"type": "message", "id": ""},
    {"type": "message", "to": None},
    {"type": "message", "content": 5},
    {"type": "message", "priority": "soon"},
    {"type": "shutdown_response"},
    {"type": "plan_approval_response", "approve": "perhaps"},
    {"type": "plan_approval_request", "revision": 0},
    {"type": "task_assignment", "task_id": "seven"},
    {"type": "task_assignment", "task_id": 0},
    {"type": 5},
    {"type": None},
    {},
]


def wire(kind: str) -> dict[str, Any]:
    """Return a message of this kind as it stands in a file."""
    return {"type": kind, **COMMON, **KINDS[kind]}


@pytest.mark.parametrize("kind", KINDS)
def test_message_round_trips(kind: str) -> None:
    """A message of each kind becomes its own model and comes back under its wire names."""
    message = parse_message(wire(kind))
    assert type(message) is MESSAGE_TYPES[kind]
    assert (message.type, message.sender, message.recipient, message.at) == (kind, "ann", "ben", COMMON["timestamp"])
    written = json.loads(json.dumps(message.to_json()))
    assert wire(kind).items() <= written.items()
    assert parse_message(written) == message


@pytest.mark.parametrize("kind", KINDS)
def test_fast_path_makes_the_same_message(kind: str) -> None:
    """What is made without validation equals what is parsed, under wire names and under Python names, and is as frozen."""
    parsed = parse_message(wire(kind))
    python_names = {name: getattr(parsed, name) for name in type(parsed).model_fields}
    for made in (make_message(wire(kind)), make_message(python_names)):
        assert made == parsed
        assert type(made) is type(parsed)
        assert made.to_json() == parsed.to_json()
        assert made.priority is parsed.priority
        assert made.model_copy(update={"content": "x"}).content == "x"
        with pytest.raises(ValidationError):
            made.content = "changed"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue] -- the refusal is tested


def test_kinds_are_divided_between_agents_and_runtime() -> None:
    """Every kind belongs either to those that a model may cause or to the runtime, as it was agreed."""
    assert set(KINDS) == set(MESSAGE_TYPES)
    assert {"task_assignment", "permission_request", "permission_response", "notice"} == RUNTIME_KINDS
    assert set(MESSAGE_TYPES) - RUNTIME_KINDS == AGENT_KINDS
    for kind, model in MESSAGE_TYPES.items():
        assert model.model_fields["type"].default == kind


@pytest.mark.parametrize("fields", MALFORMED, ids=repr)
def test_malformed_message_is_refused(fields: dict[str, Any]) -> None:
    """A known kind with a missing or wrong field, and an object without a kind, are refused."""
    with pytest.raises(ValidationError):
        parse_message({**COMMON, **fields})


def test_sender_cannot_be_overridden_by_another_spelling() -> None:
    """Where a field comes under both of its names, the wire name counts, in known and in unknown kinds."""
    for kind in ("message", "hologram"):
        message = parse_message({**COMMON, "type": kind, "sender": "lead", "recipient": "eve", "at": "never"})
        assert (message.sender, message.recipient, message.at) == ("ann", "ben", COMMON["timestamp"])


def test_defaults_are_those_of_the_next_tool_boundary() -> None:
    """A message that says nothing else arrives at the next tool boundary."""
    message = parse_message({"type": "message", "id": "m", "from": "a", "to": "b"})
    assert (message.priority, message.content, message.request_id, message.artifact) == (Priority.tool, "", None, None)


def test_unknown_kind_is_kept_and_shown() -> None:
    """A message of a newer version keeps all its fields, can be written back, and is shown as unknown."""
    original = {**COMMON, "type": "hologram", "request_id": "r2", "depth": {"x": [1, 2]}, "priority": "whenever"}
    message = parse_message(original)
    assert isinstance(message, UnknownMessage)
    assert (message.type, message.sender, message.content, message.request_id) == ("hologram", "ann", "hello", "r2")
    assert message.priority is Priority.tool
    assert message.to_json() == original
    assert make_message(original) == message
    assert render_envelope(message) == '<message id="m1" from="ann" type="hologram" request_id="r2" known="false">\nhello\n</message>'


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=2), max_leaves=4
)
FIELD_NAMES = st.sampled_from(
    ["id", "from", "to", "sender", "recipient", "at", "timestamp", "content", "priority", "request_id", "raw", "known"]
)


@given(st.text(max_size=10).filter(lambda kind: kind not in MESSAGE_TYPES), st.dictionaries(FIELD_NAMES | st.text(max_size=5), VALUES))
def test_unknown_kind_never_raises(kind: str, fields: dict[str, Any]) -> None:
    """Whatever a message of an unknown kind holds, it is taken in, written back unchanged, and shown."""
    original = {**fields, "type": kind}
    message: Message = parse_message(original)
    assert isinstance(message, UnknownMessage)
    assert message.type == kind
    assert message.to_json() == original
    assert render_envelope(message).startswith('<message id="')
