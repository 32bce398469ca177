"""The teammate manager: spawns, watches and stops the members that this process hosts.

Laws:
- Every teammate is a child of the one nursery in `run`; when that ends, none is left.
- A spawn succeeds when the member is ready, and spawning the same one again is the same member.
- The roster follows the child's real end: only the child itself reports it, or a host that knows the child's process to be gone.
- Every shutdown ends: its deadlines belong to `run`, and need no turn of a model.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import trio

from compaction.triggers import Cause
from protocols.lifecycle import MemberEvent, MemberStatus
from protocols.names import RUNTIME
from protocols.plan_step import StepStatus
from protocols.request import Request, RequestKind
from protocols.shutdown import ShutdownState
from teams.errors import SPAWN_AGAIN, MemberStateError
from teams.hosts import dead_hosts
from teams.journal.records import Record
from teams.models.base import Usage
from teams.services import Services
from teams.state.decision import AGENT_KINDS
from teams.state.request_commands import ExpireRequests, RequestShutdown
from teams.state.roster import Member, MemberSpec
from teams.state.roster_commands import ChangeStatus, Join
from teams.state.task_commands import ExpireLeases, RenewLeases
from teams.teammate import Teammate
from teams.tools.base import Tool
from teams.tools.dispatcher import ToolDispatcher

ShutdownVerdict = ShutdownState
MakeDispatcher = Callable[[Sequence[Tool] | None, bool], ToolDispatcher]


@dataclass(frozen=True, slots=True)
class ShutdownOutcome:
    """How a shutdown ended: `stopped`, `stopped_forced`, `rejected` with its reason, or `failed` when the member failed on the way.

    `cancelling` means that it did not end within its grace: a tool of it swallows its cancellation, which nothing in this process can help.
    `handed_back` are the tasks that it owned when it ended, `unread_mail` the ids of its mail that it has not read, `steps` those of its
    approved plan that are not done, with their numbers. `decided_by` is who answered or forced it, `rejected_before` why it rejected
    before, since it last stopped, in that order.
    """

    name: str
    state: str
    reason: str = ""
    handed_back: tuple[int, ...] = ()
    unread_mail: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    decided_by: str = ""
    rejected_before: tuple[str, ...] = ()

    @property
    def unread(self) -> int:
        """How many messages it has not read."""
        return len(self.unread_mail)


class TeammateManager:
    """The members that live in this process.

    Owner: `open_team`, which runs `run` in a nursery.
    """

    def __init__(self, services: Services, make_dispatcher: MakeDispatcher, hosts: Path | None) -> None:
        self._services = services
        self._make_dispatcher = make_dispatcher
        self._hosts = hosts
        self._mates: dict[str, Teammate] = {}
        self._awake: dict[str, Teammate] = {}
        self._to_start: deque[Teammate] = deque()
        self._to_serve: deque[Callable[[], Awaitable[None]]] = deque()
        self._spawning = 0
        self._lot = trio.lowlevel.ParkingLot()
        self._made = trio.lowlevel.ParkingLot()
        self._deadline = trio.CancelScope()
        self._leases_timed = False
        services.engine.listen(self._note)
        services.bus.tell_busy = self._tell_busy

    # -- spawning -----------------------------------------------------------------

    async def spawn(self, spec: MemberSpec, *, tools: Sequence[Tool] | None = None, by: str = RUNTIME) -> Member:
        """Start a member and return it once it is ready; the same spec again is the same member.

        Raises: InvalidName, MemberExists (live under another spec), HostConflict (live in another process).
        Checkpoints: always; when Cancelled, the member may be starting, and spawning it again returns it.
        """
        engine = self._services.engine
        dispatcher = self._make_dispatcher(tools, spec.kind == "lead")
        self._spawning += 1
        try:
            join = Join(spec, self._services.host, by, self.dead_hosts_of(spec.name))
            incarnation, is_new = await engine.submit(join)
            if is_new:
                self._services.bus.reserved.add(spec.name)
                self._mates[spec.name] = Teammate(self._services, spec, incarnation, dispatcher, self._awake)
                self._to_start.append(self._mates[spec.name])
                self._lot.unpark()
                self._made.unpark_all()
        finally:
            self._spawning -= 1
        while (mate := self._mates.get(spec.name)) is None or mate.incarnation < incarnation:
            await self._made.park()  # whoever joined it has its answer too, and makes it in its next step
        await mate.ready.wait()
        if mate.failure is not None and not mate.came_up:
            raise MemberStateError(spec.name, status=f"failed: {mate.failure}", operation="spawn", legal=[SPAWN_AGAIN])
        return engine.state.roster.get(spec.name, operation="spawn")

    def incarnation(self, name: str) -> int:
        """Return the incarnation under which this process hosts a member; raise MemberStateError when it does not."""
        mate = self._mates.get(name)
        if mate is None:
            member = self._services.engine.state.roster.get(name, operation="act as")
            raise MemberStateError(name, status=f"{member.status.value}, not hosted here", operation="act as", legal=["spawn it here"])
        return mate.incarnation

    def asked_before(self, name: str, call_id: str) -> str | None:
        """Return, once, the request that a call of a member's earlier life had made."""
        mate = self._mates.get(name)
        return None if mate is None else mate.asked_before(call_id)

    def want_idle(self, name: str) -> None:
        """End a member's turn at its next tool boundary."""
        mate = self._mates.get(name)
        if mate is not None:
            mate.wants_idle = True

    def want_compaction(self, name: str) -> None:
        """Have a member's context compacted before its next call."""
        mate = self._mates.get(name)
        if mate is not None:
            mate.want_compaction(Cause.ASKED)

    def show_all_mail(self, name: str) -> None:
        """Let a member see at its next tool boundary also the mail that was meant for its next turn."""
        mate = self._mates.get(name)
        if mate is not None:
            mate.wants_all_mail = True

    def book(self, name: str, usage: Usage) -> None:
        """Add what a model call of a member used."""
        mate = self._mates.get(name)
        if mate is not None:
            mate.book(usage)

    def serve(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run something beside the members for as long as they are hosted."""
        self._to_serve.append(work)
        self._lot.unpark()

    def _tell_busy(self, name: str) -> str:
        mate = self._mates.get(name)
        activity = None if mate is None else mate.activity()
        return "" if activity is None else str(activity)

    # -- looking ---------------------------------------------------------------------

    def list_all(self) -> list[Member]:
        """Return every member of the team, in the order in which they joined."""
        return list(self._services.engine.state.roster.members.values())

    def hosted(self) -> Iterable[Teammate]:
        """Iterate over the members that live in this process."""
        return (mate for mate in self._mates.values() if not mate.ended.is_set())

    @property
    def anybody_awake(self) -> bool:
        """Whether a member that lives here works, or is about to look for work."""
        return bool(self._awake)

    @property
    def is_starting(self) -> bool:
        """Whether a spawn is under way."""
        return bool(self._to_start) or self._spawning > 0

    async def join(self, name: str, *, waiter: str | None = None) -> Member:
        """Wait until a member has stopped or failed, and return it.

        Raises: UnknownMember; WaitCycle when it cannot end before `waiter` goes on.
        Checkpoints: always.
        """
        engine = self._services.engine
        engine.state.roster.get(name, operation="join")

        def ended() -> Member | None:
            member = engine.state.roster.members[name]
            return None if member.live else member

        if waiter is None:
            return await engine.wait_until(("member", name), ended)
        with self._services.waits.waiting(waiter, name, kind="join"):
            return await engine.wait_until(("member", name), ended)

    # -- shutting down --------------------------------------------------------------------

    async def shutdown(self, name: str, *, by: str = RUNTIME, reason: str = "", force: bool = False) -> ShutdownOutcome:
        """Ask a member to stop and wait for the outcome, which comes within the grace of `ShutdownOptions`, whatever the member does.

        Raises: UnknownMember.
        Checkpoints: always; when Cancelled, the request stays open and ends by its deadlines.
        """
        services = self._services
        engine = services.engine
        request = await engine.submit(RequestShutdown(name, by, services.options.shutdown.answer_seconds, reason, force))
        if request is None:
            return ShutdownOutcome(name, ShutdownState.stopped.value, "it was not running")
        return self._outcome(await self._wait_ended(request))

    async def _wait_ended(self, request: Request) -> Request:
        """Return the request once it is closed, or still cancelling when the times for that are over."""
        engine, topic = self._services.engine, ("request", request.id)

        def look(*, may_cancel: bool) -> Request | None:
            if request.id not in engine.state.requests:  # closed, and with many others, so that it is not remembered
                return replace(request, state=ShutdownState.stopped)
            now = engine.state.requests.get(request.id)
            return now if now.is_closed or (may_cancel and now.state == ShutdownState.cancelling) else None

        found = await engine.wait_until(topic, lambda: look(may_cancel=True))
        if not found.is_closed:
            with trio.move_on_after(self._services.options.shutdown.end_seconds):
                found = await engine.wait_until(topic, lambda: look(may_cancel=False))
        return found

    def _outcome(self, request: Request) -> ShutdownOutcome:
        state, name, decision = self._services.engine.state, request.subject, request.decision
        member = state.roster.members[name]
        failed = member.status is MemberStatus.failed
        return ShutdownOutcome(
            name,
            member.status.value if failed else str(request.state),
            reason=member.reason if failed else decision.feedback if decision is not None else "",
            handed_back=member.handed_back,
            unread_mail=tuple(state.mail.box(name)),
            steps=tuple(
                f"{number}. {step.text}" for number, (step, status) in enumerate(state.plan_steps(name), 1) if status is not StepStatus.done
            ),
            decided_by=decision.by if decision is not None else "",
            rejected_before=tuple(request.body.get("rejected_before", ())),
        )

    async def shutdown_all(self, *, by: str = RUNTIME, reason: str = "", force: bool = False) -> list[ShutdownOutcome]:
        """Ask every member that lives here to stop, all at once; takes as long as the slowest.

        A member that rejects is stopped by force. Checkpoints: always.
        """
        outcomes: dict[str, ShutdownOutcome] = {}

        async def stop(name: str) -> None:
            outcome = await self.shutdown(name, by=by, reason=reason, force=force)
            if outcome.state == ShutdownState.rejected.value:
                outcome = await self.shutdown(name, by=by, reason=reason, force=True)
            outcomes[name] = outcome

        names = [mate.name for mate in self.hosted()]
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(stop, name)
        return [outcomes[name] for name in names]

    # -- the owner of the children ----------------------------------------------------------

    async def run(self) -> None:
        """Host the members until cancelled."""
        for request in self._services.engine.state.requests.open(kind=RequestKind.shutdown):
            self._follow(request)  # nobody else would end what a dead process had begun to cancel
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_deadlines)
                while True:
                    while self._to_start:
                        nursery.start_soon(self._to_start.popleft().live)
                    while self._to_serve:
                        nursery.start_soon(self._to_serve.popleft())
                    await self._lot.park()
        finally:
            for mate in self._to_start:
                mate.end_unlived()

    async def _keep_deadlines(self) -> None:
        """Let requests expire and leases be renewed at their times; asleep while there is neither."""
        services = self._services
        engine, tasks = services.engine, services.options.tasks
        renew_every = tasks.lease_seconds / tasks.renewals_per_lease
        next_renewal = inf
        while True:
            wall, clock = engine.now, trio.current_time()
            owned = engine.state.tasks.owned
            next_renewal = min(next_renewal, clock + renew_every) if owned else inf
            self._leases_timed = bool(owned)
            due = engine.state.requests.next_deadline()
            with trio.CancelScope(deadline=min(next_renewal, inf if due is None else clock + max(0.0, due - wall))) as self._deadline:
                await trio.sleep_forever()
            due = engine.state.requests.next_deadline()
            if due is not None and due <= engine.now:
                await engine.submit(ExpireRequests())
            if trio.current_time() >= next_renewal:
                next_renewal = inf
                members = engine.state.roster.members
                here = tuple(name for name in owned if members[name].host == services.host)
                await engine.submit(RenewLeases(here, tasks.lease_seconds))
                await engine.submit(ExpireLeases())

    # -- what the journal says -----------------------------------------------------------------

    def _note(self, records: Sequence[Record]) -> None:
        for record in records:
            kind, fields = record.kind, record.fields
            if kind == "mail.sent":
                if fields["priority"] == "now":
                    self._interrupt(fields["to"])
            elif kind == "member.joined":
                mate = self._mates.get(fields["spec"]["name"])
                if mate is not None and mate.incarnation < fields["incarnation"] and mate.scope is not None:
                    mate.scope.cancel()  # another host has taken it over
            elif kind.startswith("request."):
                self._deadline.cancel()
                requests = self._services.engine.state.requests
                if fields["id"] in requests:
                    self._follow(requests.get(fields["id"]))
            elif kind == "task.changed" and not self._leases_timed:
                self._deadline.cancel()

    def _interrupt(self, names: Iterable[str]) -> None:
        for name in names:
            mate = self._mates.get(name)
            if mate is not None:
                mate.interrupt()

    def _follow(self, request: Request) -> None:
        if request.kind is not RequestKind.shutdown or request.is_closed:
            return
        name, services = request.subject, self._services
        mate = self._mates.get(name)
        member = services.engine.state.roster.members[name]
        is_cancelling = request.state == ShutdownState.cancelling
        if mate is not None and not mate.ended.is_set():
            if is_cancelling and mate.scope is not None:
                mate.scope.cancel()
        elif member.host == services.host:
            if member.spec.kind not in AGENT_KINDS and (is_cancelling or request.state == ShutdownState.approved):
                # There is no child whose end could be waited for.
                services.engine.post(ChangeStatus(name, MemberEvent.exited, member.incarnation, "shut down"))
        elif is_cancelling and self.dead_hosts_of(name):
            services.engine.post(ChangeStatus(name, MemberEvent.lost, member.incarnation, "its host is gone"))

    def dead_hosts_of(self, name: str) -> frozenset[str]:
        """Return the host of a member when its process is known to be gone."""
        member = self._services.engine.state.roster.members.get(name)
        if member is None or member.host is None or member.host == self._services.host:
            return frozenset()
        return dead_hosts(self._hosts, [member.host])
