"""The core of a team without its runtime: an engine, its bus and its tasks, on journals that a test can hold up or break."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from protocols.lifecycle import MemberEvent
from teams.artifacts import ArtifactStore
from teams.bus import MessageBus
from teams.engine import Engine, open_engine
from teams.errors import JournalError
from teams.journal import Journal, MemoryJournal, MemoryLog, Record
from teams.options import BusOptions, TaskOptions
from teams.state.roster import MemberSpec
from teams.state.roster_commands import ChangeStatus, Join
from teams.tasks import TaskManager
from teams.testing.team import virtual_wall_clock
from teams.waits import TeamFacts, WaitGraph

HOST = "here_1_00000000"


@dataclass
class Rig:
    """One process's view of a team that nobody hosts."""

    engine: Engine
    bus: MessageBus
    tasks: TaskManager
    waits: WaitGraph

    async def join(self, *names: str, **spec: Any) -> None:
        """Put members on the roster and make them ready."""
        for name in names:
            incarnation, is_new = await self.engine.submit(Join(MemberSpec(name=name, **spec), HOST))
            if is_new:
                await self.engine.submit(ChangeStatus(name, MemberEvent.ready, incarnation))

    async def leave(self, name: str, event: MemberEvent = MemberEvent.exited) -> None:
        """End a member."""
        await self.engine.submit(ChangeStatus(name, event, None))


@asynccontextmanager
async def open_rig(
    journal: Journal | None = None,
    *,
    members: Iterable[str] = ("ann", "ben", "cat"),
    artifacts: Path | None = None,
    bus: BusOptions | None = None,
    wall_clock: Callable[[], float] = virtual_wall_clock,
    task_limit: int | None = None,
) -> AsyncGenerator[Rig]:
    """Open an engine on a journal, by default one in memory, with members that a script drives."""
    async with open_engine(MemoryJournal() if journal is None else journal, wall_clock=wall_clock) as engine:
        waits = WaitGraph(TeamFacts(lambda: engine.state))
        mail = MessageBus(engine, ArtifactStore(artifacts), waits, bus or BusOptions())
        rig = Rig(engine, mail, TaskManager(engine, waits, TaskOptions(), author="ann"), waits)
        await rig.join(*members, kind="script", task_limit=task_limit)
        yield rig


class HeldJournal(MemoryJournal):
    """A journal whose appends begin and do not end until they are let go."""

    def __init__(self, log: MemoryLog | None = None) -> None:
        super().__init__(log)
        self.held = False
        self.begun: list[int] = []
        self._lot = trio.lowlevel.ParkingLot()

    async def append(self, records: Sequence[Record], expected_seq: int) -> None:
        """Wait to be let go, then append."""
        self.begun.append(len(records))
        while self.held:
            await self._lot.park()
        await super().append(records, expected_seq)

    def let_go(self) -> None:
        """Let this append and every later one go."""
        self.held = False
        self._lot.unpark_all()


class BrokenJournal(HeldJournal):
    """A journal whose disk fails from a moment on."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False

    async def append(self, records: Sequence[Record], expected_seq: int) -> None:
        """Fail where the disk would."""
        if self.broken:
            await trio.lowlevel.checkpoint()
            raise JournalError("no space left on device")
        await super().append(records, expected_seq)


async def settled(*engines: Engine) -> None:
    """Return when every engine has carried out what it knows of and has read what the others wrote."""
    while True:
        heads = {engine.state.seq for engine in engines}
        if len(heads) == 1 and all(engine.is_settled and not engine.journal.grown() for engine in engines):
            return
        await trio.sleep(0.001)
