"""Mail between members of one process: order, once, and what a cancellation or a crash leaves behind."""

from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from teams.bus import Receipt
from teams.engine import open_engine
from teams.errors import MailboxFull, MemberStateError, UnknownMember, UsageError, WaitCycle
from teams.journal import MemoryJournal, MemoryLog
from teams.options import BusOptions
from teams.testing.team import cancel_at_step, run_seeded, virtual_wall_clock
from tests.core.rig import HeldJournal, Rig, open_rig


async def take(rig: Rig, member: str, count: int) -> list[str]:
    """Receive and acknowledge so many messages."""
    got: list[str] = []
    for _ in range(count):
        message = await rig.bus.receive(member)
        await rig.bus.acknowledge(member, message.id)
        got.append(message.content)
    return got


# -- order and once ------------------------------------------------------------------


async def test_mail_comes_in_the_order_of_the_log(autojump_clock: MockClock) -> None:
    """One receiver gets the mail of many senders in the order in which it was stored, which keeps each sender's own order."""
    async with open_rig() as rig, trio.open_nursery() as nursery:

        async def send(sender: str) -> None:
            for number in range(30):
                await rig.bus.send(sender, "cat", f"{sender} {number}")

        for sender in ("ann", "ben"):
            nursery.start_soon(send, sender)
        got = [(await rig.bus.receive("cat")) for _ in range(60)]
        assert [message.id for message in got] == [f"m{number}" for number in range(1, 61)]
        for sender in ("ann", "ben"):
            assert [message.content for message in got if message.sender == sender] == [f"{sender} {number}" for number in range(30)]


@pytest.mark.parametrize("seed", range(10))
def test_receivers_of_one_member_share_its_mail(seed: int) -> None:
    """However the scheduler runs them: of several tasks that receive for one member each message reaches exactly one, none is left over."""

    async def main() -> list[str]:
        got: list[str] = []
        async with open_rig() as rig:

            async def receive() -> None:
                while len(got) < 50:
                    got.append((await rig.bus.receive("ben")).content)

            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(receive)
                async with trio.open_nursery() as senders:
                    for number in range(50):
                        senders.start_soon(rig.bus.send, "ann", "ben", str(number))
                await wait_all_tasks_blocked()
                assert not rig.bus.has_mail("ben")
                nursery.cancel_scope.cancel()
        return got

    assert sorted(map(int, run_seeded(main, seed=seed))) == list(range(50))


async def test_a_cancelled_receive_keeps_the_message(autojump_clock: MockClock) -> None:
    """Cancelled while it waits or when the message is already there: the next receive gets it."""
    async with open_rig() as rig:
        with trio.move_on_after(1) as scope:
            await rig.bus.receive("ben")
        assert scope.cancelled_caught
        await rig.bus.send("ann", "ben", "kept")
        with trio.CancelScope() as scope:
            scope.cancel()
            await rig.bus.receive("ben")
        assert scope.cancelled_caught
        assert rig.bus.receipt("m1", "ben").state == "stored"
        assert await take(rig, "ben", 1) == ["kept"]


async def test_a_receive_that_is_cancelled_at_any_step_loses_nothing(autojump_clock: MockClock) -> None:
    """Cancel a receiver at every step of a delivery: either it has the message, or the next receiver gets it."""
    for step in range(1, 40):
        async with open_rig() as rig, trio.open_nursery() as nursery:
            got: list[str] = []

            async def receive(step: int, rig: Rig, got: list[str]) -> None:
                with cancel_at_step(step):
                    got.append((await rig.bus.receive("ben")).content)

            nursery.start_soon(receive, step, rig, got)
            await rig.bus.send("ann", "ben", "hello")
            await wait_all_tasks_blocked()
            if not got:
                assert rig.bus.receipt("m1", "ben").state == "stored"
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    got += await take(rig, "ben", 1)
            nursery.cancel_scope.cancel()
        assert got == ["hello"]


