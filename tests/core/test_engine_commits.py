"""The engine's promises to one caller: when it is answered, what it is told, and what a cancellation leaves behind."""

from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from teams.bus import MessageBus
from teams.engine import open_engine
from teams.errors import ClaimLost, JournalClosed, JournalError, UnknownMember
from teams.journal import MemoryJournal, MemoryLog, Record, decode, open_file_journal
from teams.state.decision import Draft
from teams.state.mail_commands import SendMail
from teams.state.mailboxes import OutgoingMail
from teams.state.task_commands import ClaimTask, CreateTask
from teams.testing.team import virtual_wall_clock
from tests.core.rig import BrokenJournal, HeldJournal, Rig, open_rig
from tests.state.driving import shown


@dataclass
class Crash:
    """A command with a bug."""

    def decide(self, draft: Draft) -> None:
        """Fail as no command should."""
        draft.add("mail.sent", {"half": "done"})
        raise KeyError("a bug")


def mail(to: str, content: str = "x", *, sender: str = "ann") -> SendMail:
    """Return the command that sends one message."""
    return SendMail(OutgoingMail(type="message", sender=sender, recipients=(to,), content=content), None)


def contents(log: MemoryLog) -> list[str]:
    """Return the bodies in the log, in its order."""
    return [record.fields["content"] for record in _records(log) if record.kind == "mail.sent"]


def _records(log: MemoryLog) -> list[Record]:
    return [decode(line) for line in log.lines]


async def test_many_callers_share_few_appends(autojump_clock: MockClock) -> None:
    """What is asked for while one append runs goes out in the next one, all together."""
    journal = HeldJournal()
    async with open_rig(journal) as rig, trio.open_nursery() as nursery:
        journal.held, journal.begun[:] = True, []
        nursery.start_soon(rig.engine.submit, mail("ben"))
        await wait_all_tasks_blocked()
        for _ in range(99):
            nursery.start_soon(rig.engine.submit, mail("ben"))
        await wait_all_tasks_blocked()
        journal.let_go()
        await wait_all_tasks_blocked()
        assert journal.begun == [1, 99]


async def test_commands_are_decided_in_the_order_in_which_they_were_asked_for(autojump_clock: MockClock) -> None:
    """The log has the order of the calls, within one batch and over several, also beyond what fits into one append."""
    log, count = MemoryLog(), 4_500
    journal = MemoryJournal(log)
    async with open_rig(journal) as rig:
        for number in range(count):
            rig.engine.post(mail("ben", str(number)))
        before = journal.statistics().appends
        await rig.engine.submit(mail("ben", "last"))
        assert contents(log) == [*map(str, range(count)), "last"]
        assert 2 <= journal.statistics().appends - before <= 4
        assert [held.content for held in rig.engine.state.mail.box("ben").values()] == contents(log)


async def test_commands_of_one_batch_see_each_other(autojump_clock: MockClock) -> None:
    """Two claims of one task in one append: the second is refused and told who was first."""
    journal = HeldJournal()
    async with open_rig(journal) as rig:
        task = await rig.tasks.create("x")
        journal.held, journal.begun[:] = True, []
        told: dict[str, str | None] = {}

        async def claim(name: str) -> None:
            try:
                await rig.tasks.claim(task.id, name)
                told[name] = None
            except ClaimLost as lost:
                told[name] = lost.owner

        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.tasks.create, "another")
            await wait_all_tasks_blocked()
            for name in ("ann", "ben", "cat"):
                nursery.start_soon(claim, name)
            await wait_all_tasks_blocked()
            journal.let_go()
        assert journal.begun == [1, 1]
        (owner,) = [name for name, lost_to in told.items() if lost_to is None]
        assert {lost_to for lost_to in told.values() if lost_to} == {owner} == {rig.tasks.get(task.id).owner}


async def test_a_refused_command_fails_alone(autojump_clock: MockClock) -> None:
    """In one batch of good and bad commands each caller gets its own answer, and only the good ones are written."""
    log = MemoryLog()
    journal = HeldJournal(log)
    async with open_rig(journal) as rig:
        journal.held = True
        answers: list[str] = []

        async def ask(command: SendMail) -> None:
            try:
                answers.append(await rig.engine.submit(command))
            except UnknownMember as error:
                answers.append(error.name)

        async with trio.open_nursery() as nursery:
            for to in ("ben", "nobody", "cat", "noone"):
                nursery.start_soon(ask, mail(to, to))
            await wait_all_tasks_blocked()
            journal.let_go()
        assert sorted(answers) == ["m1", "m2", "nobody", "noone"]
        assert sorted(contents(log)) == ["ben", "cat"]


async def test_a_refusal_writes_nothing(autojump_clock: MockClock) -> None:
    """A batch of refusals only is no append at all."""
    journal = HeldJournal()
    async with open_rig(journal) as rig:
        journal.begun[:] = []
        for _ in range(3):
            with pytest.raises(UnknownMember):
                await rig.engine.submit(mail("nobody"))
        assert journal.begun == []


