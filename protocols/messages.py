"""What members say to each other: one frozen model per kind, told apart by `type`.

Laws: a message never changes; a kind that this version does not know is kept with every field and shown, never refused;
a known kind that is malformed is refused; on the wire the names are `from`, `to` and `timestamp`, in Python `sender`, `recipient` and `at`.
Whether a sender may send a kind is the bus's business: `AGENT_KINDS` are those that a model may cause, `RUNTIME_KINDS` are never a model's.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocols.envelope import render_envelope
from protocols.names import MemberName, MessageId, Priority

__all__ = [
    "AGENT_KINDS",
    "MESSAGE_TYPES",
    "RUNTIME_KINDS",
    "Broadcast",
    "DirectMessage",
    "MemberName",
    "Message",
    "MessageId",
    "Notice",
    "PermissionRequest",
    "PermissionResponse",
    "PlanApprovalRequest",
    "PlanApprovalResponse",
    "Priority",
    "ShutdownRequest",
    "ShutdownResponse",
    "TaskAssignment",
    "UnknownMessage",
    "make_message",
    "parse_message",
    "render_envelope",
]


class Message(BaseModel, frozen=True):
    """What every kind has: who says what to whom, when, and in answer to which request.

    `at` is UTC in ISO 8601; `artifact` is the id under which an oversized body was stored, whose preview `content` then is.
    """

    model_config = ConfigDict(populate_by_name=True, protected_namespaces=(), defer_build=True)

    shown_attributes: ClassVar[tuple[str, ...]] = ()
    """The fields of this kind that the runtime filled and a model must see, as attributes of the envelope."""
    shown_texts: ClassVar[tuple[str, ...]] = ()
    """The fields of this kind that somebody wrote and a model must see, in the envelope's body."""

    type: str
    id: MessageId = Field(min_length=1)
    sender: MemberName = Field(alias="from", min_length=1)
    recipient: MemberName = Field(alias="to", min_length=1)
    content: str = ""
    at: str = Field(alias="timestamp", default="")
    request_id: str | None = None
    priority: Priority = Priority.tool
    artifact: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the message as JSON values under its wire names, without what is not set; `parse_message` takes them back."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class DirectMessage(Message, frozen=True):
    """Something one member tells another."""

    type: Literal["message"] = "message"


class Broadcast(Message, frozen=True):
    """Something one member tells all others; each gets its own copy."""

    type: Literal["broadcast"] = "broadcast"


class ShutdownRequest(Message, frozen=True):
    """The wish that the recipient shall stop; with `force` it is not asked.

    `rejected_before` says how often it has rejected that since it last stopped, and why the last time.
    """

    shown_attributes: ClassVar[tuple[str, ...]] = ("force",)
    shown_texts: ClassVar[tuple[str, ...]] = ("reason", "rejected_before")

    type: Literal["shutdown_request"] = "shutdown_request"
    reason: str = ""
    force: bool = False
    rejected_before: str = ""


class ShutdownResponse(Message, frozen=True):
    """The answer to a shutdown request."""

    shown_attributes: ClassVar[tuple[str, ...]] = ("approve",)
    shown_texts: ClassVar[tuple[str, ...]] = ("reason",)

    type: Literal["shutdown_response"] = "shutdown_response"
    approve: bool
    reason: str = ""


class PlanApprovalRequest(Message, frozen=True):
    """A plan that wants a decision; `content` is the rendered plan."""

    shown_attributes: ClassVar[tuple[str, ...]] = ("revision",)

    type: Literal["plan_approval_request"] = "plan_approval_request"
    revision: int = Field(default=1, ge=1)


class PlanApprovalResponse(Message, frozen=True):
    """The decision on a plan; `revision` tells on which one."""

    shown_attributes: ClassVar[tuple[str, ...]] = ("approve", "revision")
    shown_texts: ClassVar[tuple[str, ...]] = ("feedback",)

    type: Literal["plan_approval_response"] = "plan_approval_response"
    approve: bool
    feedback: str = ""
    revision: int | None = Field(default=None, ge=1)


class TaskAssignment(Message, frozen=True):
    """The runtime tells a member that a task is its own now."""

    shown_attributes: ClassVar[tuple[str, ...]] = ("task_id",)

    type: Literal["task_assignment"] = "task_assignment"
    task_id: int = Field(ge=1)


class PermissionRequest(Message, frozen=True):
    """The runtime asks for the permission to run a tool call; `content` shows the call."""

    type: Literal["permission_request"] = "permission_request"