async def test_what_was_not_acknowledged_comes_again_to_the_next_process(autojump_clock: MockClock) -> None:
    """Received and not acknowledged is unread for whoever opens the team next; acknowledged mail is not given out again."""
    log = MemoryLog()
    async with open_rig(MemoryJournal(log)) as rig:
        for number in range(4):
            await rig.bus.send("ann", "ben", str(number))
        assert await take(rig, "ben", 2) == ["0", "1"]
        assert (await rig.bus.receive("ben")).content == "2"
    async with open_rig(MemoryJournal(log)) as rig:
        assert [message.content for message in await rig.bus.read_inbox("ben")] == ["2", "3"]
        assert await rig.bus.read_inbox("ben") == []


async def test_acknowledging_twice_or_for_another_is_nothing(autojump_clock: MockClock) -> None:
    """A second acknowledgement, one of an unknown id, and one for a member that did not get the message change nothing."""
    async with open_rig() as rig:
        await rig.bus.send("ann", "ben", "one")
        await rig.bus.send("ann", "ben", "two")
        message = await rig.bus.receive("ben")
        for _ in range(2):
            await rig.bus.acknowledge("ben", message.id, "m77")
            await rig.bus.acknowledge("cat", "m2")
        assert await take(rig, "ben", 1) == ["two"]


# -- priorities and giving back ----------------------------------------------------------


async def test_mail_for_the_next_turn_waits_for_it(autojump_clock: MockClock) -> None:
    """At a tool boundary only `tool` and `now` are due, at a turn's begin everything, in order; `now` is urgent until taken."""
    async with open_rig() as rig:
        for number, priority in enumerate(("turn", "tool", "turn", "now", "tool")):
            await rig.bus.send("ann", "ben", str(number), priority=priority)  # type: ignore[arg-type]  # the words of Priority
        urgent = rig.bus.urgent("ben")
        assert urgent is not None
        assert urgent.content == "3"
        assert [mail.content for mail in rig.bus.take_nowait("ben", at_turn=False)] == ["1", "3", "4"]
        assert rig.bus.urgent("ben") is None
        assert not rig.bus.has_mail("ben", at_turn=False)
        assert rig.bus.has_mail("ben")
        await rig.bus.send("ann", "ben", "5")
        assert [mail.content for mail in rig.bus.take_nowait("ben", at_turn=True)] == ["0", "2", "5"]
        with pytest.raises(UsageError, match=r"cannot send with priority 'soon'; legal: turn, tool, now"):
            await rig.bus.send("ann", "ben", "x", priority="soon")  # type: ignore[arg-type]  # what a model may say


async def test_what_is_given_back_comes_first_again_in_its_order(autojump_clock: MockClock) -> None:
    """Mail that did not reach the transcript is unread again, before what came later, in both lanes."""
    async with open_rig() as rig:
        for number, priority in enumerate(("tool", "turn", "tool", "turn")):
            await rig.bus.send("ann", "ben", str(number), priority=priority)  # type: ignore[arg-type]  # the words of Priority
        taken = rig.bus.take_nowait("ben", at_turn=True)
        assert rig.bus.receipt("m2", "ben").state == "injected"
        await rig.bus.send("ann", "ben", "4")
        rig.bus.give_back("ben", taken)
        assert rig.bus.receipt("m2", "ben").state == "stored"
        assert [mail.content for mail in rig.bus.take_nowait("ben", at_turn=False)] == ["0", "2", "4"]
        assert [mail.content for mail in rig.bus.take_nowait("ben", at_turn=True)] == ["1", "3"]


# -- receipts ------------------------------------------------------------------------------


async def test_a_receipt_tells_how_far_a_message_came(autojump_clock: MockClock) -> None:
    """Stored when `send` returns, injected when its recipient took it, committed when that was acknowledged; the sender can wait for it."""
    async with open_rig() as rig, trio.open_nursery() as nursery:
        receipt = await rig.bus.send("ann", "ben", "hello")
        assert receipt == Receipt("m1", "ben", "stored") == rig.bus.receipt("m1", "ben")
        done: list[str] = []

        async def wait() -> None:
            done.append((await rig.bus.wait_committed(receipt)).state)

        nursery.start_soon(wait)
        message = await rig.bus.receive("ben")
        assert rig.bus.receipt("m1", "ben").state == "injected"
        await wait_all_tasks_blocked()
        assert done == []
        await rig.bus.acknowledge("ben", message.id)
        assert rig.bus.receipt("m1", "ben").state == "committed"
        await wait_all_tasks_blocked()
        assert done == ["committed"]
        for unknown in ("m2", "x", ""):
            with pytest.raises(UsageError, match=r"there is no message .*; ids run from m1 to m1"):
                rig.bus.receipt(unknown, "ben")