async def test_a_caller_that_is_cancelled_while_it_waits_for_its_turn_has_written_nothing(autojump_clock: MockClock) -> None:
    """A command that was not decided yet is withdrawn; those around it are carried out."""
    log = MemoryLog()
    journal = HeldJournal(log)
    async with open_rig(journal) as rig, trio.open_nursery() as nursery:
        journal.held = True
        nursery.start_soon(rig.engine.submit, mail("ben", "first"))
        await wait_all_tasks_blocked()
        with trio.move_on_after(1) as scope:
            async with trio.open_nursery() as inner:
                nursery.start_soon(rig.engine.submit, mail("ben", "third"))
                await inner.start(_submit, rig.engine, mail("ben", "second"))
        assert scope.cancelled_caught
        journal.let_go()
        await wait_all_tasks_blocked()
        assert contents(log) == ["first", "third"]


async def _submit(engine: Any, command: SendMail, *, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    await engine.submit(command)


async def test_a_caller_that_is_cancelled_before_it_asks_has_written_nothing(autojump_clock: MockClock) -> None:
    """A call within a cancelled scope raises Cancelled and leaves no trace."""
    log = MemoryLog()
    async with open_rig(MemoryJournal(log)) as rig:
        with trio.CancelScope() as scope:
            scope.cancel()
            await rig.engine.submit(mail("ben"))
        assert scope.cancelled_caught
        await rig.engine.submit(mail("ben", "after"))
        assert contents(log) == ["after"]


async def test_a_caller_that_is_cancelled_while_its_records_are_written_is_answered(autojump_clock: MockClock) -> None:
    """What was decided is carried out: the caller gets its answer after the append, although it was cancelled, and it is in the log."""
    log = MemoryLog()
    journal = HeldJournal(log)
    async with open_rig(journal) as rig, trio.open_nursery() as nursery:
        journal.held = True
        answers: list[str] = []

        async def ask() -> None:
            with trio.CancelScope(deadline=trio.current_time() + 1) as scope:
                answers.append(await rig.engine.submit(mail("ben", "in flight")))
            answers.append(f"cancelled: {scope.cancelled_caught}")

        nursery.start_soon(ask)
        await trio.sleep(5)
        assert answers == []
        journal.let_go()
        await wait_all_tasks_blocked()
        assert answers == ["m1", "cancelled: False"]
        assert contents(log) == ["in flight"]


async def test_nobody_reads_what_is_not_on_disk(autojump_clock: MockClock) -> None:
    """While an append runs, the state, the waiting receiver and the listeners know nothing of it; afterwards all do."""
    journal = HeldJournal()
    heard: list[str] = []
    async with open_rig(journal) as rig, trio.open_nursery() as nursery:
        rig.engine.listen(lambda records: heard.extend(record.kind for record in records))
        before = shown(rig.engine.state)
        journal.held = True
        got: list[str] = []

        async def receive() -> None:
            got.append((await rig.bus.receive("ben")).content)

        nursery.start_soon(receive)
        nursery.start_soon(rig.bus.send, "ann", "ben", "hello")
        nursery.start_soon(rig.tasks.create, "a task")
        await wait_all_tasks_blocked()
        assert len(journal.begun) > 0
        assert shown(rig.engine.state) == before
        assert not rig.engine.is_settled
        assert (got, heard, rig.bus.has_mail("ben"), rig.tasks.list_all()) == ([], [], False, [])
        journal.let_go()
        await wait_all_tasks_blocked()
        assert got == ["hello"]
        assert sorted(heard) == ["mail.sent", "task.created"]
        assert rig.engine.is_settled


async def test_a_journal_that_fails_answers_everybody_and_ends_the_engine() -> None:
    """Whoever's records were being written, whoever queued behind, and whoever waits for a change gets JournalClosed with the cause."""
    journal = BrokenJournal()
    told: list[BaseException] = []

    async def ask(call: Any, *args: Any) -> None:
        with trio.CancelScope(shield=True):  # what is not answered would hang here
            try:
                await call(*args)
            except JournalClosed as error:
                told.append(error)

    rigs: list[Rig] = []
    with pytest.RaisesGroup(pytest.RaisesExc(JournalError, match="no space left"), flatten_subgroups=True):
        async with open_rig(journal) as rig, trio.open_nursery() as nursery:
            rigs.append(rig)
            nursery.start_soon(ask, rig.bus.receive, "cat")
            nursery.start_soon(ask, rig.tasks.wait, (await rig.tasks.create("x")).id)
            journal.broken = True
            for number in range(5):
                nursery.start_soon(ask, rig.engine.submit, mail("ben", str(number)))
            await trio.sleep_forever()
    assert len(told) == 7
    assert sum("no space left" in str(error) for error in told) == 5
    engine = rigs[0].engine
    assert not engine.is_open
    assert not engine.state.mail.box("ben"), "what was not written is not there"
    with pytest.raises(JournalClosed):
        await engine.submit(mail("ben"))
    with pytest.raises(JournalClosed):
        engine.post(mail("ben"))
    with pytest.raises(JournalClosed):
        await engine.park(("member", "ben"))


async def test_a_bug_in_a_command_hangs_nobody() -> None:
    """A command that crashes in its decision writes nothing, and its caller and everybody else in the batch and behind it is answered."""
    log = MemoryLog()
    journal = HeldJournal(log)
    answers: list[object] = []

    async def ask(command: Any) -> None:
        with trio.CancelScope(shield=True):
            try:
                answers.append(await rig.engine.submit(command))
            except (JournalClosed, KeyError) as error:
                answers.append(error)

    try:
        async with open_rig(journal) as rig, trio.open_nursery() as nursery:
            journal.held = True
            nursery.start_soon(ask, mail("ben", "before"))
            await wait_all_tasks_blocked()
            for command in (mail("ben"), Crash(), mail("ben")):
                nursery.start_soon(ask, command)
            await wait_all_tasks_blocked()
            journal.let_go()
    except* KeyError:
        pass
    assert len(answers) == 4
    assert "half" not in str(_records(log))
    assert any("a bug" in repr(answer) for answer in answers)


async def test_leaving_carries_out_what_was_asked_for(autojump_clock: MockClock) -> None:
    """Commands that were posted before the exit are in the log, also when the exit is a cancellation or an exception."""
    for leave in ("return", "cancel", "raise"):
        log = MemoryLog()
        with trio.CancelScope() as scope:
            try:
                async with open_rig(MemoryJournal(log)) as rig:
                    rig.engine.post(mail("ben", leave))
                    if leave == "cancel":
                        scope.cancel()
                        await trio.sleep_forever()
                    if leave == "raise":
                        raise LookupError
            except* LookupError:
                pass
        assert contents(log) == [leave]


async def test_who_waits_when_the_engine_ends_is_told(autojump_clock: MockClock) -> None:
    """A wait that outlives its engine ends with JournalClosed and does not hang."""
    told: list[str] = []

    async def wait(bus: MessageBus) -> None:
        with pytest.raises(JournalClosed):
            await bus.receive("ben")
        told.append("told")

    async with trio.open_nursery() as nursery, open_rig() as rig:
        nursery.start_soon(wait, rig.bus)  # noqa: ASYNC111  # that it outlives the engine is what is tested
        await wait_all_tasks_blocked()
    assert told == ["told"]


async def test_a_posted_command_that_is_refused_is_reported(autojump_clock: MockClock) -> None:
    """Nobody waits for a posted command, so its refusal goes to who asked to be told."""
    async with open_rig() as rig:
        refused: list[BaseException] = []
        rig.engine.refused = refused.append
        rig.engine.post(mail("nobody"))
        await rig.engine.submit(mail("ben"))
        assert [type(error) for error in refused] == [UnknownMember]


async def test_what_submit_returned_for_is_read_by_another_handle(tmp_path: Any) -> None:
    """On disk: when `submit` returns, a process that opens the directory finds the records."""
    async with open_file_journal(tmp_path / "journal") as journal, open_rig(journal, wall_clock=lambda: 1.0) as rig:
        for number in range(3):
            await rig.engine.submit(mail("ben", str(number)))
            async with open_file_journal(tmp_path / "journal") as other:
                assert [record.fields.get("content") for record in await other.read(0)][-1] == str(number)


async def test_a_closed_team_opens_where_it_was(tmp_path: Any) -> None:
    """After the exit a snapshot and the log give the same state back, and ids go on from there."""
    async with open_file_journal(tmp_path / "journal") as journal, open_rig(journal, wall_clock=lambda: 1.0) as rig:
        await rig.bus.send("ann", "ben", "hello")
        await rig.engine.submit(ClaimTask("ann", 9.0, await rig.engine.submit(CreateTask(subject="x", by="ann"))))
        before = shown(rig.engine.state)
    async with open_file_journal(tmp_path / "journal") as journal:
        snapshot = await journal.load_snapshot()
        assert snapshot is not None
        assert snapshot[0] == journal.head_seq
        async with open_engine(journal, wall_clock=lambda: 1.0) as engine:
            assert shown(engine.state) == before
            assert await engine.submit(mail("ben")) == "m2"


async def test_a_snapshot_that_cannot_be_read_is_done_without(autojump_clock: MockClock) -> None:
    """A snapshot is derived: one in a format of another version is passed over, and the state is folded from the log."""
    journal = MemoryJournal()
    async with open_rig(journal) as rig:
        await rig.bus.send("ann", "ben", "hello")
        before = shown(rig.engine.state)
    await journal.save_snapshot(journal.head_seq, {"format": 999})
    async with open_engine(journal, wall_clock=virtual_wall_clock) as engine:
        assert shown(engine.state) == before
