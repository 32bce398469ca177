"""`teams protocols`: what the handshakes promise is checked from a terminal, and a promise that is broken is shown."""

import json
from collections.abc import Callable
from enum import StrEnum

import pytest

from protocols import ALL_MACHINES, mermaid
from protocols.request import Request, RequestKind
from protocols.worlds import WORLDS, RequestRules, RequestWorld
from teams.cli import protocols as command

Run = Callable[..., tuple[int, str, str]]


def _never_due(_request: Request) -> StrEnum | None:
    return None


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be one sound world, and one in which deadlines are forgotten."""
    forgetful = RequestWorld(RequestKind.shutdown, rules=RequestRules(due_event=_never_due))
    monkeypatch.setattr(command, "WORLDS", {"question": WORLDS["question"], "shutdown": forgetful})


def test_check_has_a_line_for_each_world_and_a_total(run: Run) -> None:
    """Every world is explored and kept its promises; the last line sums them up, with the time."""
    code, out, err = run("protocols", "check")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in lines[1:-1]] == list(WORLDS)
    assert {line.split()[-1] for line in lines[1:-1]} == {"ok"}
    assert lines[-1].startswith(f"{len(WORLDS)} worlds, ")
    assert lines[-1].endswith(" s: every promise is kept")


def test_check_as_data_has_the_figures_of_the_lines(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """--json stands before or behind the subcommand, and has the figures that the lines have."""
    monkeypatch.setattr(command, "WORLDS", {name: WORLDS[name] for name in ("question", "permission")})
    found = json.loads(run("protocols", "check", "--json")[1])
    assert found["ok"] is True
    shown = [line.replace(",", "").split() for line in run("protocols", "check")[1].splitlines()[1:-1]]
    figures = [[world["name"], *(str(world[key]) for key in ("states", "transitions", "outcomes")), "ok"] for world in found["worlds"]]
    assert figures == shown
    assert json.loads(run("protocols", "--json", "check")[1])["worlds"] == found["worlds"]


@pytest.mark.usefixtures("broken")
def test_check_shows_the_way_to_a_broken_promise_and_fails(run: Run) -> None:
    """A broken promise is exit 1, named with its world and shown as numbered steps and as a drawing; sound worlds stay ok."""
    code, out, _ = run("protocols", "check")
    assert code == 1
    assert [line.split()[-1] for line in out.splitlines()[1:3]] == ["ok", "broken"]
    assert "shutdown: when deadlines pass an outcome comes\n  1. asker -> runtime: asks" in out
    assert "  then for ever:\n" in out
    assert "```mermaid\nsequenceDiagram\n    asker->>runtime: asks" in out
    found = json.loads(run("protocols", "check", "--json")[1])
    sound, forgetful = found["worlds"]
    assert (found["ok"], sound["violations"], forgetful["ok"]) == (False, [], False)
    violation = next(item for item in forgetful["violations"] if item["promise"] == "when deadlines pass an outcome comes")
    assert violation["path"][0] == {"actor": "asker", "target": "runtime", "what": "asks", "fair": True}
    assert violation["cycle"]
    assert f"{violation['mermaid']}\n```" in out


@pytest.mark.parametrize("name", ALL_MACHINES)
def test_draw_prints_the_drawing_of_the_table(run: Run, name: str) -> None:
    """Every machine is drawn, as text and as data with its transitions."""
    assert run("protocols", "draw", name) == (0, mermaid(ALL_MACHINES[name]), "")
    found = json.loads(run("protocols", "draw", name, "--json")[1])
    assert (found["name"], found["mermaid"]) == (name, mermaid(ALL_MACHINES[name]))
    triples = {(item["state"], item["event"], item["target"]) for item in found["transitions"]}
    assert triples == {(str(state), str(event), str(target)) for state, event, target in ALL_MACHINES[name].transitions()}


def test_an_unknown_machine_is_told_with_the_names(run: Run) -> None:
    """Who asks for a machine that there is not is told which there are, in one line."""
    code, out, err = run("protocols", "draw", "toaster")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "cannot draw 'toaster'" in err
    assert all(name in err for name in ALL_MACHINES)


def test_without_a_subcommand_it_is_a_usage_error(run: Run) -> None:
    """`teams protocols` alone says which subcommands there are."""
    code, _, err = run("protocols")
    assert code == 2
    assert "check | draw" in err
