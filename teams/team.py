"""The team as its owner meets it: members, mail, tasks, plans, and the ends of all that.

Laws: the team is built by `teams.opening.open_team`, which owns every child; nothing here holds a nursery; what is returned as a state is
read and never changed.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, cast

import trio

from protocols.lifecycle import MemberEvent, MemberStatus
from protocols.request import Request, RequestKind
from teams.approvals import AnyRequest, PlanRequest, TeamProtocols, request_for
from teams.approvers import Approver, serve_approver
from teams.bus import MessageBus, Receipt
from teams.engine import Engine
from teams.errors import TeamError
from teams.events import Event
from teams.manager import ShutdownOutcome, TeammateManager
from teams.options import MemberOptions
from teams.services import Services
from teams.state.roster import Member, MemberSpec, Spending
from teams.state.roster_commands import AskCompaction, ChangeStatus, Join
from teams.state.team_state import TeamState
from teams.tasks import TaskManager
from teams.tools.base import Tool
from teams.topics import ANYTHING

DEFAULT_MEMBER = MemberOptions()
RequestT = TypeVar("RequestT", bound=AnyRequest)


@dataclass(frozen=True, slots=True)
class Quiescence:
    """What a team came to when nothing moved any more.

    `stalled` says why nothing moves although something is open: tasks by id with the reason. Empty when all is done. `failures` are the
    members that have failed, with the reason.
    """

    completed: tuple[int, ...]
    failed: tuple[int, ...]
    cancelled: tuple[int, ...]
    stalled: dict[int, str]
    members: dict[str, str]
    failures: dict[str, str] = field(default_factory=dict[str, str])

    def raise_for_failures(self) -> None:
        """Raise TeamError when a member has failed, with its reason."""
        if self.failures:
            raise TeamError("; ".join(f"{name} has failed: {reason}" for name, reason in self.failures.items()))

    @property
    def all_done(self) -> bool:
        """Whether every task is completed."""
        return not (self.failed or self.cancelled or self.stalled)


class Team:
    """A running team; built by `open_team`."""

    def __init__(self, services: Services, manager: TeammateManager, directory: Path | None) -> None:
        self._services, self.manager = services, manager
        self.directory = directory
        self.name = services.name
        self.bus: MessageBus = services.bus
        self.tasks: TaskManager = services.tasks
        options = services.options
        self.protocols = TeamProtocols(services.engine, member=options.lead, plans=options.plans, shutdown=options.shutdown)

    # -- members ----------------------------------------------------------------------

    async def spawn(
        self,
        name: str,
        role: str = "teammate",
        prompt: str = "",
        *,
        tools: Sequence[Tool] | None = None,
        plan: str = "none",
        lead: bool = False,
        options: MemberOptions = DEFAULT_MEMBER,
    ) -> "Teammate":
        """Start a teammate and return once it is ready; spawning the same one again returns it.

        Args:
            prompt: its first message; it is mail, so it survives a crash.
            tools: what it can do besides working with the team; the default tools over the team's work directory when None.
            plan: `required` lets it write only under an approved plan; `none` does not.
            lead: gives it the tools of a lead.
            options: who approves its plans, which tasks it takes, its own model.

        Raises: InvalidName, MemberExists, HostConflict, ValueError.
        Checkpoints: always; when Cancelled, it may be starting; spawn it again.
        """
        if plan not in ("none", "required"):
            raise ValueError(f"plan must be 'none' or 'required', not {plan!r}")
        team, model = self._services.options, options.model
        if model is not None:
            self._services.models[name] = model
        stages = options.stages((team.lead, team.person), name)
        spec = MemberSpec(
            name=name,
            role=role,
            kind="lead" if lead else "teammate",
            prompt=prompt,
            model=model.name if model is not None else None,
            plan_required=plan == "required",
            approvers=tuple(dict.fromkeys(approver for stage in stages for approver in stage.answerers)),
            approval=stages if options.approval else (),
            steps_as_tasks=team.plans.steps_as_tasks,
            capabilities=tuple(dict.fromkeys([*options.capabilities, role])),
            task_limit=options.task_limit,
            auto_claim=options.auto_claim and not lead,
            max_revisions=team.plans.max_revisions,
        )
        await self.manager.spawn(spec, tools=tools, by=team.lead)
        return Teammate(self, name)

    def member(self, name: str) -> "Teammate":
        """Return a handle on a member; raise UnknownMember."""
        self._services.engine.state.roster.get(name, operation="find")
        return Teammate(self, name)

    async def add_member(
        self,
        name: str,
        role: str = "script",
        *,
        capabilities: Sequence[str] = (),
        task_limit: int | None = None,
        approvers: Sequence[str] | None = None,
    ) -> Member:
        """Add a member that your own code drives: it sends, receives, claims and plans by calls of yours.

        `approvers` decide its plans; the script's member and the person when None.

        Raises: InvalidName, MemberExists, HostConflict.
        Checkpoints: always.
        """
        options = self._services.options
        spec = MemberSpec(
            name=name,
            role=role,
            kind="script",
            capabilities=tuple(dict.fromkeys([*capabilities, role])),
            task_limit=task_limit,
            approvers=tuple(one for one in (approvers or (options.lead, options.person)) if one != name),
        )
        await join_plain_member(self._services.engine, spec, self._services.host, self.manager.dead_hosts_of(name))
        return self._services.engine.state.roster.get(name, operation="find")

    async def add_approver(self, name: str, approver: Approver) -> None:
        """Add a member that decides by code what its name is asked; `MemberOptions(approval=(name, ...))` has it asked.

        Args:
            approver: is given each request and decides by its methods, such as `request.approve()`; what it leaves undecided goes to the
                next of the chain. `rule_list` and `at_terminal` make one.

        Raises: InvalidName, MemberExists, HostConflict.
        Checkpoints: always.
        """
        services = self._services
        await self.add_member(name, "approver")
        self.manager.serve(partial(serve_approver, name, approver, services.engine, services.events))

    @property
    def members(self) -> list[Member]:
        """Every member that ever joined, in that order."""
        return self.manager.list_all()

    @property
    def spending(self) -> dict[str, Spending]:
        """What each member has used, in tokens; up to its last ended turn."""
        return dict(self._services.engine.state.roster.spending)

    # -- mail, as the script's own member ---------------------------------------------------

    async def send(self, to: str, content: str, **options: Any) -> Receipt:
        """Send mail as the script's member; see `MessageBus.send`."""
        return await self.bus.send(self._services.options.lead, to, content, **options)

    async def broadcast(self, content: str, **options: Any) -> tuple[Receipt, ...]:
        """Send mail to all as the script's member; see `MessageBus.broadcast`."""
        return await self.bus.broadcast(self._services.options.lead, content, **options)

    # -- plans ---------------------------------------------------------------------------------

    def plan_requests(self) -> "PlanRequests":
        """Iterate over the plans that wait for this script's decision, as they come, until the team is quiescent."""
        return PlanRequests(self, self._services.engine, self._services.options.lead)

    def requests(self) -> "Requests":
        """Iterate over all that waits for this script's decision (plans, permissions, questions), until the team is quiescent."""
        return Requests(self, self._services.engine, self._services.options.lead)

    # -- ends ------------------------------------------------------------------------------------

    async def compact(self, name: str) -> None:
        """Have a member's context compacted before its next call of the model.

        Raises: UnknownMember, MemberStateError, UsageError.
        Checkpoints: always.
        """
        await self._services.engine.submit(AskCompaction(name, self._services.options.lead))

    async def shutdown(self, name: str, *, reason: str = "", force: bool = False) -> ShutdownOutcome:
        """Ask a member to stop and wait for the outcome; see `TeammateManager.shutdown`."""
        return await self.manager.shutdown(name, by=self._services.options.lead, reason=reason, force=force)

    async def shutdown_all(self, *, reason: str = "", force: bool = False) -> list[ShutdownOutcome]:
        """Ask every member to stop, all at once."""
        return await self.manager.shutdown_all(by=self._services.options.lead, reason=reason, force=force)

    async def wait_quiescent(self) -> Quiescence:
        """Wait until nothing moves any more: no turn, no undelivered mail, no task that could be claimed, no open request.

        Checkpoints: always. What it returns was true in one step.
        """
        await self._services.engine.wait_until(ANYTHING, lambda: self.is_quiescent or None)
        return self._outcome()

    @property
    def is_quiescent(self) -> bool:
        """Whether nothing moves, nor will by itself."""
        services = self._services
        state = services.engine.state
        if not services.engine.is_settled or self.manager.is_starting or self.manager.anybody_awake:
            return False
        for mate in self.manager.hosted():
            if services.bus.has_mail(mate.name) or mate.can_claim():
                return False
        return not any(request.is_undecided or request.kind is RequestKind.shutdown for request in state.requests.open())

    def _outcome(self) -> Quiescence:
        state = self._services.engine.state
        by_status: dict[str, list[int]] = {}
        stalled: dict[int, str] = {}
        for task in self.tasks.list_all():
            by_status.setdefault(task.status.value, []).append(task.id)
            if task.owner is not None:
                stalled[task.id] = f"{task.owner} owns it and is {state.roster.members[task.owner].status.value}"
            elif task.status.value == "pending":
                blockers = state.tasks.blocked_by(task.id)
                stalled[task.id] = f"blocked by {', '.join(map(str, blockers))}" if blockers else _why_unclaimed(state, task.id)
        return Quiescence(
            tuple(by_status.get("completed", ())),
            tuple(by_status.get("failed", ())),
            tuple(by_status.get("cancelled", ())),
            stalled,
            {member.name: member.status.value for member in state.roster.members.values()},
            {member.name: member.reason for member in state.roster.members.values() if member.status is MemberStatus.failed},
        )

    # -- watching ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def events(self, *, buffer: int | None = None) -> AsyncGenerator[trio.MemoryReceiveChannel[Event]]:
        """Receive everything that happens from now on; a watcher that is too slow loses events and is told how many."""
        async with self._services.events.watch(buffer) as stream:
            yield stream

    @property
    def state(self) -> TeamState:
        """The team's state as of the last commit; read it, never change it."""
        return self._services.engine.state