async def test_a_message_is_stored_before_its_receipt_is_given(autojump_clock: MockClock) -> None:
    """While the append runs there is no receipt; when there is one, the log holds the message."""
    log = MemoryLog()
    journal = HeldJournal(log)
    async with open_rig(journal) as rig, trio.open_nursery() as nursery:
        journal.held = True
        receipts: list[Receipt] = []

        async def send() -> None:
            receipts.append(await rig.bus.send("ann", "ben", "unmistakable"))

        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        assert receipts == []
        with pytest.raises(UsageError):
            rig.bus.receipt("m1", "ben")
        journal.let_go()
        await wait_all_tasks_blocked()
        assert len(receipts) == 1
        assert b"unmistakable" in log.lines[-1]


async def test_a_repeated_key_is_one_message_also_in_the_next_process(autojump_clock: MockClock) -> None:
    """A sender that was cancelled or crashed sends again with its key, and the recipient gets the message once."""
    log = MemoryLog()
    async with open_rig(MemoryJournal(log)) as rig:
        first = await rig.bus.send("ann", "ben", "hello", key="k")
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(lambda: rig.bus.send("ann", "ben", "hello", key="k"))
    async with open_rig(MemoryJournal(log)) as rig:
        assert (await rig.bus.send("ann", "ben", "hello", key="k")).id == first.id
        assert len(await rig.bus.read_inbox("ben")) == 1


async def test_a_receipt_is_not_given_for_who_was_never_sent_to(autojump_clock: MockClock) -> None:
    """A key that was used for another recipient does not pass as a message to this one: nothing may say that it was stored there."""
    async with open_rig() as rig:
        await rig.bus.send("ann", "ben", "hello", key="k")
        receipt = None
        with suppress(UsageError):
            receipt = await rig.bus.send("ann", "cat", "hello", key="k")
        stored = list(rig.engine.state.mail.box("cat"))
        assert receipt is None or receipt.recipient == "ben" or receipt.id in stored


# -- broadcasts ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_a_broadcast_reaches_the_roster_of_one_moment(seed: int) -> None:
    """Sent while members come and go: its receipts are exactly those who got it, who are exactly those in the team at that record."""

    async def main() -> None:
        log = MemoryLog()
        async with open_rig(MemoryJournal(log)) as rig:
            receipts: list[Receipt] = []

            async def broadcast() -> None:
                receipts.extend(await rig.bus.broadcast("ann", "all"))

            async with trio.open_nursery() as nursery:
                for number in range(6):
                    nursery.start_soon(rig.join, f"new{number}")
                    if number == 3:
                        nursery.start_soon(broadcast)
                        nursery.start_soon(rig.leave, "ben")
            members = {"ann", "ben", "cat"}
            for record in await MemoryJournal(log).read(0):
                if record.kind == "member.joined":
                    members.add(record.fields["spec"]["name"])
                elif record.kind == "member.status" and record.fields["status"] == "stopped":
                    members.discard(record.fields["name"])
                elif record.kind == "mail.sent":
                    assert set(record.fields["to"]) == members - {"ann"}
                    assert {receipt.recipient for receipt in receipts} == members - {"ann"}
            got = {name for name in members | {"ben"} if rig.bus.has_mail(name)}
            assert got == {receipt.recipient for receipt in receipts}

    run_seeded(main, seed=seed)


async def test_a_broadcast_that_does_not_fit_somewhere_reaches_nobody(autojump_clock: MockClock) -> None:
    """One full mailbox refuses the whole of it."""
    async with open_rig(bus=BusOptions(unread_quota=1)) as rig:
        await rig.bus.send("ann", "cat", "full")
        with pytest.raises(MailboxFull, match=r"'cat': it has 1 unread messages and its quota is 1"):
            await rig.bus.broadcast("ann", "all")
        assert not rig.bus.has_mail("ben")


# -- asking ------------------------------------------------------------------------------------


