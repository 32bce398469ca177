"""What a live view remembers of the events: who does what since when, the last mail, the last notices. Pure; times come in."""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from teams.cli.output import clean
from teams.events import (
    Event,
    EventsLost,
    MailStored,
    MemberChanged,
    ModelCalled,
    ModelRetry,
    RuntimeNotice,
    TextDelta,
    ToolEnded,
    ToolStarted,
)

KEPT = 50
WORD_LIMIT = 160


@dataclass(slots=True)
class Doing:
    """What a member does now, since when (seconds of the caller's clock)."""

    what: str
    since: float


@dataclass(slots=True)
class Board:
    """The fold of events."""

    doing: dict[str, Doing] = field(default_factory=dict[str, Doing])
    tokens: dict[str, int] = field(default_factory=dict[str, int])
    context: dict[str, int] = field(default_factory=dict[str, int])
    """What each one's newest call sent, in tokens."""
    """What each member's calls used, in and out, from the first event on."""
    mail: deque[MailStored] = field(default_factory=lambda: deque[MailStored](maxlen=KEPT))
    notices: deque[RuntimeNotice] = field(default_factory=lambda: deque[RuntimeNotice](maxlen=KEPT))
    lost: int = 0
    _running: dict[str, dict[str, Doing]] = field(default_factory=dict[str, dict[str, Doing]])

    def note(self, event: Event, now: float) -> None:
        """Take an event in."""
        match event:
            case ToolStarted():
                doing = Doing(tool_words(event.tool, event.input), now)
                self._running.setdefault(event.name, {})[event.call_id] = doing
                self.doing[event.name] = doing
            case ToolEnded():
                running = self._running.get(event.name, {})
                running.pop(event.call_id, None)
                self.doing[event.name] = next(reversed(running.values()), None) or Doing("thinking", now)
            case TextDelta():
                if event.name not in self.doing or self.doing[event.name].what == "thinking":
                    self.doing[event.name] = Doing("writing", now)
            case ModelCalled():
                self.tokens[event.name] = self.tokens.get(event.name, 0) + event.input_tokens + event.output_tokens
                self.context[event.name] = event.input_tokens
                self.doing[event.name] = Doing(_first_words(event.text) or "thinking", now)
            case MemberChanged():
                self._running.pop(event.name, None)
                if event.status == "working":
                    self.doing[event.name] = Doing("thinking", now)
                else:
                    self.doing.pop(event.name, None)
            case ModelRetry():
                self.doing[event.name] = Doing(clean(str(event)), now)
            case MailStored():
                self.mail.append(event)
            case RuntimeNotice():
                self.notices.append(event)
            case EventsLost():
                self.lost += event.count
            case _:
                pass  # tasks, requests and what was read are in the team's own state


def tool_words(tool: str, given: Mapping[str, Any]) -> str:
    """Return a tool call in a few words: `read_file path=src/money.py`."""
    shown = " ".join(f"{key}={_value(value)}" for key, value in given.items())
    return clean(f"{tool} {shown}")[:WORD_LIMIT]


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _first_words(text: str) -> str:
    return clean(text[: WORD_LIMIT * 4])[:WORD_LIMIT]
