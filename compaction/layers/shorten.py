"""Cut inside messages: results, inputs of calls, and the assistant's texts; never what a user wrote.

Laws: ids, order and keys stay; a message never grows; the largest texts are cut first, all to one level. When that is not enough, media in
results go, and at last each result and input becomes a word.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from compaction.layers.arrival import cap, fair_level
from compaction.recall import removed
from compaction.tokens import Weight, count_text, weigh, weigh_block
from compaction.transcript import Block, ModelMessage, as_block

CUT = "[cut]"
INPUT_REMOVED = {"note": "[the input was removed: too long]"}
_SHRINK = 0.8
_READABLE_TOKENS = 100  # below it, a text says less than an image that may stay for it
_MEDIA = frozenset({"image", "document"})

Edit = Callable[[str], str]


def shorten(messages: Sequence[ModelMessage], limit_tokens: int, limit_bytes: int, tokens: Callable[[Weight], int]) -> list[ModelMessage]:
    """Return the messages cut until they fit, or as short as can be."""

    def fits(candidate: Sequence[ModelMessage]) -> bool:
        return (
            sum(tokens(weigh(message)) for message in candidate) <= limit_tokens
            and sum(message.size_bytes + 1 for message in candidate) <= limit_bytes
        )

    cut = _level_texts(messages, limit_tokens, tokens, fits, least=_READABLE_TOKENS)
    if fits(cut):
        return cut
    bare = [_each_result(message, _without_media) for message in messages]
    cut = _level_texts(bare, limit_tokens, tokens, fits, least=1)
    if fits(cut):
        return cut
    return [_stripped(message) for message in messages]


def _level_texts(
    messages: Sequence[ModelMessage],
    limit_tokens: int,
    tokens: Callable[[Weight], int],
    fits: Callable[[Sequence[ModelMessage]], bool],
    *,
    least: int,
) -> list[ModelMessage]:
    """Cut all texts to one level, the highest at which the messages fit; to the least level when none does."""
    if fits(messages):
        return list(messages)
    costs: dict[str, int] = {}

    def measure(text: str) -> str:
        costs[text] = tokens(Weight(count_text(text)))
        sizes.append(costs[text])
        return text

    sizes: list[int] = []
    for message in messages:
        _edit_message(message, measure)
    rest = sum(tokens(weigh(message)) for message in messages) - sum(sizes)
    level = max(least, fair_level(sizes, max(0, limit_tokens - rest)))
    while True:
        cut = [_edit_message(message, _cutter(costs, level)) for message in messages]
        if level <= least or fits(cut):
            return cut
        level = max(least, int(level * _SHRINK))


def _cutter(costs: Mapping[str, int], level: int) -> Edit:
    def cut(text: str) -> str:
        cost = costs[text]
        if cost <= level or len(text) <= len(CUT):
            return text
        shorter = cap(text, len(text) * level // cost).text
        return shorter if len(shorter) > len(CUT) and not shorter.isspace() else CUT

    return cut


def _edit_message(message: ModelMessage, edit: Edit) -> ModelMessage:
    """Apply an edit to every text that may be cut; the message itself when nothing changed."""
    return _with_content(message, [_edit_block(block, message.role, edit) for block in message.content])


def _with_content(message: ModelMessage, content: Sequence[Block]) -> ModelMessage:
    same = all(a is b for a, b in zip(content, message.content, strict=True))
    return message if same else ModelMessage(message.role, content)


def _edit_block(block: Block, role: str, edit: Edit) -> Block:
    match block.get("type"):
        case "text" if role == "assistant":
            return _put(block, "text", edit(str(block.get("text", ""))))
        case "tool_use":
            return _put(block, "input", _edit_json(block.get("input"), edit))
        case "tool_result":
            content = block.get("content")
            if isinstance(content, str):
                return _put(block, "content", edit(content))
            if isinstance(content, list | tuple):
                parts = [as_block(part) for part in cast("Sequence[object]", content)]
                edited = [_put(part, "text", edit(str(part.get("text", "")))) if part.get("type") == "text" else part for part in parts]
                return block if all(a is b for a, b in zip(edited, parts, strict=True)) else {**block, "content": edited}
            return block
        case _:
            return block


def _edit_json(value: object, edit: Edit) -> object:
    """Apply an edit to every string in JSON, keys aside; the value itself when nothing changed."""
    if isinstance(value, str):
        return edit(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        changed = {key: _edit_json(part, edit) for key, part in fields.items()}
        return fields if all(changed[key] is part for key, part in fields.items()) else changed
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        edited = [_edit_json(item, edit) for item in items]
        return items if all(a is b for a, b in zip(edited, items, strict=True)) else edited
    return value


def _put(block: Block, key: str, value: object) -> Block:
    return block if block.get(key) is value or block.get(key) == value else {**block, key: value}


def _each_result(message: ModelMessage, change: Callable[[Block], Block]) -> ModelMessage:
    return _with_content(message, [change(block) if block.get("type") == "tool_result" else block for block in message.content])


def _without_media(result: Block) -> Block:
    content = result.get("content")
    if not isinstance(content, list | tuple):
        return result
    parts = [as_block(part) for part in cast("Sequence[object]", content)]
    if not any(part.get("type") in _MEDIA for part in parts):
        return result
    return {**result, "content": [removed(part) if part.get("type") in _MEDIA else part for part in parts]}


def _stripped(message: ModelMessage) -> ModelMessage:
    """Return what must stay of a message: its users' words, its calls and results by their ids; what is shorter than its word stays."""
    return _with_content(message, [_strip(block, message.role) for block in message.content])


def _strip(block: Block, role: str) -> Block:
    match block.get("type"):
        case "tool_use":
            bare: Block = {**block, "input": INPUT_REMOVED}
        case "tool_result":
            bare = {**block, "content": CUT}
        case "text" if role == "assistant":
            bare = {**block, "text": CUT}
        case _:
            return block
    return bare if _tokens(bare) < _tokens(block) else block


def _tokens(block: Block) -> int:
    weight = weigh_block(block)
    return weight.text_tokens + weight.image_tokens_large
