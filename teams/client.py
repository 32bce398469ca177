"""A team seen from a process that hosts nobody: it reads, sends, decides and asks for shutdowns, as the person.

Laws: nothing of a team runs here; what is written here is decided against the journal like everything else, so it is as durable and as
checked as what the host writes, and the host is woken by it. Imports little: a command that sends one message must not wait for a runtime.
"""

import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from teams.artifacts import ArtifactStore
from teams.bus import MessageBus
from teams.directory import read_team_name
from teams.engine import Engine, open_engine
from teams.events import EventHub
from teams.hosts import dead_hosts
from teams.journal.base import Journal, JournalReport
from teams.journal.file import FileJournal
from teams.listeners import tell_watchers
from teams.options import TeamOptions
from teams.state.team_state import TeamState
from teams.tasks import TaskManager
from teams.waits import TeamFacts, WaitGraph

CLOSING_SECONDS = 5.0
"""How long the journal of a closing team may take to close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamClient:
    """A handle on somebody else's team; built by `connect_team`.

    `person` is who acts here: the roster's person, or the one of the options in a team that has none yet.
    """

    name: str
    directory: Path
    person: str
    engine: Engine
    bus: MessageBus
    tasks: TaskManager
    events: EventHub

    @property
    def state(self) -> TeamState:
        """The team's state as of the last commit that this process has seen."""
        return self.engine.state

    @property
    def reports(self) -> tuple[JournalReport, ...]:
        """What was wrong with the journal and was got over, oldest first."""
        return self.engine.journal.reports

    def dead_hosts(self) -> frozenset[str]:
        """Return the hosts of live members whose process is gone."""
        hosts = {member.host for member in self.state.roster.live() if member.host is not None}
        return dead_hosts(self.directory / "hosts", hosts)


@asynccontextmanager
async def connect_team(
    directory: str | os.PathLike[str], *, options: TeamOptions | None = None, wall_clock: Callable[[], float] = time.time
) -> AsyncGenerator[TeamClient]:
    """Look into a team that another process may be running, to send, decide and follow; nobody is hosted here.

    Raises: NotATeam, JournalDamaged.
    """
    options = options or TeamOptions()
    root = Path(directory)
    name = await trio.to_thread.run_sync(read_team_name, root)
    journal = await FileJournal.open(root / "journal")
    try:
        async with open_engine(journal, wall_clock=wall_clock) as engine:
            events = EventHub(options.event_buffer)
            engine.listen(lambda records: tell_watchers(records, events, engine.state))
            waits = WaitGraph(TeamFacts(lambda: engine.state))
            bus = MessageBus(engine, ArtifactStore(root / "artifacts"), waits, options.bus)
            person = person_of(engine.state, options.person)
            tasks = TaskManager(engine, waits, options.tasks, author=person)
            yield TeamClient(name=name, directory=root, person=person, engine=engine, bus=bus, tasks=tasks, events=events)
            events.close()
            engine.snapshot_seq = engine.state.seq  # the host saves snapshots; one message must not cost one of the whole team
    finally:
        with trio.move_on_after(CLOSING_SECONDS, shield=True):
            await journal.aclose()


async def close_journal(journal: Journal) -> None:
    """Close a journal within its time, also when cancelled."""
    with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSING_SECONDS):
        await journal.aclose()


def person_of(state: TeamState, default: str) -> str:
    """Return the name of the member who is a person."""
    return next((member.name for member in state.roster.members.values() if member.spec.kind == "person"), default)
