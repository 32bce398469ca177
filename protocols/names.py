"""The names that everything else is written in; importing them costs nothing."""

from enum import StrEnum
from typing import Final, NewType

MessageId = NewType("MessageId", str)
MemberName = NewType("MemberName", str)
RequestId = NewType("RequestId", str)

RUNTIME: Final = MemberName("(runtime)")
"""Who decides when nobody did. No member can have this name: members' names hold no brackets."""


class Priority(StrEnum):
    """When a message reaches its recipient."""

    turn = "turn"
    """When it next idles."""
    tool = "tool"
    """At the next tool boundary."""
    now = "now"
    """At once: the running tool or model call is cancelled."""
