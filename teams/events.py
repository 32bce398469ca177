"""What happens in a team, as typed values for whoever watches: a live view, a script, a test.

Laws: an event tells and never asks; durable ones are sent after their record is on disk; a watcher that is too slow loses events, is told
how many, and slows nobody down.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import trio


@dataclass(frozen=True, slots=True)
class MemberChanged:
    """A member has another status."""

    name: str
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MailStored:
    """A message is on disk."""

    id: str
    type: str
    sender: str
    recipients: tuple[str, ...]
    content: str
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class MailCommitted:
    """Messages stand in their recipient's transcript."""

    member: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """A task was created, or has another status or owner."""

    id: int
    subject: str
    status: str
    owner: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class RequestChanged:
    """A request was opened, or stepped on."""

    id: str
    kind: str
    subject: str
    state: str
    by: str
    revision: int = 1
    feedback: str = ""


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call began."""

    name: str
    tool: str
    call_id: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool call ended."""

    name: str
    tool: str
    call_id: str
    is_error: bool
    interrupted: bool
    text: str


@dataclass(frozen=True, slots=True)
class ModelCalled:
    """A model answered."""

    name: str
    stop_reason: str
    text: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text arrived from a model."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ContextCompacted:
    """An agent's context was made smaller; tokens of its messages before and after.

    `payback_calls` is after how many calls the edit has earned back what it cost: 0 at once, None never.
    """

    name: str
    trigger: str
    tokens_before: int
    tokens_after: int
    layers: tuple[str, ...] = ()
    epoch: int = 0
    payback_calls: float | None = 0.0


@dataclass(frozen=True, slots=True)
class ContextStuck:
    """An agent's context should be smaller, and nothing more in it may go.

    `fills` tells what fills the window, in tokens by kind; `over_bytes` by how much a request would be too long.
    """

    name: str
    used_tokens: int
    window_tokens: int
    fills: Mapping[str, int]
    over_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SessionLarge:
    """An agent's transcript file has grown over the size at which it is worth a fork."""

    name: str
    size_bytes: int
    path: str


@dataclass(frozen=True, slots=True)
class RuntimeNotice:
    """The runtime has something to say: a retry, a pause, a refusal, a failure that was survived."""

    level: str  # info | warning | error
    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class ModelRetry:
    """A call of the model failed in a way that time may cure, and is made again after so many seconds.

    `attempt` is the one to come, `max_attempts` after how many it is given up (None: never).
    """

    name: str
    reason: str
    wait_seconds: float
    attempt: int
    max_attempts: int | None

    def __str__(self) -> str:
        of = "" if self.max_attempts is None else f" of {self.max_attempts}"
        return f"tries the model again in {self.wait_seconds:.0f} s, attempt {self.attempt}{of}: {self.reason}"


@dataclass(frozen=True, slots=True)
class EventsLost:
    """This watcher was too slow for so many events."""

    count: int


Event: TypeAlias = (
    MemberChanged
    | MailStored
    | MailCommitted
    | TaskChanged
    | RequestChanged
    | ToolStarted
    | ToolEnded
    | ModelCalled
    | TextDelta
    | ContextCompacted
    | ContextStuck
    | SessionLarge
    | ModelRetry
    | RuntimeNotice
    | EventsLost
)


class _Watcher:
    __slots__ = ("lost", "send")

    def __init__(self, send: trio.MemorySendChannel[Event]) -> None:
        self.send, self.lost = send, 0


class EventHub:
    """Gives every event to every watcher; costs nothing while nobody watches."""

    def __init__(self, buffer: int) -> None:
        self._buffer = buffer
        self._watchers: list[_Watcher] = []

    @property
    def watched(self) -> bool:
        """Whether making an event is worth the while."""
        return bool(self._watchers)

    def emit(self, event: Event) -> None:
        """Hand an event out; never blocks."""
        for watcher in self._watchers:
            try:
                if watcher.lost:
                    watcher.send.send_nowait(EventsLost(watcher.lost))
                    watcher.lost = 0
                watcher.send.send_nowait(event)
            except trio.WouldBlock:
                watcher.lost += 1
            except trio.BrokenResourceError:
                watcher.lost = 0

    @asynccontextmanager
    async def watch(self, buffer: int | None = None) -> AsyncGenerator[trio.MemoryReceiveChannel[Event]]:
        """Receive every event from now on, until the block ends or the team closes."""
        send, receive = trio.open_memory_channel[Event](buffer or self._buffer)
        watcher = _Watcher(send)
        self._watchers.append(watcher)
        try:
            with send, receive:
                yield receive
        finally:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    def close(self) -> None:
        """End every watcher's stream after what it has buffered."""
        for watcher in self._watchers:
            watcher.send.close()
        self._watchers.clear()


NO_WATCHERS = EventHub(1)
"""For whoever needs a hub and has none."""