@dataclass(frozen=True, slots=True)
class Teammate:
    """A handle on a member: its name and the team's verbs for it."""

    team: Team
    name: str

    @property
    def status(self) -> MemberStatus:
        """What it is doing."""
        return self.team.state.roster.members[self.name].status

    async def send(self, content: str, **options: Any) -> Receipt:
        """Send it mail as the script's member."""
        return await self.team.send(self.name, content, **options)

    async def shutdown(self, *, reason: str = "", force: bool = False) -> ShutdownOutcome:
        """Ask it to stop and wait for the outcome."""
        return await self.team.shutdown(self.name, reason=reason, force=force)

    async def join(self) -> Member:
        """Wait until it has stopped or failed."""
        return await self.team.manager.join(self.name)


class _Asked(Generic[RequestT]):
    """What waits for one decider, each revision once; ends when the team is quiescent."""

    kind: RequestKind | None = None

    def __init__(self, team: Team, engine: Engine, decider: str) -> None:
        self._team, self._engine, self._decider = team, engine, decider
        self._given: set[tuple[str, int]] = set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RequestT:
        found: Request | bool = await self._engine.wait_until(ANYTHING, self._look)
        if isinstance(found, bool):
            raise StopAsyncIteration
        self._given.add((found.id, found.revision))
        return cast("RequestT", request_for(self._engine, found, self._decider))

    def _look(self) -> Request | bool | None:
        for request in self._engine.state.requests.open(kind=self.kind, answerer=self._decider):
            if (request.id, request.revision) not in self._given and request.kind is not RequestKind.shutdown:
                return request
        return True if self._team.is_quiescent else None


class PlanRequests(_Asked[PlanRequest]):
    """The plans that wait for one decider."""

    kind = RequestKind.plan_approval


class Requests(_Asked[AnyRequest]):
    """The plans, permissions and questions that wait for one decider."""


async def join_plain_member(engine: Engine, spec: MemberSpec, host: str, dead: frozenset[str] = frozenset()) -> None:
    """Put a member on the roster that no model drives, and make it ready."""
    incarnation, is_new = await engine.submit(Join(spec, host, dead_hosts=dead))
    if is_new:
        await engine.submit(ChangeStatus(spec.name, MemberEvent.ready, incarnation))


def _why_unclaimed(state: TeamState, task_id: int) -> str:
    task = state.tasks.by_id[task_id]
    if task.assignee is not None:
        return f"meant for {task.assignee}, who is {state.roster.members[task.assignee].status.value}"
    return f"nobody idle has {', '.join(sorted(task.needs))}" if task.needs else "nobody is idle and claims by itself"
