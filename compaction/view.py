"""The list of messages that a model is sent.

Laws: a view only grows at its end; what must change earlier makes another view, of the next epoch. `messages` is a snapshot: it does
not grow with the view, and costs nothing. What is known of the whole (sizes, soundness) is kept while appending,
so that asking costs the same at 2 messages and at 200,000.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, overload

from compaction.carried import NOTHING_CARRIED, Carried
from compaction.cleaning import ID_PATTERN, is_clean
from compaction.recall import LARGE_TOKENS, result_ids
from compaction.tokens import NOTHING, Weight, weigh
from compaction.transcript import SERVER_CALL_TYPES, ModelMessage, Role, is_server_result


class Messages(Sequence[ModelMessage]):
    """The first `length` messages of a list that only grows: a read-only snapshot of it."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[ModelMessage], length: int) -> None:
        self._items, self._length = items, length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> ModelMessage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ModelMessage, ...]: ...
    def __getitem__(self, index: int | slice) -> ModelMessage | tuple[ModelMessage, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            # A stop of -1 means "before the first" here, but "the last" in a slice.
            return tuple(self._items[start : None if step < 0 and stop < 0 else stop : step])
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError(f"no message {index} in a list of {self._length}")
        return self._items[at]

    def __iter__(self) -> Iterator[ModelMessage]:
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | tuple | Messages):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  # any sequence may be compared

    __hash__ = None  # type: ignore[assignment]  # like a list: equal to lists, so not hashable

    def __repr__(self) -> str:
        return f"<{self._length} messages>"


class View:
    """The append-only list of what one agent's model is sent, in one epoch.

    Args:
        messages: what it begins with.
        epoch: how many edits came before.
        carried: what those edits left beside the messages.
    """

    __slots__ = ("_flow", "_items", "_media", "_text_tokens", "calls_in_turn", "carried", "epoch", "size_bytes", "tool_run")

    def __init__(self, messages: Iterable[ModelMessage] = (), *, epoch: int = 0, carried: Carried = NOTHING_CARRIED) -> None:
        self._items: list[ModelMessage] = []
        self._text_tokens, self._media = 0, NOTHING
        self._flow = _Flow()
        self.epoch = epoch
        self.carried = carried
        self.size_bytes = 0
        self.calls_in_turn = 0
        """How many tools were called since the last message of the user."""
        self.tool_run = 0
        """How many of the newest messages are nothing but calls and their results."""
        for message in messages:
            self.append(message)

    @property
    def messages(self) -> Messages:
        """A snapshot of the messages, in order."""
        return Messages(self._items, len(self._items))

    @property
    def last(self) -> ModelMessage | None:
        """The newest message, None when there is none."""
        return self._items[-1] if self._items else None

    @property
    def weight(self) -> Weight:
        """What the messages weigh together."""
        return self._media._replace(text_tokens=self._text_tokens)

    @property
    def sound(self) -> bool:
        """Whether the messages keep every rule that binds them, so that nothing needs repair."""
        return self._flow.sound

    @property
    def sendable(self) -> bool:
        """Whether the messages are sound and end where the model may go on."""
        return self._flow.sound and self._flow.sendable

    @property
    def system_messages(self) -> int:
        """How many messages have the role system; not every model takes them."""
        return self._flow.system_messages

    def __len__(self) -> int:
        return len(self._items)

    def append(self, message: ModelMessage) -> None:
        """Add a message at the end; costs as much as that message is long, once."""
        self._items.append(message)
        weight = weigh(message)
        self._text_tokens += weight.text_tokens
        if weight.images or weight.pages:
            self._media = self._media.plus(weight)
        elif weight.text_tokens >= LARGE_TOKENS:
            result_ids(message)  # an edit will ask for those of a thousand messages at once, while everybody waits
        shape: Shape = message.shape or shape_of(message)
        self.size_bytes += message.size_bytes + 1
        self._flow.follow(message, shape)
        if shape.role == "assistant":
            self.calls_in_turn += len(shape.calls)
            self.tool_run = self.tool_run + 1 if shape.calls else 0
        elif shape.results:
            self.tool_run = 0 if shape.others else self.tool_run + 1
        else:
            self.calls_in_turn = self.tool_run = 0

    def distrust(self) -> None:
        """Have the next preparation repair this view and start a new epoch, because what it was made from was damaged."""
        self._flow.sound = False

    def __repr__(self) -> str:
        return f"<View of {len(self._items)} messages, epoch {self.epoch}>"


