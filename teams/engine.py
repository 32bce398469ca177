"""The single writer of a team: commands in, records out, state folded, waiters woken.

Laws:
- One task runs `Engine.run`. It decides queued commands one after the other, appends the records of all of them in one append (group
  commit), applies, then answers every caller. A command that is refused fails alone.
- There are two folds of the one log. `state` holds what is durable; everybody reads it. `_ahead` also holds what is being written; only
  decisions see it. So nobody acts on what a crash could still take away, and the commands of one batch see each other.
- A caller that is cancelled before its command was decided withdraws it: nothing happened. Afterwards the command is carried out, and the
  caller gets its answer; that takes one append.
- Waits are level-triggered: a woken waiter looks at the state again.

Source of the batching: group commit as databases do it; one fsync serves every command that queued during the one before.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import outcome
import trio

from protocols.errors import ProtocolError
from teams.errors import JournalClosed, JournalConflict, TeamError
from teams.journal.base import Journal
from teams.journal.records import Record, utc_now_text
from teams.state.decision import Command, Draft
from teams.state.team_state import TeamState
from teams.topics import ANYTHING, Topic, topics_of

ResultT = TypeVar("ResultT")
BATCH_LIMIT = 2_000
"""Commands in one append; bounds how long one write can take."""

SNAPSHOT_EVERY = 100_000
"""Records between two snapshots of a running team; the next start replays no more than these."""

REFUSALS = (TeamError, ProtocolError, ValueError, TypeError, LookupError, AttributeError)
"""What `decide` refuses with; the last ones come of arguments of a wrong type. A decision changes nothing, so it fails alone."""


_UNWRITABLE = (ValueError, TypeError, LookupError, AttributeError)
"""What applying or encoding a record raises when an argument of its command has a wrong type."""


class _Pending:
    """A queued command and the task that waits for its answer; no task when nobody does."""

    __slots__ = ("command", "decided", "error", "result", "task")

    def __init__(self, command: Command[Any], task: trio.lowlevel.Task | None) -> None:
        self.command, self.task = command, task
        self.decided = False  # from here on it cannot be withdrawn
        self.error: BaseException | None = None
        self.result: Any = None

    def abort(self, _: object) -> trio.lowlevel.Abort:
        """Withdraw the command when its caller is cancelled, unless it was decided."""
        if self.decided:
            return trio.lowlevel.Abort.FAILED
        self.task, self.decided = None, True
        return trio.lowlevel.Abort.SUCCEEDED

    def reply(self) -> None:
        """Wake the caller with the answer."""
        if self.task is not None:
            trio.lowlevel.reschedule(self.task, outcome.Value(self.result) if self.error is None else outcome.Error(self.error))
            self.task = None


class Engine:
    """Owns a journal handle and the folds of it; built by `open_engine`."""

    def __init__(self, journal: Journal, state: TeamState, *, wall_clock: Callable[[], float]) -> None:
        self.state = state
        self.refused: Callable[[BaseException], None] | None = None
        self._journal = journal
        self._ahead = state.copy()
        self._wall_clock = wall_clock
        self._queue: deque[_Pending] = deque()
        self._wake = trio.lowlevel.ParkingLot()
        self._closing = self._look = False
        self._failure: BaseException | None = None
        self._unanswered = 0
        self.snapshot_seq = state.seq
        self._lots: dict[Topic, trio.lowlevel.ParkingLot] = {}
        self._listeners: list[Callable[[Sequence[Record]], None]] = []

    # -- commands ----------------------------------------------------------

    async def submit(self, command: Command[ResultT]) -> ResultT:
        """Carry out a command; its records are durable when this returns.

        Raises: what the command's `decide` refuses with; JournalClosed when the journal cannot be written any more.
        Checkpoints: always. When Cancelled, nothing was written.
        """
        self._check_open()
        pending = _Pending(command, trio.lowlevel.current_task())
        self._queue.append(pending)
        self._wake.unpark()
        result: ResultT = await trio.lowlevel.wait_task_rescheduled(pending.abort)
        return result

    def post(self, command: Command[Any]) -> None:
        """Queue a command whose answer nobody needs; a refusal goes to `refused`."""
        self._check_open()
        self._queue.append(_Pending(command, None))
        self._wake.unpark()

    @property
    def now(self) -> float:
        """The wall clock: seconds since the epoch."""
        return self._wall_clock()

    @property
    def is_open(self) -> bool:
        """Whether commands are taken."""
        return not self._closing

    @property
    def is_settled(self) -> bool:
        """Whether every command so far is carried out."""
        return not self._queue and not self._unanswered

    @property
    def journal(self) -> Journal:
        """The handle, for statistics; only the engine reads and appends."""
        return self._journal

    # -- waiting -----------------------------------------------------------

    async def wait_until(self, topic: Topic, predicate: Callable[[], ResultT | None]) -> ResultT:
        """Wait until the predicate gives something that is not None; it is asked again after every change of the topic.

        What it returns is true at the moment of the return: no checkpoint lies between.
        Raises: JournalClosed when the engine ends first.
        Checkpoints: always; when Cancelled, nothing has changed.
        """
        await trio.lowlevel.checkpoint()
        while (found := predicate()) is None:
            await self.park(topic)
        return found

    async def park(self, topic: Topic) -> None:
        """Wait for the next change of the topic; there is no memory, so look at the state before and after.

        Raises: JournalClosed when the engine has ended.
        Checkpoints: always.
        """
        self._check_open()
        lot = self._lots.get(topic)
        if lot is None:
            lot = self._lots[topic] = trio.lowlevel.ParkingLot()
        try:
            await lot.park()
        finally:
            if not lot and self._lots.get(topic) is lot:
                del self._lots[topic]

    def notify(self, topics: Iterable[Topic]) -> None:
        """Wake those who wait for these topics; also for facts that are not in the journal."""
        lots = self._lots
        for topic in topics:
            lot = lots.get(topic)
            if lot is not None:
                lot.unpark_all()

    def listen(self, listener: Callable[[Sequence[Record]], None]) -> None:
        """Call the listener with every batch of records once it is durable and applied, also those of other processes."""
        self._listeners.append(listener)

    # -- the owner of the journal -------------------------------------------

    @trio.lowlevel.enable_ki_protection  # a Ctrl-C goes to the caller's own task and never between an append and its fold
    async def run(self) -> None:
        """Carry out commands until `aclose`; exactly one task runs this.

        It is shielded, since others still write while they are being cancelled: `aclose` ends it, in every case.
        Raises: JournalError when the journal can no longer be written; every waiting caller gets JournalClosed first.
        """
        try:
            with trio.CancelScope(shield=True):
                while not (self._closing and not self._queue):
                    if self._look or self._journal.grown():
                        await self._catch_up()
                    elif self._queue:
                        await self._carry_out(self._take_batch())
                    else:
                        await self._wake.park()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._closing = True
            self._fail_waiting()

    async def watch(self) -> None:
        """Let the owner look whenever another process has appended; runs until the engine is closed."""
        while True:
            await self._journal.wait_grown(self._journal.head_seq)
            if self._closing:  # somebody appended in the moment of the close: not ours to read any more
                return
            self._look = True
            self._wake.unpark()
            await self.park(_LOOKED)

    async def aclose(self) -> None:
        """Let `run` end once the queue is empty; new commands are refused.

        Checkpoints: never.
        """
        self._closing = True
        self._wake.unpark()

    def _take_batch(self) -> list[_Pending]:
        queue = self._queue
        batch: list[_Pending] = []
        while queue and len(batch) < BATCH_LIMIT:
            pending = queue.popleft()
            if not pending.decided:
                pending.decided = True
                batch.append(pending)
        return batch

    async def _carry_out(self, batch: list[_Pending]) -> None:
        self._unanswered = len(batch)
        try:
            try:
                await self._decide_and_append(batch)
            except _UNWRITABLE:  # a value that no record can hold: find out whose, so that it fails alone
                self._ahead = self.state.copy()
                for pending in batch:
                    await self._carry_out_alone(pending)
        except BaseException as error:  # whoever waits cannot be cancelled any more, so it must be answered
            for pending in batch:
                pending.error = JournalClosed(f"cannot carry out a command: {error!r}")
                pending.error.__cause__ = error
            self._ahead = self.state.copy()
            self._reply_all(batch)
            raise
        self._reply_all(batch)
        if self.state.seq - self.snapshot_seq >= SNAPSHOT_EVERY:
            await self.save_snapshot()

    async def _carry_out_alone(self, pending: _Pending) -> None:
        try:
            await self._decide_and_append([pending])
        except _UNWRITABLE as error:
            self._ahead = self.state.copy()
            pending.error = error

    async def _decide_and_append(self, batch: list[_Pending]) -> None:
        while True:
            base = self._ahead.seq
            records = self._decide_all(batch)
            if not records:
                await trio.lowlevel.checkpoint()
                return
            try:
                await self._journal.append(records, base)
            except JournalConflict:
                self._ahead = self.state.copy()
                await self._catch_up()
            else:
                self._publish(records, self.state)
                return

    def _decide_all(self, batch: Sequence[_Pending]) -> list[Record]:
        ahead, now = self._ahead, self._wall_clock()
        at = utc_now_text(now)
        seq = ahead.seq
        records: list[Record] = []
        for pending in batch:
            pending.error = None
            draft = Draft(ahead, now)
            try:
                pending.result = pending.command.decide(draft)
            except REFUSALS as error:
                pending.error = error
                continue
            more = len(draft.records)
            for kind, fields in draft.records:
                seq += 1
                more -= 1
                record = Record(seq, at, kind, fields, more)
                ahead.apply(record)
                records.append(record)
        return records

    def _publish(self, records: Sequence[Record], *states: TeamState) -> None:
        for state in states:
            apply = state.apply
            for record in records:
                apply(record)
        self._announce(records)

    def _announce(self, records: Sequence[Record]) -> None:
        lots = self._lots
        if lots:
            state = self.state
            for record in records:
                for topic in topics_of(record, state):
                    lot = lots.get(topic)
                    if lot is not None:
                        lot.unpark_all()
        for listener in self._listeners:
            listener(records)

    def _reply_all(self, batch: Sequence[_Pending]) -> None:
        for pending in batch:
            if pending.task is None and pending.error is not None and self.refused is not None:
                self.refused(pending.error)
            pending.reply()
        self._unanswered = 0
        self.notify([ANYTHING])

    async def _catch_up(self) -> None:
        self._look = False
        records = await self._journal.read(self.state.seq)
        if records:
            self._publish(records, self.state, self._ahead)
        self.notify([_LOOKED, ANYTHING])

    async def save_snapshot(self) -> None:
        """Save the durable state, so that the next start need not replay what led to it.

        Checkpoints: always.
        """
        self.snapshot_seq = self.state.seq
        await self._journal.save_snapshot(self.state.seq, self.state.to_json())

    def _check_open(self) -> None:
        if self._closing:
            raise JournalClosed("cannot carry out a command: the team is closed") from self._failure

    def _fail_waiting(self) -> None:
        waiting, self._queue = list(self._queue), deque()
        for pending in waiting:
            pending.error = JournalClosed("cannot carry out a command: the team was closed before it was decided")
            pending.reply()
        self.notify(list(self._lots))


_LOOKED: Topic = ("looked", "")


@asynccontextmanager
async def open_engine(journal: Journal, *, wall_clock: Callable[[], float], follow: bool = True) -> AsyncGenerator[Engine]:
    """Replay the journal and run an engine on it; at exit the queue is drained, a snapshot saved and the engine ended.

    Args: `follow` watches for what other processes append.
    Raises: JournalDamaged when the journal cannot be read.
    Owner: the caller closes the journal afterwards.
    """
    state = await load_state(journal)
    engine = Engine(journal, state, wall_clock=wall_clock)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(engine.run)
        if follow:
            nursery.start_soon(engine.watch)
        try:
            yield engine
        finally:
            await engine.aclose()
            nursery.cancel_scope.cancel()
    if engine.state.seq > engine.snapshot_seq:
        with trio.CancelScope(shield=True):  # bounded by the journal's own write
            await engine.save_snapshot()


async def load_state(journal: Journal) -> TeamState:
    """Return the state at the journal's end, from the newest snapshot and what follows.

    Raises: JournalDamaged.
    """
    snapshot = await journal.load_snapshot()
    state = TeamState()
    if snapshot is not None:
        try:
            state = TeamState.from_json(snapshot[1])
        except (ValueError, KeyError, TypeError, IndexError):  # of another version: the log itself says everything
            state = TeamState()
    for record in await journal.read(state.seq):
        state.apply(record)
    return state
