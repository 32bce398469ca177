"""The rules of mail one by one: who may write to whom, how much, and how often."""

import pytest

from protocols.lifecycle import MemberEvent
from protocols.names import RUNTIME
from teams.errors import MailboxFull, MemberStateError, UnknownMember, UsageError
from teams.state import mailboxes
from teams.state.mail_commands import Broadcast, CommitMail, SendMail, TellMember
from teams.state.mailboxes import OutgoingMail
from tests.state.driving import Desk


@pytest.fixture
def desk() -> Desk:
    """A team of three."""
    desk = Desk()
    for name in ("ann", "ben", "cat"):
        desk.join(name)
    return desk


def send(desk: Desk, to: str, *, sender: str = "ann", key: str | None = None, quota: int | None = None, content: str = "hello") -> str:
    """Send one message and return its id."""
    return desk.do(SendMail(OutgoingMail(type="message", sender=sender, recipients=(to,), content=content, key=key), quota))


def test_an_unknown_recipient_is_refused_with_near_names_and_nothing_is_made(desk: Desk) -> None:
    """The error lists members with a close name, or all when none is close; no box appears."""
    with pytest.raises(UnknownMember, match=r"cannot send to 'Bem': no member of the team has that name; did you mean ben\?"):
        send(desk, "Bem")
    for strange in ("../x", "", "zzzzzz", "ann\n", "(runtime)"):
        with pytest.raises(UnknownMember):
            send(desk, strange)
    with pytest.raises(UnknownMember, match=r"cannot send as 'zoe'.*members: ann, ben, cat"):
        send(desk, "ben", sender="zoe")
    assert desk.state.mail.unread == {}


def test_nobody_writes_to_itself_or_to_who_has_stopped(desk: Desk) -> None:
    """Mail to oneself is refused, and mail to a stopped member says what to do."""
    with pytest.raises(UsageError, match=r"cannot send to 'ann': that is the sender itself"):
        send(desk, "ann")
    desk.leave("ben")
    with pytest.raises(MemberStateError, match=r"cannot send to 'ben': it is stopped; legal now: spawn it again"):
        send(desk, "ben")


def test_mail_that_a_stopped_member_had_is_there_when_it_comes_back(desk: Desk) -> None:
    """The end of a member commits nothing: its next life finds its unread mail."""
    message_id = send(desk, "ben")
    desk.leave("ben", MemberEvent.lost)
    desk.join("ben")
    assert list(desk.state.mail.box("ben")) == [message_id]


def test_the_quota_counts_unread_mail_and_names_the_figures(desk: Desk) -> None:
    """At the quota a send is refused; after a commit there is room again; None is no limit."""
    first, _ = send(desk, "ben", quota=2), send(desk, "ben", quota=2)
    with pytest.raises(MailboxFull, match=r"'ben': it has 2 unread messages and its quota is 2") as refused:
        send(desk, "ben", quota=2)
    assert (refused.value.recipient, refused.value.unread, refused.value.quota) == ("ben", 2, 2)
    send(desk, "ben", quota=None)
    desk.do(CommitMail("ben", (first, "m2")))
    send(desk, "ben", quota=2)


def test_a_broadcast_is_stored_for_all_or_for_none(desk: Desk) -> None:
    """One full box refuses the whole broadcast; otherwise one record reaches every live member but the sender."""
    send(desk, "cat")
    with pytest.raises(MailboxFull, match=r"'cat'"):
        desk.do(Broadcast("ann", "all", 1))
    assert not desk.state.mail.box("ben")
    desk.join("dan")
    desk.leave("dan")
    message_id, recipients = desk.do(Broadcast("ann", "all", 2))
    assert recipients == ("ben", "cat")
    assert [record.fields["to"] for record in desk.records() if record.kind == "mail.sent"][-1] == ["ben", "cat"]
    assert desk.state.mail.box("ben")[message_id] is desk.state.mail.box("cat")[message_id]


def test_a_broadcast_to_nobody_stores_nothing(desk: Desk) -> None:
    """The only live member hears no echo, and no record is written."""
    desk.leave("ben")
    desk.leave("cat")
    seq = desk.state.seq
    assert desk.do(Broadcast("ann", "anybody?", None))[1] == ()
    assert desk.state.seq == seq


def test_a_repeated_key_is_the_first_message_also_when_it_could_not_be_sent_now(desk: Desk) -> None:
    """A sender that does not know whether its send was stored repeats it: the same id, no second message, whatever has happened since."""
    first = send(desk, "ben", key="k")
    desk.do(CommitMail("ben", (first,)))
    desk.leave("ben")
    assert send(desk, "ben", key="k") == first
    assert send(desk, "ann", sender="cat", key="k") != first, "keys belong to their sender"


def test_a_repeated_broadcast_claims_no_recipient_that_it_never_reached(desk: Desk) -> None:
    """Somebody who joined after a broadcast did not get it, and its repetition does not say otherwise."""
    message_id, recipients = desk.do(Broadcast("ann", "all", None, key="k"))
    desk.join("dan")
    again, recipients_again = desk.do(Broadcast("ann", "all", None, key="k"))
    assert again == message_id
    assert "dan" not in recipients_again
    assert set(recipients_again) <= set(recipients)


def test_only_so_many_keys_are_remembered(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest keys are kept, also through a snapshot; an older repeat is a new message."""
    monkeypatch.setattr(mailboxes, "KEPT_IDEMPOTENCY_KEYS", 2)
    ids = [send(desk, "ben", key=key) for key in ("a", "b", "c")]
    desk.state = desk.reloaded()
    assert [send(desk, "ben", key=key) for key in ("b", "c")] == ids[1:]
    assert send(desk, "ben", key="a") not in ids


def test_a_message_is_shown_under_the_runtimes_words(desk: Desk) -> None:
    """An inbox line has the keys that other tools know, and says to whom this copy is."""
    message_id = send(desk, "ben", content="hé \ud800")
    assert desk.state.mail.box("ben")[message_id].as_json("ben") == {
        "type": "message",
        "from": "ann",
        "to": "ben",
        "content": "hé \ud800",
        "timestamp": "1970-01-01T00:16:40.000000Z",
        "id": message_id,
        "request_id": None,
        "priority": "tool",
    }


def test_the_runtime_writes_only_to_those_who_read(desk: Desk) -> None:
    """A notice reaches a live member that a model drives; to scripts, persons, stopped and unknown ones it is not written."""
    desk.join("script", kind="script")
    desk.join("user", kind="person")
    desk.join("boss", kind="lead")
    desk.leave("cat")
    for name in ("script", "user", "cat", "nobody"):
        desk.do(TellMember(name, "hear"))
    assert desk.state.mail.sent == 0
    for name in ("ann", "boss"):
        desk.do(TellMember(name, "hear"))
    assert [(mail.type, mail.sender) for mail in desk.state.mail.box("boss").values()] == [("notice", RUNTIME)]
