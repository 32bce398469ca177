"""Make any list of messages one that the provider takes.

Laws: what needs no repair is returned itself, message by message; a repaired list needs no further repair; the cost is linear; no text of a
user is lost. A repair is an edit: the caller starts a new epoch and stores the result as it is.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from compaction.cleaning import ID_PATTERN, clean
from compaction.images import MANY_IMAGES
from compaction.models import UNKNOWN_MODEL, ModelFacts
from compaction.recall import removed
from compaction.tokens import weigh, weigh_block
from compaction.transcript import (
    SERVER_CALL_TYPES,
    THINKING_TYPES,
    Block,
    ModelMessage,
    as_block,
    error_result,
    is_paused,
    is_server_result,
    notice,
)
from compaction.view import View

MISSING_RESULT = "interrupted: no result of this call was recorded"
MISSING_START = "[the beginning of this conversation is missing]"
CONTINUE = ModelMessage("user", notice("Continue."))
ID_PATTERN_OTHERS = re.compile(r"[^a-zA-Z0-9_-]")


def repair(messages: Iterable[ModelMessage], facts: ModelFacts = UNKNOWN_MODEL) -> list[ModelMessage]:
    """Return a valid list that differs from the given one only where it must."""
    return limit_images(mend(messages, facts), facts)


def mend(messages: Iterable[ModelMessage], facts: ModelFacts = UNKNOWN_MODEL) -> list[ModelMessage]:
    """Return a list that is valid but for the number and the sizes of its images."""
    merged = _merge(_without_strays(_merge(_cleaned(messages, facts))))
    if not merged or merged[0].role != "user" or len(merged[0].tool_results) == len(merged[0].content):
        merged[:0] = [ModelMessage("user", MISSING_START)]
        merged = _merge(merged)
    return _merge(_pair(merged))


def fits_model(view: View, facts: ModelFacts) -> bool:
    """Tell whether a view needs no repair for this model: it is sound, and holds no kind of message or image that the model refuses."""
    weight = view.weight
    takes_system = facts.system_messages or not view.system_messages
    takes_images = weight.images <= facts.max_images and not (weight.images > MANY_IMAGES and weight.big_images)  # V60, V61
    return view.sound and takes_system and takes_images


def drop_thinking(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return the messages without any thinking; those that held nothing else are left out."""
    kept: list[ModelMessage] = []
    for message in messages:
        if not message.thinks or message.role != "assistant":
            kept.append(message)
            continue
        content = [block for block in message.content if block.get("type") not in THINKING_TYPES]
        if content:
            kept.append(ModelMessage("assistant", content))
    return kept


def _cleaned(messages: Iterable[ModelMessage], facts: ModelFacts) -> Iterator[ModelMessage]:
    """Clean each message, leave out the empty ones, and give system messages that may not stand there to the user's side."""
    source = [cleaned for message in messages if (cleaned := clean(message)).content]
    for index, message in enumerate(source):
        cleaned = message
        if cleaned.role == "system":
            before = source[index - 1].role if index else ""
            after = source[index + 1].role if index + 1 < len(source) else "assistant"
            if not (facts.system_messages and before == "user" and after == "assistant"):
                cleaned = ModelMessage("user", cleaned.content)
        yield cleaned


