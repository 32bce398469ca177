"""Opening a team directory: as its host, or as somebody who looks in, sends and decides.

Laws: when `open_team` exits, for whatever reason, no coroutine, thread, child process or model call of it is left; what had happened by
then is in the journal; the same directory opens again and the team goes on.
"""

import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from protocols.lifecycle import MemberEvent
from teams.artifacts import ArtifactStore
from teams.bus import MessageBus
from teams.engine import Engine, open_engine
from teams.errors import NotATeam
from teams.events import EventHub, RuntimeNotice
from teams.hosts import dead_hosts, host_lock, new_host_name
from teams.journal.base import Journal
from teams.journal.file import FileJournal
from teams.journal.memory import MemoryJournal
from teams.listeners import tell_watchers
from teams.manager import TeammateManager
from teams.models.base import Model
from teams.models.gateway import Gateway
from teams.options import TeamOptions
from teams.readiness import Claimers
from teams.services import Services
from teams.sessions import SessionStore
from teams.state.roster import MemberSpec, check_name
from teams.state.roster_commands import ChangeStatus
from teams.state.team_state import TeamState
from teams.tasks import TaskManager
from teams.team import Team, join_plain_member
from teams.toolsets import Toolsets
from teams.views import ViewWriter
from teams.waits import WaitGraph

FORMAT_VERSION = 1
CLOSING_SECONDS = 5.0
"""How long the last records and views of a closing team may take, once its members have ended."""


@asynccontextmanager
async def open_team(
    directory: str | os.PathLike[str] | None,
    *,
    model: Model,
    workdir: str | os.PathLike[str] | None = None,
    name: str | None = None,
    system: str = "",
    options: TeamOptions | None = None,
    journal: Journal | None = None,
    wall_clock: Callable[[], float] = time.time,
) -> AsyncIterator[Team]:
    """Open or create a team and host its members for as long as the block runs.

    At the block's normal end every member is asked to stop, and stopped by force after the grace. When the block ends by an exception or a
    cancellation, all are cancelled at once; the journal says so, and the same directory opens again.

    Args:
        directory: where the team lives; None keeps everything in memory.
        model: of every member that names none.
        workdir: the directory over which the default tools work; without it members have only the tools that they are spawned with.
        system: words that come first in every member's system prompt.
        journal: another backend of the log; the caller closes it.
        wall_clock: seconds since the epoch, for deadlines that survive a restart.

    Raises: NotATeam, JournalDamaged, HostConflict (another process is the lead).
    """
    options = options or TeamOptions()
    root = None if directory is None else await trio.to_thread.run_sync(_prepare_directory, Path(directory), name)
    team_name = (name or "team") if root is None else await trio.to_thread.run_sync(read_team_name, root)
    host = new_host_name()
    hosts = None if root is None else root / "hosts"
    async with AsyncExitStack() as stack:
        stack.enter_context(host_lock(hosts, host))
        if journal is None:
            journal = await _open_journal(root)
            stack.push_async_callback(_close_journal, journal)
        engine = await stack.enter_async_context(open_engine(journal, wall_clock=wall_clock))
        sessions = SessionStore(None if root is None else root / "sessions", wall_clock=wall_clock)
        stack.callback(sessions.close)
        services, manager = _assemble(engine, sessions, root, options, model, host=host, name=team_name, system=system, workdir=workdir)
        stack.callback(services.events.close)
        await _join_lead(services, hosts)
        views = (
            ViewWriter(engine, root, team_name=team_name, interval_seconds=options.view_interval_seconds)
            if root and options.views
            else None
        )
        stack.push_async_callback(_say_goodbye, services, views)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sessions.run)
            if views is not None:
                nursery.start_soon(views.run)
            async with trio.open_nursery() as members:
                members.start_soon(manager.run)
                team = Team(services, manager, root)
                yield team
                await manager.shutdown_all(by=options.lead, reason="the team is closing")
                members.cancel_scope.cancel()
            nursery.cancel_scope.cancel()


def read_team_name(root: Path) -> str:
    """Return the name in a team directory; raise NotATeam when it is none."""
    try:
        data = json.loads((root / "team.json").read_text(encoding="utf-8"))
        version, name = data["format"], data["name"]
    except FileNotFoundError:
        raise NotATeam(root, reason="it has no team.json; open_team or 'teams demo' makes one") from None
    except (ValueError, KeyError, TypeError) as error:
        raise NotATeam(root, reason=f"its team.json cannot be read: {error}") from error
    if version != FORMAT_VERSION:
        raise NotATeam(root, reason=f"its format is {version}; this version of teams reads {FORMAT_VERSION}")
    return str(name)


