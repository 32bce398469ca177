"""What teammates may say to each other, and when: values in, values out.

Laws: nothing here does input or output, reads a clock, draws a random number or knows trio; times and ids come in as arguments.
A name is loaded on first use, so that a program pays only for the parts that it touches.
"""

from importlib import import_module

TYPE_CHECKING = False  # not from typing, whose import costs more than this whole package may

if TYPE_CHECKING:
    from protocols.contract import Reach, Rule, RuleAction
    from protocols.diagrams import ALL_MACHINES, mermaid
    from protocols.envelope import escape_attribute, escape_text, render_envelope
    from protocols.errors import AlreadyDecided, IllegalTransition, NotTheAnswerer, ProtocolError, UnknownRequest
    from protocols.lifecycle import LIFECYCLE, RESTING, MemberEvent, MemberStatus
    from protocols.machine import Machine
    from protocols.messages import (
        AGENT_KINDS,
        MESSAGE_TYPES,
        RUNTIME_KINDS,
        Broadcast,
        DirectMessage,
        Message,
        Notice,
        PermissionRequest,
        PermissionResponse,
        PlanApprovalRequest,
        PlanApprovalResponse,
        ShutdownRequest,
        ShutdownResponse,
        TaskAssignment,
        UnknownMessage,
        make_message,
        parse_message,
    )
    from protocols.names import RUNTIME, MemberName, MessageId, Priority, RequestId
    from protocols.permission import PERMISSION, PermissionEvent, PermissionState
    from protocols.plan import Plan
    from protocols.plan_approval import PLAN_APPROVAL, PlanEvent, PlanState
    from protocols.plan_step import PLAN_STEP, StepEvent, StepStatus
    from protocols.question import QUESTION, QuestionEvent, QuestionState
    from protocols.request import MACHINES, Decision, Request, RequestKind, Stage, Vote, advance, answer
    from protocols.requests import KEEP_CLOSED, RequestLedger
    from protocols.shutdown import SHUTDOWN, ShutdownEvent, ShutdownState
    from protocols.task_status import SETTLED, TASK_STATUS, BlockerPolicy, TaskEvent, TaskStatus

_HOMES = {
    "ALL_MACHINES": "diagrams",
    "mermaid": "diagrams",
    "escape_attribute": "envelope",
    "escape_text": "envelope",
    "render_envelope": "envelope",
    "AlreadyDecided": "errors",
    "IllegalTransition": "errors",
    "NotTheAnswerer": "errors",
    "ProtocolError": "errors",
    "UnknownRequest": "errors",
    "LIFECYCLE": "lifecycle",
    "MemberEvent": "lifecycle",
    "MemberStatus": "lifecycle",
    "RESTING": "lifecycle",
    "Machine": "machine",
    "AGENT_KINDS": "messages",
    "Broadcast": "messages",
    "DirectMessage": "messages",
    "MESSAGE_TYPES": "messages",
    "Message": "messages",
    "Notice": "messages",
    "PermissionRequest": "messages",
    "PermissionResponse": "messages",
    "PlanApprovalRequest": "messages",
    "PlanApprovalResponse": "messages",
    "RUNTIME_KINDS": "messages",
    "ShutdownRequest": "messages",
    "ShutdownResponse": "messages",
    "TaskAssignment": "messages",
    "UnknownMessage": "messages",
    "make_message": "messages",
    "parse_message": "messages",
    "MemberName": "names",
    "MessageId": "names",
    "Priority": "names",
    "RUNTIME": "names",
    "RequestId": "names",
    "PERMISSION": "permission",
    "PermissionEvent": "permission",
    "PermissionState": "permission",
    "Plan": "plan",
    "PLAN_APPROVAL": "plan_approval",
    "PlanEvent": "plan_approval",
    "PlanState": "plan_approval",
    "QUESTION": "question",
    "QuestionEvent": "question",
    "QuestionState": "question",
    "Decision": "request",
    "MACHINES": "request",
    "Request": "request",
    "RequestKind": "request",
    "advance": "request",
    "answer": "request",
    "KEEP_CLOSED": "requests",
    "RequestLedger": "requests",
    "SHUTDOWN": "shutdown",
    "ShutdownEvent": "shutdown",
    "ShutdownState": "shutdown",
    "BlockerPolicy": "task_status",
    "SETTLED": "task_status",
    "TASK_STATUS": "task_status",
    "TaskEvent": "task_status",
    "TaskStatus": "task_status",
    "PLAN_STEP": "plan_step",
    "StepEvent": "plan_step",
    "StepStatus": "plan_step",
    "Reach": "contract",
    "Rule": "contract",
    "RuleAction": "contract",
    "Stage": "request",
    "Vote": "request",
}

__all__ = [
    "AGENT_KINDS",
    "ALL_MACHINES",
    "AlreadyDecided",
    "BlockerPolicy",
    "Broadcast",
    "Decision",
    "DirectMessage",
    "IllegalTransition",
    "KEEP_CLOSED",
    "LIFECYCLE",
    "MACHINES",
    "MESSAGE_TYPES",
    "Machine",
    "MemberEvent",
    "MemberName",
    "MemberStatus",
    "Message",
    "MessageId",
    "NotTheAnswerer",
    "Notice",
    "PERMISSION",
    "PLAN_APPROVAL",
    "PLAN_STEP",
    "PermissionEvent",
    "PermissionRequest",
    "PermissionResponse",
    "PermissionState",
    "Plan",
    "PlanApprovalRequest",
    "PlanApprovalResponse",
    "PlanEvent",
    "PlanState",
    "Priority",
    "ProtocolError",
    "QUESTION",
    "QuestionEvent",
    "QuestionState",
    "RESTING",
    "RUNTIME",
    "RUNTIME_KINDS",
    "Reach",
    "Request",
    "RequestId",
    "RequestKind",
    "RequestLedger",
    "Rule",
    "RuleAction",
    "SETTLED",
    "SHUTDOWN",
    "ShutdownEvent",
    "ShutdownRequest",
    "ShutdownResponse",
    "ShutdownState",
    "Stage",
    "StepEvent",
    "StepStatus",
    "TASK_STATUS",
    "TaskAssignment",
    "TaskEvent",
    "TaskStatus",
    "UnknownMessage",
    "UnknownRequest",
    "Vote",
    "advance",
    "answer",
    "escape_attribute",
    "escape_text",
    "make_message",
    "mermaid",
    "parse_message",
    "render_envelope",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
