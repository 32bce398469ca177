"""What a command comes to: records to append, and the answer for its caller.

Laws: a command decides against a state and changes nothing; what it refuses it refuses by an exception, and then there are no records; all
records of one command are one transaction.
"""

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from protocols.names import RUNTIME
from teams.state.mailboxes import OutgoingMail
from teams.state.team_state import TeamState

ResultT_co = TypeVar("ResultT_co", covariant=True)


class Draft:
    """The records of one command in the making; ids follow from the state, so a second decision gives the same or later ones."""

    __slots__ = ("_mails", "_requests", "fallen", "now", "records", "state")

    def __init__(self, state: TeamState, now: float) -> None:
        self.state, self.now = state, now
        self.records: list[tuple[str, dict[str, Any]]] = []
        self.fallen: set[int] = set()  # tasks that this command brings down; the state does not know it yet
        self._mails = self._requests = 0

    def add(self, kind: str, fields: dict[str, Any]) -> None:
        """Add one record."""
        self.records.append((kind, fields))

    def mail(self, mail: OutgoingMail) -> str:
        """Add a message and return its id."""
        self._mails += 1
        message_id = f"m{self.state.mail.sent + self._mails}"
        self.records.append(("mail.sent", mail.fields(message_id)))
        return message_id

    def next_request_id(self) -> str:
        """Return the id of the request that is about to be opened."""
        self._requests += 1
        return f"r{self.state.requests_opened + self._requests}"

    def tell(
        self, recipient: str, kind: str, content: str, *, request_id: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        """Send mail of the runtime to a member that a model drives; scripts and persons see requests and tasks themselves."""
        member = self.state.roster.members.get(recipient)
        if member is not None and member.live and member.spec.kind in AGENT_KINDS:
            self.mail(OutgoingMail(type=kind, sender=RUNTIME, recipients=(recipient,), content=content, request_id=request_id, extra=extra))


AGENT_KINDS = frozenset({"teammate", "lead"})
"""Kinds of members that read their mail through a model."""


class Command(Protocol[ResultT_co]):
    """A wish to change the team: decided against a state, at a time, into records and an answer."""

    def decide(self, draft: Draft) -> ResultT_co:
        """Add the records to the draft and return the answer; raise a TeamError or ProtocolError to refuse."""
        ...


class Decided(Generic[ResultT_co]):
    """The outcome of one command against one state."""

    __slots__ = ("records", "result")

    def __init__(self, records: list[tuple[str, dict[str, Any]]], result: ResultT_co) -> None:
        self.records, self.result = records, result


def decide(state: TeamState, command: Command[ResultT_co], now: float) -> Decided[ResultT_co]:
    """Decide one command; pure. `now` is in seconds since the epoch."""
    draft = Draft(state, now)
    result = command.decide(draft)
    return Decided(draft.records, result)
