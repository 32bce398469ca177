"""Opening a team directory: as its host, or as somebody who looks in, sends and decides.

Laws: when `open_team` exits, for whatever reason, no coroutine, thread, child process or model call of it is left; what had happened by
then is in the journal; the same directory opens again and the team goes on.
"""

import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import trio

from protocols.lifecycle import MemberEvent
from teams.artifacts import ArtifactStore
from teams.bus import MessageBus
from teams.client import close_journal
from teams.directory import prepare_directory, read_team_name
from teams.engine import Engine, open_engine
from teams.errors import HostConflict
from teams.events import EventHub, ModelRetry, RuntimeNotice
from teams.hosts import RetryBoard, dead_hosts, host_lock, new_host_name
from teams.journal.base import Journal
from teams.journal.file import FileJournal
from teams.journal.memory import MemoryJournal
from teams.listeners import tell_watchers
from teams.manager import TeammateManager
from teams.models.base import Model, Usage
from teams.models.gateway import Gateway, GatewayNotice
from teams.options import TeamOptions
from teams.readiness import Claimers
from teams.services import Services
from teams.sessions import SessionStore
from teams.state.roster import MemberSpec, check_name
from teams.state.roster_commands import ChangeStatus
from teams.tasks import TaskManager
from teams.team import Team, join_plain_member
from teams.toolsets import Toolsets
from teams.views import ViewWriter
from teams.waits import TeamFacts, WaitGraph

CLOSING_SECONDS = 5.0
"""How long the last records and views of a closing team may take, once its members have ended."""


@asynccontextmanager
async def open_team(
    directory: str | os.PathLike[str] | None,
    *,
    model: Model,
    workdir: str | os.PathLike[str] | None = None,
    name: str | None = None,
    options: TeamOptions | None = None,
    journal: Journal | None = None,
    wall_clock: Callable[[], float] = time.time,
) -> AsyncGenerator[Team]:
    """Open or create a team and host its members for as long as the block runs.

    At the block's normal end every member is asked to stop, and stopped by force after the grace. When the block ends by an exception or a
    cancellation, all are cancelled at once; the journal says so, and the same directory opens again.

    Args:
        directory: where the team lives; None keeps everything in memory.
        model: of every member that names none; its connections are closed at the end.
        workdir: the directory over which the default tools work; without it members have only the tools that they are spawned with.
        journal: another backend of the log; the caller closes it.
        wall_clock: seconds since the epoch, for deadlines that survive a restart.

    Raises: NotATeam, JournalDamaged, HostConflict (another process is the lead), NotADirectoryError (no such work directory). What the
        block raises leaves as it is, not in a group.
    """
    options = options or TeamOptions()
    if isinstance(model, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # as other systems have it
        raise TypeError(f"the model is the string {model!r}; pass a model, such as AnthropicModel({model!r})")
    if workdir is not None and not Path(workdir).is_dir():
        raise NotADirectoryError(f"cannot open a team over the work directory {str(workdir)!r}: there is no such directory")
    root = None if directory is None else await trio.to_thread.run_sync(prepare_directory, Path(directory), name)
    team_name = (name or "team") if root is None else await trio.to_thread.run_sync(read_team_name, root)
    place = _Place(root, team_name, new_host_name(), workdir)
    failure: Exception | None = None
    async with AsyncExitStack() as stack:
        stack.enter_context(host_lock(place.within("hosts"), place.host))
        if journal is None:
            journal = await _open_journal(root)
            stack.push_async_callback(close_journal, journal)
        engine = await stack.enter_async_context(open_engine(journal, wall_clock=wall_clock))
        services, manager = _assemble(engine, place, options, model)
        stack.callback(services.sessions.close)
        stack.callback(services.events.close)
        stack.push_async_callback(_close_models, services)
        try:
            await _join_lead(services, place.within("hosts"))
        except HostConflict as error:
            failure = error
        else:
            async with _hosting(services, manager, root) as (team, members):
                try:
                    yield team
                except Exception as error:  # noqa: BLE001  # the caller's own block: everybody stops at once, and it goes on below
                    failure = error
                    members.cancel()
    if failure is not None:
        raise failure  # here, where no nursery wraps it in a group


@asynccontextmanager
async def _hosting(services: Services, manager: TeammateManager, root: Path | None) -> AsyncGenerator[tuple[Team, trio.CancelScope]]:
    """Run the members and what serves them; at the block's end ask all to stop, and write the last records and views."""
    options, views = services.options, None
    if root is not None and options.views:
        views = ViewWriter(
            services.engine,
            root,
            team_name=services.name,
            interval_seconds=options.view_interval_seconds,
            report=lambda text: services.events.emit(RuntimeNotice("warning", text)),
        )
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(services.sessions.run)
            if views is not None:
                nursery.start_soon(views.run)
            async with trio.open_nursery() as members:
                members.start_soon(manager.run)
                yield Team(services, manager, root), members.cancel_scope
                await manager.shutdown_all(by=options.lead, reason="the team is closing")
                members.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSING_SECONDS):
            await _say_goodbye(services, views)


