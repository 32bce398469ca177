"""A team's state driven by commands alone, the way the engine does it: decide, number, encode, apply.

Laws of every test that drives one: a refused command leaves the state as it was and writes nothing; whoever reads the lines of the log
comes to the same state as who applied the records when they were made.
"""

import json
import os
from collections.abc import Sequence
from typing import Any, TypeVar

import hypothesis
from hypothesis import strategies as st

from protocols.errors import ProtocolError
from protocols.lifecycle import LIFECYCLE, MemberEvent
from protocols.task_status import TASK_STATUS
from teams.errors import TeamError
from teams.journal.records import Record, decode, encode, utc_now_text
from teams.state.decision import Command, decide
from teams.state.roster import MemberSpec
from teams.state.roster_commands import ChangeStatus, Join
from teams.state.tasks import Task
from teams.state.team_state import TeamState

ResultT = TypeVar("ResultT")
T = TypeVar("T")
HOST = "here_1_00000000"

walks = st.binary(min_size=400, max_size=400)
"""What drives one walk; see Choices."""


def walk_settings(max_examples: int) -> hypothesis.settings:
    """Return settings for tests of walks: a failing one takes minutes to shrink, more than a test may take, so only `explore` shrinks."""
    if os.environ.get("HYPOTHESIS_PROFILE") == "explore":
        return hypothesis.settings()
    return hypothesis.settings(max_examples=max_examples, phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate))


class Choices:
    """Turns bytes into choices, one byte each: dense, whatever may be chosen from, where strategies of strategies mostly choose nothing."""

    def __init__(self, data: bytes) -> None:
        self._data, self._next = data, 0

    @property
    def left(self) -> bool:
        """Whether there is a choice left to make."""
        return self._next < len(self._data)

    def pick(self, options: Sequence[T]) -> T:
        """Choose one; the first one when nothing is left."""
        byte = self._data[self._next] if self.left else 0
        self._next += 1
        return options[byte % len(options)]

    def some(self, options: Sequence[T], most: int) -> list[T]:
        """Choose several, each once."""
        chosen = [self.pick(options) for _ in range(self.pick(range(most + 1)))] if options else []
        return list(dict.fromkeys(chosen))


def facts(state: TeamState) -> dict[str, Any]:
    """Return everything that a reader of the state can learn, in containers of its own."""
    tasks = state.tasks
    return {
        "json": state.to_json(),
        "ready": [task.id for task in tasks.by_id.values() if tasks.is_ready(task)],
        "ready_index": sorted(task_id for bucket in tasks.ready.values() for task_id in bucket),
        "blocked": {task_id: tasks.blocked_by(task_id) for task_id in tasks.by_id},
        "owned": {owner: sorted(held) for owner, held in tasks.owned.items()},
        "tags": dict(tasks.tags_in_use),
        "dependents": {task_id: sorted(held) for task_id, held in tasks.dependents.items() if held},
        "unfinished": tasks.unfinished,
        "due": [request.id for request in state.requests.due(float("inf"))],
        "boxes": {name: list(state.mail.box(name)) for name in state.roster.members},
    }


def shown(state: TeamState) -> str:
    """Return the facts of a state as text, equal for equal states wherever they came from."""
    return json.dumps(facts(state), sort_keys=True)


class Desk:
    """A state, the log that led to it, and a clock that only the test moves."""

    def __init__(self, *, watched: bool = True) -> None:
        self.state = TeamState()
        self.lines: list[bytes] = []
        self.now = 1_000.0
        self._watched = watched  # looking at the whole state twice per command is too slow for thousands of them

    def do(self, command: Command[ResultT]) -> ResultT:
        """Carry out a command; what is refused is raised, once it was seen to change nothing."""
        before = facts(self.state) if self._watched else None
        try:
            decided = decide(self.state, command, self.now)
        except (TeamError, ProtocolError, ValueError, TypeError):
            assert before is None or facts(self.state) == before, f"{command} was refused and yet changed the state"
            raise
        assert before is None or facts(self.state) == before, f"deciding {command} changed the state"
        at, seq = utc_now_text(self.now), self.state.seq
        for number, (kind, fields) in enumerate(decided.records, 1):
            record = Record(seq + number, at, kind, fields, len(decided.records) - number)
            self.lines.append(encode(record))
            self._check_step(record)
            self.state.apply(record)
        assert self.state.seq == len(self.lines)
        return decided.result

    def _check_step(self, record: Record) -> None:
        """Hold that tasks and members move along the tables of `protocols` alone."""
        fields = record.fields
        if record.kind == "task.changed":
            task = self.state.tasks.by_id[fields["id"]]
            to = {TASK_STATUS.step(task.status, event) for event in TASK_STATUS.legal(task.status)}
            assert fields["status"] in to, f"task {task.id} went from {task.status} to {fields['status']}"
        elif record.kind == "member.status":
            status = self.state.roster.members[fields["name"]].status
            reachable = {LIFECYCLE.step(status, event) for event in LIFECYCLE.legal(status)}
            assert fields["status"] in {status, *reachable}, f"{fields['name']} went from {status} to {fields['status']}"

    def records(self) -> list[Record]:
        """Return the log as somebody else reads it."""
        return [decode(line) for line in self.lines]

    def replayed(self, *, after: TeamState | None = None) -> TeamState:
        """Return the state that the log leads to, from nothing or from an earlier state, which it changes."""
        state = TeamState() if after is None else after
        for record in self.records()[state.seq :]:
            state.apply(record)
        return state

    def reloaded(self) -> TeamState:
        """Return the state as a snapshot brings it back."""
        return TeamState.from_json(json.loads(json.dumps(self.state.to_json())))

    def check_folds(self) -> None:
        """Hold the laws of the fold: replay, snapshot and copy come to what the commands came to."""
        expected = shown(self.state)
        assert shown(self.replayed()) == expected
        assert shown(self.reloaded()) == expected
        assert shown(self.state.copy()) == expected

    def join(self, name: str, **spec: Any) -> int:
        """Put a member on the roster and make it ready; return its incarnation."""
        incarnation, is_new = self.do(Join(MemberSpec(name=name, **spec), HOST))
        if is_new:
            self.do(ChangeStatus(name, MemberEvent.ready, incarnation))
        return incarnation

    def leave(self, name: str, event: MemberEvent = MemberEvent.exited) -> tuple[int, ...]:
        """End a member's life; return the tasks that it hands back."""
        return self.do(ChangeStatus(name, event, None))

    def incarnation(self, name: str) -> int:
        """Return the member's incarnation."""
        return self.state.roster.members[name].incarnation

    def task(self, task_id: int) -> Task:
        """Return a task."""
        return self.state.tasks.by_id[task_id]
