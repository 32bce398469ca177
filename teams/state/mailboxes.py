"""Mail that was sent and not yet committed: the fold of `mail.*` records, and what may be sent.

Laws: a message is unread from its `mail.sent` until the recipient's `mail.committed`; ids grow with the log, so an id that is not
unread any more and is not above the high-water mark was committed: nothing is kept for old mail, memory follows the unread mail alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from teams.errors import MailboxFull

KEPT_IDEMPOTENCY_KEYS = 10_000
"""How many of the newest idempotency keys are remembered; older repeats would store the message again."""


class Mail:
    """One stored message: its record's time and fields, shared by all its recipients and never changed.

    The fields are read where they are needed: taking them apart here would be half the cost of a message.
    """

    __slots__ = ("at", "fields")

    def __init__(self, at: str, fields: Mapping[str, Any]) -> None:
        self.at, self.fields = at, fields

    @property
    def id(self) -> str:
        """The message's id: `m` and a number that grows with the log."""
        return str(self.fields["id"])

    @property
    def number(self) -> int:
        """The number in the id."""
        return int(self.fields["id"][1:])

    @property
    def type(self) -> str:
        """The kind of message."""
        return str(self.fields["type"])

    @property
    def sender(self) -> str:
        """Who sent it."""
        return str(self.fields["from"])

    @property
    def recipients(self) -> tuple[str, ...]:
        """To whom it went."""
        return tuple(self.fields["to"])

    @property
    def content(self) -> str:
        """The body, or the preview of one that is an artifact."""
        return str(self.fields["content"])

    @property
    def request_id(self) -> str | None:
        """The request or message that it belongs to."""
        return self.fields.get("request_id")

    @property
    def priority(self) -> str:
        """When it reaches its recipient: turn, tool or now."""
        return str(self.fields["priority"])

    @property
    def artifact(self) -> str | None:
        """The id of the whole body, where the content is a preview."""
        return self.fields.get("artifact")

    @property
    def extra(self) -> Mapping[str, Any] | None:
        """What only this kind of message has."""
        return self.fields.get("extra")

    def as_json(self, recipient: str) -> dict[str, Any]:
        """Return the message as one recipient's inbox shows it."""
        shown: dict[str, Any] = {
            "type": self.type,
            "from": self.sender,
            "to": recipient,
            "content": self.content,
            "timestamp": self.at,
            "id": self.id,
            "request_id": self.request_id,
            "priority": self.priority,
        }
        if self.artifact is not None:
            shown["artifact"] = self.artifact
        if self.extra:
            shown.update(self.extra)
        return shown


@dataclass(slots=True, kw_only=True)
class OutgoingMail:
    """What is to be sent; nobody changes it, though it is not frozen, which would cost 2 us a message.

    The runtime fills in id and time and, for a body that is too long, the artifact.
    """

    type: str
    sender: str
    recipients: tuple[str, ...]
    content: str
    request_id: str | None = None
    priority: str = "tool"
    artifact: str | None = None
    extra: Mapping[str, Any] | None = None
    key: str | None = None

    def fields(self, message_id: str) -> dict[str, Any]:
        """Return the fields of the `mail.sent` record; absent ones are left out."""
        fields: dict[str, Any] = {
            "id": message_id,
            "type": self.type,
            "from": self.sender,
            "to": self.recipients,
            "content": self.content,
            "priority": self.priority,
        }
        if self.request_id is not None:
            fields["request_id"] = self.request_id
        if self.artifact is not None:
            fields["artifact"] = self.artifact
        if self.extra:
            fields["extra"] = dict(self.extra)
        if self.key is not None:
            fields["key"] = self.key
        return fields


class Mailboxes:
    """Unread mail by recipient, oldest first, with the high-water mark of ids."""

    __slots__ = ("_keys", "sent", "unread")

    def __init__(self) -> None:
        self.unread: dict[str, dict[str, Mail]] = {}
        self.sent = 0
        self._keys: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}

    def next_id(self) -> str:
        """Return the id that the next message gets."""
        return f"m{self.sent + 1}"

    def repeated(self, sender: str, key: str | None) -> tuple[str, tuple[str, ...]] | None:
        """Return the id under which this sender already stored a message with this idempotency key, and to whom it went."""
        return None if key is None else self._keys.get((sender, key))

    def box(self, member: str) -> Mapping[str, Mail]:
        """Return the member's unread mail by id, oldest first."""
        return self.unread.get(member) or {}

    def was_sent(self, message_id: str) -> bool:
        """Tell whether a message of this id was ever stored."""
        return message_id[:1] == "m" and message_id[1:].isdecimal() and 0 < int(message_id[1:]) <= self.sent

    def check_quota(self, recipients: Iterable[str], quota: int | None) -> None:
        """Refuse when a recipient already has as much unread mail as it may have."""
        if quota is None:
            return
        for name in recipients:
            box = self.unread.get(name)
            if box is not None and len(box) >= quota:
                raise MailboxFull(name, unread=len(box), quota=quota)

    def apply_sent(self, at: str, fields: Mapping[str, Any]) -> None:
        """Store a message in each recipient's box."""
        message_id, mail = fields["id"], Mail(at, fields)
        self.sent += 1
        unread = self.unread
        for name in fields["to"]:
            box = unread.get(name)
            if box is None:
                box = unread[name] = {}
            box[message_id] = mail
        if "key" in fields:
            keys = self._keys
            keys[fields["from"], fields["key"]] = message_id, mail.recipients
            if len(keys) > KEPT_IDEMPOTENCY_KEYS:
                del keys[next(iter(keys))]

    def apply_committed(self, _at: str, fields: Mapping[str, Any]) -> None:
        """Take messages out of the member's box; ids that are not there were committed before."""
        box = self.unread.get(fields["member"])
        if box is None:
            return
        for message_id in fields["ids"]:
            box.pop(message_id, None)
        if not box:
            del self.unread[fields["member"]]

    def copy(self) -> "Mailboxes":
        """Return an independent fold that shares the immutable messages."""
        other = Mailboxes()
        other.unread = {name: dict(box) for name, box in self.unread.items()}
        other.sent = self.sent
        other._keys = dict(self._keys)
        return other

    def to_json(self) -> dict[str, Any]:
        """Return the fold for a snapshot."""
        mails: dict[str, Mail] = {}
        for box in self.unread.values():
            mails.update(box)
        return {
            "sent": self.sent,
            "mail": [{"at": mail.at, **mail.fields} for mail in mails.values()],
            "boxes": {name: list(box) for name, box in self.unread.items()},
            "keys": [[*pair, message_id, recipients] for pair, (message_id, recipients) in self._keys.items()],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Mailboxes":
        """Rebuild the fold from a snapshot."""
        boxes = cls()
        boxes.sent = data["sent"]
        mails = {fields["id"]: Mail(fields.pop("at"), fields) for fields in map(dict, data["mail"])}
        boxes.unread = {name: {message_id: mails[message_id] for message_id in ids} for name, ids in data["boxes"].items()}
        boxes._keys = {(sender, key): (message_id, tuple(recipients)) for sender, key, message_id, recipients in data["keys"]}
        return boxes