async def test_a_question_gets_its_own_answer(autojump_clock: MockClock) -> None:
    """`ask` returns the message that answers it, past other mail and other answers, and takes nothing else from the inbox."""
    async with open_rig() as rig, trio.open_nursery() as nursery:
        answers: list[str] = []

        async def ask(text: str) -> None:
            answers.append((await rig.bus.ask("ann", "ben", text)).content)

        nursery.start_soon(ask, "first?")
        await wait_all_tasks_blocked()
        nursery.start_soon(ask, "second?")
        await wait_all_tasks_blocked()
        first, second = [await rig.bus.receive("ben") for _ in range(2)]
        await rig.bus.send("ben", "ann", "by the way")
        await rig.bus.send("cat", "ann", "not asked", request_id=first.id)
        await rig.bus.send("ben", "ann", "yes, second", request_id=second.id)
        await rig.bus.send("ben", "ann", "yes, first", request_id=first.id, priority="turn")
        await wait_all_tasks_blocked()
        assert answers == ["yes, second", "yes, first"]
        assert [message.content for message in await rig.bus.read_inbox("ann")] == ["by the way", "not asked"]
        assert rig.engine.state.mail.box("ann") == {}


async def test_an_answer_reaches_its_question_also_when_somebody_receives_for_the_asker(autojump_clock: MockClock) -> None:
    """A script that reads its mail in one task and asks in another: the answer belongs to the question."""
    async with open_rig() as rig, trio.open_nursery() as nursery:
        read: list[str] = []

        async def receive() -> None:
            while True:
                read.append((await rig.bus.receive("ann")).content)

        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        answers: list[str] = []

        async def ask() -> None:
            answers.append((await rig.bus.ask("ann", "ben", "well?")).content)

        nursery.start_soon(ask)
        question = await rig.bus.receive("ben")
        await rig.bus.send("ben", "ann", "an answer", request_id=question.id)
        await rig.bus.send("ben", "ann", "something else")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert (answers, read) == (["an answer"], ["something else"])


async def test_a_late_answer_is_ordinary_mail(autojump_clock: MockClock) -> None:
    """Who gave up asking finds the answer in its inbox, and can be asked something itself again."""
    async with open_rig() as rig:
        with trio.move_on_after(1):
            await rig.bus.ask("ann", "ben", "well?")
        question = await rig.bus.receive("ben")
        await rig.bus.send("ben", "ann", "late", request_id=question.id)
        assert [(message.content, message.request_id) for message in await rig.bus.read_inbox("ann")] == [("late", "m1")]
        assert rig.waits.waits_of("ann") == ()


async def test_two_who_ask_each_other_do_not_hang(autojump_clock: MockClock) -> None:
    """The question that would close a circle is refused before it is sent, and names the circle."""
    async with open_rig() as rig, trio.open_nursery() as nursery:
        nursery.start_soon(rig.bus.ask, "ann", "ben", "?")
        nursery.start_soon(rig.bus.ask, "ben", "cat", "?")
        await wait_all_tasks_blocked()
        sent = rig.engine.state.mail.sent
        with pytest.raises(WaitCycle, match=r"cannot wait: cat waits for a reply from ann, who .* from ben, who .* from cat;") as refused:
            await rig.bus.ask("cat", "ann", "?")
        assert refused.value.cycle == ("cat", "ann", "ben")
        assert rig.engine.state.mail.sent == sent
        nursery.cancel_scope.cancel()


# -- what cannot be sent ---------------------------------------------------------------------------


async def test_what_cannot_be_sent_is_refused_and_leaves_nothing(tmp_path: Any, autojump_clock: MockClock) -> None:
    """Unknown, oneself, blank, stopped, a runtime kind, a name that is a path: each has its error, and no mail, box or file is made."""
    async with open_rig(artifacts=tmp_path, bus=BusOptions(body_limit_chars=100)) as rig:
        await rig.leave("cat")
        cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
            (UnknownMember, r"'bem': no member of the team has that name; did you mean ben", {"to": "bem"}),
            (UnknownMember, r"'\.\./x'", {"to": "../x"}),
            (UnknownMember, r"cannot send as 'zoe'", {"sender": "zoe"}),
            (UsageError, r"'ann': that is the sender itself", {"to": "ann"}),
            (UsageError, r"cannot send a blank message", {"content": " \n\t"}),
            (MemberStateError, r"cannot send to 'cat': it is stopped", {"to": "cat"}),
            (UsageError, r"cannot send 'shutdown_request': members send 'message'", {"type": "shutdown_request"}),
            (UsageError, r"cannot send 'notice'", {"type": "notice"}),
        ]
        for error, match, changes in cases:
            arguments: dict[str, Any] = {"sender": "ann", "to": "ben", "content": "x", **changes}
            with pytest.raises(error, match=match):
                await rig.bus.send(**arguments)
        with pytest.raises(UnknownMember, match=r"cannot receive for 'bem'"):
            await rig.bus.receive("bem")
        with pytest.raises(UsageError, match=r"'\.\./x' cannot be a name"):
            await rig.bus.send("../x", "ben", "x" * 101)
        assert rig.engine.state.mail.sent == 0
        assert rig.engine.state.mail.unread == {}
        assert list(tmp_path.rglob("*")) == []


