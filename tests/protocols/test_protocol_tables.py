"""Every table holds exactly the transitions that are written here by hand, and refuses every other pair."""

from typing import Any

import pytest

from protocols import (
    LIFECYCLE,
    MACHINES,
    PERMISSION,
    PLAN_APPROVAL,
    QUESTION,
    SHUTDOWN,
    TASK_STATUS,
    IllegalTransition,
    Machine,
    RequestKind,
)

EXPECTED = {
    "lifecycle": """
        spawning ready idle
        idle work_started working
        idle plan_submitted awaiting_plan_approval
        working went_idle idle
        working plan_submitted awaiting_plan_approval
        awaiting_plan_approval plan_decided working
        awaiting_plan_approval work_started working
        spawning drain_started draining
        idle drain_started draining
        working drain_started draining
        awaiting_plan_approval drain_started draining
        spawning exited stopped
        idle exited stopped
        working exited stopped
        awaiting_plan_approval exited stopped
        draining exited stopped
        spawning crashed failed
        idle crashed failed
        working crashed failed
        awaiting_plan_approval crashed failed
        draining crashed failed
        spawning lost failed
        idle lost failed
        working lost failed
        awaiting_plan_approval lost failed
        draining lost failed
        stopped respawned spawning
        failed respawned spawning
    """,
    "shutdown": """
        requested approve approved
        requested reject rejected
        requested expire expired
        requested force cancelling
        requested exited stopped
        approved drained drained
        approved grace_over cancelling
        approved force cancelling
        approved exited stopped
        drained exited stopped
        drained grace_over cancelling
        drained force cancelling
        expired grace_over cancelling
        expired force cancelling
        expired exited stopped
        cancelling exited stopped_forced
    """,
    "plan_approval": """
        submitted approve approved
        submitted reject rejected
        submitted withdraw withdrawn
        submitted expire expired
        submitted hand_over submitted
        rejected revise submitted
        rejected withdraw withdrawn
    """,
    "task_status": """
        pending claim in_progress
        pending cancel cancelled
        pending blocker_failed failed
        in_progress release pending
        in_progress lease_expired pending
        in_progress complete completed
        in_progress fail failed
        in_progress cancel cancelled
        failed retry pending
        failed cancel cancelled
    """,
    "permission": """
        asked approve approved
        asked reject rejected
        asked withdraw withdrawn
        asked expire expired
        asked allow approved
        asked hand_over asked
        approved use used
        approved withdraw withdrawn
    """,
    "question": """
        asked answer answered
        asked reject rejected
        asked withdraw withdrawn
        asked expire expired
        asked hand_over asked
    """,
}
FINAL = {
    "lifecycle": "",
    "shutdown": "stopped rejected stopped_forced",
    "plan_approval": "approved withdrawn expired",
    "task_status": "completed cancelled",
    "permission": "used rejected withdrawn expired",
    "question": "answered rejected withdrawn expired",
}
INITIAL = {
    "lifecycle": "spawning",
    "shutdown": "requested",
    "plan_approval": "submitted",
    "task_status": "pending",
    "permission": "asked",
    "question": "asked",
}
TABLES: list[Machine[Any, Any]] = [LIFECYCLE, SHUTDOWN, PLAN_APPROVAL, TASK_STATUS, PERMISSION, QUESTION]


def expected(machine: Machine[Any, Any]) -> dict[tuple[str, str], str]:
    """Read the transitions that were written by hand."""
    rows = [line.split() for line in EXPECTED[machine.name].strip().splitlines()]
    table = {(state, event): target for state, event, target in rows}
    assert len(table) == len(rows)
    return table


def name_of(machine: Machine[Any, Any]) -> str:
    """Name a parametrized test after its machine."""
    return machine.name


@pytest.mark.parametrize("machine", TABLES, ids=name_of)
def test_table_holds_what_was_agreed(machine: Machine[Any, Any]) -> None:
    """A table has the transitions, the initial and the final states that were agreed, no more and no less."""
    assert {(str(state), str(event)): str(target) for state, event, target in machine.transitions()} == expected(machine)
    assert machine.final == frozenset(FINAL[machine.name].split())
    assert machine.initial == INITIAL[machine.name]


@pytest.mark.parametrize("machine", TABLES, ids=name_of)
def test_table_decides_every_pair(machine: Machine[Any, Any]) -> None:
    """Every pair of a state and an event steps where it was agreed, or is refused with exactly the legal events."""
    table = expected(machine)
    for state in machine.states:
        legal = {event for known, event in table if known == state}
        assert machine.legal(state) == legal
        for event in machine.events:
            if (state, event) in table:
                assert machine.step(state, event) == table[state, event]
                assert type(machine.step(str(state), str(event))) is type(machine.initial)
                continue
            with pytest.raises(IllegalTransition) as caught:
                machine.step(state, event)
            assert (caught.value.machine, caught.value.state, caught.value.event) == (machine.name, state, event)
            assert caught.value.legal == legal
            for word in (machine.name, repr(state.value), repr(event.value), *(legal or {"nothing"})):
                assert word in str(caught.value)


@pytest.mark.parametrize("machine", TABLES, ids=name_of)
def test_table_always_comes_to_rest(machine: Machine[Any, Any]) -> None:
    """From every state there is a way to a state in which nothing is owed: a final one, or a resting one of the lifecycle."""
    table = expected(machine)
    resting = set(FINAL[machine.name].split()) or {"stopped", "failed"}
    for _ in machine.states:
        resting |= {state for (state, _), target in table.items() if target in resting}
    assert resting == set(machine.states)


def test_every_kind_of_request_has_its_machine() -> None:
    """Each kind of request steps through the table of its own."""
    assert {kind: machine.name for kind, machine in MACHINES.items()} == {
        RequestKind.shutdown: "shutdown",
        RequestKind.plan_approval: "plan_approval",
        RequestKind.permission: "permission",
        RequestKind.question: "question",
    }
