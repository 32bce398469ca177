"""Messages are values, and rounds, turns and safe cuts are where the provider's rules put them."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.budget import ContextBudget
from compaction.carried import Carried
from compaction.errors import NoRoomForMessages
from compaction.options import CompactionOptions
from compaction.repair import repair
from compaction.transcript import (
    ModelMessage,
    interrupted_results,
    is_real_user,
    message_from_wire,
    open_calls,
    rounds,
    safe_cuts,
    turns,
)
from compaction.view import Messages, View
from tests.compaction.oracle import refusals
from tests.compaction.strategies import TRANSCRIPTS, assistant, broken, call, conversations, result, say, transcript, user

SERVER_CALL: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
SERVER_RESULT: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


@pytest.mark.parametrize("name", ["role", "content", "json", "text", "tool_calls", "extra"])
def test_messages_cannot_be_changed(name: str) -> None:
    """No attribute of a message can be set, and none added."""
    message = user("hello")
    with pytest.raises(AttributeError):
        setattr(message, name, ())


def test_message_has_what_it_was_built_from() -> None:
    """A string is one text block, and texts, calls and results are found in order."""
    assert ModelMessage("user", "hello").content == (say("hello"),)
    assert ModelMessage("user", "").content == ()
    message = assistant("a", call("x"), "b", call("y"))
    assert message.text == "a\nb"
    assert [block["id"] for block in message.tool_calls] == ["x", "y"]
    assert user(result("x"), "go").tool_results == (result("x"),)
    assert json.loads(message.json) == message.wire()
    assert message.size_bytes == len(message.json.encode())
    assert user("日本").size_bytes == len(user("日本").json.encode())


def test_messages_are_equal_by_value() -> None:
    """Two messages of the same role and content are equal and hash alike; anything else differs."""
    assert user("a") == ModelMessage("user", "a")
    assert hash(user("a")) == hash(ModelMessage("user", "a"))
    assert user("a") != assistant("a")
    assert user("a") != "a"


def test_odd_messages_are_refused() -> None:
    """A role that does not exist and a block that is none are the caller's mistakes."""
    with pytest.raises(ValueError, match="'tool'; legal: assistant, system, user"):
        ModelMessage("tool", "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # that is what is tested
    with pytest.raises(TypeError, match="must be a mapping"):
        ModelMessage("user", ["x"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # that is what is tested
    for body in ({"role": "user"}, {"role": "user", "content": 3}):
        with pytest.raises(TypeError, match="string or a list of blocks"):
            message_from_wire(body)


def test_lone_surrogates_are_told_and_can_be_written() -> None:
    """A message with half a character says so, and its JSON can be written all the same."""
    message = user("half \ud83d")
    assert not message.well_formed
    assert message.size_bytes == len(message.json.encode())
    assert user("whole 😀").well_formed


def test_interrupted_results_answer_every_call() -> None:
    """Every call gets an error with the reason, so that the session can go on."""
    message = assistant("hm", call("a"), call("b"))
    answer = interrupted_results(message, "cancelled")
    assert [block["tool_use_id"] for block in answer.tool_results] == ["a", "b"]
    assert all(block["is_error"] and block["content"] == "cancelled" for block in answer.tool_results)
    assert refusals([user("go").wire(), message.wire(), answer.wire()]) == []
    assert open_calls([user("go"), message]) == message.tool_calls
    assert open_calls([user("go"), message, answer]) == ()
    with pytest.raises(ValueError, match="has none"):
        interrupted_results(assistant("hm"), "cancelled")


@given(conversations())
def test_rounds_and_turns_cover_a_list(messages: list[ModelMessage]) -> None:
    """Turns cover everything once; rounds begin with an assistant message, and what is in none of them is the user's own."""
    assert [index for turn in turns(messages) for index in turn] == list(range(len(messages)))
    spans = rounds(messages)
    inside = [index for span in spans for index in span]
    assert inside == sorted(set(inside))
    assert all(messages[span.start].role == "assistant" for span in spans)
    for index in set(range(len(messages))) - set(inside):
        assert messages[index].role == "user"
        assert is_real_user(messages[index])


@given(conversations())
def test_safe_cuts_are_safe_and_no_others(messages: list[ModelMessage]) -> None:
    """A kept part is valid behind a user message exactly where a cut is called safe."""
    cuts = safe_cuts(messages)
    for index in range(1, len(messages)):
        kept = messages[index:]
        lead = [] if kept[0].role == "user" else [user("summary").wire()]
        fine = refusals([*lead, *(message.wire() for message in kept)]) == []
        assert (index in cuts) == fine


def test_cuts_and_rounds_respect_the_providers_calls() -> None:
    """A call of the provider's own tools and its later result are one round, with no cut between."""
    messages = [user("go"), assistant(SERVER_CALL, call("a")), user(result("a")), assistant(SERVER_RESULT), user("on")]
    assert rounds(messages) == [range(1, 4)]
    assert safe_cuts(messages) == [0, 1, 4, 5]
    assert turns(messages) == [range(4), range(4, 5)]
    assert safe_cuts([user("go"), assistant(call("a")), user("wait")]) == [0, 1], "its result may come yet"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_units_of_real_sessions(path: Path) -> None:
    """Units of recorded sessions, broken as they are, cover them without overlap."""
    messages = transcript(path)
    assert [index for turn in turns(messages) for index in turn] == list(range(len(messages)))
    inside = [index for span in rounds(messages) for index in span]
    assert inside == sorted(set(inside))


@given(broken(), st.data())
def test_a_view_is_a_growing_list_of_snapshots(messages: list[ModelMessage], data: st.DataObject) -> None:
    """What was taken of a view does not grow with it, and reads like the list that was appended."""
    view = View()
    snapshots: list[Messages] = []
    for message in messages:
        snapshots.append(view.messages)
        view.append(message)
    assert [len(snapshot) for snapshot in snapshots] == list(range(len(messages)))
    assert [len(list(snapshot)) for snapshot in snapshots] == list(range(len(messages)))
    now = view.messages
    assert now == messages
    assert list(now) == messages
    assert list(reversed(now)) == messages[::-1]
    assert view.size_bytes == sum(message.size_bytes + 1 for message in messages)
    part: slice = data.draw(st.slices(len(messages)))
    assert list(now[part]) == messages[part]
    with pytest.raises(IndexError):
        _ = now[len(messages)]
    if messages:
        assert now[-1] is messages[-1]


@pytest.mark.parametrize(
    "messages",
    [
        [assistant("x"), user("y")],
        [user("x"), user("y")],
        [user("x"), assistant("y"), assistant("z"), user("w")],
        [user("x"), assistant(call("a")), user("y")],
        [user("x"), assistant(call("a")), user(result("a"), result("a"))],
        [user("x"), assistant(call("a"), call("b")), user(result("a"), result("a"))],
        [user("x"), assistant(call("a")), user("y", result("a"))],
        [user("x"), assistant(call("a")), user(result("b"))],
        [user("x"), assistant("y"), user(result("b"))],
        [user("x"), assistant(call("a"), call("a")), user(result("a"), result("a"))],
        [user("x"), assistant(SERVER_CALL), user("y")],
        [user("x"), assistant(SERVER_CALL, call("a")), user(result("a"), "y")],
        [user("x"), assistant(SERVER_CALL, call("a")), user(result("a")), assistant("no result"), user("y")],
        [user("x"), assistant(SERVER_RESULT), user("y")],
        [user("x"), assistant(SERVER_CALL, SERVER_RESULT), user("y"), assistant(SERVER_CALL, SERVER_RESULT), user("z")],
        [user(""), assistant("x"), user("y")],
        [user(), assistant("x"), user("y")],
        [user("x"), assistant(call("a b")), user(result("a b"))],
    ],
)
def test_a_view_notices_what_is_wrong(messages: list[ModelMessage]) -> None:
    """A view knows of each wrong step while it is appended, and its repair is right."""
    wire = [message.wire() for message in messages]
    assert not View(messages).sound
    assert refusals(wire) != []
    repaired = repair(messages)
    assert View(repaired).sendable
    assert refusals([message.wire() for message in repaired]) == []


def test_a_view_may_end_open_or_paused() -> None:
    """Open calls and a reply at the end are sound and not to be sent; a paused turn may be sent as it is."""
    for last in (assistant(call("a")), assistant("done")):
        view = View([user("x"), last])
        assert view.sound
        assert not view.sendable
    assert View([user("x"), assistant(SERVER_CALL)]).sendable
    assert View([user("x"), assistant(SERVER_CALL), assistant(SERVER_RESULT, "found"), user("y")]).sendable
    assert not View().sendable


def test_a_replaced_view_leaves_the_old_one() -> None:
    """An edit makes another view, one epoch later; the first one and its snapshots stay."""
    view = View([user("a"), assistant("b"), user("c")], carried=Carried(task_blocks=1))
    snapshot = view.messages
    other = View([user("a")], epoch=view.epoch + 1, carried=Carried(task_blocks=1, removed_messages=2))
    assert (other.epoch, other.carried) == (1, Carried(task_blocks=1, removed_messages=2))
    assert (view.epoch, len(view), len(snapshot)) == (0, 3, 3)
    assert copy.copy(snapshot) == [user("a"), assistant("b"), user("c")]
    assert snapshot != [user("a")]
    assert snapshot != "abc"


def test_budget_is_what_is_left() -> None:
    """Reply, system and tools are subtracted; where nothing is left, the error names each."""
    budget = ContextBudget(window_tokens=1_000, reply_tokens=100, system_tokens=50, tools_tokens=25)
    assert budget.message_tokens == 825
    with pytest.raises(NoRoomForMessages, match="the reply takes 1000"):
        ContextBudget(window_tokens=1_000, reply_tokens=1_000)
    with pytest.raises(ValueError, match="the tools cannot take -1 tokens"):
        ContextBudget(window_tokens=1_000, tools_tokens=-1)


@pytest.mark.parametrize(
    "figures", [{"target_share": 0.8}, {"trigger_share": 0.97}, {"target_share": 0}, {"limit_bytes": 0}, {"backoff_share": -1}]
)
def test_options_out_of_range_are_refused(figures: dict[str, Any]) -> None:
    """Options that contradict each other are refused when they are built."""
    with pytest.raises(ValueError, match="must"):
        CompactionOptions(**figures)
