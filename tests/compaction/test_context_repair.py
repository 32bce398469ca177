"""Any list goes into repair, and only one that the provider takes comes out."""

import time

import pytest
from hypothesis import given

from compaction.models import UNKNOWN_MODEL, model_facts
from compaction.repair import repair
from compaction.request import Request
from compaction.transcript import ModelMessage
from compaction.validity import problems
from compaction.view import View
from tests.compaction.oracle import refusals
from tests.compaction.strategies import TRANSCRIPTS, assistant, broken, call, conversations, image, result, say, transcript, user


def check(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Repair, and look at the result with everything at hand."""
    before = [message.wire() for message in messages]
    repaired = repair(messages)
    assert refusals([message.wire() for message in repaired]) == []
    assert problems(Request(messages=repaired, tools=({"name": "web_search"},))) == []
    again = repair(repaired)
    assert len(again) == len(repaired)
    assert all(a is b for a, b in zip(again, repaired, strict=True)), "a repaired list was repaired again"
    view = View(repaired)
    assert view.sound
    assert view.sendable
    assert [message.wire() for message in messages] == before
    return repaired


@given(broken())
def test_repair_of_any_list_is_valid_and_final(messages: list[ModelMessage]) -> None:
    """Whatever is lost, doubled or odd in a list, its repair is valid, needs no second one, and leaves the input as it was."""
    check(messages)


@given(conversations())
def test_repair_of_a_valid_list_changes_nothing(messages: list[ModelMessage]) -> None:
    """Messages that need no repair are returned themselves."""
    assert refusals([message.wire() for message in messages]) == []
    assert all(a is b for a, b in zip(check(messages), messages, strict=True))


@given(broken())
def test_a_view_is_sound_only_if_the_oracle_agrees(messages: list[ModelMessage]) -> None:
    """What a view says of its messages while they are appended is what looking at all of them says."""
    view = View(messages)
    wire = [message.wire() for message in messages]
    if view.sendable and not view.system_messages:
        assert refusals(wire) == []
        assert problems(Request(messages=messages, tools=({"name": "web_search"},))) == []
    elif not any(message.role == "system" for message in messages) and not refusals(wire):
        assert problems(Request(messages=messages)) != [], "valid by every account, and yet not sound"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_repair_of_real_sessions(path: object) -> None:
    """Every recorded session can be sent after its repair."""
    check(transcript(path))  # type: ignore[arg-type]  # a Path, which the ids' function needs not know


def test_repair_answers_open_calls_and_keeps_what_was_said() -> None:
    """A call without a result gets an error in its place, before the user's text; the text stays."""
    repaired = check([user("go"), assistant(call("a"), call("b")), user(result("b"), "stop that")])
    assert repaired[2].content[0] == result("b")
    assert repaired[2].content[1]["is_error"] is True
    assert repaired[2].content[1]["tool_use_id"] == "a"
    assert repaired[2].content[2] == say("stop that")


def test_repair_brings_a_late_result_to_its_call() -> None:
    """A result that stands one message too late is moved to where it belongs, instead of being replaced."""
    repaired = check([user("go"), assistant(call("a")), user("wait"), assistant("I wait"), user(result("a", "late"), "now go on")])
    assert repaired[2].content == (result("a", "late"), say("wait"))
    assert repaired[4] == user("now go on")


def test_repair_renames_doubled_ids_with_their_results() -> None:
    """The second call of an id gets another one, and so does its result; the first keeps it."""
    repaired = check(
        [
            user("go"),
            assistant(call("call_0", n=1)),
            user(result("call_0", "1")),
            assistant(call("call_0", n=2)),
            user(result("call_0", "2")),
        ]
    )
    first, second = repaired[1].tool_calls[0]["id"], repaired[3].tool_calls[0]["id"]
    assert first == "call_0"
    assert second != first
    assert repaired[4].tool_results[0]["tool_use_id"] == second
    assert repaired[4].tool_results[0]["content"] == "2"


def test_repair_of_many_doubled_ids_is_linear() -> None:
    """Ten thousand calls of one id take little more than ten times as long as one thousand."""

    def seconds(count: int) -> float:
        messages = [user("go")]
        for _ in range(count):
            messages += [assistant(call("call_0")), user(result("call_0"))]
        started = time.perf_counter()
        repair(messages)
        return time.perf_counter() - started

    small = min(seconds(1_000) for _ in range(3))
    assert min(seconds(10_000) for _ in range(2)) < 40 * max(small, 0.005)


def test_repair_takes_out_the_oldest_images_only() -> None:
    """Of too many images the oldest go, and of many the too large ones; the newest stays."""
    many = [user("look", *(image() for _ in range(70))), assistant("I see"), user(*(image() for _ in range(50)), "and these")]
    repaired = repair(many, UNKNOWN_MODEL)
    assert sum(block["type"] == "image" for message in repaired for block in message.content) == 100
    assert repaired[2] is many[2]
    large = [user("look", image(3_000, 10), *(image() for _ in range(25)))]
    assert repair(large, model_facts("claude-opus-5"))[0].content[1]["type"] == "text"


def test_repair_keeps_system_messages_where_the_model_takes_them() -> None:
    """A well placed system message stays for a model that knows them, and becomes the user's text for others."""
    messages = [user("go"), ModelMessage("system", "be brief"), assistant("yes"), user("next")]
    assert repair(messages, model_facts("claude-opus-5-5"))[1] is messages[1]
    assert [message.role for message in check(messages)] == ["user", "assistant", "user"]
