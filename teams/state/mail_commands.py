"""Commands about mail."""

from dataclasses import dataclass

from protocols.names import RUNTIME
from protocols.request import RequestKind
from teams.errors import SPAWN_AGAIN, MemberStateError, UsageError
from teams.state.decision import Draft
from teams.state.mailboxes import OutgoingMail
from teams.state.request_commands import AnswerRequest


@dataclass(slots=True)
class SendMail:
    """Store one message for one recipient; the answer is its id."""

    mail: OutgoingMail
    quota: int | None

    def decide(self, draft: Draft) -> str:
        """Refuse unknown senders and recipients, mail to oneself, to a stopped member, and over the quota."""
        mail, state = self.mail, draft.state
        members = state.roster.members
        if mail.sender != RUNTIME and mail.sender not in members:
            state.roster.get(mail.sender, operation="send as")
        repeated = state.mail.repeated(mail.sender, mail.key)
        if repeated is not None:
            if repeated[1] != mail.recipients:
                raise UsageError(
                    f"cannot send with key {mail.key!r}: {mail.sender!r} used it for {repeated[0]}, which went to {', '.join(repeated[1])}"
                )
            return repeated[0]
        for name in mail.recipients:
            member = members.get(name) or state.roster.get(name, operation="send to")
            if name == mail.sender:
                raise UsageError(f"cannot send to {name!r}: that is the sender itself; recipients are the other members")
            if not member.live:
                raise MemberStateError(name, status=member.status.value, operation="send to", legal=[SPAWN_AGAIN])
        state.mail.check_quota(mail.recipients, self.quota)
        message_id = draft.mail(mail)
        self._answer_question(draft, message_id)
        return message_id

    def _answer_question(self, draft: Draft, message_id: str) -> None:
        """Let mail that answers an open question decide it: who asked gets it as the answer, and not once more as mail."""
        mail = self.mail
        if mail.request_id is None or mail.request_id not in draft.state.requests:
            return
        request = draft.state.requests.get(mail.request_id)
        is_answer = request.kind is RequestKind.question and mail.sender in request.answerers and mail.recipients == (request.asker,)
        if is_answer and request.is_undecided:
            AnswerRequest(request.id, mail.sender, approved=True, feedback=mail.content, body_limit=len(mail.content)).decide(draft)
            draft.add("mail.committed", {"member": request.asker, "ids": [message_id]})


@dataclass(slots=True)
class Broadcast:
    """Store one message for every live member but the sender, at one roster version; the answer is its id and who gets it."""

    sender: str
    content: str
    quota: int | None
    priority: str = "tool"
    artifact: str | None = None
    key: str | None = None

    def decide(self, draft: Draft) -> tuple[str, tuple[str, ...]]:
        """Refuse an unknown sender, and the whole broadcast when one recipient's mailbox is full."""
        state = draft.state
        state.roster.get(self.sender, operation="broadcast as")
        repeated = state.mail.repeated(self.sender, self.key)
        if repeated is not None:
            return repeated
        recipients = tuple(member.name for member in state.roster.live() if member.name != self.sender)
        if not recipients:
            return "", ()
        state.mail.check_quota(recipients, self.quota)
        mail = OutgoingMail(
            type="broadcast",
            sender=self.sender,
            recipients=recipients,
            content=self.content,
            priority=self.priority,
            artifact=self.artifact,
            key=self.key,
        )
        return draft.mail(mail), recipients


@dataclass(slots=True)
class CommitMail:
    """Say that these messages stand in the member's transcript; ids that were committed before are passed over."""

    member: str
    ids: tuple[str, ...]
    incarnation: int | None = None

    def decide(self, draft: Draft) -> None:
        """Refuse a stale incarnation."""
        draft.state.roster.check_incarnation(self.member, self.incarnation)
        box = draft.state.mail.box(self.member)
        ids = [message_id for message_id in self.ids if message_id in box]
        if ids:
            draft.add("mail.committed", {"member": self.member, "ids": ids})


@dataclass(slots=True)
class TellMember:
    """Say something to a member in the name of the runtime."""

    name: str
    text: str
    kind: str = "notice"

    def decide(self, draft: Draft) -> None:
        """Say nothing to a member that reads no mail, or not any more."""
        draft.tell(self.name, self.kind, self.text)
