"""What a model gets to see: transcripts, their validity and size, and their compaction.

Public names are imported on first use, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compaction.budget import ContextBudget
    from compaction.carried import Carried
    from compaction.compactor import Around, Checkpoint, Compactor, Plan, Prepared
    from compaction.costs import EditCost
    from compaction.draft import Moved
    from compaction.errors import CompactionError, InvalidEdit, NoRoomForMessages, NotASession, SessionError
    from compaction.fill import Fill, fill
    from compaction.layers.arrival import Capped, cap, cap_blocks, cap_content
    from compaction.layers.trim import TrimResult, trim
    from compaction.models import ModelFacts, model_facts
    from compaction.options import CompactionOptions
    from compaction.recall import Archive, Found, Recalled, recall_id
    from compaction.record import CompressedHistory
    from compaction.repair import repair
    from compaction.request import Request
    from compaction.session import (
        Entry,
        Header,
        LoadedSession,
        Rewind,
        encode_checkpoint,
        encode_header,
        encode_message,
        encode_rewind,
        load,
    )
    from compaction.sessionfile import SessionArchive, SessionFile, fork, rewind
    from compaction.state import StateDigest
    from compaction.summarizer import Summarizer, Summary, SummaryFailed, SummaryOptions, SummaryReply, SummaryRequest
    from compaction.tokens import TokenMeter, Weight, count_text, weigh
    from compaction.transcript import (
        Block,
        ModelMessage,
        Role,
        interrupted_results,
        message_from_wire,
        notice,
        open_calls,
        rounds,
        safe_cuts,
        turns,
    )
    from compaction.triggers import Cause
    from compaction.validity import RULES, Problem, Rule, problems, valid
    from compaction.view import Messages, View

__all__ = [
    "Archive",
    "Around",
    "Block",
    "Capped",
    "Carried",
    "Cause",
    "Checkpoint",
    "CompactionError",
    "CompactionOptions",
    "Compactor",
    "CompressedHistory",
    "ContextBudget",
    "EditCost",
    "Entry",
    "Fill",
    "Found",
    "Header",
    "InvalidEdit",
    "LoadedSession",
    "Messages",
    "ModelFacts",
    "ModelMessage",
    "Moved",
    "NoRoomForMessages",
    "NotASession",
    "Plan",
    "Prepared",
    "Problem",
    "RULES",
    "Recalled",
    "Request",
    "Rewind",
    "Role",
    "Rule",
    "SessionArchive",
    "SessionError",
    "SessionFile",
    "StateDigest",
    "Summarizer",
    "Summary",
    "SummaryFailed",
    "SummaryOptions",
    "SummaryReply",
    "SummaryRequest",
    "TokenMeter",
    "TrimResult",
    "View",
    "Weight",
    "cap",
    "cap_blocks",
    "cap_content",
    "count_text",
    "encode_checkpoint",
    "encode_header",
    "encode_message",
    "encode_rewind",
    "fill",
    "fork",
    "interrupted_results",
    "load",
    "message_from_wire",
    "model_facts",
    "notice",
    "open_calls",
    "problems",
    "recall_id",
    "repair",
    "rewind",
    "rounds",
    "safe_cuts",
    "trim",
    "turns",
    "valid",
    "weigh",
]

_HOMES = {
    "Archive": "compaction.recall",
    "Around": "compaction.compactor",
    "Block": "compaction.transcript",
    "Capped": "compaction.layers.arrival",
    "Carried": "compaction.carried",
    "Cause": "compaction.triggers",
    "Checkpoint": "compaction.compactor",
    "CompactionError": "compaction.errors",
    "CompactionOptions": "compaction.options",
    "Compactor": "compaction.compactor",
    "CompressedHistory": "compaction.record",
    "ContextBudget": "compaction.budget",
    "EditCost": "compaction.costs",
    "Entry": "compaction.session",
    "Fill": "compaction.fill",
    "Found": "compaction.recall",
    "Header": "compaction.session",
    "InvalidEdit": "compaction.errors",
    "LoadedSession": "compaction.session",
    "Messages": "compaction.view",
    "ModelFacts": "compaction.models",
    "ModelMessage": "compaction.transcript",
    "Moved": "compaction.draft",
    "NoRoomForMessages": "compaction.errors",
    "NotASession": "compaction.errors",
    "Plan": "compaction.compactor",
    "Prepared": "compaction.compactor",
    "Problem": "compaction.validity",
    "RULES": "compaction.validity",
    "Recalled": "compaction.recall",
    "Request": "compaction.request",
    "Rewind": "compaction.session",
    "Role": "compaction.transcript",
    "Rule": "compaction.validity",
    "SessionArchive": "compaction.sessionfile",
    "SessionError": "compaction.errors",
    "SessionFile": "compaction.sessionfile",
    "StateDigest": "compaction.state",
    "Summarizer": "compaction.summarizer",
    "Summary": "compaction.summarizer",
    "SummaryFailed": "compaction.summarizer",
    "SummaryOptions": "compaction.summarizer",
    "SummaryReply": "compaction.summarizer",
    "SummaryRequest": "compaction.summarizer",
    "TokenMeter": "compaction.tokens",
    "TrimResult": "compaction.layers.trim",
    "View": "compaction.view",
    "Weight": "compaction.tokens",
    "cap": "compaction.layers.arrival",
    "cap_blocks": "compaction.layers.arrival",
    "cap_content": "compaction.layers.arrival",
    "count_text": "compaction.tokens",
    "encode_checkpoint": "compaction.session",
    "encode_header": "compaction.session",
    "encode_message": "compaction.session",
    "encode_rewind": "compaction.session",
    "fill": "compaction.fill",
    "fork": "compaction.sessionfile",
    "interrupted_results": "compaction.transcript",
    "load": "compaction.session",
    "message_from_wire": "compaction.transcript",
    "model_facts": "compaction.models",
    "notice": "compaction.transcript",
    "open_calls": "compaction.transcript",
    "problems": "compaction.validity",
    "recall_id": "compaction.recall",
    "repair": "compaction.repair",
    "rewind": "compaction.sessionfile",
    "rounds": "compaction.transcript",
    "safe_cuts": "compaction.transcript",
    "trim": "compaction.layers.trim",
    "turns": "compaction.transcript",
    "valid": "compaction.validity",
    "weigh": "compaction.tokens",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
