"""Requests that wait for somebody's decision, as their deciders meet them.

Laws: a decision is durable when the call returns; it is made once, a repeat changes nothing, another one is AlreadyDecided and says what
was decided; only who was asked can decide.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from protocols.lifecycle import MemberStatus
from protocols.request import Request, RequestKind
from teams.engine import Engine
from teams.errors import UsageError
from teams.options import PlanOptions, ShutdownOptions
from teams.state.request_commands import AnswerRequest, RequestShutdown, SubmitPlan

if TYPE_CHECKING:
    from protocols.plan import Plan

ProtocolState = Literal["idle", "working", "awaiting_shutdown_response", "awaiting_plan_approval", "stopped"]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A plan that waits for a decision of `decider`."""

    id: str
    author: str
    revision: int
    plan: "Plan"
    decider: str
    _engine: Engine

    async def approve(self, feedback: str = "") -> Request:
        """Let the author write.

        Raises: AlreadyDecided, NotTheAnswerer.
        Checkpoints: always; when Cancelled, nothing was decided.
        """
        return await self._engine.submit(AnswerRequest(self.id, self.decider, approved=True, feedback=feedback, revision=self.revision))

    async def reject(self, feedback: str) -> Request:
        """Send the plan back; the author revises it by this feedback.

        Raises: UsageError without feedback; AlreadyDecided, NotTheAnswerer.
        Checkpoints: always; when Cancelled, nothing was decided.
        """
        if not feedback.strip():
            raise UsageError(f"cannot reject plan {self.id} without feedback: say what must change")
        return await self._engine.submit(AnswerRequest(self.id, self.decider, approved=False, feedback=feedback, revision=self.revision))


def plan_request(engine: Engine, request: Request, decider: str) -> PlanRequest:
    """Return a plan's request as its decider meets it."""
    from protocols.plan import Plan  # pydantic costs 0.1 s, and only who meets a plan pays it

    return PlanRequest(request.id, request.subject, request.revision, Plan.model_validate(request.body), decider, engine)


class TeamProtocols:
    """The handshakes by the verbs that people know: shutdown and plan approval, asked and answered by one member."""

    def __init__(self, engine: Engine, *, member: str, plans: PlanOptions, shutdown: ShutdownOptions) -> None:
        self._engine, self._member, self._plans, self._shutdown = engine, member, plans, shutdown

    def state(self, agent: str) -> ProtocolState:
        """Return what a member is doing, as far as the handshakes are concerned."""
        member = self._engine.state.roster.get(agent, operation="look at")
        if member.shutdown_request is not None:
            return "awaiting_shutdown_response"
        if member.status is MemberStatus.awaiting_plan_approval:
            return "awaiting_plan_approval"
        if not member.live:
            return "stopped"
        return "working" if member.status is MemberStatus.working else "idle"

    async def request_shutdown(self, agent: str, reason: str = "", *, force: bool = False) -> Request | None:
        """Ask a member to stop, without waiting for the outcome; None when it does not run.

        Raises: UnknownMember. Checkpoints: always.
        """
        return await self._engine.submit(RequestShutdown(agent, self._member, self._shutdown.answer_seconds, reason, force))

    async def handle_shutdown_response(self, agent: str, approved: bool, message: str = "") -> Request:
        """Answer the open shutdown request of a member that your script itself drives.

        Raises: UsageError when none is open. Checkpoints: always.
        """
        request_id = self._engine.state.roster.get(agent, operation="answer for").shutdown_request
        if request_id is None:
            raise UsageError(f"cannot answer a shutdown for {agent!r}: nobody asked it to stop")
        return await self._engine.submit(AnswerRequest(request_id, agent, approved, message, grace_seconds=self._shutdown.drain_seconds))

    async def request_plan_approval(self, agent_name: str, plan_summary: str, plan_detail: str) -> Request:
        """Submit a plan for a member that your script itself drives; each line of the detail is a step.

        Raises: UsageError, pydantic.ValidationError. Checkpoints: always.
        """
        from protocols.plan import Plan  # as in `plan_request`

        steps = tuple(line for line in plan_detail.splitlines() if line.strip())
        plan = Plan(summary=plan_summary, steps=steps)
        incarnation = self._engine.state.roster.get(agent_name, operation="plan for").incarnation
        options = self._plans
        command = SubmitPlan(
            agent_name, incarnation, plan.model_dump(mode="json"), plan.render(), options.deadline_seconds, options.default_approved
        )
        return await self._engine.submit(command)

    async def handle_plan_response(self, approval_id: str, approved: bool, feedback: str = "") -> Request:
        """Decide a plan.

        Raises: UnknownRequest, AlreadyDecided, NotTheAnswerer. Checkpoints: always.
        """
        return await self._engine.submit(AnswerRequest(approval_id, self._member, approved, feedback))

    def get_pending_approvals(self) -> list[PlanRequest]:
        """Return the plans that wait for this member's decision, oldest first."""
        waiting = self._engine.state.requests.open(kind=RequestKind.plan_approval, answerer=self._member)
        return [plan_request(self._engine, request, self._member) for request in waiting]
