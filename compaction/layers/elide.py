"""Move the bodies of old rounds out of sight: results, large inputs of calls, images and documents become placeholders with a recall id.

Laws: ids, order, keys and the assistant's words stay; a message never grows; what the model has not answered yet stays whole, and so do the
newest rounds and the tools that are protected; doing it again changes nothing. In bulk, at a compaction, and never as a window that
slides: each elision costs what the provider remembers behind it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from compaction.draft import Draft, Frame, Moved
from compaction.recall import recall_id
from compaction.tokens import count_text, weigh, weigh_block
from compaction.transcript import Block, ModelMessage, as_block, last_assistant, parts_of, rounds

ERROR_LINE_CHARS = 300
LEAST_TOKENS = 160
"""Smaller bodies stay, whatever the options say: a placeholder with the first line of an error may be so large, and is not elided again."""
_MEDIA = frozenset({"image", "document"})


class _Rules(NamedTuple):
    least_tokens: int
    protected: frozenset[str]
    frame: Frame


def elide(draft: Draft, frame: Frame) -> Draft:
    """Return the draft with the bodies of its old rounds moved out; the same messages where nothing was."""
    stop = _old_until(draft.body, frame.options.keep_rounds)
    rules = _Rules(max(LEAST_TOKENS, frame.options.elide_tokens), frame.options.protected_tools, frame)
    names: dict[str, str] = {}
    moved: list[Moved] = []
    body: list[ModelMessage] = []
    for message in draft.body[:stop]:
        for call in message.tool_calls:
            names[str(call.get("id"))] = str(call.get("name"))
        weight = weigh(message)
        small = weight.text_tokens < rules.least_tokens and not weight.images and not weight.pages
        body.append(message if small else _elide_message(message, names, rules, moved))
    if not moved:
        return draft
    return replace(draft, body=(*body, *draft.body[stop:]), moved=(*draft.moved, *moved))


def _old_until(body: Sequence[ModelMessage], keep_rounds: int) -> int:
    """Return where the newest rounds begin; what the model has not answered yet is always among them."""
    spans = rounds(body)
    if len(spans) <= max(1, keep_rounds):
        return 0
    return min(spans[-max(1, keep_rounds)].start, max(0, last_assistant(body)))


def _elide_message(message: ModelMessage, names: Mapping[str, str], rules: _Rules, moved: list[Moved]) -> ModelMessage:
    content = [_elide_block(block, message.role, names, rules, moved) for block in message.content]
    same = all(a is b for a, b in zip(content, message.content, strict=True))
    return message if same else ModelMessage(message.role, content)


def _elide_block(block: Block, role: str, names: Mapping[str, str], rules: _Rules, moved: list[Moved]) -> Block:
    match block.get("type"):
        case "tool_result":
            name = names.get(str(block.get("tool_use_id")), "tool")
            shorter = block if name in rules.protected else _elide_result(block, name, rules)
            kind = "result"
        case "tool_use":
            name = str(block.get("name"))
            shorter = block if name in rules.protected else _elide_call(block, rules)
            kind = "input"
        case "image" | "document" if role == "user":
            kind = name = str(block.get("type"))
            shorter = {"type": "text", "text": _placeholder(f"{kind} of the user", block, "")}
        case _:
            return block
    if shorter is block:
        return block
    freed = _cost(block, rules.frame) - _cost(shorter, rules.frame)
    if freed <= 0:
        return block
    moved.append(Moved(kind, recall_id(block), name, freed))
    return shorter


def _elide_result(block: Block, name: str, rules: _Rules) -> Block:
    if _cost(block, rules.frame) < rules.least_tokens:
        return block
    parts = parts_of(block)
    text = "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
    media = [str(part.get("type")) for part in parts if part.get("type") in _MEDIA]
    what = f"{len(text):,} characters" if text or not media else ""
    holds = ", ".join(part for part in (what, *_counted(media)) if part)
    short = _placeholder(f"the {'error' if block.get('is_error') else 'result'} of {name}", block, holds)
    if block.get("is_error"):
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        short = f"{first[:ERROR_LINE_CHARS]}\n{short}"
    return {**block, "content": short}


def _elide_call(block: Block, rules: _Rules) -> Block:
    given = block.get("input")
    if not isinstance(given, Mapping):
        return block
    shorter = _elide_value(cast("Mapping[str, object]", given), recall_id(block), rules.least_tokens)
    return block if shorter is given else {**block, "input": shorter}


def _elide_value(value: object, wanted: str, least_tokens: int) -> object:
    """Replace each long text of an input; the keys stay, since a model imitates what it sees of its calls."""
    if isinstance(value, str):
        if len(value) < least_tokens or count_text(value) < least_tokens:
            return value
        return f'[{len(value):,} characters moved out of sight; recall("{wanted}") shows them]'
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        changed = {key: _elide_value(part, wanted, least_tokens) for key, part in fields.items()}
        return fields if all(changed[key] is part for key, part in fields.items()) else changed
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        edited = [_elide_value(item, wanted, least_tokens) for item in items]
        return items if all(a is b for a, b in zip(edited, items, strict=True)) else edited
    return value


def _placeholder(what: str, block: Block, holds: str) -> str:
    return f'[{what} was moved out of sight{f" ({holds})" if holds else ""}; recall("{recall_id(block)}") shows it]'


def _counted(media: Sequence[str]) -> list[str]:
    return [f"{media.count(kind)} {kind}{'s' if media.count(kind) > 1 else ''}" for kind in dict.fromkeys(media)]


def _cost(block: Block, frame: Frame) -> int:
    return frame.tokens(weigh_block(as_block(block)))
