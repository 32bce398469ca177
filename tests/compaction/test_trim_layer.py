"""The last resort: oldest rounds out, then cut inside the last one; it fits, or says by how much it cannot."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.layers.shorten import CUT, shorten
from compaction.layers.trim import Limits, TrimResult, trim
from compaction.models import ModelFacts
from compaction.repair import drop_thinking, repair
from compaction.tokens import TokenMeter, weigh
from compaction.transcript import ModelMessage
from tests.compaction.strategies import assistant, call, conversations, image, result, rounds_of, say, user

TOKENS = TokenMeter(ModelFacts(name="x", token_factor=1.0)).tokens


def size(messages: Sequence[ModelMessage]) -> int:
    """Measure a list."""
    return sum(TOKENS(weigh(message)) for message in messages)


def run(messages: Sequence[ModelMessage], limit: int, **more: Any) -> TrimResult:
    """Trim to a limit, half of which is the target."""
    return trim(messages, Limits(limit // 2, limit), TOKENS, **more)


@given(conversations(), st.integers(1, 6_000))
def test_trim_fits_or_reports(messages: list[ModelMessage], limit: int) -> None:
    """The result's size is what is reported, and what is over is what the report says."""
    messages = drop_thinking(messages)
    done = run(messages, limit)
    assert done.tokens == size(done.messages)
    assert done.over_tokens == max(0, done.tokens - limit)
    gone = {index for span in done.removed for index in span}
    assert done.removed_messages == len(gone)
    assert all(a.stop < b.start for a, b in zip(done.removed, done.removed[1:], strict=False))
    if size(messages) <= limit // 2 - 100:
        assert done.removed == ()
        assert all(a is b for a, b in zip(done.messages, messages, strict=True))


@given(conversations(), st.integers(1, 6_000))
def test_trim_keeps_what_it_need_not_change(messages: list[ModelMessage], limit: int) -> None:
    """Rounds that stay are the same objects, from some place on to the last round."""
    messages = drop_thinking(messages)
    done = run(messages, limit)
    known = {id(message) for message in messages}
    changed = [message for message in done.messages[1:] if id(message) not in known]
    assert len(changed) <= done.shortened


def test_trim_cuts_only_the_last_round_and_only_if_it_must() -> None:
    """[task, call, huge result] keeps all three, the result cut to what is left, with its head and tail."""
    messages = [user("the task"), assistant(call("a", path="x")), user(result("a", "start " + "word " * 20_000 + "end"))]
    done = run(messages, 2_000)
    assert [message.role for message in done.messages] == ["user", "assistant", "user"]
    assert done.messages[:2] == messages[:2]
    text = done.messages[2].content[0]["content"]
    assert text.startswith("start")
    assert text.endswith("end")
    assert 1_500 < done.tokens <= 2_000
    assert (done.removed, done.shortened, done.over_tokens) == ((), 1, 0)


def test_trim_shares_what_is_left_between_parallel_results() -> None:
    """Of parallel results the large ones are cut to one level, and the small one stays whole."""
    ids = ["a", "b", "c"]
    contents = ["tiny", "word " * 5_000, "word " * 9_000]
    done = run([user("go"), assistant(*map(call, ids)), user(*map(result, ids, contents))], 3_000)
    texts = [block["content"] for block in done.messages[2].content]
    assert texts[0] == "tiny"
    assert abs(len(texts[1]) - len(texts[2])) < 200
    assert done.over_tokens == 0


def test_trim_cuts_inputs_but_keeps_their_keys() -> None:
    """A huge input of a call is cut in its strings; keys, numbers and small strings stay."""
    inputs = {"path": "a.py", "edits": [{"old": "x", "new": "line\n" * 9_000}], "count": 3}
    done = run([user("go"), assistant(call("w", **inputs)), user(result("w", "ok"))], 1_000)
    cut = done.messages[1].content[0]["input"]
    assert cut["path"] == "a.py"
    assert cut["count"] == 3
    assert cut["edits"][0]["old"] == "x"
    assert 0 < len(cut["edits"][0]["new"]) < 10_000
    assert done.over_tokens == 0
    assert inputs["edits"] == [{"old": "x", "new": "line\n" * 9_000}]


def test_trim_removes_media_of_results_before_words_are_gone() -> None:
    """Images in the last results become a word where even readable texts would not fit beside them."""
    messages = [user("go"), assistant(call("a")), user(result("a", [say("word " * 400), *(image(2_000, 2_000) for _ in range(3))]))]
    done = run(messages, 800)
    kinds = [part["type"] for part in done.messages[2].content[0]["content"]]
    assert kinds == ["text"] * 4
    assert len(done.messages[2].content[0]["content"][0]["text"]) > 800
    assert done.over_tokens == 0


def test_trim_reports_what_it_may_not_touch() -> None:
    """A task and newest words that are too large stay, and the report says by how much."""
    messages = [user("word " * 3_000), *rounds_of(5), assistant("what?"), user("other " * 2_000)]
    done = run(messages, 1_000)
    assert done.messages[0].content[0] == messages[0].content[0]
    assert done.messages[-1] == messages[-1]
    assert done.over_tokens == done.tokens - 1_000 > 3_000


def test_trim_carries_the_newest_words_out_of_a_round_that_goes() -> None:
    """Mail that came beside results stays when its round goes; the results do not."""
    messages = [user("go"), assistant(call("a")), user(result("a", "word " * 2_000), "stop at noon"), *rounds_of(8, 900)]
    done = run(messages, 1_500)
    first = [block["text"] for block in done.messages[0].content]
    assert first[0] == "go"
    assert first[-1] == "stop at noon"
    assert done.removed[0].start == 1
    assert repair(done.messages) == done.messages


def test_shorten_to_nothing_leaves_words() -> None:
    """Where nothing fits, every result and input is a word, and ids and users' words are all there."""
    messages = [assistant("thinking aloud " * 90, call("a", path="x" * 900)), user(result("a", "y" * 900), say("mine"))]
    cut = shorten(messages, 1, 1, TOKENS)
    assert cut[0].content[0] == say(CUT)
    assert cut[0].content[1]["id"] == "a"
    assert cut[1].content == (result("a", CUT), say("mine"))
    assert shorten([user(result("a", [image()]))], 1, 1, TOKENS)[0].content == (result("a", CUT),)
    small = [assistant("ok", call("a")), user(result("a", "1"))]
    assert shorten(small, 1, 1, TOKENS) == small


def test_trim_measures_each_message_once() -> None:
    """Dropping 3,000 messages asks for the weight of each a bounded number of times, not of all for each."""
    asked = 0

    def counting(weight: Any) -> int:
        nonlocal asked
        asked += 1
        return TOKENS(weight)

    messages = [user("go"), *rounds_of(1_500)]
    done = trim(messages, Limits(200, 400), counting)
    assert done.removed_messages > 2_900
    assert asked < 3 * len(messages)


def test_trim_refuses_an_empty_list() -> None:
    """There is nothing to keep of nothing."""
    with pytest.raises(ValueError, match="without messages"):
        run([], 10)