def _merge(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Join neighbours of the same role; a paused assistant message is carried on by the next one as it is."""
    merged: list[ModelMessage] = []
    group: list[ModelMessage] = []
    for message in messages:
        if group and (group[-1].role != message.role or (is_paused(group[-1]) and not group[-1].tool_calls)):
            merged.append(_join(group))
            group = []
        group.append(message)
    if group:
        merged.append(_join(group))
    return merged


def _join(group: Sequence[ModelMessage]) -> ModelMessage:
    return group[0] if len(group) == 1 else ModelMessage(group[0].role, [block for message in group for block in message.content])


def _without_strays(messages: Sequence[ModelMessage]) -> Iterator[ModelMessage]:
    """Leave out the calls of the provider's own tools that can get no result any more, and results without a call."""
    strays = _stray_server_blocks(messages)
    for index, message in enumerate(messages):
        if index not in strays:
            yield message
        elif content := [block for at, block in enumerate(message.content) if at not in strays[index]]:
            yield ModelMessage(message.role, content)


def _stray_server_blocks(messages: Sequence[ModelMessage]) -> dict[int, set[int]]:
    """Find the positions, by message and block, of the provider's calls without a result and results without a call (V30, V31)."""
    strays: dict[int, set[int]] = {}
    pending: dict[str, tuple[int, int]] = {}
    seen: set[str] = set()

    def drop(places: Iterable[tuple[int, int]]) -> None:
        for index, at in places:
            strays.setdefault(index, set()).add(at)

    for index, message in enumerate(messages):
        if message.role != "assistant":
            if not message.tool_results or len(message.tool_results) < len(message.content):
                drop(pending.values())  # the turn was closed
                pending = {}
            continue
        waiting = pending
        pending = {}
        for at, block in enumerate(message.content):
            if block.get("type") in SERVER_CALL_TYPES:
                call_id = str(block.get("id"))
                if call_id in seen:
                    drop([(index, at)])
                else:
                    seen.add(call_id)
                    pending[call_id] = (index, at)
            elif is_server_result(block):
                call_id = str(block.get("tool_use_id"))
                if waiting.pop(call_id, None) is None and pending.pop(call_id, None) is None:
                    drop([(index, at)])
        drop(waiting.values())
    return strays


def _pair(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Give every call exactly one result in the next message, first in it, under an id that is used once."""
    ids = _Ids(messages)
    paired: list[ModelMessage] = []
    expected: list[tuple[str, str]] = []
    for message in messages:
        if message.role == "user":
            answer = _answer(message, expected, ids)
            expected = []
            if answer.content:
                paired.append(answer)
            continue
        if expected:
            paired.append(_answer(None, expected, ids))
        if message.role == "system" and (not paired or paired[-1].role != "user"):  # what it followed fell away
            paired.append(ModelMessage("user", message.content))
            expected = []
            continue
        renamed, expected = ids.rename(message)
        paired.append(renamed)
    if expected:
        paired.append(_answer(None, expected, ids))
    if not paired or (paired[-1].role == "assistant" and not is_paused(paired[-1])):
        paired.append(CONTINUE)
    return paired


class _Ids:
    """The ids of the calls of a list: which are taken, and which result stands at a wrong place."""

    def __init__(self, messages: Sequence[ModelMessage]) -> None:
        calls = [str(call.get("id")) for message in messages for call in message.tool_calls]
        self._all = {*calls, *(str(b.get("id")) for message in messages for b in message.content if b.get("type") in SERVER_CALL_TYPES)}
        self._used: set[str] = set()
        self._next: dict[str, int] = {}
        counts = Counter(calls)
        self.late: dict[str, Block] = {}
        for message in messages:
            for result in message.tool_results:
                if counts[key := str(result.get("tool_use_id"))] == 1:
                    self.late.setdefault(key, result)

    def rename(self, message: ModelMessage) -> tuple[ModelMessage, list[tuple[str, str]]]:
        """Return the message with unique ids, and the pairs of old and new id of its calls."""
        if not message.tool_calls:
            return message, []
        pairs: list[tuple[str, str]] = []
        content: list[Block] = []
        for block in message.content:
            if block.get("type") != "tool_use":
                content.append(block)
                continue
            old = str(block.get("id"))
            new = self._unique(old)
            self._used.add(new)
            pairs.append((old, new))
            content.append(block if new == old else {**block, "id": new})
        return (message if all(old == new for old, new in pairs) else ModelMessage(message.role, content)), pairs

    def _unique(self, old: str) -> str:
        if old not in self._used and ID_PATTERN.match(old):
            return old
        base = ID_PATTERN_OTHERS.sub("_", old) or "call"
        number = self._next.get(base, 2)
        while (new := f"{base}_{number}") in self._all or new in self._used:
            number += 1
        self._next[base] = number + 1
        return new


def _answer(message: ModelMessage | None, expected: Sequence[tuple[str, str]], ids: _Ids) -> ModelMessage:
    """Return the user message that answers the expected calls, from what stands there."""
    if message is not None and not expected and not message.tool_results:
        return message
    waiting: dict[str, deque[str]] = {}
    for old, new in expected:
        waiting.setdefault(old, deque()).append(new)
    content: list[Block] = []
    given = message.tool_results if message is not None else ()
    for result in given:
        queue = waiting.get(str(result.get("tool_use_id")))
        if queue:
            content.append(_under(queue.popleft(), result))
    for old, new in expected:
        queue = waiting[old]
        if queue and queue[0] == new:
            queue.popleft()
            content.append(_under(new, ids.late.get(old) or error_result(new, MISSING_RESULT)))
    content.extend(block for block in (message.content if message is not None else ()) if block.get("type") != "tool_result")
    if message is not None and len(content) == len(message.content) and all(a is b for a, b in zip(content, message.content, strict=True)):
        return message
    return ModelMessage("user", content)


def _under(call_id: str, result: Block) -> Block:
    return result if result.get("tool_use_id") == call_id else {**result, "tool_use_id": call_id}


def limit_images(messages: list[ModelMessage], facts: ModelFacts) -> list[ModelMessage]:
    """Replace images by a word where there are more than the model takes, or too large ones among many (V60, V61).

    The oldest go first; those of the first message, which is the task, and the newest ones go last.
    """
    weights = [weigh(message) for message in messages]
    images = sum(weight.images for weight in weights)
    excess = max(0, images - facts.max_images)
    too_big = sum(weight.big_images for weight in weights)
    if not excess and (images <= MANY_IMAGES or not too_big):
        return messages
    remover = _ImageRemover(images, excess)
    holders = [at for at, weight in enumerate(weights) if weight.images]
    thinned = list(messages)
    task_late = [*holders[1:-1], 0, *holders[1:][-1:]]
    for at in holders if holders[0] else task_late:
        thinned[at] = remover.visit(messages[at])
    return thinned


class _ImageRemover:
    """Walk over images, oldest first, and take out the first ones and the too large ones, as long as there are too many."""

    def __init__(self, images: int, excess: int) -> None:
        self._images, self._excess = images, excess

    def visit(self, message: ModelMessage) -> ModelMessage:
        """Return the message with its images thinned, itself when all may stay."""
        content = [self._visit_block(block) for block in message.content]
        if all(a is b for a, b in zip(content, message.content, strict=True)):
            return message
        return ModelMessage(message.role, content)

    def _visit_block(self, block: Block) -> Block:
        if block.get("type") == "image":
            if not (self._excess > 0 or (self._images > MANY_IMAGES and weigh_block(block).big_images)):
                return block
            self._excess -= 1
            self._images -= 1
            return removed(block)
        content = block.get("content")
        if block.get("type") != "tool_result" or not isinstance(content, list | tuple):
            return block
        parts = [as_block(part) for part in cast("Sequence[object]", content)]
        visited = [self._visit_block(part) for part in parts]
        return block if all(a is b for a, b in zip(visited, parts, strict=True)) else {**block, "content": visited}
