"""Move the bodies of old rounds out of sight: results, large inputs of calls, images and documents become placeholders with a recall id.

Laws: ids, order, keys and the assistant's words stay; a message never grows; what the model has not answered yet stays whole, and so do the
newest message of the user, the newest rounds and the tools that are protected; doing it again changes nothing. In bulk, at a compaction,
and never as a window that slides: each elision costs what the provider remembers behind it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from compaction.draft import Draft, Frame, Moved
from compaction.recall import recall_id
from compaction.tokens import count_text, weigh
from compaction.transcript import Block, ModelMessage, last_assistant, parts_of, rounds, spoken

ERROR_LINE_CHARS = 300
LEAST_TOKENS = 160
"""Smaller bodies stay, whatever the options say: a placeholder with the first line of an error may be so large, and is not elided again."""
_MEDIA = frozenset({"image", "document"})
_CHARS_PER_TOKEN = 6


def elide(draft: Draft, frame: Frame) -> Draft:
    """Return the draft with the bodies of its old rounds moved out; the same messages where nothing was."""
    stop = _old_until(draft.body, frame.options.keep_rounds)
    newest = next((at for at in range(len(draft.body) - 1, -1, -1) if spoken(draft.body[at])), -1)
    least, protected = max(LEAST_TOKENS, frame.options.elide_tokens), frame.options.protected_tools
    names: dict[str, str] = {}
    moved: list[Moved] = []
    body: list[ModelMessage] = []
    for at, message in enumerate(draft.body[:stop]):
        for call in message.tool_calls:
            names[str(call.get("id"))] = str(call.get("name"))
        weight = weigh(message)
        if weight.text_tokens < least and not weight.images and not weight.pages:
            body.append(message)
            continue
        content: list[Block] = []
        gone: list[tuple[str, str, str]] = []
        for block in message.content:
            plain = block.get("type") == "text"
            said = at == newest and block.get("type") in _MEDIA  # what the user showed last stays, like what the user said last
            shorter = None if plain or said else _elide_block(block, message.role, names, protected, least)
            if shorter is not None:
                gone.append(shorter[:3])
                block = shorter[3]  # what stands there from now on
            content.append(block)
        if not gone:
            body.append(message)
            continue
        body.append(ModelMessage(message.role, content))
        body[-1].cleaned = message.cleaned if message.cleaned is True else None  # words in the place of words
        freed = (frame.tokens(weight) - frame.tokens(weigh(body[-1]))) // len(gone)
        moved += [Moved(kind, wanted, name, freed) for kind, name, wanted in gone]
    if not moved:
        return draft
    return replace(draft, body=(*body, *draft.body[stop:]), moved=(*draft.moved, *moved))


def _old_until(body: Sequence[ModelMessage], keep_rounds: int) -> int:
    """Return where the newest rounds begin; what the model has not answered yet is always among them."""
    spans = rounds(body)
    if len(spans) <= max(1, keep_rounds):
        return 0
    return min(spans[-max(1, keep_rounds)].start, max(0, last_assistant(body)))


def _elide_block(
    block: Block, role: str, names: Mapping[str, str], protected: frozenset[str], least: int
) -> tuple[str, str, str, Block] | None:
    """Return the kind, the tool, the recall id and what stands in for a block; None for one that stays."""
    match block.get("type"):
        case "tool_result":
            name = names.get(str(block.get("tool_use_id")), "tool")
            return None if name in protected else _elide_result(block, name, least)
        case "tool_use":
            name = str(block.get("name"))
            return None if name in protected else _elide_call(block, name, least)
        case "image" | "document" if role == "user":
            kind, wanted = str(block.get("type")), recall_id(block)
            return kind, kind, wanted, {"type": "text", "text": _placeholder(f"{kind} of the user", wanted, "")}
        case _:
            return None


def _elide_result(block: Block, name: str, least: int) -> tuple[str, str, str, Block] | None:
    content = block.get("content")
    media: list[str] = []
    if isinstance(content, str):
        text = content
    else:
        parts = parts_of(block)
        text = "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
        media = [str(part.get("type")) for part in parts if part.get("type") in _MEDIA]
    if not media and not _is_large(text, least):
        return None
    what = f"{len(text):,} characters" if text or not media else ""
    holds = ", ".join(part for part in (what, *_counted(media)) if part)
    wanted = recall_id(block)
    short = _placeholder(f"the {'error' if block.get('is_error') else 'result'} of {name}", wanted, holds)
    if block.get("is_error"):
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        short = f"{first[:ERROR_LINE_CHARS]}\n{short}"
    return "result", name, wanted, {**block, "content": short}


def _elide_call(block: Block, name: str, least: int) -> tuple[str, str, str, Block] | None:
    wanted: list[str] = []  # made when it is needed first

    def shorten(value: object) -> object:
        """Replace each long text of an input; the keys stay, since a model imitates what it sees of its calls."""
        if isinstance(value, str):
            if not _is_large(value, least):
                return value
            wanted[:] = wanted or [recall_id(block)]
            return f'[{len(value):,} characters moved out of sight; recall("{wanted[0]}") shows them]'
        if isinstance(value, Mapping):
            return {key: shorten(part) for key, part in cast("Mapping[str, object]", value).items()}
        if isinstance(value, list | tuple):
            return [shorten(item) for item in cast("Sequence[object]", value)]
        return value

    given = block.get("input")
    if not isinstance(given, Mapping):
        return None
    shorter = shorten(cast("Mapping[str, object]", given))
    return ("input", name, wanted[0], {**block, "input": shorter}) if wanted else None


def _is_large(text: str, least: int) -> bool:
    """Tell whether a text has so many tokens; one that is long enough for any script is not counted."""
    if len(text) < least // 3:
        return False
    return len(text) > least * _CHARS_PER_TOKEN or count_text(text) >= least


def _placeholder(what: str, wanted: str, holds: str) -> str:
    return f'[{what} was moved out of sight{f" ({holds})" if holds else ""}; recall("{wanted}") shows it]'


def _counted(media: Sequence[str]) -> list[str]:
    return [f"{media.count(kind)} {kind}{'s' if media.count(kind) > 1 else ''}" for kind in dict.fromkeys(media)]
