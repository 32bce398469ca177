"""Elision moves old bodies out of sight, in bulk, and leaves everything that the model or the provider needs."""

from typing import Any

from hypothesis import given

from compaction.assembly import take_apart
from compaction.cleaning import is_clean
from compaction.draft import Draft, Frame
from compaction.layers.elide import elide
from compaction.models import ModelFacts
from compaction.options import CompactionOptions
from compaction.recall import Archive, recall_id
from compaction.tokens import weigh_all
from compaction.transcript import Block, ModelMessage, last_assistant, notice
from compaction.view import View, shape_of
from tests.compaction.oracle import refusals
from tests.compaction.strategies import assistant, call, conversations, image, result, user

FACTS = ModelFacts(name="test", window_tokens=100_000)
LONG = "a line of some text\n" * 200


def frame(**options: Any) -> Frame:
    """Return a frame in which a base token is a token, and images cost what they cost a standard model."""
    return Frame(
        options=CompactionOptions(**options),
        facts=FACTS,
        budget_tokens=100_000,
        target_tokens=50_000,
        limit_tokens=90_000,
        tokens=lambda weight: weight.text_tokens + weight.image_tokens,
    )


def draft_of(*messages: ModelMessage) -> Draft:
    """Return messages as a draft."""
    return take_apart(View(messages), FACTS)


def named(call_id: str, name: str, **inputs: Any) -> Block:
    """Return a call of a tool."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": inputs}


def rounds_with(*pairs: tuple[Block, Block], then: int = 3) -> list[ModelMessage]:
    """Return a task, a round for each pair, and some small rounds that stay."""
    messages = [user("go")]
    for asked, answer in pairs:
        messages += [assistant(asked), user(answer)]
    for number in range(then):
        messages += [assistant(call(f"last{number}")), user(result(f"last{number}", LONG))]
    return messages


def test_results_and_inputs_of_old_rounds_become_placeholders_with_an_id() -> None:
    """A long result and a file body in a write are replaced by words that name their id; keys, ids and short values stay."""
    asked, given = named("w", "write_file", path="a.py", content=LONG), result("w", LONG)
    done = elide(draft_of(*rounds_with((asked, given))), frame())
    shown, answer = done.body[0].tool_calls[0], done.body[1].tool_results[0]
    assert shown["input"].keys() == {"path", "content"}
    assert shown["input"]["path"] == "a.py"
    assert recall_id(asked) in shown["input"]["content"]
    assert recall_id(given) in answer["content"]
    assert "write_file" in answer["content"]
    assert (shown["id"], answer["tool_use_id"]) == ("w", "w")
    assert [(moved.kind, moved.recall_id, moved.name) for moved in done.moved] == [
        ("input", recall_id(asked), "write_file"),
        ("result", recall_id(given), "write_file"),
    ]
    archive = Archive([assistant(asked), user(given)])
    found = archive.get(done.moved[1].recall_id)
    assert found is not None
    assert found.text == LONG


def test_the_newest_rounds_and_protected_tools_stay_whole() -> None:
    """What the model has just seen, and what it must not lose, is not touched."""
    draft = draft_of(*rounds_with((named("n", "note", text=LONG), result("n", LONG)), (named("r", "read"), result("r", LONG))))
    done = elide(draft, frame())
    assert done.body[:2] == draft.body[:2]
    assert done.body[3].tool_results[0]["content"] != LONG
    assert all(done.body[at] is draft.body[at] for at in range(4, len(draft.body)))
    assert elide(draft_of(*rounds_with(then=3)), frame()).moved == ()


def test_an_error_keeps_its_first_line_and_small_bodies_stay() -> None:
    """What went wrong is still to be read; a body that is small is cheaper than a placeholder."""
    failed = result("e", f"\n  boom: no such file\n{LONG}", is_error=True)
    done = elide(draft_of(*rounds_with((call("e"), failed), (call("s"), result("s", "short")))), frame())
    assert done.body[1].tool_results[0]["content"].startswith("boom: no such file\n[")
    assert done.body[1].tool_results[0]["is_error"] is True
    assert done.body[3].tool_results[0]["content"] == "short"


def test_images_are_moved_and_named() -> None:
    """Images in old results and of the user become words, with their ids; one in what the user said last stays."""
    picture = image(1_500, 1_500)
    messages = [user("go"), *rounds_with((call("i"), result("i", [picture, {"type": "text", "text": "seen"}])))[1:]]
    messages[1:1] = [assistant("yes?"), user("look", picture)]
    assert weigh_all(elide(draft_of(*messages), frame()).body).images == 1
    messages[3:3] = [assistant("i see"), user("go on", {"type": "text", "text": notice("Go on.")})]
    done = elide(draft_of(*messages), frame())
    assert weigh_all(done.body).images == 0
    assert recall_id(picture) in done.body[1].text
    assert "1 image" in str(done.body[5].tool_results[0]["content"])
    assert "look" in done.body[1].text


@given(conversations(max_rounds=10))
def test_elided_messages_are_known_for_what_they_are(messages: list[ModelMessage]) -> None:
    """What a shorter message takes over from the one before is what looking at it anew would find."""
    view = View(messages)
    done = elide(take_apart(view, FACTS), frame(elide_tokens=0, keep_rounds=1))
    for message in done.body:
        fresh = ModelMessage(message.role, message.content)
        assert shape_of(message) == shape_of(fresh)
        assert is_clean(message) == is_clean(fresh)


@given(conversations(max_rounds=10))
def test_elision_is_safe_for_every_conversation(messages: list[ModelMessage]) -> None:
    """It never grows, keeps what follows the last assistant message, is valid, and doing it twice is doing it once."""
    draft = take_apart(View(messages), FACTS)
    done = elide(draft, frame(elide_tokens=0, keep_rounds=1))
    assert weigh_all(done.body).text_tokens <= weigh_all(draft.body).text_tokens
    assert refusals([message.wire() for message in [ModelMessage("user", draft.task), *done.body]]) == refusals(
        [message.wire() for message in [ModelMessage("user", draft.task), *draft.body]]
    )
    last = last_assistant(draft.body)
    assert all(done.body[at] is draft.body[at] for at in range(max(0, last), len(draft.body)))
    again = elide(done, frame(elide_tokens=0, keep_rounds=1))
    assert weigh_all(again.body).text_tokens == weigh_all(done.body).text_tokens
    archive = Archive(messages)
    for moved in done.moved:
        assert archive.get(moved.recall_id) is not None
