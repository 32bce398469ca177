"""What a model is to the rest of the package: one request in, one reply out.

Laws: a request and a reply are values that nobody changes; `complete` is one attempt (retries, limits and money belong to
the gateway); every failure is a `teams.errors.ModelError`; content blocks are plain JSON objects without null fields.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from compaction.transcript import ModelMessage

Block: TypeAlias = Mapping[str, Any]
StopReason: TypeAlias = Literal[
    "end_turn", "tool_use", "max_tokens", "stop_sequence", "pause_turn", "refusal", "model_context_window_exceeded"
]
OnText: TypeAlias = Callable[[str], None]


class Usage(NamedTuple):
    """The tokens of one call, or of several added up; `input_tokens` counts only what follows the last cache mark."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":  # type: ignore[override]  # a sum of counts, not a longer tuple
        return Usage(self[0] + other[0], self[1] + other[1], self[2] + other[2], self[3] + other[3])

    @property
    def total_input(self) -> int:
        """All tokens that the model read: fresh, written to the cache, read from the cache."""
        return self[0] + self[2] + self[3]


NO_USAGE = Usage()


class ToolDefinition(NamedTuple):
    """A tool as the model is told of it; `input_schema` is a JSON schema of type object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Everything one call of the model depends on."""

    agent: str
    messages: Sequence[ModelMessage]
    max_tokens: int
    system: str = ""
    tools: Sequence[ToolDefinition] = ()
    tool_choice: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What the model answered.

    `content` may be empty: a model may end its turn without a word, and a call that was cut off is not in it. Then
    `message` must not be stored, since a message needs content. `stop_note` is the provider's remark on the stop: the
    category of a refusal, or the name of a stop reason that this version does not know.
    """

    content: tuple[Block, ...]
    stop_reason: StopReason
    usage: Usage = NO_USAGE
    model: str = ""
    stop_note: str = ""
    _message: ModelMessage | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join([block["text"] for block in self.content if block["type"] == "text"])

    @property
    def tool_calls(self) -> tuple[Block, ...]:
        """The complete client tool calls, in the order in which the model made them."""
        return tuple([block for block in self.content if block["type"] == "tool_use"])

    @property
    def message(self) -> ModelMessage:
        """The reply as the assistant message to store; made once."""
        if self._message is None:
            object.__setattr__(self, "_message", ModelMessage("assistant", self.content))
        assert self._message is not None
        return self._message


class Model(Protocol):
    """One model behind one endpoint; many agents may call it at the same time."""

    @property
    def name(self) -> str:
        """The provider's name of the model."""
        ...

    @property
    def context_window_tokens(self) -> int:
        """The tokens that input and output together may take."""
        ...

    @property
    def max_output_tokens(self) -> int:
        """The largest `max_tokens` that the model takes."""
        ...

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Ask once, without retries; `on_text` is called with each piece of text as it arrives.

        Raises: ModelError, by kind.
        Checkpoints: always. When Cancelled, the call is over and its connection closed or free.
        """
        ...

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return the provider's estimate of the request's input tokens.

        Raises: ModelError, by kind.
        Checkpoints: always.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections; calls that still run fail with ModelConnectionError.

        Checkpoints: always. Idempotent.
        """
        ...
