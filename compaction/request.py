"""A request as the rules look at it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, cast

from compaction.encoding import dumps
from compaction.models import UNKNOWN_MODEL, ModelFacts
from compaction.transcript import Block, ModelMessage, as_block


class Finding(NamedTuple):
    """Where a rule is broken, -1 for the request as a whole, and how."""

    message_index: int
    detail: str


class Span(NamedTuple):
    """Neighbours of one role, as the provider sees them: one message."""

    role: str
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class Request:
    """What would be sent: messages with their system text, tools, parameters (thinking, tool_choice ...) and beta headers."""

    messages: Sequence[ModelMessage]
    system: str | Sequence[Block] = ""
    tools: Sequence[Block] = ()
    facts: ModelFacts = UNKNOWN_MODEL
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    betas: Iterable[str] = ()

    @cached_property
    def spans(self) -> list[Span]:
        """Neighbours of one role joined, as the provider joins them."""
        spans: list[Span] = []
        for index, message in enumerate(self.messages):
            if spans and spans[-1].role == message.role:
                spans[-1] = Span(message.role, spans[-1].start, index + 1)
            else:
                spans.append(Span(message.role, index, index + 1))
        return spans

    @cached_property
    def size_bytes(self) -> int:
        """The bytes of messages, system and tools as JSON."""
        fixed = dumps([self.system, list(self.tools)]).encode("utf-8", "surrogatepass")
        return len(fixed) + sum(message.size_bytes + 1 for message in self.messages)

    @property
    def thinking_type(self) -> str:
        """The type of thinking that is asked for; empty when the request says nothing of it."""
        thinking = self.params.get("thinking")
        return str(cast("Mapping[str, object]", thinking).get("type", "")) if isinstance(thinking, Mapping) else ""

    def in_span(self, span: Span) -> Iterator[tuple[int, Block]]:
        """Yield the blocks of a span with the index of their message."""
        for index in range(span.start, span.stop):
            for block in self.messages[index].content:
                yield index, block


def blocks(request: Request) -> Iterator[tuple[int, Block]]:
    """Yield every block of the messages, and those inside results, with the index of their message."""
    for index, message in enumerate(request.messages):
        for block in message.content:
            yield index, block
            content = block.get("content") if block.get("type") == "tool_result" else None
            if isinstance(content, list | tuple):
                for part in cast("Sequence[object]", content):
                    yield index, as_block(part)
