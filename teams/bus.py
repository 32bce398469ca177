"""The message bus: durable mail between members.

Laws:
- When `send` returns, the message is on disk. It stays unread until its recipient acknowledges it; a process that dies before that finds it
  again. Within a process, `receive` gives each message once.
- Order is the order of the log; the cost of a message does not depend on how many there were before.
- The sender, the id, the time and the kinds of the runtime are not the caller's to choose, once the caller is a model: the tools pass the
  member's own name.
- Protocol mail has no lane that a model reads by itself: teammates' mail is taken by the runtime alone.

Facts of one message: *stored* (in the journal), *injected* (taken by its recipient in this process), *committed* (acknowledged).
"""

import math
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import trio

from teams.artifacts import ArtifactStore
from teams.engine import Engine
from teams.errors import NoReply, UsageError
from teams.journal.records import Record
from teams.options import BusOptions
from teams.state.mail_commands import Broadcast, CommitMail, SendMail
from teams.state.mailboxes import Mail, OutgoingMail
from teams.topics import ANYTHING
from teams.waits import WaitGraph

if TYPE_CHECKING:
    from protocols.messages import Message

Priority = Literal["turn", "tool", "now"]
PRIORITIES = ("turn", "tool", "now")


class Receipt(NamedTuple):
    """Where one message stands with one recipient.

    `waits_behind` is what the recipient is busy with, such as "bash, 40 s" or "a model call, 3 s". It is empty when nothing runs or this
    process does not host the recipient, when it has the message, and when a message that was just sent interrupts (priority `now`).
    """

    id: str
    recipient: str
    state: Literal["stored", "injected", "committed"]
    waits_behind: str = ""


class Inbox:
    """What one member of this process has not taken yet, oldest first; mail for the next turn waits apart."""

    __slots__ = ("later", "prompt", "replies", "taken")

    def __init__(self) -> None:
        self.replies: dict[str, tuple[str, list[Mail]]] = {}  # by the id of an open question: who is asked, and the answer
        self.prompt: deque[Mail] = deque()
        self.later: deque[Mail] = deque()
        self.taken: set[str] = set()

    def add(self, mail: Mail) -> None:
        """Put a message at the end of its lane; an answer goes to its question."""
        if self.replies and mail.request_id in self.replies:
            asked, answer = self.replies[mail.request_id]
            if mail.sender == asked and not answer:
                answer.append(mail)
                return
        (self.later if mail.priority == "turn" else self.prompt).append(mail)

    def pop(self, *, at_turn: bool = True) -> Mail | None:
        """Take the oldest message that may be seen now."""
        prompt, later = self.prompt, self.later
        if at_turn and later and (not prompt or later[0].number < prompt[0].number):
            return later.popleft()
        return prompt.popleft() if prompt else None

    def has(self, *, at_turn: bool) -> bool:
        """Tell whether `pop` would find something."""
        return bool(self.prompt) or (at_turn and bool(self.later))

    def urgent(self) -> Mail | None:
        """Return a message that must interrupt what the member does."""
        return next((mail for mail in self.prompt if mail.priority == "now"), None)

    def drop(self, ids: Sequence[str]) -> None:
        """Forget messages that were committed elsewhere."""
        gone = set(ids) - self.taken
        self.taken.difference_update(ids)
        if gone:
            self.prompt = deque(mail for mail in self.prompt if mail.id not in gone)
            self.later = deque(mail for mail in self.later if mail.id not in gone)


