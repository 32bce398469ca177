"""The explorer finds what is wrong in worlds made to be wrong, and shows the shortest way there."""

from collections.abc import Iterator, Mapping

import pytest

from protocols.explore import Action, World, explore


class Small(World[str]):
    """A world of named states; an arrow with `!` is fair."""

    def __init__(self, arrows: Mapping[str, str], *, outcomes: str = "z", wrong: str = "", wrong_steps: str = "") -> None:
        self._arrows, self._outcomes, self._wrong, self._wrong_steps = arrows, outcomes, wrong, wrong_steps

    @property
    def name(self) -> str:
        """A name for reports."""
        return "small"

    def initial(self) -> str:
        """Begin in a."""
        return "a"

    def actions(self, state: str) -> Iterator[tuple[Action, str]]:
        """Yield the arrows of a state."""
        for target in self._arrows.get(state, "").split():
            yield Action("one", "two", f"{state} to {target[0]}" if "!" not in target else target, "!" in target), target[0]

    def is_outcome(self, state: str) -> bool:
        """Tell whether a state is an end."""
        return state in self._outcomes

    def wrong(self, state: str) -> Iterator[str]:
        """Yield a promise that a state breaks."""
        if state in self._wrong:
            yield "never there"

    def wrong_step(self, before: str, after: str) -> Iterator[str]:
        """Yield a promise that a step breaks."""
        if before + after in self._wrong_steps.split():
            yield "never so"


def promises(world: World[str]) -> dict[str, list[str]]:
    """Return what is wrong in a world, and the way to it."""
    return {violation.promise: [action.what for action in violation.path] for violation in explore(world).violations}


def test_a_sound_world_has_no_violation() -> None:
    """Everything is counted, and nothing is found where nothing is wrong."""
    report = explore(Small({"a": "b c", "b": "z!", "c": "z! b"}))
    assert (report.states, report.transitions, report.outcomes, report.violations) == (4, 5, 1, ())


def test_wrong_states_and_steps_are_found_by_the_shortest_way() -> None:
    """Of many ways to a wrong state the shortest is shown."""
    arrows = {"a": "b c", "b": "d", "c": "e z", "d": "e", "e": "z"}
    assert promises(Small(arrows, wrong="e"))["never there"] == ["a to c", "c to e"]
    assert promises(Small(arrows, wrong_steps="de cz"))["never so"] == ["a to c", "c to z"]


def test_a_deadlock_is_found() -> None:
    """A state without a way out that is no outcome is stuck."""
    assert promises(Small({"a": "b z"})) == {
        "no state is stuck before an outcome": ["a to b"],
        "from every state an outcome can be reached": ["a to b"],
    }


def test_a_trap_is_found() -> None:
    """States that lead to each other and never to an outcome are doomed, and go on for ever."""
    assert set(promises(Small({"a": "b z", "b": "c", "c": "b"}))) == {
        "from every state an outcome can be reached",
        "when deadlines pass an outcome comes",
    }


@pytest.mark.parametrize(
    ("arrows", "sound"),
    [
        ({"a": "b z!", "b": "a z!"}, True),  # the deadline is always possible, and ends it
        ({"a": "b z", "b": "a z"}, False),  # nothing has to end it
        ({"a": "b z!", "b": "a"}, False),  # the deadline is not always possible: it may be missed for ever
        ({"a": "a! z!"}, True),  # two fair things, one of which ends it
        ({"a": "b! z", "b": "a!"}, False),  # what is fair only leads round
    ],
)
def test_endless_runs_are_found_unless_a_fair_step_ends_them(arrows: Mapping[str, str], sound: bool) -> None:
    """A run may go on for ever unless something fair is possible all the time and leads out."""
    found = explore(Small(arrows)).violations
    assert [violation.promise for violation in found] == ([] if sound else ["when deadlines pass an outcome comes"])
    assert all(violation.cycle for violation in found)


def test_a_violation_is_drawn_as_a_sequence() -> None:
    """The way to a violation is a Mermaid sequence diagram and a numbered list."""
    violation = explore(Small({"a": "b", "b": "z"}, wrong="z")).violations[0]
    assert str(violation) == "never there\n  1. one -> two: a to b\n  2. one -> two: b to z"
    assert violation.mermaid() == ("sequenceDiagram\n    one->>two: a to b\n    one->>two: b to z\n    Note over two: never there")
    endless = explore(Small({"a": "b z", "b": "a"})).violations[0]
    assert "    loop for ever\n" in endless.mermaid()


def test_a_world_that_is_too_large_is_an_error() -> None:
    """An exploration never stops early without a word."""
    with pytest.raises(RuntimeError, match="'small' has more than 2 states"):
        explore(Small({"a": "b", "b": "c", "c": "z"}), limit=2)
