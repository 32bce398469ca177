"""Find again what a context no longer shows: by its id, or by any words of it.

An id is made from the content itself, so no list of ids has to be kept: whoever has the transcript has every body, and the id of each. It
is the same after a repair, a fork, a rewind or a restart.

Laws: what was ever added is found, by one call; a search for a text finds it in what was said, in results, and in the inputs of calls as
the model wrote them; nothing is changed by looking.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from compaction.cleaning import clean
from compaction.encoding import dumps
from compaction.images import source_of
from compaction.transcript import Block, ModelMessage, parts_of

ID_DIGITS = 12
SNIPPET_CHARS = 200
LARGE_TOKENS = 160
"""What weighs less is never moved out of sight: a placeholder with the first line of an error may be so large, and is not elided again."""
RECALL = "recall"
"""The name of the tool that looks here: its own calls and results are shown only where nothing else holds a text."""


class Recalled(NamedTuple):
    """A body in whole: its text, the images and documents in it, and where it stood."""

    recall_id: str
    message: int
    name: str
    text: str
    media: tuple[Block, ...] = ()


class Found(NamedTuple):
    """One place that holds the searched text. `recall_id` gives the whole body; `message` is its number in the transcript, from 1."""

    message: int
    role: str
    name: str
    recall_id: str
    snippet: str


class Search(NamedTuple):
    """What a search found, the newest first, and how many more there are."""

    found: tuple[Found, ...]
    more: int


def recall_id(block: Block) -> str:
    """Return the id of what a block holds: the content of a result, the input of a call, any other block as it is."""
    body = _body(block)
    text = body if isinstance(body, str) else dumps(body)
    return "r" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ID_DIGITS]


def result_ids(message: ModelMessage) -> tuple[str, ...]:
    """Return the ids of a message's results, in order; made once."""
    ids = message.result_ids
    if ids is None:
        ids = message.result_ids = tuple(map(recall_id, message.tool_results))
    return ids


def removed(block: Block) -> Block:
    """Return the word that stands for an image or a document where there is no room for it, with the id that brings it back."""
    kind = block.get("type")
    return {"type": "text", "text": f'[{"a" if kind == "document" else "an"} {kind} was removed; recall("{recall_id(block)}") shows it]'}


def _body(block: Block) -> Any:
    match block.get("type"):
        case "tool_result":
            return block.get("content")
        case "tool_use":
            return block.get("input")
        case "text":
            return block.get("text")
        case _:
            return block