class PermissionResponse(Message, frozen=True):
    """The decision on a tool call."""

    shown_attributes: ClassVar[tuple[str, ...]] = ("approve",)
    shown_texts: ClassVar[tuple[str, ...]] = ("feedback",)

    type: Literal["permission_response"] = "permission_response"
    approve: bool
    feedback: str = ""


class Notice(Message, frozen=True):
    """The runtime tells a member something that it must know."""

    type: Literal["notice"] = "notice"


class UnknownMessage(Message, frozen=True):
    """A message of a kind that this version does not know, with every field that it had.

    `raw` is the object as it came; a common field that is missing or malformed there has an empty value here.
    """

    shown_attributes: ClassVar[tuple[str, ...]] = ("known",)
    known: ClassVar[bool] = False

    id: MessageId = MessageId("")
    sender: MemberName = Field(alias="from", default=MemberName(""))
    recipient: MemberName = Field(alias="to", default=MemberName(""))
    raw: dict[str, Any] = Field(default_factory=dict[str, Any])

    def to_json(self) -> dict[str, Any]:
        """Return the object as it came."""
        return dict(self.raw)


MESSAGE_TYPES: Final[Mapping[str, type[Message]]] = MappingProxyType(
    {
        "message": DirectMessage,
        "broadcast": Broadcast,
        "shutdown_request": ShutdownRequest,
        "shutdown_response": ShutdownResponse,
        "plan_approval_request": PlanApprovalRequest,
        "plan_approval_response": PlanApprovalResponse,
        "task_assignment": TaskAssignment,
        "permission_request": PermissionRequest,
        "permission_response": PermissionResponse,
        "notice": Notice,
    }
)

RUNTIME_KINDS: Final = frozenset({"task_assignment", "permission_request", "permission_response", "notice"})
AGENT_KINDS: Final = frozenset(MESSAGE_TYPES) - RUNTIME_KINDS


def parse_message(obj: Mapping[str, Any]) -> Message:
    """Build the message that an object from a journal or another process holds.

    Raises:
        pydantic.ValidationError: the type is missing or not text, or a known kind is malformed. An unknown type never raises.
    """
    kind = obj.get("type")
    if not isinstance(kind, str):
        return Message.model_validate(obj)  # raises: what has no type is no message of any version
    model = MESSAGE_TYPES.get(kind)
    return model.model_validate(obj) if model is not None else _unknown(kind, obj)


def make_message(fields: Mapping[str, Any]) -> Message:
    """Build a message from trusted fields, without validation, under their wire names or their Python names.

    For records that this version itself validated and wrote; what comes from elsewhere goes through `parse_message`.
    """
    kind = fields["type"]
    defaults = _DEFAULTS.get(kind)
    if defaults is None:
        return _unknown(kind, fields)
    values = {**defaults, **fields}
    if "from" in values:
        values["sender"] = values.pop("from")
    if "to" in values:
        values["recipient"] = values.pop("to")
    if "timestamp" in values:
        values["at"] = values.pop("timestamp")
    values["priority"] = _PRIORITIES[values["priority"]]
    model = MESSAGE_TYPES[kind]
    message = model.__new__(model)
    _set(message, "__dict__", values)
    _set(message, "__pydantic_fields_set__", set(values))
    _set(message, "__pydantic_extra__", None)
    _set(message, "__pydantic_private__", None)
    return message


_set: Final = object.__setattr__  # models are frozen; this is how pydantic itself fills them
_COMMON: Final[Mapping[str, str]] = {name: name for name in Message.model_fields} | {
    info.alias: name for name, info in Message.model_fields.items() if info.alias is not None
}
"""Python names of the common fields, by the names under which they may come; where both came, the wire name counts."""
_PRIORITIES: Final[Mapping[str, Priority]] = {priority.value: priority for priority in Priority}
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    kind: {name: info.default for name, info in model.model_fields.items() if not info.is_required()}
    for kind, model in MESSAGE_TYPES.items()
}


def _unknown(kind: str, obj: Mapping[str, Any]) -> UnknownMessage:
    """Take in whatever can be understood of a message of an unknown kind, and keep all of it."""
    raw = {str(key): value for key, value in obj.items()}
    common = {name: raw[key] for key, name in _COMMON.items() if key in raw} | {"type": kind}
    try:
        return UnknownMessage.model_validate({**common, "raw": raw})
    except ValidationError as error:
        malformed = {_COMMON.get(str(item["loc"][0])) for item in error.errors()}
        usable = {name: value for name, value in common.items() if name not in malformed}
        return UnknownMessage.model_validate({**usable, "raw": raw})