def _prepare_directory(root: Path, name: str | None) -> Path:
    marker = root / "team.json"
    if root.exists() and not root.is_dir():
        raise NotATeam(root, reason="it is a file")
    if not marker.exists():
        if root.exists() and any(root.iterdir()):
            raise NotATeam(root, reason="it has other things in it and no team.json; choose an empty or a new directory")
        root.mkdir(parents=True, exist_ok=True)
        data = {"id": secrets.token_hex(8), "name": name or root.resolve().parent.name or "team", "format": FORMAT_VERSION}
        temporary = root / f".team.json.{os.getpid()}.tmp"
        temporary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        temporary.replace(marker)
    read_team_name(root)
    for folder in ("journal", "sessions", "artifacts", "hosts"):
        (root / folder).mkdir(exist_ok=True)
    return root


async def _open_journal(root: Path | None) -> Journal:
    return MemoryJournal() if root is None else await FileJournal.open(root / "journal")


async def _close_journal(journal: Journal) -> None:
    with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSING_SECONDS):
        await journal.aclose()


async def _join_lead(services: Services, hosts: Path | None) -> None:
    options, members = services.options, services.engine.state.roster.members
    before = members.get(options.lead)
    dead = frozenset[str]() if before is None or before.host is None else dead_hosts(hosts, [before.host])
    lead = MemberSpec(name=check_name(options.lead), role="lead", kind="script", task_limit=None, auto_claim=False)
    await join_plain_member(services.engine, lead, services.host, dead)
    if options.person not in members:
        person = MemberSpec(name=check_name(options.person), role="person", kind="person", auto_claim=False)
        await join_plain_member(services.engine, person, services.host)


async def _say_goodbye(services: Services, views: ViewWriter | None) -> None:
    """Let the last records and views be written once every member has ended."""
    with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSING_SECONDS):
        lead = services.engine.state.roster.members[services.options.lead]
        if services.engine.is_open:
            await services.engine.submit(ChangeStatus(lead.name, MemberEvent.exited, lead.incarnation, "the team was closed"))
        if views is not None:
            await views.flush()


def _assemble(
    engine: Engine,
    sessions: SessionStore,
    root: Path | None,
    options: TeamOptions,
    model: Model,
    *,
    host: str,
    name: str,
    system: str,
    workdir: str | os.PathLike[str] | None,
) -> tuple[Services, TeammateManager]:
    def further(node: str) -> Sequence[str]:
        tasks = engine.state.tasks
        if not node.startswith("task "):
            return ()
        task = tasks.by_id.get(int(node[5:]))
        if task is None:
            return ()
        return [task.owner] if task.owner is not None else [f"task {blocker}" for blocker in tasks.blocked_by(task.id)]

    waits = WaitGraph(further)
    artifacts = ArtifactStore(None if root is None else root / "artifacts")
    events = EventHub(options.event_buffer)
    engine.listen(lambda records: tell_watchers(records, events, engine.state))
    engine.refused = lambda error: events.emit(RuntimeNotice("warning", f"a command of the runtime was refused: {error}"))
    gateway = Gateway(
        model,
        options.gateway,
        settle=lambda agent, usage: manager.book(agent, usage),  # noqa: PLW0108  # the manager is made below
        on_notice=lambda notice: events.emit(RuntimeNotice("warning", notice.message, notice.agent)),
    )
    services = Services(
        name=name,
        host=host,
        options=options,
        engine=engine,
        bus=MessageBus(engine, artifacts, waits, options.bus),
        tasks=TaskManager(engine, waits, options.tasks, author=options.lead),
        waits=waits,
        claimers=Claimers(engine),
        events=events,
        gateway=gateway,
        model=model,
        sessions=sessions,
        artifacts=artifacts,
        system_base=system,
    )
    toolsets = Toolsets(services, workdir)
    manager = TeammateManager(services, toolsets.dispatcher, None if root is None else root / "hosts")
    toolsets.manager = manager
    return services, manager


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamClient:
    """A team seen from a process that hosts nobody: it reads, sends, decides and asks for shutdowns, as the person."""

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

    def dead_hosts(self) -> frozenset[str]:
        """Return the hosts of live members whose process is gone."""
        hosts = {member.host for member in self.state.roster.live() if member.host is not None}
        return dead_hosts(self.directory / "hosts", hosts)


@asynccontextmanager
async def connect_team(
    directory: str | os.PathLike[str], *, options: TeamOptions | None = None, wall_clock: Callable[[], float] = time.time
) -> AsyncIterator[TeamClient]:
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
            waits = WaitGraph(lambda _: ())
            bus = MessageBus(engine, ArtifactStore(root / "artifacts"), waits, options.bus)
            tasks = TaskManager(engine, waits, options.tasks, author=options.person)
            yield TeamClient(name=name, directory=root, person=options.person, engine=engine, bus=bus, tasks=tasks, events=events)
            events.close()
    finally:
        await _close_journal(journal)
