"""Requests that wait for somebody's decision, as their deciders meet them.

Laws: a decision is durable when the call returns; it is made once, a repeat changes nothing, another one is AlreadyDecided and says what
was decided; only who was asked can decide.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from protocols.contract import Reach
from protocols.lifecycle import MemberStatus
from protocols.plan_text import plan_changes
from protocols.request import Request, RequestKind
from teams.engine import Engine
from teams.errors import UsageError
from teams.options import PlanOptions, ShutdownOptions
from teams.state.permission_commands import AnswerPermission
from teams.state.plan_commands import SubmitPlan
from teams.state.request_commands import AdvanceRequest, AnswerRequest, RequestShutdown

if TYPE_CHECKING:
    from protocols.plan import Plan

ASKED_TO_STOP = "you are asked to shut down: answer that first; the request is withdrawn"
ProtocolState = Literal["idle", "working", "awaiting_shutdown_response", "awaiting_plan_approval", "stopped"]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A plan that waits for a decision of `decider`; `changes` is what it changes of the revision before, a line each."""

    id: str
    author: str
    revision: int
    plan: "Plan"
    decider: str
    changes: tuple[str, ...]
    _engine: Engine

    @property
    def kind(self) -> Literal["plan"]:
        """What is asked for."""
        return "plan"

    async def approve(self, feedback: str = "") -> Request:
        """Let the author write what the plan names.

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


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A call of a tool that waits for a decision of `decider`.

    `body` has `tool`, `input` (long arguments cut, then `artifact` names the whole), and in words `what` the call is and `why` it asks.
    """

    id: str
    author: str
    body: Mapping[str, Any]
    decider: str
    _engine: Engine

    @property
    def kind(self) -> Literal["permission"]:
        """What is asked for."""
        return "permission"

    @property
    def what(self) -> str:
        """The call in a few words."""
        return str(self.body["what"])

    @property
    def why(self) -> str:
        """Why it may not run without a permission."""
        return str(self.body["why"])

    @property
    def reach(self) -> Reach:
        """What the call names, for rules."""
        paths = tuple(None if parts is None else tuple(parts) for parts in self.body.get("paths", ()))
        return Reach(str(self.body["tool"]), paths, self.body.get("command"))

    async def approve(self, feedback: str = "", *, always: bool = False, alike: bool = False) -> Request:
        """Let the call run, once.

        Args:
            always: also adds the rule that this member may always make this very call.
            alike: decides every open request for the same call with the same input with it.

        Raises: AlreadyDecided, NotTheAnswerer, UsageError.
        Checkpoints: always; when Cancelled, nothing was decided.
        """
        return (await self._engine.submit(AnswerPermission(self.id, self.decider, True, feedback, alike, always)))[0]

    async def reject(self, feedback: str = "", *, alike: bool = False) -> Request:
        """Refuse the call; the agent reads the feedback.

        Raises: AlreadyDecided, NotTheAnswerer. Checkpoints: always; when Cancelled, nothing was decided.
        """
        return (await self._engine.submit(AnswerPermission(self.id, self.decider, False, feedback, alike)))[0]


@dataclass(frozen=True, slots=True)
class QuestionRequest:
    """A question that waits for the answer of `decider`."""

    id: str
    author: str
    question: str
    decider: str
    _engine: Engine

    @property
    def kind(self) -> Literal["question"]:
        """What is asked for."""
        return "question"

    async def answer(self, text: str) -> Request:
        """Answer; the agent goes on with it.

        Raises: UsageError for a blank answer; AlreadyDecided, NotTheAnswerer. Checkpoints: always; when Cancelled, nothing was said.
        """
        if not text.strip():
            raise UsageError(f"cannot answer {self.id} with nothing; decline it, or say something")
        return await self._engine.submit(AnswerRequest(self.id, self.decider, approved=True, feedback=text))

    async def decline(self, reason: str = "") -> Request:
        """Give no answer.

        Raises: AlreadyDecided, NotTheAnswerer. Checkpoints: always; when Cancelled, nothing was said.
        """
        return await self._engine.submit(AnswerRequest(self.id, self.decider, approved=False, feedback=reason))


AnyRequest = PlanRequest | PermissionRequest | QuestionRequest


async def wait_decision(engine: Engine, request_id: str, member: str) -> Request:
    """Wait until a request of a member is decided, or the member is asked to shut down: then it is returned undecided.

    Checkpoints: always; when Cancelled, nothing has changed.
    """

    def over() -> Request | None:
        request, stop = engine.state.requests.get(request_id), engine.state.roster.members[member].shutdown_request
        return None if request.is_undecided and stop is None else request

    return await engine.wait_until(("member", member), over)


def withdraw(engine: Engine, request_id: str) -> None:
    """Take back a permission or a question for which nobody waits any more; nothing happens when it has ended."""
    requests = engine.state.requests
    if engine.is_open and request_id in requests and not requests.get(request_id).is_closed:
        engine.post(AdvanceRequest(request_id, "withdraw", requests.get(request_id).asker))


def plan_request(engine: Engine, request: Request, decider: str) -> PlanRequest:
    """Return a plan's request as its decider meets it."""
    from protocols.plan import Plan  # pydantic costs 0.1 s, and only who meets a plan pays it

    changes = plan_changes(request.body_before, request.body) if request.body_before is not None else ()
    return PlanRequest(request.id, request.subject, request.revision, Plan.model_validate(request.body), decider, changes, engine)


def request_for(engine: Engine, request: Request, decider: str) -> AnyRequest:
    """Return a request as its decider meets it."""
    if request.kind is RequestKind.plan_approval:
        return plan_request(engine, request, decider)
    if request.kind is RequestKind.permission:
        return PermissionRequest(request.id, request.asker, dict(request.body), decider, engine)
    return QuestionRequest(request.id, request.asker, str(request.body.get("question", "")), decider, engine)


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
        command = SubmitPlan(agent_name, incarnation, plan.model_dump(mode="json"), options.deadline_seconds, options.default_approved)
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
