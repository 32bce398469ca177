"""Tools: what an agent can do, described by signatures, checked by a dispatcher, confined to a work directory."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from teams.tools.base import Effect, Tool, ToolCall, ToolContext, ToolError, ToolResult, tool
    from teams.tools.batch import ToolBatch
    from teams.tools.defaults import make_default_dispatcher
    from teams.tools.dispatcher import Gate, ToolDispatcher, ToolLimits
    from teams.tools.workspace import Workspace, WorkspaceError

__all__ = [
    "Effect",
    "Gate",
    "Tool",
    "ToolBatch",
    "ToolCall",
    "ToolContext",
    "ToolDispatcher",
    "ToolError",
    "ToolLimits",
    "ToolResult",
    "Workspace",
    "WorkspaceError",
    "make_default_dispatcher",
    "tool",
]

# Where each name lives; a module is imported when one of its names is first asked for, so that a front costs nothing.
_HOMES = {
    **dict.fromkeys(("Effect", "Tool", "ToolCall", "ToolContext", "ToolError", "ToolResult", "tool"), "base"),
    **dict.fromkeys(("Gate", "ToolDispatcher", "ToolLimits"), "dispatcher"),
    **dict.fromkeys(("Workspace", "WorkspaceError"), "workspace"),
    "ToolBatch": "batch",
    "make_default_dispatcher": "defaults",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
