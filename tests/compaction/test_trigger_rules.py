"""Each trigger holds just over its figure and not at it; an edit that is made only to save has to save."""

from collections.abc import Callable
from typing import Any

import pytest

from compaction.compactor import Around, Compactor
from compaction.costs import edit_cost, summary_price
from compaction.models import ModelFacts, model_facts
from compaction.options import CompactionOptions
from compaction.triggers import RULES, Cause, Rule, Situation, due, rule_of
from compaction.view import View
from tests.compaction.strategies import assistant, call, result, rounds_of, user

OPTIONS = CompactionOptions()
QUIET: dict[str, Any] = {"used_tokens": 10, "budget_tokens": 1_000, "size_bytes": 10, "sendable": True, "messages": 50}


@pytest.mark.parametrize(
    ("cause", "at", "over"),
    [
        (Cause.SIZE, {"used_tokens": 700}, {"used_tokens": 701}),
        (Cause.SIZE, {"size_bytes": 30_000_000}, {"size_bytes": 30_000_001}),
        (Cause.REPAIR, {}, {"sendable": False}),
        (Cause.ALL_TOOLS, {"tool_run": 48}, {"tool_run": 49}),
        (Cause.ALL_TOOLS, {"tool_run": 19, "messages": 20}, {"tool_run": 20, "messages": 21}),
        (Cause.TOOL_CALLS, {"calls_in_turn": 20}, {"calls_in_turn": 21}),
        (Cause.ELAPSED, {"elapsed_seconds": 7_200.0}, {"elapsed_seconds": 7_200.5}),
        (Cause.COLD_CACHE, {"idle_seconds": 300.0}, {"idle_seconds": 301.0}),
    ],
)
def test_a_trigger_holds_over_its_figure(cause: Cause, at: dict[str, Any], over: dict[str, Any]) -> None:
    """At the figure nothing is due; over it, this cause is."""
    assert list(due(quiet(**at), OPTIONS)) == []
    assert [rule.cause for rule in due(quiet(**over), OPTIONS)] == [cause]
    if cause is not Cause.REPAIR:
        assert list(due(quiet(**over), CompactionOptions(enabled=False))) == []


def three_calls(situation: Situation, options: CompactionOptions) -> bool:
    """Tell whether three tools were called, unless nothing is to be done."""
    return options.enabled and situation.calls_in_turn >= 3


def quiet(**changes: Any) -> Situation:
    """Return a situation in which nothing is due, but for these changes."""
    return Situation(**(QUIET | changes))


def test_the_table_can_be_replaced() -> None:
    """A user's own rules are looked at in place of ours, and causes that they do not name keep their layers."""
    often = Rule(Cause.TOOL_CALLS, ("elide",), holds=three_calls)
    assert list(due(quiet(calls_in_turn=3), OPTIONS, [often])) == [often]
    assert list(due(quiet(used_tokens=900), OPTIONS, [often])) == []
    assert rule_of(Cause.TOOL_CALLS, [often]) is often
    assert rule_of(Cause.OVERFLOW, [often]) is rule_of(Cause.OVERFLOW)
    assert {rule.cause for rule in RULES} == set(Cause)


def test_calls_in_a_turn_and_runs_of_tools_are_counted_as_a_view_grows() -> None:
    """Parallel calls count each; a user's word ends the turn; words beside results end the run, not the turn."""
    view = View([user("go")])
    seen: list[tuple[int, int]] = []
    for message in (
        assistant(call("a"), call("b")),
        user(result("a", "x"), result("b", "y")),
        assistant("thinking aloud", call("c")),
        user(result("c", "z"), "mail"),
        assistant(call("d")),
        user(result("d", "w")),
        assistant("done"),
        user("next"),
    ):
        view.append(message)
        seen.append((view.calls_in_turn, view.tool_run))
    assert seen == [(2, 1), (2, 2), (3, 3), (3, 0), (4, 1), (4, 2), (4, 0), (0, 0)]


@pytest.mark.parametrize(("model", "calls"), [("claude-sonnet-4-5", 4.75), ("claude-opus-5-5", 11.0), ("claude-fable-5-1", 23.5)])
def test_a_warm_elision_earns_its_cost_back_as_the_arithmetic_says(model: str, calls: float) -> None:
    """50,000 tokens behind the edit and 100,000 freed pay back after 4.8, 11 and 23.5 calls, at the three prices of a cached token."""
    cost = edit_cost(freed_tokens=100_000, rewritten_tokens=50_000, cold=False, facts=model_facts(model))
    assert cost.payback_calls == pytest.approx(calls, abs=0.3)


