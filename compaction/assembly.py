"""Take a view apart for an edit, and put the draft together again as what may be sent.

Laws: what the last edit wrote is found by its place and taken out, so nothing that compaction wrote is ever compacted; what comes out is
valid, begins with the task, and ends where the model may go on.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import is_
from typing import NamedTuple

from compaction.carried import Carried
from compaction.cleaning import clean
from compaction.draft import Draft, Frame
from compaction.layers.arrival import cap_tokens
from compaction.layers.render import render
from compaction.layers.trim import MARKER, Limits, trim
from compaction.models import ModelFacts
from compaction.record import EMPTY_RECORD, CompressedHistory
from compaction.repair import CONTINUE, drop_thinking, fits_model, mend, repair
from compaction.state import StateDigest
from compaction.tokens import Weight, weigh_all
from compaction.transcript import Block, ModelMessage, open_server_calls, text_blocks
from compaction.view import View


class Assembled(NamedTuple):
    """A draft as the view of the next epoch, and by how much it is still too large."""

    view: View
    trimmed: bool
    over_tokens: int


def take_apart(view: View, facts: ModelFacts, record: CompressedHistory = EMPTY_RECORD, state: StateDigest | None = None) -> Draft:
    """Return a view as a draft: repaired, without thinking, without what earlier edits wrote.

    Args:
        record: the facts of everything up to now.
        state: what the surroundings know; none when None.
    """
    carried = view.carried
    source = without_written(view)
    size = carried.task_blocks or 0
    if not size and source and source[0].role == "user":
        # Counted before neighbours are joined, so that the task does not grow by what follows it.
        size = sum(1 for block in clean(source[0]).content if block.get("type") != "tool_result")
    messages = drop_thinking(source)
    untouched = len(messages) == len(source) and all(map(is_, messages, source))
    if not (messages and untouched and fits_model(view, facts)):
        messages = mend(messages, facts)  # with all its images: what an edit moves out of sight is moved out under its own id
    if len(messages) > 1 and messages[-1] == CONTINUE:  # nobody's words; assembling puts it there again where it is needed
        del messages[-1]
    first = messages[0].content
    size = min(size, len(first)) or len(first)
    rest = first[size:]
    body = (ModelMessage("user", rest), *messages[1:]) if rest else tuple(messages[1:])
    return Draft(
        task=tuple(first[:size]),
        body=body,
        record=record,
        summary=carried.summary,
        kind=carried.memory_kind,
        state=StateDigest() if state is None else state,
        removed_messages=carried.removed_messages,
    )


def without_written(view: View, start: int = 0) -> list[ModelMessage]:
    """Return the messages from `start` on without the blocks that compaction wrote; messages that hold nothing else are left out."""
    carried = view.carried
    source: list[ModelMessage] = list(view.messages[start:] if start else view.messages)
    all_filled = view.sound
    if carried.state_block is not None and carried.state_block[0] >= start:
        at, place = carried.state_block
        source[at - start] = _without(source[at - start], range(place, place + 1))
        all_filled = False
    if not start and source and carried.memory_blocks:
        size = carried.task_blocks or 0
        source[0] = _without(source[0], range(size, size + carried.memory_blocks))
        all_filled = False
    return source if all_filled or len(source) < 2 else [message for message in source if message.content]


def assemble(draft: Draft, frame: Frame, *, epoch: int, memory_tokens: int, must_trim: bool) -> Assembled:
    """Return the view of a draft, trimmed where it would not fit.

    Args:
        epoch: that of the new view.
        memory_tokens: the most that the memory of what was cut, and the state block, may take, each.
        must_trim: whether to trim down to the target; otherwise only what is over the limit is.
    """
    base = int(memory_tokens * 1_000 / max(1, frame.tokens(Weight(1_000))))  # in the unit of the counter
    memory: list[Block] = [
        {"type": "text", "text": text}
        for text in (render(draft.kind, draft.record, draft.summary, draft.state, base) if draft.kind else ())
    ]
    state = cap_tokens(draft.state.text, base)
    lead = [*draft.task, *memory]
    room = frame.limit_tokens - (frame.tokens(weigh_all([ModelMessage("user", text_blocks(state))])) if state else 0)
    removed, trimmed = draft.removed_messages, False
    view = _sendable(_joined([*lead, *_marker(removed)], draft.body), epoch, frame)
    over_tokens = frame.tokens(view.weight) - room
    if over_tokens > 0 or must_trim or view.size_bytes > frame.options.limit_bytes:
        if not draft.kind and memory_tokens:  # what falls away now is remembered as data
            return assemble(replace(draft, kind="digest"), frame, epoch=epoch, memory_tokens=memory_tokens, must_trim=must_trim)
        source = repair(_joined(lead, draft.body), frame.facts)
        if len(source) > 1 and source[-1] == CONTINUE:  # the newest words are the user's own
            del source[-1]
        limits = Limits(min(frame.target_tokens, room), max(1, room), frame.options.limit_bytes)
        result = trim(source, limits, frame.tokens, task_blocks=len(lead), removed_before=removed)
        view = View(repair(result.messages, frame.facts), epoch=epoch)
        over_tokens = frame.tokens(view.weight) - room
        trimmed, removed = bool(result.removed or result.shortened), removed + result.removed_messages
    view.carried = Carried(
        task_blocks=len(draft.task),
        memory_blocks=len(memory) + (removed > 0),
        memory_kind=draft.kind,
        recorded=len(view),
        record=draft.record,
        summary=draft.summary,
        removed_messages=removed,
    )
    return Assembled(_with_state(view, state), trimmed, max(0, over_tokens))


def _joined(lead: Sequence[Block], body: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return a body behind its lead, of which a user's first message becomes a part."""
    if body and body[0].role == "user":
        return [ModelMessage("user", [*lead, *body[0].content]), *body[1:]]
    return [ModelMessage("user", lead), *body]


def _marker(removed: int) -> list[Block]:
    return [{"type": "text", "text": MARKER.format(count=removed)}] if removed else []


def _sendable(messages: list[ModelMessage], epoch: int, frame: Frame) -> View:
    """Return the messages as a view, repaired where they could not be sent as they are."""
    view = View(messages, epoch=epoch)
    if view.sendable and fits_model(view, frame.facts):
        return view
    return View(repair(messages, frame.facts), epoch=epoch)


def _with_state(view: View, state: str) -> View:
    """Put the team's state into the newest message of the user; behind the memory where the list does not end with one."""
    if not state:
        return view
    block: Block = {"type": "text", "text": state}
    messages, carried = list(view.messages), view.carried
    last = len(messages) - 1
    *_, server_open = frozenset[str](), *open_server_calls(messages[:last])  # V30: while one is open, a message may hold results alone
    if messages[last].role == "user" and last and not server_open:
        content = messages[last].content
        messages[last] = ModelMessage("user", [*content, block])
        return View(messages, epoch=view.epoch, carried=carried._replace(state_block=(last, len(content))))
    place = (carried.task_blocks or 0) + carried.memory_blocks
    content = messages[0].content
    messages[0] = ModelMessage("user", [*content[:place], block, *content[place:]])
    return View(messages, epoch=view.epoch, carried=carried._replace(memory_blocks=carried.memory_blocks + 1))


def _without(message: ModelMessage, places: range) -> ModelMessage:
    return ModelMessage(message.role, [block for place, block in enumerate(message.content) if place not in places])
