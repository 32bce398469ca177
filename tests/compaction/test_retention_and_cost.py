"""What the benchmarks claim, on a small part of what they measure: nothing structured is lost, nothing stale shown, least cost."""

import pytest

from benchmarks.cost import measure as measure_cost
from benchmarks.planted import Fact, planted, segments
from benchmarks.retention import measure, presence, stale
from compaction.repair import repair
from tests.compaction.oracle import refusals

OTHERS = {"drop oldest", "head and tail", "clear results", "Skill Compose", "thClaws", "learn-claude-code"}


@pytest.mark.slow
async def test_ours_keeps_the_most_and_what_is_structured_whole() -> None:
    """At equal size, after five compactions, every form of ours keeps more than any other policy, and all team facts and records."""
    found = await measure("extractive", sizes=(8_000,), counts=(5,), seeds=(3,))
    best = max(found[name]["presence"] for name in OTHERS)
    for name, scores in found.items():
        if name in OTHERS:
            continue
        assert scores["presence"] >= best, name
        assert scores["record"] >= 0.99, name
        assert (scores["team"], scores["stale"], scores["invented"], scores["recoverable"]) == (1.0, 0.0, 0.0, 1.0), name


@pytest.mark.slow
@pytest.mark.limit(120)
async def test_ours_costs_the_least() -> None:
    """Replaying the recorded sessions costs the least under ours, at each price of a cached token, and most of the user's words stay."""
    for rows in (await measure_cost(windows=(32_000,))).values():
        others = {name: row for name, row in rows.items() if name != "ours"}
        assert rows["ours"]["bill"] < min(row["bill"] for row in others.values())
        assert rows["ours"]["said"] > max(row["said"] for row in others.values())


def test_the_scores_can_fail() -> None:
    """A fact that is missing lowers the score, and an ended rule without its end is counted."""
    facts = [Fact("decision", "use a", "because b"), Fact("constraint", "never c", ended_by="forget c")]
    assert presence(facts, "use a, because b") == 1.0
    assert presence(facts, "use a") == 0.0
    assert stale(facts, "never c") == 1
    assert stale(facts, "never c; forget c") == 0
    assert stale(facts, "") == 0


def test_sessions_are_the_same_for_a_seed_and_valid() -> None:
    """A seed gives the same session, whose parts together are the whole, and which can be sent."""
    session = planted(5, rounds=40, per_kind=2)
    assert [m.json for m in planted(5, rounds=40, per_kind=2).messages] == [m.json for m in session.messages]
    assert [m.json for m in planted(6, rounds=40, per_kind=2).messages] != [m.json for m in session.messages]
    assert [m for part in segments(session.messages, 4) for m in part] == session.messages
    assert refusals([message.wire() for message in repair(session.messages)]) == []
