"""What a person sees of a member's context: what fills it, what it held, and that it is compacted when asked for."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]


def test_context_is_shown_as_a_bar_and_in_numbers(team: Path, run: Run) -> None:
    """The parts add up to the window, in words and in JSON."""
    code, out, err = run("context", team, "ann")
    assert (code, err) == (0, "")
    assert out.startswith("ann: ")
    assert "[" in out.splitlines()[1]
    code, out, _ = run("context", team, "ann", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["used_tokens"] + found["free_tokens"] + found["tokens"]["reply"] == found["window_tokens"]
    assert found["messages"] > 0
    parts = {kind: tokens for kind, tokens in found["tokens"].items() if kind != "reply"}
    assert sum(parts.values()) == found["used_tokens"]


def test_status_has_a_meter_for_each_agent(team: Path, run: Run) -> None:
    """The status shows what each agent's newest call sent, of which window; a person has none."""
    code, out, _ = run("status", team, "--json")
    assert code == 0
    members = {member["name"]: member["context"] for member in json.loads(out)["members"]}
    assert members["user"] is None
    assert 0 < members["ann"]["used_tokens"] < members["ann"]["window_tokens"]
    _, out, _ = run("status", team)
    assert "CONTEXT" in out
    assert " %" in out


def test_recall_finds_words_ids_and_lines(team: Path, run: Run) -> None:
    """Words lead to ids, an id to the whole body, a range to its lines; what is not there is said, and empty words are refused."""
    code, out, _ = run("recall", team, "ann", "message", "--json")
    assert code == 0
    hit = json.loads(out)["found"][0]
    code, out, _ = run("recall", team, "ann", hit["id"])
    assert code == 0
    whole = out.rstrip("\n").split("\n")
    assert any("message" in line for line in whole)
    code, out, _ = run("recall", team, "ann", hit["id"], "--lines", "1-1")
    assert out.rstrip("\n") == whole[0]
    code, out, _ = run("recall", team, "ann", "m1", "--json")
    assert json.loads(out)["message"] == 1
    code, out, err = run("recall", team, "ann", "message", "--limit", "0")
    assert (code, out) == (2, "")
    assert "give 1 or more" in err
    code, out, err = run("recall", team, "ann", "surely nobody said this")
    assert (code, out) == (1, "")
    assert "nothing in the" in err
    assert run("recall", team, "ann", hit["id"], "--lines", "9-2")[0] == 2
    assert run("recall", team, "ann", "")[0] == 1


@pytest.mark.parametrize("command", ["context", "recall", "compact"])
def test_only_agents_have_a_context(team: Path, run: Run, command: str) -> None:
    """A name that nobody has, and a member that no model drives, are errors that say so."""
    more = ["words"] if command == "recall" else []
    code, _, err = run(command, team, "nobody", *more)
    assert code == 1
    assert "nobody" in err
    code, _, err = run(command, team, "user", *more)
    assert code == 1
    assert "which has no context" in err


def test_who_does_not_run_cannot_be_compacted(team: Path, run: Run) -> None:
    """A member that has stopped is not compacted, and the error says in which state it is."""
    code, _, err = run("compact", team, "ann")
    assert code == 1
    assert "cannot compact 'ann': it is stopped" in err