class Archive:
    """Every message that ever was in one agent's context, in memory."""

    def __init__(self, messages: Iterable[ModelMessage] = ()) -> None:
        self._messages: list[ModelMessage] = []
        self._places: dict[str, tuple[int, Block]] = {}
        self._indexed = 0
        self._names: dict[str, str] = {}
        self._calls: dict[tuple[str, str], tuple[int, Block]] = {}
        self._views: list[ModelMessage] = []
        for message in messages:
            self.add(message)

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: ModelMessage) -> None:
        """Add the next message of the transcript; costs nothing until somebody looks."""
        self._messages.append(message)

    def add_view(self, messages: Iterable[ModelMessage]) -> None:
        """Take in what an edit left, so that an id of a body that was shortened there leads to the whole one."""
        self._views.extend(messages)

    def get(self, wanted: str, lines: tuple[int, int] | None = None) -> Recalled | None:
        """Return the body of an id, or message number 17 for `m17`; None when there is none.

        Args:
            lines: the first and last line to return, from 1; all when None.
        """
        self._index()
        if wanted[:1] == "m" and wanted[1:].isdecimal():
            number = int(wanted[1:])
            if not 1 <= number <= len(self._messages):
                return None
            message = self._messages[number - 1]
            text = "\n".join(text for block in message.content for text in texts_of(block))
            return Recalled(wanted, number, message.role, _lines(text, lines), _media(message.content))
        place = self._places.get(wanted)
        if place is None:
            return None
        at, block = place
        media = _media(parts_of(block)) if block.get("type") == "tool_result" else _media([block])
        return Recalled(wanted, at + 1, self._name(self._messages[at].role, block), _lines("\n".join(texts_of(block)), lines), media)

    def find(self, text: str, *, limit: int = 20) -> Search:
        """Return the places that hold a text, exactly as given, the newest first.

        Raises:
            ValueError: the text is empty.
        """
        if not text:
            raise ValueError("cannot search for an empty text")
        self._index()
        hits = self._hits(text)
        firsts = [hit for hit in hits if hit.name != RECALL] or hits  # looking for something says it again
        return Search(tuple(firsts[:limit]), max(0, len(firsts) - limit))

    def _hits(self, text: str) -> list[Found]:
        hits: list[Found] = []
        escaped = dumps(text)[1:-1]  # as it stands inside a string of JSON; the input of a call stands there as it is
        for at in range(len(self._messages) - 1, -1, -1):
            message = self._messages[at]
            if message.well_formed and escaped not in message.json and text not in message.json:
                continue
            for block in message.content:
                for part in texts_of(block):
                    where = part.find(text)
                    if where >= 0:
                        name = self._name(message.role, block)
                        hits.append(Found(at + 1, message.role, name, recall_id(block), _snippet(part, where, len(text))))
                        break
        return hits

    def _index(self) -> None:
        """Learn the ids of what was added since the last look."""
        for at in range(self._indexed, len(self._messages)):
            message = self._messages[at]
            repaired = clean(message)  # what stood in the context, where that was not what had been said
            for block in message.content if repaired is message else (*message.content, *repaired.content):
                if block.get("type") == "tool_use":
                    self._names[str(block.get("id"))] = str(block.get("name"))
                    self._calls["tool_use", str(block.get("id"))] = at, block
                if block.get("type") == "tool_result":
                    self._calls["tool_result", str(block.get("tool_use_id"))] = at, block
                    for part in parts_of(block):
                        if part.get("type") in {"image", "document"}:
                            self._places.setdefault(recall_id(part), (at, block))
                self._places.setdefault(recall_id(block), (at, block))
        self._indexed = len(self._messages)
        for message in self._views:
            for block in (*message.tool_calls, *message.tool_results):
                kind = str(block.get("type"))
                whole = self._calls.get((kind, str(block.get("id" if kind == "tool_use" else "tool_use_id"))))
                if whole is not None:
                    self._places.setdefault(recall_id(block), whole)
        self._views.clear()

    def _name(self, role: str, block: Block) -> str:
        match block.get("type"):
            case "tool_use":
                return str(block.get("name"))
            case "tool_result":
                return self._names.get(str(block.get("tool_use_id")), "tool")
            case _:
                return role


def texts_of(block: Block) -> Iterator[str]:
    """Yield every text that a block shows to a model; the input of a call both part by part and as JSON."""
    match block.get("type"):
        case "text":
            yield str(block.get("text", ""))
        case "thinking":
            yield str(block.get("thinking", ""))
        case "tool_use":
            given = block.get("input")
            yield from _strings(given)
            yield dumps(given)
        case "tool_result":
            for part in parts_of(block):
                yield from texts_of(part)
        case "image":
            url = source_of(block).get("url")
            if isinstance(url, str):
                yield url
        case "redacted_thinking":
            return
        case _:
            yield from _strings(block)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, part in cast("Mapping[str, object]", value).items():
            yield key
            yield from _strings(part)
    elif isinstance(value, list | tuple):
        for part in cast("Sequence[object]", value):
            yield from _strings(part)
    elif value is not None:
        yield str(value)


def _snippet(text: str, where: int, length: int) -> str:
    side = max(0, (SNIPPET_CHARS - length) // 2)
    start, stop = max(0, where - side), min(len(text), where + length + side)
    return ("..." if start else "") + text[start:stop] + ("..." if stop < len(text) else "")


def _lines(text: str, lines: tuple[int, int] | None) -> str:
    if lines is None:
        return text
    first, last = lines
    return "\n".join(text.split("\n")[max(0, first - 1) : max(0, last)])


def _media(blocks: Iterable[Block]) -> tuple[Block, ...]:
    return tuple(block for block in blocks if block.get("type") in {"image", "document"})