async def test_an_oversized_body_for_nobody_is_kept_nowhere(tmp_path: Any) -> None:
    """A long message that is refused leaves no file behind either."""
    async with open_rig(artifacts=tmp_path, bus=BusOptions(body_limit_chars=100), wall_clock=lambda: 1.0) as rig:
        with pytest.raises(UnknownMember):
            await rig.bus.send("ann", "bem", "x" * 101)
        assert list(tmp_path.rglob("*")) == []


async def test_an_oversized_body_goes_to_an_artifact(tmp_path: Any) -> None:
    """Over the limit the recipient gets the beginning and where the rest is; the same body again is the same file."""
    options = BusOptions(body_limit_chars=100, preview_chars=10)
    async with open_rig(artifacts=tmp_path, bus=options, wall_clock=lambda: 1.0) as rig:
        body = "é\n\r\n\ud800" * 30
        await rig.bus.send("ann", "ben", body[:100])
        await rig.bus.send("ann", "ben", body)
        await rig.bus.broadcast("ann", body)
        whole, cut, again = await rig.bus.read_inbox("ben")
        assert (whole.content, whole.artifact) == (body[:100], None)
        assert cut.artifact is not None
        assert cut.content == f"{body[:10]}\n[150 characters in all; the whole text is artifact {cut.artifact} of ann]"
        assert again.artifact == cut.artifact
        (path,) = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert path == tmp_path / "ann" / cut.artifact
        assert path.read_bytes().decode("utf-8", "surrogatepass") == body


async def test_no_quota_is_no_limit(autojump_clock: MockClock) -> None:
    """With None a mailbox takes what comes, and the options refuse a quota of nothing."""
    async with open_rig(bus=BusOptions(unread_quota=None)) as rig:
        for _ in range(200):
            await rig.bus.send("ann", "ben", "x")
        assert len(await rig.bus.read_inbox("ben")) == 200
    with pytest.raises(ValueError, match=r"unread_quota must be positive, or None"):
        BusOptions(unread_quota=0)


async def test_mail_is_one_engines_view_of_the_log(autojump_clock: MockClock) -> None:
    """A bus that opens late, or that first looks at an inbox late, finds what is unread and nothing twice."""
    log = MemoryLog()
    async with open_rig(MemoryJournal(log)) as rig:
        await rig.bus.send("ann", "ben", "before")
        assert rig.bus.has_mail("ben")
        await rig.bus.send("ann", "ben", "after")
        async with open_engine(MemoryJournal(log), wall_clock=virtual_wall_clock) as other:
            assert [held.content for held in other.state.mail.box("ben").values()] == ["before", "after"]
        assert await take(rig, "ben", 2) == ["before", "after"]
        assert not rig.bus.has_mail("ben")


async def test_an_acknowledgement_that_nobody_waits_for_is_committed_all_the_same(autojump_clock: MockClock) -> None:
    """`acknowledge_nowait` returns at once and commits with the next append; a member that is unknown changes nothing."""
    async with open_rig() as rig:
        receipt = await rig.bus.send("ann", "ben", "hello")
        message = await rig.bus.receive("ben")
        rig.bus.acknowledge_nowait("ben", message.id)
        assert rig.bus.receipt(receipt.id, "ben").state == "injected"
        assert (await rig.bus.wait_committed(receipt)).state == "committed"
        rig.bus.acknowledge_nowait("nobody", message.id)
        await rig.bus.send("ann", "ben", "again")
        assert rig.engine.is_settled
