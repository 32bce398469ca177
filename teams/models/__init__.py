"""Models: the interface, the Messages API, a scripted one, and the gateway that every call of a team passes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from teams.models.anthropic import AnthropicExtra, AnthropicModel
    from teams.models.base import Model, ModelReply, ModelRequest, StopReason, ToolDefinition, Usage
    from teams.models.gateway import Gateway, GatewayNotice, GatewayOptions, Priority
    from teams.models.script import Reply, blocked, call, delayed, expect, fail, say, think
    from teams.models.scripted import ScriptedModel

__all__ = [
    "AnthropicExtra",
    "AnthropicModel",
    "Gateway",
    "GatewayNotice",
    "GatewayOptions",
    "Model",
    "ModelReply",
    "ModelRequest",
    "Priority",
    "Reply",
    "ScriptedModel",
    "StopReason",
    "ToolDefinition",
    "Usage",
    "blocked",
    "call",
    "delayed",
    "expect",
    "fail",
    "say",
    "think",
]

_HOMES = {
    "AnthropicExtra": "anthropic",
    "AnthropicModel": "anthropic",
    "Gateway": "gateway",
    "GatewayNotice": "gateway",
    "GatewayOptions": "gateway",
    "Model": "base",
    "ModelReply": "base",
    "ModelRequest": "base",
    "Priority": "gateway",
    "Reply": "script",
    "ScriptedModel": "scripted",
    "StopReason": "base",
    "ToolDefinition": "base",
    "Usage": "base",
    "blocked": "script",
    "call": "script",
    "delayed": "script",
    "expect": "script",
    "fail": "script",
    "say": "script",
    "think": "script",
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
