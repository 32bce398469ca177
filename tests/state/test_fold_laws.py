"""The state is a function of the records: whichever way it is reached, and wherever one begins."""

import json
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teams.journal.records import Record
from teams.state.team_state import TeamState
from tests.state.driving import Desk, shown, walk_settings, walks
from tests.state.test_mail_walk import MailWalk
from tests.state.test_request_walk import RequestWalk
from tests.state.test_task_graph_walk import TaskWalk


class Walk(Protocol):
    """A random walk that leaves a desk behind."""

    desk: Desk

    def run(self) -> None: ...


def fold(records: list[Record], state: TeamState) -> TeamState:
    """Apply the records to the state, which is returned."""
    for record in records:
        state.apply(record)
    return state


def through_json(state: TeamState) -> TeamState:
    """Return the state as a snapshot brings it back."""
    return TeamState.from_json(json.loads(json.dumps(state.to_json())))


@pytest.mark.parametrize("kind", [TaskWalk, MailWalk, RequestWalk])
@walk_settings(max_examples=6)
@given(data=walks, cut=st.floats(0, 1))
def test_from_any_point_the_rest_of_the_log_leads_to_the_same_state(
    kind: type[TaskWalk | MailWalk | RequestWalk], data: bytes, cut: float
) -> None:
    """A snapshot or a copy taken anywhere, with the records after it, is the state; and what happens to a copy happens to it alone."""
    walk: Walk = kind(data)
    walk.run()
    records, expected = walk.desk.records(), shown(walk.desk.state)
    begin, rest = records[: round(cut * len(records))], records[round(cut * len(records)) :]
    half = fold(begin, TeamState())
    at_cut = shown(half)
    assert shown(fold(rest, half.copy())) == expected
    assert shown(half) == at_cut, "what was applied to a copy showed in the original"
    assert shown(fold(rest, through_json(half))) == expected
    copy = half.copy()
    assert shown(fold(rest, half)) == expected
    assert shown(copy) == at_cut, "what was applied to the original showed in a copy"


def test_records_of_a_newer_version_change_nothing_but_the_place_in_the_log() -> None:
    """An unknown kind is passed over: everything else stays as it is, and `seq` goes on."""
    desk = Desk()
    desk.join("ann")
    before = json.loads(shown(desk.state))
    desk.state.apply(Record(desk.state.seq + 1, "2030-01-01T00:00:00.000000Z", "moon.landed", {"id": "m1", "name": "ann"}))
    after = json.loads(shown(desk.state))
    assert after["json"].pop("seq") == before["json"].pop("seq") + 1
    assert after == before


def test_a_snapshot_of_another_format_is_refused() -> None:
    """A snapshot that a newer version wrote is not read as if it were of this one."""
    with pytest.raises(ValueError, match=r"cannot read a snapshot of format 99"):
        TeamState.from_json({**TeamState().to_json(), "format": 99})


def test_a_member_of_a_newer_version_is_read_without_what_is_not_known() -> None:
    """Fields of a spec that this version does not know are left out, and the member is there."""
    state = TeamState()
    spec = {"name": "ann", "role": "r", "capabilities": ["dev"], "mood": "good"}
    state.apply(
        Record(1, "2030-01-01T00:00:00.000000Z", "member.joined", {"spec": spec, "status": "spawning", "incarnation": 1, "host": "h"})
    )
    assert state.roster.members["ann"].spec.capabilities == ("dev",)
    assert shown(through_json(state)) == shown(state)
