"""The whole state of a team: one fold of the journal.

Laws: the state is a function of the records alone; `apply` never fails for a record that `decide` made; records of kinds that a newer
version writes are passed over; two states that applied the same records are equal.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from protocols.request import Request, RequestKind
from protocols.requests import RequestLedger
from teams.journal.records import Record
from teams.state.mailboxes import Mailboxes
from teams.state.requests import apply_advanced, apply_opened
from teams.state.roster import Roster
from teams.state.tasks import Tasks

SNAPSHOT_FORMAT = 1


@dataclass(slots=True)
class TeamState:
    """Roster, mail, tasks and requests after record `seq`."""

    roster: Roster = field(default_factory=Roster)
    mail: Mailboxes = field(default_factory=Mailboxes)
    tasks: Tasks = field(default_factory=Tasks)
    requests: RequestLedger = field(default_factory=RequestLedger)
    requests_opened: int = 0
    seq: int = 0

    def apply(self, record: Record) -> None:
        """Fold one record in; unknown kinds change nothing but `seq`."""
        applier = APPLIERS.get(record[2])
        if applier is not None:
            applier(self, record[1], record[3])
        self.seq = record[0]

    def copy(self) -> "TeamState":
        """Return an independent state that shares every immutable value."""
        return TeamState(self.roster.copy(), self.mail.copy(), self.tasks.copy(), self.requests.copy(), self.requests_opened, self.seq)

    def to_json(self) -> dict[str, Any]:
        """Return the state for a snapshot."""
        return {
            "format": SNAPSHOT_FORMAT,
            "seq": self.seq,
            "roster": self.roster.to_json(),
            "mail": self.mail.to_json(),
            "tasks": self.tasks.to_json(),
            "requests": self.requests.to_json(),
            "requests_opened": self.requests_opened,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "TeamState":
        """Rebuild a state from a snapshot; raise ValueError for one of another format."""
        if data.get("format") != SNAPSHOT_FORMAT:
            raise ValueError(f"cannot read a snapshot of format {data.get('format')!r}; this version reads {SNAPSHOT_FORMAT}")
        return cls(
            Roster.from_json(data["roster"]),
            Mailboxes.from_json(data["mail"]),
            Tasks.from_json(data["tasks"]),
            RequestLedger.from_json(data["requests"]),
            data["requests_opened"],
            data["seq"],
        )


def _request_opened(state: TeamState, _at: str, fields: Mapping[str, Any]) -> None:
    state.requests_opened += 1
    _put(state, apply_opened(fields))


def _request_advanced(state: TeamState, _at: str, fields: Mapping[str, Any]) -> None:
    _put(state, apply_advanced(state.requests.get(fields["id"]), fields))


def _put(state: TeamState, request: Request) -> None:
    state.requests.put(request)
    if request.kind is RequestKind.plan_approval:
        approved = request.is_closed and request.decision is not None and request.decision.approved
        state.roster.set_plan(request.subject, request=None if request.is_closed else request.id, approved=request.id if approved else None)
    elif request.kind is RequestKind.shutdown:
        state.roster.set_shutdown(request.subject, None if request.is_closed else request.id)


Applier = Callable[[TeamState, str, Mapping[str, Any]], None]

APPLIERS: Mapping[str, Applier] = {
    "mail.sent": lambda state, at, fields: state.mail.apply_sent(at, fields),
    "mail.committed": lambda state, _at, fields: state.mail.apply_committed(fields),
    "member.joined": lambda state, at, fields: state.roster.apply_joined(at, fields),
    "member.status": lambda state, at, fields: state.roster.apply_status(at, fields),
    "member.noted": lambda state, _at, fields: state.roster.apply_note(fields),
    "task.created": lambda state, at, fields: state.tasks.apply_created(at, fields),
    "task.edge": lambda state, at, fields: state.tasks.apply_edge(at, fields),
    "task.changed": lambda state, at, fields: state.tasks.apply_changed(at, fields),
    "task.renewed": lambda state, _at, fields: state.tasks.apply_renewed(fields),
    "task.amended": lambda state, at, fields: state.tasks.apply_amended(at, fields),
    "request.opened": _request_opened,
    "request.advanced": _request_advanced,
}
"""What each kind of record does; the one list of the kinds that this version folds."""
