"""Move the bodies of old rounds out of sight: results, large inputs of calls, images and documents become placeholders with a recall id.

Laws: ids, order, keys and the assistant's words stay; a message never grows; what the model has not answered yet stays whole, and so do the
newest message of the user, the newest rounds and the tools that are protected; doing it again changes nothing. In bulk, at a compaction,
and never as a window that slides: each elision costs what the provider remembers behind it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from compaction.draft import Draft, Frame, Moved
from compaction.recall import LARGE_TOKENS, recall_id, result_ids
from compaction.tokens import count_text, weigh
from compaction.transcript import MAPPINGS, Block, ModelMessage, last_assistant, parts_of, rounds, spoken

ERROR_LINE_CHARS = 300
_MEDIA = frozenset({"image", "document"})
_CHARS_PER_TOKEN = 6


def elide(draft: Draft, frame: Frame) -> Draft:
    """Return the draft with the bodies of its old rounds moved out; the same messages where nothing was."""
    stop = _old_until(draft.body, frame.options.keep_rounds)
    newest = next((at for at in range(len(draft.body) - 1, -1, -1) if spoken(draft.body[at])), -1)
    elision = _Elision(frame)
    body = [elision.follow(message, newest=at == newest) for at, message in enumerate(draft.body[:stop])]
    if not elision.moved:
        return draft
    return replace(draft, body=(*body, *draft.body[stop:]), moved=(*draft.moved, *elision.moved))


def _old_until(body: Sequence[ModelMessage], keep_rounds: int) -> int:
    """Return where the newest rounds begin; what the model has not answered yet is always among them."""
    spans = rounds(body)
    if len(spans) <= max(1, keep_rounds):
        return 0
    return min(spans[-max(1, keep_rounds)].start, max(0, last_assistant(body)))


_Gone: TypeAlias = tuple[str, str, str, Block]
"""A body that is to go: its kind, its recall id, the name of the tool, and the block with what stands in its place."""


class _Elision:
    """An elision while it walks over the messages, the oldest first: the calls that were made last, and what has moved."""

    def __init__(self, frame: Frame) -> None:
        self.moved: list[Moved] = []
        self._tokens = frame.tokens
        self._least = max(LARGE_TOKENS, frame.options.elide_tokens)
        self._protected = frame.options.protected_tools
        self._calls: tuple[Block, ...] = ()

    def follow(self, message: ModelMessage, *, newest: bool) -> ModelMessage:
        """Return the next message without its large bodies, itself when it has none; the media of the newest words stay."""
        if message.tool_calls:
            self._calls = message.tool_calls
        weight = weigh(message)
        if weight.text_tokens < self._least and not weight.images and not weight.pages:
            return message
        content: list[Block] = []
        gone: list[_Gone] = []
        ids = iter(result_ids(message))
        for block in message.content:
            found = self._look(block, message.role, ids, newest=newest)
            if found is None:
                content.append(block)
            else:
                content.append(found[3])
                gone.append(found)
        if not gone:
            return message
        shorter = message.reworded(content)
        freed = (self._tokens(weight) - self._tokens(weigh(shorter))) // len(gone)
        for kind, wanted, name, _ in gone:
            self.moved.append(Moved(kind, wanted, name, freed))
        return shorter

    def _look(self, block: Block, role: str, ids: Iterator[str], *, newest: bool) -> _Gone | None:
        """Return what goes of a block; None for one that stays. `ids` are those of the results that come."""
        match block.get("type"):
            case "tool_result":
                wanted, name = next(ids), self._name(block)
                return None if name in self._protected else self._look_at_result(block, name, wanted)
            case "tool_use":
                name = str(block.get("name"))
                return None if name in self._protected else self._look_at_call(block, name)
            case "image" | "document" if role == "user" and not newest:  # what the user showed last stays, like what the user said last
                kind, wanted = str(block.get("type")), recall_id(block)
                return kind, wanted, kind, {"type": "text", "text": _placeholder(f"{kind} of the user", wanted, "")}
            case _:
                return None

    def _name(self, result: Block) -> str:
        """Return the name of the tool that a result comes from; its call stands in the message before."""
        call_id = result.get("tool_use_id")
        for call in self._calls:
            if call.get("id") == call_id:
                return str(call.get("name"))
        return "tool"

    def _look_at_result(self, block: Block, name: str, wanted: str) -> _Gone | None:
        content, text, media = block.get("content"), "", ""
        if isinstance(content, str):
            text = content
        else:
            parts = parts_of(block)
            text = "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
            media = _counted([str(part.get("type")) for part in parts if part.get("type") in _MEDIA])
        if not media and not _is_large(text, self._least):
            return None
        length = f"{len(text):,} characters" if text or not media else ""
        holds = f"{length}, {media}" if length and media else length or media
        failed = block.get("is_error")
        short = _placeholder(f"the {'error' if failed else 'result'} of {name}", wanted, holds)
        if failed:
            first = next((line.strip() for line in text.splitlines() if line.strip()), "")
            short = f"{first[:ERROR_LINE_CHARS]}\n{short}"
        return "result", wanted, name, {**block, "content": short}

    def _look_at_call(self, block: Block, name: str) -> _Gone | None:
        given: object = block.get("input")
        if not isinstance(given, MAPPINGS) or not self._holds_large(cast("Block", given)):
            return None
        wanted = recall_id(block)
        return "input", wanted, name, {**block, "input": self._shortened(cast("Block", given), wanted)}

    def _holds_large(self, value: object) -> bool:
        """Tell whether there is a large text in an input."""
        if isinstance(value, str):
            return _is_large(value, self._least)
        if isinstance(value, MAPPINGS):
            return any(map(self._holds_large, cast("Block", value).values()))
        return isinstance(value, list | tuple) and any(map(self._holds_large, cast("Sequence[object]", value)))

    def _shortened(self, value: object, wanted: str) -> object:
        """Return an input with its large texts replaced; the keys stay, since a model imitates what it sees of its calls."""
        if isinstance(value, str):
            if not _is_large(value, self._least):
                return value
            return f'[{len(value):,} characters moved out of sight; recall("{wanted}") shows them]'
        if isinstance(value, MAPPINGS):
            return {key: self._shortened(part, wanted) for key, part in cast("Block", value).items()}
        if isinstance(value, list | tuple):
            return [self._shortened(item, wanted) for item in cast("Sequence[object]", value)]
        return value


def _is_large(text: str, least: int) -> bool:
    """Tell whether a text has so many tokens; one that is long enough for any script is not counted."""
    if len(text) < least // 3:
        return False
    return len(text) > least * _CHARS_PER_TOKEN or count_text(text) >= least


def _placeholder(what: str, wanted: str, holds: str) -> str:
    return f'[{what} was moved out of sight{f" ({holds})" if holds else ""}; recall("{wanted}") shows it]'


def _counted(media: Sequence[str]) -> str:
    return ", ".join(f"{media.count(kind)} {kind}{'s' if media.count(kind) > 1 else ''}" for kind in dict.fromkeys(media))
