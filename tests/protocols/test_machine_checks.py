"""A machine is checked when it is built and cannot be changed afterwards."""

from collections.abc import Mapping
from enum import StrEnum

import pytest

from protocols import IllegalTransition, Machine


class Light(StrEnum):
    """The states of a lamp."""

    off = "off"
    on = "on"
    broken = "broken"


class Press(StrEnum):
    """What may happen to a lamp."""

    switch = "switch"
    drop = "drop"


GOOD: Mapping[Light, Mapping[Press, Light]] = {
    Light.off: {Press.switch: Light.on},
    Light.on: {Press.switch: Light.off, Press.drop: Light.broken},
}


def test_machine_steps_through_its_table() -> None:
    """A legal event leads where the table says, from members and from plain strings alike."""
    machine = Machine("lamp", Light.off, GOOD, final={Light.broken})
    assert machine.step(Light.off, Press.switch) is Light.on
    assert machine.step("on", "drop") is Light.broken  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] -- as from a journal
    assert machine.legal(Light.on) == {Press.switch, Press.drop}
    assert machine.is_final(Light.broken)
    assert not machine.is_final(Light.on)
    assert (machine.states, machine.events) == (tuple(Light), tuple(Press))
    assert list(machine.transitions()) == [
        (Light.off, Press.switch, Light.on),
        (Light.on, Press.switch, Light.off),
        (Light.on, Press.drop, Light.broken),
    ]


def test_machine_refuses_an_event_of_another_world() -> None:
    """An event or a state that no enum holds is an illegal transition and no KeyError."""
    machine = Machine("lamp", Light.off, GOOD, final={Light.broken})
    with pytest.raises(IllegalTransition, match="event 'explode' is not legal in state 'off'; legal now: switch"):
        machine.step(Light.off, "explode")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] -- what a damaged record holds
    with pytest.raises(IllegalTransition, match="legal now: nothing"):
        machine.step("melted", Press.drop)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] -- what a damaged record holds


@pytest.mark.parametrize(
    ("table", "final", "complaint"),
    [
        ({Light.off: {Press.switch: Light.on}, Light.on: {Press.drop: Light.broken}}, (), "'broken' is not final and has no way out"),
        ({**GOOD, Light.broken: {Press.drop: Light.off}}, {Light.broken}, "final state 'broken' has a way out: 'drop'"),
        (
            {Light.off: {Press.switch: Light.on}, Light.on: {Press.drop: Light.off}, Light.broken: {Press.drop: Light.off}},
            (),
            "unreachable from 'off': 'broken'",
        ),
        ({Light.off: {Press.switch: Light.on}, Light.on: {Press.switch: Light.broken}}, {Light.broken}, "no state knows the events 'drop'"),
        ({}, set(Light), "members of one enum"),
    ],
)
def test_machine_refuses_a_bad_table(table: Mapping[Light, Mapping[Press, Light]], final: set[Light], complaint: str) -> None:
    """A stuck state, an exit from a final one, an unreachable one and an unused event are found when the machine is built."""
    with pytest.raises(ValueError, match=complaint):
        Machine("lamp", Light.off, table, final)


def test_machine_does_not_follow_its_table() -> None:
    """Changing the mapping that a machine was built from does not change the machine, and its own attributes cannot be set."""
    table = {state: dict(row) for state, row in GOOD.items()}
    machine = Machine("lamp", Light.off, table, final={Light.broken})
    table[Light.off][Press.drop] = Light.broken
    with pytest.raises(IllegalTransition):
        machine.step(Light.off, Press.drop)
    with pytest.raises(AttributeError):
        machine.initial = Light.on  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue] -- the refusal is tested
