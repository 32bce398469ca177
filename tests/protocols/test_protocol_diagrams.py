"""The drawings are made from the tables, and the page of the docs shows the present ones."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocols import ALL_MACHINES, Machine, mermaid
from protocols.diagrams import update

PAGE = Path(__file__).parents[2] / "docs" / "protocols.md"
ARROW = re.compile(r"    (\S+) --> (\S+): (.+)")


@pytest.mark.parametrize("machine", ALL_MACHINES.values(), ids=list(ALL_MACHINES))
def test_drawing_holds_every_transition(machine: Machine[Any, Any]) -> None:
    """Reading the arrows back gives the table, its beginning and its ends."""
    lines = mermaid(machine).splitlines()
    arrows = [match.groups() for line in lines if (match := ARROW.fullmatch(line))]
    drawn = {(state, event, target) for state, target, events in arrows for event in events.split(", ")}
    assert drawn == {(state.value, event.value, target.value) for state, event, target in machine.transitions()}
    assert lines[:2] == ["stateDiagram-v2", f"    [*] --> {machine.initial}"]
    assert {line.split()[0] for line in lines if line.endswith("--> [*]")} == set(machine.final)


def test_page_is_current_and_draws_every_machine() -> None:
    """`docs/protocols.md` holds the present drawing of each machine once; `python -m protocols.diagrams` makes it anew."""
    page = PAGE.read_text(encoding="utf-8")
    assert update(page) == page
    assert sorted(re.findall(r"<!-- machine: (\S+) -->", page)) == sorted(ALL_MACHINES)
    for machine in ALL_MACHINES.values():
        assert f"```mermaid\n{mermaid(machine)}```" in page
        for state in machine.states:
            assert f"`{state}`" in page or machine.name in ("permission", "question"), state


def test_update_replaces_only_what_stands_between_marks() -> None:
    """An outdated drawing is replaced, the text around it stays, and an unknown machine is an error."""
    old = "before\n<!-- machine: question -->\nold\n<!-- end -->\nafter <!-- end -->\n"
    new = update(old)
    assert "old" not in new
    assert new.startswith("before\n<!-- machine: question -->\n```mermaid\nstateDiagram-v2\n")
    assert new.endswith("```\n<!-- end -->\nafter <!-- end -->\n")
    assert update(new) == new
    with pytest.raises(ValueError, match="no machine 'toaster' to draw; there are lifecycle"):
        update("<!-- machine: toaster -->\n<!-- end -->")


def test_module_redraws_its_input() -> None:
    """Run as a program, the module prints its input with new drawings."""
    text = "<!-- machine: question -->\n<!-- end -->\n"
    done = subprocess.run([sys.executable, "-m", "protocols.diagrams"], input=text, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (update(text), "")
