"""Events of a stream, put together without any I/O."""

from typing import Any

import pytest

from teams.errors import ModelConnectionError
from teams.models import Usage
from teams.models.stream import StreamAssembler

Event = dict[str, Any]


def block(start: Event, *deltas: Event, index: int = 0, stop: bool = True) -> list[Event]:
    """The events of one block."""
    events: list[Event] = [{"type": "content_block_start", "index": index, "content_block": start}]
    events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [*events, {"type": "content_block_stop", "index": index}] if stop else events


def tool(*pieces: str) -> list[Event]:
    """The events of a tool call."""
    start: Event = {"type": "tool_use", "id": "t", "name": "ls", "input": {}}
    return block(start, *[{"type": "input_json_delta", "partial_json": piece} for piece in pieces])


def text(value: str) -> list[Event]:
    """The events of a text block."""
    return block({"type": "text", "text": "", "citations": None}, {"type": "text_delta", "text": value})


def feed(*parts: list[Event], reason: str = "end_turn", ended: bool = True) -> StreamAssembler:
    """A stream with these blocks."""
    usage = {"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": None}
    assembler = StreamAssembler()
    assembler.feed({"type": "message_start", "message": {"model": "m", "usage": usage}})
    for event in [event for part in parts for event in part]:
        assembler.feed(event)
    assembler.feed({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}})
    assembler.feed({"type": "ping"})
    assembler.feed({"type": "something_new"})
    if ended:
        assembler.feed({"type": "message_stop"})
    return assembler


def test_usage_is_that_of_the_whole_stream() -> None:
    """Later figures replace earlier ones, absent ones stay."""
    assert feed(text("x")).reply().usage == Usage(5, 9, 0, 2)


def test_stream_without_its_last_event_is_cut_off() -> None:
    """A stop reason alone does not make an answer complete."""
    with pytest.raises(ModelConnectionError, match="ended before its message_stop"):
        feed(text("x"), ended=False).reply()


@pytest.mark.parametrize("torso", [tool('{"path": "a'), tool(), tool("")])
@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_partial_call_is_dropped_at_a_limit(torso: list[Event], reason: str) -> None:
    """A call that was cut off is not returned, whether its input had begun or not."""
    reply = feed(text("hm"), tool('{"path": "a"}'), torso, reason=reason).reply()
    assert [one["type"] for one in reply.content] == ["text", "tool_use"]
    assert reply.stop_reason == reason


def test_complete_empty_input_stays_before_a_partial_call() -> None:
    """Only the last call of an answer that hit a limit is doubted."""
    reply = feed(tool(), tool('{"pa'), reason="max_tokens").reply()
    assert [one["input"] for one in reply.tool_calls] == [{}]


def test_call_without_input_is_complete_when_the_model_meant_it() -> None:
    """A call without arguments stays when the answer ended in tool use."""
    assert feed(tool(""), reason="tool_use").reply().tool_calls[0]["input"] == {}


@pytest.mark.parametrize("pieces", ['{"a', "[1]", "null"])
def test_input_that_is_no_object_is_a_failure(pieces: str) -> None:
    """An answer that claims to be complete must hold calls that can be run."""
    with pytest.raises(ModelConnectionError, match="not a JSON object"):
        feed(tool(pieces), reason="tool_use").reply()


def test_unsigned_thinking_at_a_limit_is_dropped() -> None:
    """Thinking that was cut off has no signature and could not be sent back."""
    torso = block({"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "h"})
    assert feed(torso, reason="max_tokens").reply().content == ()


def test_blank_text_is_dropped_and_nulls_are_left_out() -> None:
    """What comes back could be sent again."""
    reply = feed(text("  \n"), text("x")).reply()
    assert reply.content == ({"type": "text", "text": "x"},)


def test_citations_and_opaque_blocks_are_kept() -> None:
    """Citations add up; blocks of server tools pass through as they are."""
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted_content": "x", "page_age": None}]}
    cited = block(
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "x"},
        {"type": "citations_delta", "citation": {"n": 1}},
        {"type": "citations_delta", "citation": {"n": 2}},
        {"type": "delta_of_a_newer_version"},
    )
    reply = feed(block(found), cited).reply()
    assert reply.content == (found, {"type": "text", "text": "x", "citations": [{"n": 1}, {"n": 2}]})


@pytest.mark.parametrize(("parts", "reason"), [((text("x"),), "end_turn"), ((text("x"), tool("{}")), "tool_use")])
def test_unknown_stop_reason_is_kept_as_text(parts: tuple[list[Event], ...], reason: str) -> None:
    """It is treated as the end of the turn, or as tool use where calls wait for their results."""
    reply = feed(*parts, reason="moonrise").reply()
    assert (reply.stop_reason, reply.stop_note) == (reason, "unknown stop reason 'moonrise'")


def test_events_out_of_order_are_a_failure() -> None:
    """A delta or an end without a block is no answer."""
    with pytest.raises(ModelConnectionError, match="outside of a content block"):
        StreamAssembler().feed({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}})
    with pytest.raises(ModelConnectionError, match="had not begun"):
        StreamAssembler().feed({"type": "content_block_stop"})


def test_reply_without_a_word_is_empty() -> None:
    """A model may end its turn with nothing."""
    reply = feed().reply()
    assert (reply.content, reply.text, reply.tool_calls) == ((), "", ())


def test_blocks_that_are_open_side_by_side_are_told_apart() -> None:
    """A delta and an end belong to the block of their index, whichever began last."""
    assembler = StreamAssembler()
    for index, name in enumerate(("one", "two")):
        block = {"type": "tool_use", "id": f"call_{index}", "name": name}
        delta = {"type": "input_json_delta", "partial_json": f'{{"number": {index}}}'}
        assembler.feed({"type": "content_block_start", "index": index, "content_block": block})
        assembler.feed({"type": "content_block_delta", "index": index, "delta": delta})
    for index in (0, 1):
        assembler.feed({"type": "content_block_stop", "index": index})
    assembler.feed({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    assembler.feed({"type": "message_stop"})
    assert [(call["name"], call["input"]) for call in assembler.reply().tool_calls] == [("one", {"number": 0}), ("two", {"number": 1})]
