"""Cuts go between atoms, keep the last round and carry the user's newest words; what an edit wrote is taken out again by the next one."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compaction.assembly import assemble, take_apart, without_written
from compaction.carried import Carried
from compaction.draft import Draft, Frame
from compaction.layers.split import draft_cut, split
from compaction.layers.trim import Limits, trim
from compaction.models import ModelFacts
from compaction.options import CompactionOptions
from compaction.record import EMPTY_RECORD, Statement
from compaction.repair import repair
from compaction.state import StateDigest
from compaction.summarizer import extract
from compaction.tokens import weigh_all
from compaction.tracking import fold
from compaction.transcript import Block, ModelMessage, is_real_user, notice, spoken
from compaction.view import View
from tests.compaction.oracle import refusals
from tests.compaction.strategies import assistant, call, conversations, result, rounds_of, user

FACTS = ModelFacts(name="test", window_tokens=100_000)


def frame(limit_tokens: int = 90_000) -> Frame:
    """Return a frame in which a base token is a token."""
    return Frame(
        options=CompactionOptions(),
        facts=FACTS,
        budget_tokens=100_000,
        target_tokens=limit_tokens // 2,
        limit_tokens=limit_tokens,
        tokens=lambda weight: weight.text_tokens,
    )


def tokens_of(messages: Sequence[ModelMessage]) -> int:
    """Return what messages take."""
    return weigh_all(messages).text_tokens


@given(conversations(), st.integers(0, 4_000), st.integers(1, 5))
def test_a_cut_keeps_what_must_stay(messages: list[ModelMessage], keep_tokens: int, keep_turns: int) -> None:
    """What is kept is valid behind the task, holds the last round, and is within its bounds but for that round."""
    draft = take_apart(View(messages), FACTS)
    cut = split(draft, frame(), keep_turns=keep_turns, keep_tokens=keep_tokens)
    if cut is None:
        return
    kept = draft.body[cut.at :]
    last = max((i for i, message in enumerate(draft.body) if message.role == "assistant"), default=0)
    assert cut.at <= last
    turns = sum(is_real_user(message) and not message.tool_results for message in kept)
    tail = draft.body[last:]
    assert tokens_of(kept) <= max(keep_tokens, tokens_of(kept[: len(kept) - len(tail)]) + tokens_of(tail)) or turns <= keep_turns
    shorter = draft_cut(draft, cut, frame())
    sent = repair([ModelMessage("user", shorter.task), *shorter.body], FACTS)
    assert refusals([message.wire() for message in sent]) == []
    newest = next((message for message in reversed(draft.body) if is_real_user(message)), None)
    if newest is not None:
        words = [block for block in newest.content if block.get("type") != "tool_result"]
        assert any(list(m.content[at : at + len(words)]) == words for m in shorter.body for at in range(len(m.content)))
    assert shorter.moved[-1].tokens == tokens_of(draft.body[: cut.at])
    assert shorter.removed_messages == len(draft.body) - len(shorter.body)


def test_a_remark_of_the_runtime_is_not_what_the_user_said_last() -> None:
    """Remarks neither take the place of the user's newest words at a cut or a trim, nor begin a turn, nor enter the record."""
    remark: Block = {"type": "text", "text": notice("You must go on.")}
    messages = [user("task"), assistant("?"), user("keep the port at 8080"), *rounds_of(30, 400), assistant("cut"), user(remark)]
    messages += [*rounds_of(30, 400)[:-1], user(*rounds_of(30, 400)[-1].content, remark)]
    draft = take_apart(View(messages), FACTS)
    cut = split(draft, frame(), keep_turns=5, keep_tokens=1_000)
    assert cut is not None
    assert cut.carried is not None
    assert cut.carried.text == "keep the port at 8080"
    assert split(draft, frame(), keep_turns=2, keep_tokens=1_000_000) is None
    done = trim(messages, Limits(1_000, 2_000), lambda weight: weight.text_tokens, task_blocks=1)
    assert "keep the port at 8080" in done.messages[0].text
    record = fold(EMPTY_RECORD, messages[1:])
    assert record.user_statements == (Statement(text="keep the port at 8080"),)
    assert [rule.text for rule in record.constraints] == ["keep the port at 8080"]
    assert "must go on" not in extract(messages, "", 10_000)
    assert spoken(user(remark)) == ()
    assert len(spoken(user(f"{notice('a')} or {notice('b')}"))) == 1


