"""What fills a window, by kind: for a person who looks, and for the word that nothing more can be freed."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from compaction.budget import ContextBudget
from compaction.tokens import TokenMeter, Weight, total, weigh_block
from compaction.transcript import THINKING_TYPES, Block, ModelMessage, parts_of
from compaction.view import View

MESSAGE_KINDS = ("task", "memory", "user", "assistant", "thinking", "calls", "results", "images", "other")


class Fill(NamedTuple):
    """The tokens of a window by kind, in the order in which they are sent; `free` is what is left of it, negative when it is over."""

    window_tokens: int
    system: int
    tools: int
    reply: int
    messages: Mapping[str, int]

    @property
    def used(self) -> int:
        """Everything but what is kept for the reply."""
        return self.system + self.tools + sum(self.messages.values())

    @property
    def free(self) -> int:
        """What neither the request nor the reply takes."""
        return self.window_tokens - self.used - self.reply

    def largest(self, count: int = 3) -> str:
        """Name the kinds that take the most, for a message."""
        kinds = {"the system text": self.system, "the tools": self.tools, "the reply's share": self.reply, **self.messages}
        ranked = sorted(kinds.items(), key=lambda item: -item[1])[:count]
        return ", ".join(f"{name} {tokens:,}" for name, tokens in ranked if tokens)


def fill(view: View, meter: TokenMeter, budget: ContextBudget) -> Fill:
    """Measure a view by kind; linear in it, so for looking and not for every call."""
    weights: dict[str, list[Weight]] = {kind: [] for kind in MESSAGE_KINDS}
    carried = view.carried
    for at, message in enumerate(view.messages):
        for place, block in enumerate(message.content):
            kind = _kind(message, block)
            if at == 0 and message.role == "user":
                size = carried.task_blocks if carried.task_blocks is not None else len(message.content)
                kind = "task" if place < size else "memory" if place < size + carried.memory_blocks else kind
            if carried.state_block == (at, place):
                kind = "memory"
            _put(weights, kind, block)
    messages = {kind: meter.tokens(total(each)) for kind, each in weights.items()}
    shell = meter.tokens(view.weight) - sum(messages.values())
    messages["other"] = max(0, messages["other"] + shell)
    return Fill(budget.window_tokens, budget.system_tokens, budget.tools_tokens, budget.reply_tokens, messages)


def _put(weights: Mapping[str, list[Weight]], kind: str, block: Block) -> None:
    whole = weigh_block(block)
    if kind == "results" and whole.images:
        images = total(_images(parts_of(block)))
        weights["images"].append(images)
        whole = whole.minus(images)
    weights[kind].append(whole)


def _images(blocks: Iterable[Block]) -> list[Weight]:
    return [weigh_block(block) for block in blocks if block.get("type") == "image"]


def _kind(message: ModelMessage, block: Block) -> str:
    match block.get("type"):
        case "text":
            return message.role if message.role in {"user", "assistant"} else "other"
        case "tool_use":
            return "calls"
        case "tool_result":
            return "results"
        case "image":
            return "images"
        case kind if kind in THINKING_TYPES:
            return "thinking"
        case _:
            return "other"
