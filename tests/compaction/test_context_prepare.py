"""The one door: what comes out of `prepare` is valid, fits, keeps the task and the newest words, and leaves its input alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from compaction.compactor import Around, Checkpoint, Compactor, Plan, Prepared
from compaction.errors import NoRoomForMessages
from compaction.layers.trim import MARKER
from compaction.models import ModelFacts, model_facts
from compaction.options import CompactionOptions
from compaction.tokens import weigh
from compaction.transcript import Block, ModelMessage, is_real_user
from compaction.triggers import Cause
from compaction.view import View
from tests.compaction.oracle import refusals, thinking_blocks
from tests.compaction.strategies import TRANSCRIPTS, assistant, broken, call, conversations, image, result, rounds_of, transcript, user

BUDGETS = (2_000, 5_000, 20_000, 100_000, 200_000, 1_000_000)


def compactor(window_tokens: int, **options: Any) -> Compactor:
    """Return a compactor whose budget is the whole window."""
    return Compactor(CompactionOptions(**options), facts=ModelFacts(name="test", window_tokens=window_tokens), reply_tokens=0)


def wire(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """Return messages as a body has them."""
    return [message.wire() for message in messages]


def measured(door: Compactor, messages: Sequence[ModelMessage]) -> int:
    """Measure messages anew, without anything that was kept from earlier."""
    return sum(door.meter.tokens(weigh(ModelMessage(message.role, message.content))) for message in messages)


def words_of(message: ModelMessage) -> list[Block]:
    """Return what a user said, without results."""
    return [block for block in message.content if block.get("type") != "tool_result"]


def holds(messages: Sequence[ModelMessage], words: list[Block]) -> bool:
    """Tell whether some user message holds these blocks, in a row."""
    return any(
        list(message.content[at : at + len(words)]) == words
        for message in messages
        if message.role == "user"
        for at in range(len(message.content) - len(words) + 1)
    )


async def check(messages: list[ModelMessage], window_tokens: int, cause: Cause | None = None) -> Prepared:
    """Prepare a view, and look at what must hold whatever it is."""
    door = compactor(window_tokens)
    view = View(messages)
    before = wire(messages)
    prepared = await door.prepare(view, cause=cause)
    sent = prepared.view.messages
    assert refusals(wire(sent)) == []
    assert wire(messages) == before
    assert view.messages == messages
    assert view.epoch == 0
    assert measured(door, sent) <= window_tokens or prepared.over_tokens > 0
    if prepared.checkpoint is None:
        assert prepared.view is view
    else:
        assert prepared.view.epoch == prepared.checkpoint.epoch == 1
        assert prepared.checkpoint.messages == tuple(sent)
        assert prepared.checkpoint.replaces == len(messages)
        assert thinking_blocks(wire(sent)) == []
    return prepared


@given(conversations(), st.sampled_from(BUDGETS), st.sampled_from([None, Cause.ASKED, Cause.OVERFLOW]))
async def test_prepare_of_a_valid_list(messages: list[ModelMessage], window_tokens: int, cause: Cause | None) -> None:
    """The task leads, the newest words of the user stay as they are, and what follows the last assistant message is all there."""
    prepared = await check(messages, window_tokens, cause)
    sent = prepared.view.messages
    task = list(messages[0].content)
    assert list(sent[0].content[: len(task)]) == task
    newest = next(message for message in reversed(messages) if is_real_user(message))
    assert holds(sent, words_of(newest))
    tail = messages[max((i for i, m in enumerate(messages) if m.role == "assistant"), default=0) :]
    calls = [block["id"] for message in tail for block in message.tool_calls]
    assert [block["id"] for message in sent for block in message.tool_calls][-len(calls) or len(sent) * 9 :] == calls
    if prepared.over_tokens:
        assert len(sent) <= len(tail) + 1, "what is still too large must be what may not go"


@given(broken(), st.sampled_from(BUDGETS))
async def test_prepare_of_any_list(messages: list[ModelMessage], window_tokens: int) -> None:
    """Whatever goes in, only a valid list comes out."""
    await check(messages, window_tokens)


@pytest.mark.parametrize("window_tokens", BUDGETS)
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
async def test_prepare_of_real_sessions(path: Path, window_tokens: int) -> None:
    """Every recorded session comes out valid, begins with its task and keeps the newest words, in every budget."""
    messages = transcript(path)
    sent = (await check(messages, window_tokens)).view.messages
    task = [block.get("text") for block in messages[0].content if block.get("type") == "text"]
    assert [block.get("text") for block in sent[0].content][: len(task)] == task
    newest = next(message for message in reversed(messages) if is_real_user(message))
    said = [str(block["text"]) for block in words_of(newest) if block.get("type") == "text"]
    assert all(any(text in message.text for message in sent if message.role == "user") for text in said)


class Untouched(ModelMessage):
    """A message that counts how often anything of it is looked at."""

    __slots__ = ()
    touches = 0

    def __getattribute__(self, name: str) -> Any:
        Untouched.touches += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize("count", [20, 2_000])
async def test_prepare_without_work_touches_no_message(count: int) -> None:
    """With nothing to do, no message is looked at, however many there are."""
    view = View([Untouched(message.role, message.content) for message in [user("go"), *rounds_of(count // 2)]])
    door = compactor(100_000_000)
    Untouched.touches = 0
    prepared = await door.prepare(view)
    assert Untouched.touches == 0
    assert prepared.view is view
    assert prepared.checkpoint is None


@given(conversations(max_rounds=8), st.sampled_from([900, 3_000, 20_000]))
async def test_requests_are_prefixes_until_an_edit(messages: list[ModelMessage], window_tokens: int) -> None:
    """Each request begins with the one before, byte for byte, unless the epoch changed; then no older thinking is in it."""
    door = compactor(window_tokens)
    view = View()
    sent: list[str] = []
    epoch = 0
    made: set[str] = set()
    for message in messages:
        if message.role == "assistant":
            thoughts = [ModelMessage("assistant", [block]).json for block in message.content if "thinking" in str(block.get("type"))]
            made.update(thoughts)
            view.append(message)
            continue
        view.append(message)
        prepared = await door.prepare(view)
        view = prepared.view
        body = [each.json for each in view.messages]
        if view.epoch == epoch:
            assert body[: len(sent)] == sent
        else:
            assert thinking_blocks(wire(view.messages)) == []
            assert view.epoch == epoch + 1
        sent, epoch = body, view.epoch
        door.meter.observe(view.weight, epoch=view.epoch, input_tokens=door.meter.tokens(view.weight) + 7)


async def test_trigger_is_over_its_share_only() -> None:
    """At the threshold nothing happens; one token over it, the context is compacted to its target."""
    view = View([user("go"), *rounds_of(60, 400)])
    door = compactor(100_000)
    used = door.used_tokens(view)
    quiet = {"all_tools_messages": 9_999, "turn_tool_calls": 9_999}
    assert (await compactor(used * 10 // 7 + 10, **quiet).prepare(view)).checkpoint is None
    window = used * 10 // 7 - 10
    checkpoint = (await compactor(window).prepare(view)).checkpoint
    assert checkpoint is not None
    assert checkpoint.trigger is Cause.SIZE
    assert checkpoint.layers == ("digest",)
    assert checkpoint.tokens_before == used
    assert checkpoint.tokens_after <= window // 2
    assert (await compactor(window, enabled=False).prepare(view)).checkpoint is None


async def test_what_compaction_wrote_stands_between_the_task_and_the_rest_once() -> None:
    """Behind the task there is one memory and one marker that counts all that was ever removed, also after a third compaction."""
    door = compactor(4_000)
    view = View([user("the task"), *rounds_of(60, 400)])
    removed = 0
    for more in ([], [assistant("well"), user("now another thing"), *rounds_of(3), *rounds_of(40, 400)[6:]], rounds_of(80, 400)[80:]):
        for message in more:
            view.append(message)
        view = (await door.prepare(view)).view
        carried = view.carried
        assert carried.removed_messages > removed
        removed = carried.removed_messages
        blocks = [block["text"] for block in view.messages[0].content]
        written = blocks[1 : 1 + carried.memory_blocks]
        assert blocks[0] == "the task"
        assert written[-1] == MARKER.format(count=removed)
        assert sum(text.startswith(MARKER[:5]) for text in blocks) == 1
        assert blocks[1 + carried.memory_blocks :] == (["now another thing"] if view.epoch > 1 else [])
        assert len(written) == len(set(written)) == 2
    assert view.epoch == 3


async def test_no_window_slides() -> None:
    """Right after a compaction that could not reach its target, the next small round causes no second one."""
    door = compactor(5_000)
    view = View([user("go"), *rounds_of(20, 400), assistant(call("big")), user(result("big", "word " * 2_900))])
    prepared = await door.prepare(view)
    assert prepared.checkpoint is not None
    view = prepared.view
    assert door.used_tokens(view) > 0.7 * 5_000
    epochs: list[int] = []
    for number in range(3):
        view.append(assistant(call(f"small{number}")))
        view.append(user(result(f"small{number}", "ok")))
        view = (await door.prepare(view)).view
        epochs.append(view.epoch)
    assert epochs == [1, 1, 1]


async def test_nothing_shrank_is_no_event() -> None:
    """Where only protected words are left, there is no checkpoint, no hook after it, and no attempt until the context has grown."""
    plans: list[Plan] = []
    done: list[Checkpoint] = []
    door = Compactor(
        CompactionOptions(),
        facts=ModelFacts(name="test", window_tokens=1_000),
        reply_tokens=0,
        around=Around(pre_compact=plans.append, post_compact=done.append),
    )
    view = View([user("many words " * 900)])
    prepared = await door.prepare(view)
    assert prepared.view is view
    assert prepared.checkpoint is None
    assert prepared.over_tokens == door.used_tokens(view) - 950
    assert (await door.prepare(view)).over_tokens == prepared.over_tokens
    assert plans == []
    assert done == []


async def test_thinking_alone_is_no_reason_for_an_edit() -> None:
    """A compaction that would free nothing but thinking is none: the epoch stays, and so does the thinking."""
    view = View([user("word " * 3_000), assistant({"type": "thinking", "thinking": "hm " * 50, "signature": "c2ln"}, "yes"), user("on")])
    for cause in (None, Cause.ASKED):
        prepared = await compactor(3_000).prepare(view, cause=cause)
        assert prepared.view is view
        assert prepared.checkpoint is None


async def test_hooks_stand_around_an_edit() -> None:
    """Hooks, async or not, see the plan before and the checkpoint after."""
    seen: list[object] = []

    async def before(plan: Plan) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(plan.trigger)

    door = Compactor(
        CompactionOptions(),
        facts=ModelFacts(name="test", window_tokens=2_000),
        reply_tokens=0,
        around=Around(pre_compact=before, post_compact=seen.append),
    )
    prepared = await door.prepare(View([user("go"), *rounds_of(40, 400)]))
    assert seen == [Cause.SIZE, prepared.checkpoint]


async def test_overflow_frees_at_least_a_quarter() -> None:
    """When the provider says that it was too long, less is sent, whatever the estimate said."""
    door = compactor(1_000_000)
    view = View([user("go"), *rounds_of(100, 400)])
    prepared = await door.prepare(view, cause=Cause.OVERFLOW)
    assert prepared.checkpoint is not None
    assert prepared.checkpoint.trigger is Cause.OVERFLOW
    assert prepared.view.weight.text_tokens < 0.51 * view.weight.text_tokens
    one = View([user("go"), assistant(call("a")), user(result("a", "word " * 4_000))])
    assert (await compactor(1_000_000).prepare(one, cause=Cause.OVERFLOW)).view.weight.text_tokens < 0.75 * one.weight.text_tokens


async def test_too_many_images_are_an_edit_and_too_many_bytes_too() -> None:
    """What the provider refuses for its images or its size in bytes is edited, though its tokens are few."""
    facts = model_facts("claude-haiku-4-5")
    door = Compactor(CompactionOptions(limit_bytes=100_000), facts=facts, reply_tokens=1_000)
    pictures = View([user("go"), *(m for i in range(60) for m in (assistant(call(f"i{i}")), user(result(f"i{i}", [image(), image()]))))])
    prepared = await door.prepare(pictures)
    assert prepared.checkpoint is not None
    assert prepared.view.weight.images == 100
    heavy = dict(image())
    heavy["source"] = {**heavy["source"], "data": heavy["source"]["data"] + "A" * 40_000}
    bulky = View([user("go"), *(m for i in range(5) for m in (assistant(call(f"i{i}")), user(result(f"i{i}", [heavy]))))])
    prepared = await door.prepare(bulky)
    assert prepared.checkpoint is not None
    assert prepared.view.size_bytes <= 100_000
    assert refusals(wire(prepared.view.messages)) == []


async def test_a_distrusted_view_is_rewritten() -> None:
    """A view that was read from a damaged session starts a new epoch, without thinking, though its list looks right."""
    view = View([user("go"), assistant({"type": "thinking", "thinking": "hm", "signature": "c2ln"}, "yes"), user("on")])
    view.distrust()
    prepared = await compactor(100_000).prepare(view)
    assert prepared.checkpoint is not None
    assert prepared.checkpoint.layers == ("repair",)
    assert thinking_blocks(wire(prepared.view.messages)) == []


def test_no_room_is_told_at_once() -> None:
    """System and tools that fill the window are an error that names the figures."""
    with pytest.raises(NoRoomForMessages, match="no room for messages in a window of 1000 tokens"):
        Compactor(CompactionOptions(), facts=ModelFacts(name="test", window_tokens=1_000), reply_tokens=400, system="many words " * 900)


async def test_a_task_that_is_too_long_for_a_request_says_by_how_many_bytes() -> None:
    """Where nothing may go, the view says that it is stuck, and by how much a request would be too long."""
    door = compactor(1_000_000, limit_bytes=10_000)
    view = View([user("x" * 15_000), *rounds_of(4)])
    prepared = await door.prepare(view)
    assert prepared.stuck
    assert prepared.over_bytes == prepared.view.size_bytes - 10_000 > 0
    assert (await door.prepare(prepared.view)).over_bytes == prepared.over_bytes
