"""One teammate's life in this process: work, idle, work, and an end.

Laws:
- The look at the mailbox and the decision to sleep are one step: no checkpoint lies between them, and every wake-up looks again.
- No turn without news: mail, a claimed task, an answer that is still owed after a crash.
- Mail is committed after the transcript that holds it is on disk.
- However the life ends, its end is written to the journal, with the tasks handed back.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import trio

from compaction.compactor import Around
from compaction.state import StateDigest
from compaction.transcript import Block
from compaction.triggers import Cause
from compaction.view import View
from protocols.errors import ProtocolError
from protocols.lifecycle import MemberEvent, MemberStatus
from protocols.shutdown import ShutdownEvent, ShutdownState
from teams.bus import message_of
from teams.events import RuntimeNotice, SessionLarge
from teams.gate import CallGate
from teams.loop import Activity, AgentConfig, AgentLoop
from teams.models.base import Usage
from teams.prompts import situation, state_digest, system_prompt
from teams.services import Services
from teams.state.decision import AGENT_KINDS
from teams.state.mail_commands import CommitMail, TellMember
from teams.state.mailboxes import Mail
from teams.state.request_commands import AdvanceRequest, AnswerRequest
from teams.state.roster import Member, MemberSpec
from teams.state.roster_commands import ChangeStatus, Compacted, EndTurn, StartTurn
from teams.surroundings import Surroundings
from teams.tools.base import Tool, ToolCall
from teams.tools.dispatcher import ToolDispatcher, Verdict


class Teammate(Surroundings):
    """One hosted member; made by the manager, which runs `live` in its nursery."""

    def __init__(
        self, services: Services, spec: MemberSpec, incarnation: int, dispatcher: ToolDispatcher, awake: dict[str, "Teammate"]
    ) -> None:
        self.name, self.spec, self.incarnation = spec.name, spec, incarnation
        self._awake = awake  # everybody who does not sleep; whether a team is at rest must not cost a look at each member
        awake[self.name] = self
        self.wants_idle = self.wants_all_mail = False
        self.scope: trio.CancelScope | None = None
        self.ready = trio.Event()  # it can take mail, or has failed to come up
        self.ended = trio.Event()
        self.failure: str | None = None
        self.came_up = False
        self._services = services
        self._dispatcher = dispatcher
        self._call_gate = CallGate(services, spec, incarnation)
        self._view: View | None = None
        self._loop: AgentLoop | None = None
        self._owes_answer = False
        self._in_turn: list[Mail] = []
        self._used = Usage()
        self._calls = 0
        self._turns = 0
        self._compaction: Cause | None = None
        self._warned_of_size = False
        self._reminders: dict[tuple[tuple[int, int], ...], tuple[int, int]] = {}

    # -- the life --------------------------------------------------------------

    async def live(self) -> None:
        """Live until the member is shut down, cancelled or fails.

        Checkpoints: always; when Cancelled, the end is queued for the journal, which writes it before the team is closed.
        """
        engine = self._services.engine
        event, reason = MemberEvent.exited, "the team was closed"
        try:
            with trio.CancelScope() as self.scope:
                await self._restore()
                engine.post(ChangeStatus(self.name, MemberEvent.ready, self.incarnation))
                if self._waits_for_plan():  # which an earlier life had submitted
                    engine.post(ChangeStatus(self.name, MemberEvent.plan_submitted, self.incarnation))
                self.came_up = True
                self.ready.set()
                await self._work_and_idle()
                reason = "shut down"
            if self.scope.cancelled_caught:
                reason = "stopped by force"
        except Exception as error:  # noqa: BLE001  # the boundary of a turn: one member fails, the team goes on
            event, reason = MemberEvent.crashed, f"{type(error).__name__}: {error}"
            self.failure = reason
            self._services.events.emit(RuntimeNotice("error", f"{self.name} failed: {reason}", self.name))
        finally:
            if engine.is_open:
                self._book_interrupted_turn()
                engine.post(ChangeStatus(self.name, event, self.incarnation, reason))
                if self.failure is not None:
                    self._tell_leads(f"{self.name} has failed ({self.failure}); its tasks are handed back. It can be spawned again.")
            self._services.bus.give_back(self.name, self._in_turn)  # a next life commits what its transcript holds, and reads the rest
            if self._awake.get(self.name) is self:
                del self._awake[self.name]
            engine.notify(_SOMEBODY_PARKED)
            self.ended.set()
            self.ready.set()

    def end_unlived(self) -> None:
        """Write the end of a member whose life had not begun when its team ended."""
        if self._services.engine.is_open:
            self._services.engine.post(ChangeStatus(self.name, MemberEvent.exited, self.incarnation, "the team was closed"))
        self.ended.set()
        self.ready.set()

    async def _restore(self) -> None:
        """Take up the transcript of an earlier life: what it holds was injected, and what it owes is owed."""
        services = self._services
        loaded = await services.sessions.load(self.name) if services.sessions.exists(self.name) else None
        if loaded is None:
            self._call_gate.take_up(())
            return
        unread = services.engine.state.mail.box(self.name)
        injected = tuple(message_id for message_id in unread if message_id in loaded.mail_ids)
        if injected:
            await services.engine.submit(CommitMail(self.name, injected, self.incarnation))
        for line, damage in loaded.damaged:
            services.events.emit(
                RuntimeNotice("warning", f"line {line} of the transcript of {self.name} was left out: {damage}", self.name)
            )
        self._view = loaded.view
        agent = self._agent()
        self._owes_answer = agent.repair_after_crash(self._call_gate.take_up(agent.open_calls()))

    async def _work_and_idle(self) -> None:
        services = self._services
        engine, topic = services.engine, ("member", self.name)
        while True:
            member = engine.state.roster.members[self.name]
            if member.shutdown_request is not None:
                if await self._heed_shutdown(member):
                    return
            elif self._owes_answer or services.bus.has_mail(self.name):
                await self._turn()
            elif self.can_claim():
                await services.tasks.claim_next(self.name, announce=True, incarnation=self.incarnation)
            else:
                self._remind()
                del self._awake[self.name]
                if self._may_claim():
                    services.claimers.add(self.name, frozenset(self.spec.capabilities))
                engine.notify(_SOMEBODY_PARKED)
                try:
                    await engine.park(topic)
                finally:
                    self._awake[self.name] = self
                    services.claimers.discard(self.name)

    async def _turn(self) -> None:
        services = self._services
        engine = services.engine
        if engine.state.roster.members[self.name].status is not MemberStatus.working:
            engine.post(StartTurn(self.name, self.incarnation))
        agent = self._agent()
        owed, self._owes_answer = self._owes_answer, False
        blocks: list[Block] = [] if owed else self._news(first=not len(agent.view))
        await agent.run(blocks, mail=[mail.id for mail in self._in_turn])
        self.wants_idle = False
        self._turns += 1
        self._look_at_size()
        read, self._in_turn = self._in_turn, []
        await engine.submit(self._end_of_turn(read))

    def _look_at_size(self) -> None:
        """Say once that the transcript has grown over the size at which it is worth a fork."""
        services = self._services
        size = services.sessions.size_bytes(self.name)
        if size > services.options.compaction.session_warn_bytes and not self._warned_of_size:
            self._warned_of_size = True
            services.events.emit(SessionLarge(self.name, size, services.sessions.path(self.name)))

    def _end_of_turn(self, read: Sequence[Mail], *, rests: bool = True) -> EndTurn:
        used, calls = self._used, self._calls
        ids = [mail.id for mail in read]
        self._used, self._calls = Usage(), 0
        figures = (used.input_tokens, used.output_tokens, used.cache_creation_input_tokens, used.cache_read_input_tokens, calls)
        return EndTurn(self.name, self.incarnation, figures, ids, rests)

    def _book_interrupted_turn(self) -> None:
        # Mail of an unfinished turn stays uncommitted: whether its line is on disk shows when the transcript is next opened.
        if self._calls:
            self._services.engine.post(self._end_of_turn([], rests=False))

    def _agent(self) -> AgentLoop:
        if self._loop is None:
            services, spec = self._services, self.spec
            config = AgentConfig(
                model=services.models.get(self.name, services.model),
                system_prompt=system_prompt(spec, services.name, services.system_base),
                name=self.name,
                options=services.options.agents,
                compaction=services.options.compaction,
            )
            self._loop = AgentLoop(
                config,
                self._dispatcher,
                gateway=services.gateway,
                view=self._view,
                log=services.sessions.log(self.name),
                surroundings=self,
                events=services.events,
            )
            self._view = None
        return self._loop

    # -- news --------------------------------------------------------------------

    def _news(self, *, first: bool) -> list[Block]:
        services = self._services
        mails = services.bus.take_nowait(self.name, at_turn=True)
        self._in_turn += mails
        blocks = self._shown(mails)
        if first:
            state = services.engine.state
            blocks.append({"type": "text", "text": situation(state.roster.members[self.name], state)})
        return blocks

    def _shown(self, mails: Sequence[Mail]) -> list[Block]:
        from protocols.messages import render_envelope  # brings pydantic, 0.1 s, which a team that only waits does not need

        return [{"type": "text", "text": render_envelope(message_of(mail, self.name))} for mail in mails]

    def can_claim(self) -> bool:
        """Tell whether the member would take a task now by itself."""
        spec, state = self.spec, self._services.engine.state
        held = len(state.tasks.owned.get(self.name, ()))
        if not state.tasks.ready or not self._may_claim() or (spec.task_limit is not None and held >= spec.task_limit):
            return False
        return next(iter(state.tasks.claimable(frozenset(spec.capabilities), self.name)), None) is not None

    def _may_claim(self) -> bool:
        """Tell whether the member takes tasks by itself: not while its plan waits, for it could not work on them."""
        return self.spec.auto_claim and not self._waits_for_plan()

    def _waits_for_plan(self) -> bool:
        state = self._services.engine.state
        plan = state.roster.members[self.name].plan_request
        return plan is not None and state.requests.get(plan).is_undecided

    def _remind(self) -> None:
        """Ask once about a task that a turn left unfinished; when that turn left it too, tell those who lead."""
        state = self._services.engine.state
        member = state.roster.members[self.name]
        held = tuple((task_id, state.tasks.by_id[task_id].fence) for task_id in state.tasks.owned.get(self.name, ()))
        if not held or member.plan_request is not None or member.status is not MemberStatus.idle:
            return
        ids = ", ".join(str(task_id) for task_id, _ in held)
        stage, since = self._reminders.get(held, (0, -1))
        if stage == 2 or since == self._turns:
            return
        self._reminders = {held: (stage + 1, self._turns)}
        if stage == 0:
            text = f"You still own task {ids}. Complete it, fail it with a reason, or go on; if you wait for somebody, just end your turn."
            self._services.engine.post(TellMember(self.name, text))
        else:
            report = f"{self.name} is idle and still owns task {ids}, although it was asked about it."
            self._services.events.emit(RuntimeNotice("warning", report, self.name))
            self._tell_leads(report)

    def _tell_leads(self, text: str) -> None:
        """Send a notice to the agents that decide this member's plans, and to every agent that leads."""
        roster, engine = self._services.engine.state.roster, self._services.engine
        leads = [member.name for member in roster.live() if member.spec.kind == "lead"]
        for reader in dict.fromkeys([*self.spec.approvers, *leads]):
            member = roster.members.get(reader)
            if reader != self.name and member is not None and member.spec.kind in AGENT_KINDS:
                engine.post(TellMember(reader, text))

    # -- what the agent loop asks ---------------------------------------------------

    def take_mail(self) -> tuple[list[Block], Sequence[str]]:
        """Return the mail that is due at a tool boundary; none when the member is to stop."""
        if self.must_stop():
            return [], ()
        mails = self._services.bus.take_nowait(self.name, at_turn=self.wants_all_mail)
        self.wants_all_mail = False
        if not mails:
            return [], ()
        self._in_turn += mails
        return self._shown(mails), [mail.id for mail in mails]

    def must_stop(self) -> bool:
        """Tell whether the turn must end: the member said so, or is being shut down."""
        if self.wants_idle:
            return True
        state = self._services.engine.state
        request_id = state.roster.members[self.name].shutdown_request
        return request_id is not None and state.requests.get(request_id).state in _STOPPING

    def is_called(self) -> bool:
        """Tell whether mail of priority `now` waits."""
        return not self.must_stop() and self._services.bus.urgent(self.name) is not None

    def around(self) -> Around:
        """Return what the member's compactor is given: what the team knows of it, the clock, the owner's hooks."""
        services = self._services
        hooks = services.options.compaction_hooks
        around = Around(state=self._state, clock=trio.current_time, user_speaks=False)
        if hooks.pre_compact is None and hooks.post_compact is None:
            return around
        from teams.compacting import Hooks  # what a team without hooks does not need

        run = Hooks(hooks, self.name, services.events)
        return replace(around, pre_compact=run.before, post_compact=run.after)

    def _state(self) -> StateDigest:
        state = self._services.engine.state
        return state_digest(state.roster.members[self.name], state)

    def take_compaction(self) -> Cause | None:
        """Return why the context shall be compacted: somebody asked, in this process or another, or a step of the work is done."""
        cause, self._compaction = self._compaction, None
        engine = self._services.engine
        if self.name in engine.state.roster.compactions:
            engine.post(Compacted(self.name, self.incarnation))
            return Cause.ASKED
        return cause

    def want_compaction(self, cause: Cause) -> None:
        """Have the context compacted before the next call."""
        self._compaction = cause

    def gate(self, tool: Tool, call: ToolCall) -> Verdict:
        """Let a call pass, refuse it, or wait for a permission; a step that is done is a place to compact at."""
        if tool.name == "task_complete" or (tool.name == "plan_step" and call.input.get("status") == "done"):
            self._compaction = self._compaction or Cause.STEP_BOUNDARY
        return self._call_gate(tool, call)

    def asked_before(self, call_id: str) -> str | None:
        """Return, once, the request that a call of an earlier life had made."""
        return self._call_gate.asked_before(call_id)

    # -- being told ---------------------------------------------------------------------

    def interrupt(self) -> None:
        """Let the running model call or tools be cut short, for mail of priority `now`."""
        if self._loop is not None:
            self._loop.interrupt()

    def activity(self) -> Activity | None:
        """Tell what runs now."""
        return None if self._loop is None else self._loop.activity()

    def book(self, usage: Usage) -> None:
        """Add what one model call used."""
        self._used, self._calls = self._used + usage, self._calls + 1

    async def _heed_shutdown(self, member: Member) -> bool:
        """Answer by policy where nobody else did, and tell whether the life ends now."""
        engine = self._services.engine
        assert member.shutdown_request is not None
        request = engine.state.requests.get(member.shutdown_request)
        if request.state == ShutdownState.requested:
            if self._owes_answer or self._services.bus.has_mail(self.name):
                await self._turn()  # the request itself may be in the mail: the model may reject it
                return False
            grace = self._services.options.shutdown.drain_seconds
            with suppress(ProtocolError):  # its deadline passed, or somebody forced it, in the same step: the next look shows what holds
                await engine.submit(AnswerRequest(request.id, self.name, approved=True, feedback="idle", grace_seconds=grace))
            return False
        if request.state == ShutdownState.approved:
            engine.post(AdvanceRequest(request.id, ShutdownEvent.drained))
            return True
        return request.state in _STOPPING


_STOPPING = frozenset({ShutdownState.approved, ShutdownState.drained, ShutdownState.cancelling, ShutdownState.expired})
_SOMEBODY_PARKED = [("any", "")]
