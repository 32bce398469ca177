"""Teams of persistent LLM agents under trio."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from teams.approvals import PermissionRequest, PlanRequest, QuestionRequest, TeamProtocols
    from teams.approvers import Approver, at_terminal, rule_list
    from teams.bus import MessageBus, Receipt
    from teams.client import TeamClient, connect_team
    from teams.errors import TeamError
    from teams.events import (
        ContextCompacted,
        Event,
        EventsLost,
        MailCommitted,
        MailStored,
        MemberChanged,
        ModelCalled,
        ModelRetry,
        RequestChanged,
        RuntimeNotice,
        TaskChanged,
        TextDelta,
        ToolEnded,
        ToolStarted,
    )
    from teams.loop import AgentConfig, AgentLoop, AgentResponse, chat
    from teams.manager import ShutdownOutcome, TeammateManager
    from teams.models.anthropic import AnthropicModel
    from teams.models.base import Model, ModelReply, ModelRequest, Usage
    from teams.models.gateway import Gateway, GatewayOptions
    from teams.models.scripted import ScriptedModel
    from teams.opening import open_team
    from teams.options import (
        AgentOptions,
        BusOptions,
        MemberOptions,
        PermissionOptions,
        PlanOptions,
        QuestionOptions,
        ShutdownOptions,
        TaskOptions,
        TeamOptions,
    )
    from teams.state.tasks import Task
    from teams.task_graph import TaskGraph
    from teams.tasks import TaskManager
    from teams.team import Quiescence, Team, Teammate
    from teams.tools.base import Tool, ToolContext, ToolError, Touches, tool
    from teams.tools.defaults import make_default_dispatcher
    from teams.tools.dispatcher import ToolDispatcher

__all__ = [
    "AgentConfig",
    "AgentLoop",
    "AgentOptions",
    "AgentResponse",
    "AnthropicModel",
    "Approver",
    "BusOptions",
    "ContextCompacted",
    "Event",
    "EventsLost",
    "Gateway",
    "GatewayOptions",
    "MailCommitted",
    "MailStored",
    "MemberChanged",
    "MemberOptions",
    "MessageBus",
    "Model",
    "ModelCalled",
    "ModelReply",
    "ModelRequest",
    "ModelRetry",
    "PermissionOptions",
    "PermissionRequest",
    "PlanOptions",
    "PlanRequest",
    "QuestionOptions",
    "QuestionRequest",
    "Quiescence",
    "Receipt",
    "RequestChanged",
    "RuntimeNotice",
    "ScriptedModel",
    "ShutdownOptions",
    "ShutdownOutcome",
    "Task",
    "TaskChanged",
    "TaskGraph",
    "TaskManager",
    "TaskOptions",
    "Team",
    "TeamClient",
    "TeamError",
    "TeamOptions",
    "TeamProtocols",
    "Teammate",
    "TeammateManager",
    "TextDelta",
    "Tool",
    "ToolContext",
    "ToolDispatcher",
    "ToolEnded",
    "ToolError",
    "ToolStarted",
    "Touches",
    "Usage",
    "at_terminal",
    "chat",
    "connect_team",
    "make_default_dispatcher",
    "open_team",
    "rule_list",
    "tool",
]

_HOMES = {
    **dict.fromkeys(("PermissionRequest", "PlanRequest", "QuestionRequest", "TeamProtocols"), "approvals"),
    **dict.fromkeys(("Approver", "at_terminal", "rule_list"), "approvers"),
    **dict.fromkeys(("MessageBus", "Receipt"), "bus"),
    "TeamError": "errors",
    **dict.fromkeys(
        ("ContextCompacted", "Event", "EventsLost", "MailCommitted", "MailStored", "MemberChanged", "ModelCalled", "RequestChanged"),
        "events",
    ),
    **dict.fromkeys(("ModelRetry", "RuntimeNotice", "TaskChanged", "TextDelta", "ToolEnded", "ToolStarted"), "events"),
    **dict.fromkeys(("AgentConfig", "AgentLoop", "AgentResponse", "chat"), "loop"),
    **dict.fromkeys(("ShutdownOutcome", "TeammateManager"), "manager"),
    "AnthropicModel": "models.anthropic",
    **dict.fromkeys(("Model", "ModelReply", "ModelRequest", "Usage"), "models.base"),
    **dict.fromkeys(("Gateway", "GatewayOptions"), "models.gateway"),
    "ScriptedModel": "models.scripted",
    **dict.fromkeys(("TeamClient", "connect_team"), "client"),
    "open_team": "opening",
    **dict.fromkeys(("AgentOptions", "BusOptions", "MemberOptions", "PlanOptions"), "options"),
    **dict.fromkeys(("PermissionOptions", "QuestionOptions", "ShutdownOptions", "TaskOptions", "TeamOptions"), "options"),
    "Task": "state.tasks",
    "TaskGraph": "task_graph",
    "TaskManager": "tasks",
    **dict.fromkeys(("Quiescence", "Team", "Teammate"), "team"),
    **dict.fromkeys(("Tool", "ToolContext", "ToolError", "Touches", "tool"), "tools.base"),
    "make_default_dispatcher": "tools.defaults",
    "ToolDispatcher": "tools.dispatcher",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that importing the package costs nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