def test_one_turn_of_many_rounds_is_cut_between_rounds() -> None:
    """One request with hundreds of rounds, the normal case of a worker, is cut where the kept rounds fit."""
    draft = take_apart(View([user("go"), *rounds_of(300, 400)]), FACTS)
    cut = split(draft, frame(), keep_turns=5, keep_tokens=2_000)
    assert cut is not None
    assert cut.at % 2 == 0
    assert tokens_of(draft.body[cut.at :]) <= 2_000 < tokens_of(draft.body[cut.at - 2 :])


def test_turns_are_counted_and_everything_that_fits_stays() -> None:
    """At most so many turns stay though more would fit; with room for all there is no cut."""
    messages = [user("go"), assistant("ok"), *(m for i in range(8) for m in (user(f"q{i}"), assistant(f"a{i}"))), user("now")]
    draft = take_apart(View(messages), FACTS)
    cut = split(draft, frame(), keep_turns=3, keep_tokens=90_000)
    assert cut is not None
    assert [message.text for message in draft.body[cut.at :] if message.role == "user"] == ["q6", "q7", "now"]
    assert split(draft, frame(), keep_turns=20, keep_tokens=90_000) is None


def test_parallel_calls_and_server_tools_are_one_atom() -> None:
    """No cut parts calls made together, or a provider's call from a result that comes messages later."""
    server: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    messages = [
        user("go"),
        assistant(call("a"), call("b")),
        user(result("a", "x"), result("b", "y")),
        assistant(server, call("c")),
        user(result("c", "z")),
        assistant(found, "found"),
        user("on"),
        assistant(call("d")),
        user(result("d", "w")),
    ]
    draft = take_apart(View(messages), FACTS)
    places = {cut.at for keep in range(400) if (cut := split(draft, frame(), keep_turns=9, keep_tokens=keep)) is not None}
    assert places <= {2, 5, 6}
    assert 2 in places


@given(conversations(), st.booleans())
def test_what_an_edit_wrote_is_taken_out_again(messages: list[ModelMessage], with_state: bool) -> None:
    """Taking apart what was assembled gives the draft back: no memory, marker or state block is ever compacted."""
    state = StateDigest(text="<team_state>you are ann</team_state>") if with_state else StateDigest()
    view = View(messages)
    draft = take_apart(view, FACTS, state=state)
    made = assemble(
        Draft(task=draft.task, body=draft.body, summary="what was", kind="summary", state=state, removed_messages=3),
        frame(),
        epoch=1,
        memory_tokens=2_000,
        must_trim=False,
    )
    assert refusals([message.wire() for message in made.view.messages]) == []
    again = take_apart(made.view, FACTS)
    assert again.task == draft.task
    assert again.body == draft.body
    assert (again.summary, again.kind, again.removed_messages) == ("what was", "summary", 3)
    texts = [block.get("text") for message in made.view.messages for block in message.content]
    assert texts.count(state.text or None) == (1 if with_state else texts.count(None))
    if with_state and made.view.messages[-1].role == "user" and len(made.view.messages) > 1:
        assert made.view.messages[-1].content[-1] == {"type": "text", "text": state.text}


def test_words_of_a_user_that_look_like_a_summary_stay() -> None:
    """A user's own text in the form of a summary or a marker is the user's, whatever it says."""
    texts = ["<context_memory>mine</context_memory>", "[... 7 earlier messages were removed from this conversation to save space ...]"]
    view = View([user(*[{"type": "text", "text": text} for text in texts]), assistant("ok"), user(texts[0])])
    draft = take_apart(view, FACTS)
    assert [block["text"] for block in draft.task] == texts
    assert draft.body[-1].text == texts[0]


def test_new_messages_of_a_view_are_those_behind_the_last_edit() -> None:
    """What was folded into the record is not given again, and no block that compaction wrote is."""
    carried = Carried(task_blocks=1, memory_blocks=1, state_block=(2, 1), recorded=3)
    view = View([user("go", "memory"), assistant(call("a")), user(result("a", "x"), "state")], epoch=1, carried=carried)
    for message in (assistant("done"), user("more")):
        view.append(message)
    assert [message.text for message in without_written(view, carried.recorded)] == ["done", "more"]
    assert [message.text for message in without_written(view)] == ["go", "", "", "done", "more"]


def test_state_and_memory_give_way_in_a_small_window() -> None:
    """Memory and state never take more than they may, so that the task and the last round stay."""
    state = StateDigest(text="<team_state>" + "many words of state " * 400 + "</team_state>")
    draft = Draft(task=({"type": "text", "text": "go"},), body=tuple(rounds_of(2)), summary="word " * 4_000, kind="summary", state=state)
    made = assemble(draft, frame(600), epoch=1, memory_tokens=150, must_trim=False)
    assert made.over_tokens == 0
    assert tokens_of(made.view.messages) <= 600
    assert made.view.messages[0].content[0] == {"type": "text", "text": "go"}