async def _open_journal(root: Path | None) -> Journal:
    return MemoryJournal() if root is None else await FileJournal.open(root / "journal")


async def _join_lead(services: Services, hosts: Path | None) -> None:
    options, members = services.options, services.engine.state.roster.members
    before = members.get(options.lead)
    dead = frozenset[str]() if before is None or before.host is None else dead_hosts(hosts, [before.host])
    lead = MemberSpec(name=check_name(options.lead), role="lead", kind="script", task_limit=None, auto_claim=False)
    await join_plain_member(services.engine, lead, services.host, dead)
    if options.person not in members:
        person = MemberSpec(name=check_name(options.person), role="person", kind="person", auto_claim=False)
        await join_plain_member(services.engine, person, services.host)


async def _close_models(services: Services) -> None:
    """Close the connections; a model that another team also uses opens its own again."""
    with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSING_SECONDS):
        for model in {id(model): model for model in (services.model, *services.models.values())}.values():
            await model.aclose()


async def _say_goodbye(services: Services, views: ViewWriter | None) -> None:
    """Let the last records and views be written once every member has ended."""
    lead = services.engine.state.roster.members[services.options.lead]
    if services.engine.is_open and lead.live:
        await services.engine.submit(ChangeStatus(lead.name, MemberEvent.exited, lead.incarnation, "the team was closed"))
    if views is not None:
        with suppress(OSError):  # they are for people; the next opening writes them anew
            await views.flush()


class _Place(NamedTuple):
    """Where a team lives and works, and by whom it is hosted; no directory for a team in memory."""

    root: Path | None
    name: str
    host: str
    workdir: str | os.PathLike[str] | None

    def within(self, name: str) -> Path | None:
        """Return a path in the team's directory."""
        return None if self.root is None else self.root / name


def _assemble(engine: Engine, place: _Place, options: TeamOptions, model: Model) -> tuple[Services, TeammateManager]:
    def book(agent: str, usage: Usage) -> None:
        manager.book(agent, usage)  # it is made below

    retries = RetryBoard(place.within("hosts"), place.host)

    def tell_retry(notice: GatewayNotice) -> None:
        retry = ModelRetry(notice.agent, notice.message, notice.wait_seconds, notice.attempt + 1, notice.max_attempts)
        events.emit(retry)
        retries.note(notice.agent, until=engine.now + notice.wait_seconds, now=engine.now, text=str(retry))

    waits = WaitGraph(TeamFacts(lambda: engine.state))
    artifacts = ArtifactStore(place.within("artifacts"))
    events = EventHub(options.event_buffer)
    engine.listen(lambda records: tell_watchers(records, events, engine.state))
    engine.refused = lambda error: events.emit(RuntimeNotice("warning", f"a command of the runtime was refused: {error}"))
    gateway = Gateway(
        model,
        options.gateway,
        settle=book,
        on_notice=tell_retry,
    )
    services = Services(
        name=place.name,
        host=place.host,
        options=options,
        engine=engine,
        bus=MessageBus(engine, artifacts, waits, options.bus),
        tasks=TaskManager(engine, waits, options.tasks, author=options.lead),
        waits=waits,
        claimers=Claimers(engine),
        events=events,
        gateway=gateway,
        model=model,
        sessions=SessionStore(place.within("sessions"), wall_clock=lambda: engine.now),
        artifacts=artifacts,
        system_base=options.system_prompt,
    )
    toolsets = Toolsets(services, place.workdir, keep_out=place.root)
    manager = TeammateManager(services, toolsets.dispatcher, place.within("hosts"))
    toolsets.manager = manager
    return services, manager