class Shape(NamedTuple):
    """What matters of a message for what may stand beside it: who speaks, whether it is right, and the ids of its results and calls.

    `right` tells that it is clean and not empty; `results_first` that no other block stands before a result, `others` that there are
    others; `ids_right` that the ids of the calls are legal and each is used once; `server` that blocks of the provider's own tools are
    among them.
    """

    role: Role
    right: bool
    results: tuple[str, ...]
    results_first: bool
    others: bool
    calls: tuple[str, ...]
    ids_right: bool
    server: bool


def shape_of(message: ModelMessage) -> Shape:
    """Return the shape of a message; made once."""
    shape: Shape | None = message.shape
    if shape is None:
        content = message.content
        results = tuple([str(block.get("tool_use_id")) for block in message.tool_results])
        calls = tuple([str(call.get("id")) for call in message.tool_calls])
        shape = message.shape = Shape(
            role=message.role,
            right=bool(content) and is_clean(message),
            results=results,
            results_first=len(results) == len(content) or all(block.get("type") == "tool_result" for block in content[: len(results)]),
            others=len(content) > len(results),
            calls=calls,
            ids_right=len(set(calls)) == len(calls) and all(map(ID_PATTERN.match, calls)),
            server=message.uses_server_tools,
        )
    return shape


class _Flow:
    """Whether each message may stand where it stands, from what came before; a step costs what its message holds."""

    __slots__ = ("_ids", "_last", "_open", "_paused", "_server_open", "sendable", "sound", "system_messages")

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._last = ""
        self._open: tuple[str, ...] = ()
        self._paused = False
        self._server_open: set[str] = set()
        self.sound = True
        self.sendable = False
        self.system_messages = 0

    def follow(self, message: ModelMessage, shape: Shape) -> None:
        role = shape.role
        if not shape.right:
            self.sound = False
        elif role == "user":
            self.sound = self._follow_user(shape) and self.sound
        elif role == "assistant":
            self.sound = self._follow_assistant(message, shape) and self.sound
        else:
            self.sound = self._last == "user" and self.sound
            self.system_messages += 1
        self._last = role
        self.sendable = role != "assistant" or (self._paused and not self._open)

    def _follow_user(self, shape: Shape) -> bool:
        results, waiting = shape.results, self._open
        self._open = ()
        paired = results == waiting or (len(results) == len(waiting) and set(results) == set(waiting))
        may_follow = self._last == "assistant" or not self._last
        return may_follow and shape.results_first and paired and not (self._server_open and (shape.others or not results))

    def _follow_assistant(self, message: ModelMessage, shape: Shape) -> bool:
        may_follow = self._last in {"user", "system"} or (self._last == "assistant" and self._paused)
        right = may_follow and not self._open
        self._paused = False
        calls = self._open = shape.calls
        if not shape.server:
            right = right and shape.ids_right and self._ids.isdisjoint(calls) and not self._server_open
            self._ids.update(calls)
            return right
        waiting = frozenset(self._server_open)
        for block in message.content:
            kind = block.get("type")
            if kind == "text":
                continue
            if kind == "tool_use" or kind in SERVER_CALL_TYPES:
                call_id = str(block.get("id"))
                right = right and call_id not in self._ids and ID_PATTERN.match(call_id) is not None
                self._ids.add(call_id)
                if kind != "tool_use":
                    self._server_open.add(call_id)
                    self._paused = True
            elif is_server_result(block):
                right = right and block.get("tool_use_id") in self._server_open
                self._server_open.discard(str(block.get("tool_use_id")))
                self._paused = True
        return right and waiting.isdisjoint(self._server_open)  # the provider answers its own calls in its next message
