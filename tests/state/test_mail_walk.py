"""Random mail between members that come and go, against boxes that are kept as plain lists."""

from collections.abc import Callable

import pytest
from hypothesis import given, note

from teams.errors import HostConflict, MailboxFull, MemberStateError, UnknownMember, UsageError
from teams.state.mail_commands import Broadcast, CommitMail, SendMail
from teams.state.mailboxes import OutgoingMail
from tests.state.driving import Choices, Desk, walk_settings, walks

NAMES = ["ann", "ben", "cat", "dan"]
QUOTA = 4


class MailWalk:
    """Sends, broadcasts, commits, repeats, and members that join late and leave."""

    def __init__(self, data: bytes) -> None:
        self.choices = Choices(data)
        self.desk = Desk()
        self.boxes: dict[str, list[str]] = {}
        self.live: set[str] = set()
        self.given: list[str] = []
        self.committed: dict[str, list[str]] = {}
        self.keys: dict[tuple[str, str], str] = {}
        for name in NAMES[:2]:
            self.join(name)

    def run(self) -> None:
        """Take every step, and compare after each."""
        steps: list[Callable[[], None]] = [
            *(self.send, self.send, self.send, self.send_again, self.broadcast, self.commit, self.commit),
            *(self.come_or_go, self.commit_for_an_older_life),
        ]
        while self.choices.left:
            step = self.choices.pick(steps)
            note(f"{step.__name__} ({self.desk.state.seq} records)")
            step()
            self.check()
        self.desk.check_folds()

    def join(self, name: str) -> None:
        self.desk.join(name)
        self.live.add(name)
        self.boxes.setdefault(name, [])
        self.committed.setdefault(name, [])

    def is_full(self, name: str) -> bool:
        return len(self.boxes[name]) >= QUOTA

    # -- steps -------------------------------------------------------------

    def send(self) -> None:
        sender, to = self.choices.pick(NAMES), self.choices.pick(NAMES)
        command = SendMail(OutgoingMail(type="message", sender=sender, recipients=(to,), content="x"), QUOTA)
        error: type[Exception] | None = None
        if sender not in self.boxes or to not in self.boxes:
            error = UnknownMember
        elif sender == to:
            error = UsageError
        elif to not in self.live:
            error = MemberStateError
        elif self.is_full(to):
            error = MailboxFull
        if error is not None:
            with pytest.raises(error):
                self.desk.do(command)
            return
        self.stored(self.desk.do(command), [to])

    def send_again(self) -> None:
        """Send with a key; the second time nothing is stored, whatever became of the first one and of its recipient."""
        sender, to = self.choices.pick(NAMES), self.choices.pick(NAMES)
        key = (sender, f"to {to}")
        mail = OutgoingMail(type="message", sender=sender, recipients=(to,), content="x", key=key[1])
        if key in self.keys:
            seq = self.desk.state.seq
            assert self.desk.do(SendMail(mail, QUOTA)) == self.keys[key]
            assert self.desk.state.seq == seq, "a repeat was stored"
        elif sender in self.boxes and to in self.live and sender != to and not self.is_full(to):
            self.keys[key] = self.desk.do(SendMail(mail, QUOTA))
            self.stored(self.keys[key], [to])

    def broadcast(self) -> None:
        sender = self.choices.pick(NAMES)
        command = Broadcast(sender, "to all", QUOTA)
        others = [name for name in self.live if name != sender]
        if sender not in self.boxes:
            with pytest.raises(UnknownMember):
                self.desk.do(command)
        elif any(map(self.is_full, others)):
            with pytest.raises(MailboxFull):
                self.desk.do(command)
        else:
            message_id, recipients = self.desk.do(command)
            assert sorted(recipients) == sorted(others)
            if others:
                self.stored(message_id, others)

    def commit(self) -> None:
        """Commit some of what is unread, and ids that are not: committed ones, somebody else's, ids of nothing."""
        name = self.choices.pick(NAMES)
        if name not in self.boxes:
            with pytest.raises(UnknownMember):
                self.desk.do(CommitMail(name, ("m1",)))
            return
        unread = self.choices.some(self.boxes[name], 3)
        others = self.choices.some([*self.given, "m999", "", "x"], 2)
        ids = [*others, *unread]
        was_unread = [message_id for message_id in dict.fromkeys(ids) if message_id in self.boxes[name]]
        seq = self.desk.state.seq
        self.desk.do(CommitMail(name, tuple(ids), self.desk.incarnation(name)))
        assert (self.desk.state.seq > seq) == bool(was_unread), "a commit of nothing was written"
        self.boxes[name] = [message_id for message_id in self.boxes[name] if message_id not in ids]
        self.committed[name] += was_unread

    def commit_for_an_older_life(self) -> None:
        name = self.choices.pick(NAMES)
        if self.boxes.get(name):
            with pytest.raises(HostConflict):
                self.desk.do(CommitMail(name, tuple(self.boxes[name]), self.desk.incarnation(name) - 1))

    def come_or_go(self) -> None:
        name = self.choices.pick(NAMES)
        if name in self.live:
            self.desk.leave(name)
            self.live.discard(name)
        else:
            self.join(name)

    # -- what always holds ---------------------------------------------------

    def stored(self, message_id: str, recipients: list[str]) -> None:
        self.given.append(message_id)
        for name in recipients:
            self.boxes[name].append(message_id)

    def check(self) -> None:
        mail = self.desk.state.mail
        assert self.given == [f"m{number}" for number in range(1, len(self.given) + 1)], "ids are given out once, in order"
        for name, expected in self.boxes.items():
            assert list(mail.box(name)) == expected, f"the box of {name}"
            assert all(held.id == message_id for message_id, held in mail.box(name).items())
            committed = self.committed[name]
            assert len(set(committed)) == len(committed), "a message was committed twice"
            assert set(committed).isdisjoint(expected)
        assert all(map(mail.was_sent, self.given))
        assert not any(map(mail.was_sent, [f"m{len(self.given) + 1}", "m0", "m", "", "x1", "m-1", "m1x"]))
        assert set(mail.unread) == {name for name, box in self.boxes.items() if box}, "memory follows the unread mail alone"


@walk_settings(max_examples=30)
@given(walks)
def test_every_message_is_unread_from_its_sending_to_its_commit(data: bytes) -> None:
    """Whatever the order of sends, repeats and commits: each box holds what was sent to it and not committed, in order, once."""
    MailWalk(data).run()