class MessageBus:
    """Mail of one team, as one process sees it."""

    def __init__(self, engine: Engine, artifacts: ArtifactStore, waits: WaitGraph, options: BusOptions) -> None:
        self._engine, self._artifacts, self._waits, self._options = engine, artifacts, waits, options
        self._inboxes: dict[str, Inbox] = {}
        self.reserved: set[str] = set()
        """Members whose mail the runtime of this process takes; nobody else may."""
        self.tell_busy: Callable[[str], str] = _never_busy
        """Says what a member is busy with, empty when with nothing; set by who hosts members."""
        engine.listen(self._note)

    # -- sending -----------------------------------------------------------

    async def send(
        self,
        sender: str,
        to: str,
        content: str,
        type: Literal["message"] = "message",  # noqa: A002  # the word that people of this field know
        *,
        priority: Priority = "tool",
        request_id: str | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Store a message for one member; durable when this returns.

        Args:
            request_id: the id of the message or request that this one answers.
            key: an idempotency key: a second send with the same key and sender is the first one.

        Raises: UnknownMember (with near names), MemberStateError (stopped recipient), MailboxFull, UsageError (to oneself, blank).
        Checkpoints: always; when Cancelled, either nothing was stored, or the send with the same `key` settles it.
        """
        if type != "message":
            raise UsageError(f"cannot send {type!r}: members send 'message'; all other kinds are the runtime's or have their own verb")
        artifact = None
        if self._is_oversized(content, priority):
            self._engine.state.roster.get(to, operation="send to")  # before a body is stored for nobody
            content, artifact = await self._store_body(sender, content)
        mail = OutgoingMail(
            type=type,
            sender=sender,
            recipients=(to,),
            content=content,
            priority=priority,
            request_id=request_id,
            artifact=artifact,
            key=key,
        )
        message_id = await self._engine.submit(SendMail(mail, self._options.unread_quota))
        return self._sent(message_id, to, priority)

    async def broadcast(self, sender: str, content: str, *, priority: Priority = "tool", key: str | None = None) -> tuple[Receipt, ...]:
        """Store one message for every other live member, all or none, at one version of the roster.

        Raises: UnknownMember, MailboxFull, UsageError.
        Checkpoints: always; when Cancelled, as for `send`.
        """
        artifact = None
        if self._is_oversized(content, priority):
            content, artifact = await self._store_body(sender, content)
        command = Broadcast(sender, content, self._options.unread_quota, priority, artifact, key)
        message_id, recipients = await self._engine.submit(command)
        return tuple(self._sent(message_id, name, priority) for name in recipients)

    async def ask(self, sender: str, to: str, content: str, *, priority: Priority = "tool", key: str | None = None) -> "Message":
        """Send a message and wait for the one that answers it (its `request_id` is this one's id); the reply is acknowledged.

        Raises: NoReply when `to` has ended, or has not answered within `BusOptions.reply_seconds`; WaitCycle when `to` could not
            answer before `sender` goes on; what `send` raises.
        Checkpoints: always; when Cancelled, the question stays sent and a late reply stays in the inbox.
        """
        with self._waits.waiting(sender, to):
            asked = await self.send(sender, to, content, priority=priority, key=key)
            inbox = self._inbox(sender)
            answer = inbox.replies[asked.id] = to, list[Mail]()
            try:
                await self._wait_answer(to, answer[1])
            finally:
                del inbox.replies[asked.id]
                if sys.exception() is not None:  # cancelled in the same moment: the answer is mail like any other
                    inbox.prompt.extendleft(answer[1])
            if not answer[1]:
                raise NoReply(asked.id, to, self._options.reply_seconds)
            mail = answer[1][0]
            inbox.taken.add(mail.id)
            await self.acknowledge(sender, mail.id)
        return message_of(mail, sender)

    async def _wait_answer(self, to: str, answer: list[Mail]) -> None:
        members, limit = self._engine.state.roster.members, self._options.reply_seconds
        with trio.move_on_after(math.inf if limit is None else limit):
            await self._engine.wait_until(ANYTHING, lambda: bool(answer) or not members[to].live or None)

    def _sent(self, message_id: str, recipient: str, priority: Priority) -> Receipt:
        return Receipt(message_id, recipient, "stored", "" if priority == "now" else self.receipt(message_id, recipient).waits_behind)

    def _is_oversized(self, content: str, priority: str) -> bool:
        if priority not in PRIORITIES:
            raise UsageError(f"cannot send with priority {priority!r}; legal: {', '.join(PRIORITIES)}")
        if not content.strip():
            raise UsageError("cannot send a blank message; say something")
        return len(content) > self._options.body_limit_chars

    async def _store_body(self, sender: str, content: str) -> tuple[str, str]:
        artifact = await self._artifacts.save(sender, content)
        preview = content[: self._options.preview_chars]
        return f"{preview}\n[{len(content)} characters in all; the whole text is artifact {artifact} of {sender}]", artifact

    # -- receiving ----------------------------------------------------------

    async def receive(self, member: str) -> "Message":
        """Wait for the member's next message, oldest first.

        Raises: UnknownMember.
        Checkpoints: always; when Cancelled, the message is still unread. It stays stored until `acknowledge`.
        """
        engine = self._engine
        self._check_free(member, "receive for")
        inbox = self._inbox(member)
        if inbox.has(at_turn=True):
            await trio.lowlevel.checkpoint()
        while (mail := inbox.pop()) is None:
            await engine.park(("member", member))
        inbox.taken.add(mail.id)
        return message_of(mail, member)

    async def read_inbox(self, member: str) -> "list[Message]":
        """Take and acknowledge all mail that waits for the member, oldest first; empty when there is none.

        Checkpoints: always; when Cancelled, what was not acknowledged is found again by the next process.
        """
        self._check_free(member, "read the inbox of")
        taken = self.take_nowait(member, at_turn=True)
        await self.acknowledge(member, *(mail.id for mail in taken))
        return [message_of(mail, member) for mail in taken]

    def _check_free(self, member: str, operation: str) -> None:
        self._engine.state.roster.get(member, operation=operation)
        if member in self.reserved:
            raise UsageError(
                f"cannot {operation} {member!r}: the runtime hosts it and takes its mail; receive for members that your own code drives"
            )

    async def acknowledge(self, member: str, *ids: str) -> None:
        """Commit messages: they are in the recipient's hands and will not be given out again, in any process.

        Checkpoints: always; when Cancelled, they may still be uncommitted.
        """
        await self._engine.submit(CommitMail(member, ids))

    def acknowledge_nowait(self, member: str, *ids: str) -> None:
        """Commit messages with the next append, without waiting for it; until then a crash would give them out again."""
        self._engine.post(CommitMail(member, ids))

    def take_nowait(self, member: str, *, at_turn: bool) -> list[Mail]:
        """Take what may be seen now: everything at a turn's begin, what is not for the next turn at a tool boundary."""
        inbox = self._inbox(member)
        taken: list[Mail] = []
        while (mail := inbox.pop(at_turn=at_turn)) is not None:
            inbox.taken.add(mail.id)
            taken.append(mail)
        return taken

    def has_mail(self, member: str, *, at_turn: bool = True) -> bool:
        """Tell whether something waits for the member that it has not taken."""
        return self._inbox(member).has(at_turn=at_turn)

    def urgent(self, member: str) -> Mail | None:
        """Return a message of priority `now` that the member has not taken."""
        return self._inbox(member).urgent()

    def give_back(self, member: str, mails: Sequence[Mail]) -> None:
        """Put back what was taken and did not reach the transcript; it comes first again."""
        inbox = self._inbox(member)
        for mail in reversed(mails):
            inbox.taken.discard(mail.id)
            (inbox.later if mail.priority == "turn" else inbox.prompt).appendleft(mail)

    # -- receipts ------------------------------------------------------------

    def receipt(self, message_id: str, recipient: str) -> Receipt:
        """Tell where a message stands now, and behind what; raise UsageError for an id that was never given out."""
        mail = self._engine.state.mail
        if not mail.was_sent(message_id):
            raise UsageError(f"there is no message {message_id!r}; ids run from m1 to m{mail.sent}")
        if message_id in mail.box(recipient):
            inbox = self._inboxes.get(recipient)
            if inbox is not None and message_id in inbox.taken:
                return Receipt(message_id, recipient, "injected")
            return Receipt(message_id, recipient, "stored", self.tell_busy(recipient))
        return Receipt(message_id, recipient, "committed")

    async def wait_committed(self, receipt: Receipt) -> Receipt:
        """Wait until the recipient has the message for good.

        Checkpoints: always.
        """

        def committed() -> Receipt | None:
            now = self.receipt(receipt.id, receipt.recipient)
            return now if now.state == "committed" else None

        return await self._engine.wait_until(("member", receipt.recipient), committed)

    # -- the inside ----------------------------------------------------------

    def _inbox(self, member: str) -> Inbox:
        inbox = self._inboxes.get(member)
        if inbox is None:
            inbox = self._inboxes[member] = Inbox()
            for mail in self._engine.state.mail.box(member).values():
                inbox.add(mail)
        return inbox

    def _note(self, records: Sequence[Record]) -> None:
        inboxes = self._inboxes
        if not inboxes:
            return
        unread = self._engine.state.mail.unread
        for record in records:
            kind, fields = record[2], record[3]
            if kind == "mail.sent":
                message_id = fields["id"]
                for name in fields["to"]:
                    inbox = inboxes.get(name)
                    if inbox is not None:
                        mail = unread.get(name, {}).get(message_id)
                        if mail is not None:
                            inbox.add(mail)
            elif kind == "mail.committed":
                inbox = inboxes.get(fields["member"])
                if inbox is not None:
                    inbox.drop(fields["ids"])


def _never_busy(_member: str) -> str:
    return ""


def message_of(mail: Mail, recipient: str) -> "Message":
    """Return the message as the protocol's model of its kind."""
    fields: dict[str, Any] = {**mail.fields, "to": recipient, "timestamp": mail.at}
    extra = fields.pop("extra", None)
    if extra:
        fields.update(extra)
    fields.pop("key", None)
    return _message_maker()(fields)


@cache
def _message_maker() -> "Callable[[Mapping[str, Any]], Message]":
    from protocols.messages import make_message  # pydantic costs 0.1 s; who only sends does not pay it

    return make_message