def test_a_cold_edit_is_free_and_one_that_frees_nothing_never_pays() -> None:
    """What has to be written anyway costs nothing extra; without a saving there is no payback."""
    facts = model_facts("claude-sonnet-4-5")
    assert edit_cost(freed_tokens=10, rewritten_tokens=50_000, cold=True, facts=facts).payback_calls == 0
    assert edit_cost(freed_tokens=0, rewritten_tokens=50_000, cold=False, facts=facts).payback_calls is None


def test_a_summary_is_paid_for_at_the_price_of_its_calls() -> None:
    """A summary over a cached prefix of 150,000 tokens with 3,000 of output costs 15,000 + 15,000 input tokens."""
    usage = {"cache_read_input_tokens": 150_000, "output_tokens": 3_000}
    assert summary_price(usage, model_facts("claude-sonnet-4-5")) == pytest.approx(30_000)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def door_with(clock: Callable[[], float], window_tokens: int, **options: Any) -> Compactor:
    """Return a compactor whose budget is the whole window, with a clock."""
    facts = ModelFacts(name="test", window_tokens=window_tokens)
    return Compactor(CompactionOptions(**options), facts=facts, reply_tokens=0, around=Around(clock=clock))


async def test_many_calls_in_one_turn_become_a_digest_when_that_saves() -> None:
    """Over twenty calls in a turn are digested where enough is freed, and left alone where little would be."""
    messages = [user("go"), *rounds_of(40, 400)]
    used = door_with(Clock(), 1_000_000).used_tokens(View(messages))
    options = {"all_tools_messages": 9_999}
    near = await door_with(Clock(), used * 2, **options).prepare(View(messages))
    assert near.checkpoint is not None
    assert near.checkpoint.trigger is Cause.TOOL_CALLS
    assert near.checkpoint.cost.payback_calls is not None
    assert near.checkpoint.cost.payback_calls <= OPTIONS.payback_calls
    far = await door_with(Clock(), used * 50, **options).prepare(View(messages))
    assert far.checkpoint is None


async def test_time_passes_and_a_session_is_digested_once() -> None:
    """After two hours a digest is due, and then not for another two hours."""
    clock = Clock()
    messages = [user("go"), *(m for i in range(40) for m in (assistant(f"step {i} " * 60), user(f"go on {i}")))]
    view = View(messages)
    used = door_with(clock, 1_000_000).used_tokens(view)
    door = door_with(clock, used * 2, cache_seconds=9e9)
    assert (await door.prepare(view)).checkpoint is None
    clock.now += 7_201
    prepared = await door.prepare(view)
    assert prepared.checkpoint is not None
    assert prepared.checkpoint.trigger is Cause.ELAPSED
    clock.now += 7_000
    assert (await door.prepare(prepared.view)).checkpoint is None


async def test_a_cold_cache_makes_pending_elisions_and_a_warm_one_does_not() -> None:
    """What was put off for the sake of the prefix is done when the prefix is forgotten, also in a session that was taken up again."""
    clock = Clock()
    messages = [
        user("go"),
        *(m for i in range(30) for m in (assistant(call(f"c{i}")), user(result(f"c{i}", "line of text\n" * 300), "ok"))),
    ]
    view = View(messages)
    used = door_with(clock, 1_000_000).used_tokens(view)
    options = {"turn_tool_calls": 9_999, "all_tools_messages": 9_999}
    door = door_with(clock, used * 2, **options)
    door.replied(view, input_tokens=used)
    clock.now += 100
    assert (await door.prepare(view)).checkpoint is None
    clock.now += 300
    prepared = await door.prepare(view)
    assert prepared.checkpoint is not None
    assert (prepared.checkpoint.trigger, prepared.checkpoint.layers) == (Cause.COLD_CACHE, ("elide",))
    assert prepared.checkpoint.cost.payback_calls == 0
    resumed = await door_with(clock, used * 2, **options).prepare(view)
    assert resumed.checkpoint is not None
    assert resumed.checkpoint.trigger is Cause.COLD_CACHE


async def test_nothing_to_gain_is_told_and_not_tried_again_at_once() -> None:
    """When an edit is due and nothing can be freed, that is said once, until the context has grown."""
    door = door_with(Clock(), 1_000)
    view = View([user("many words " * 500)])
    first = await door.prepare(view)
    assert first.stuck
    assert not (await door.prepare(view)).stuck
