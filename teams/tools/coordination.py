"""The tools by which agents work together: mail, tasks, handshakes, and for a lead the team itself.

Laws: who calls is known from the context that the runtime makes, never from an argument; a tool that refuses says why in words for a model;
none of these touches the work directory, so the plan gate lets them pass (`COORDINATION` names them); what other members wrote is escaped.
"""

from collections.abc import Sequence
from typing import Literal

from protocols.envelope import escape_text
from protocols.request import RequestKind
from protocols.task_status import BlockerPolicy
from teams.bus import MessageBus
from teams.engine import Engine
from teams.options import ShutdownOptions
from teams.state.permission_commands import AnswerPermission
from teams.state.request_commands import AnswerRequest
from teams.state.roster_commands import PinNote
from teams.state.task_commands import CreateTask
from teams.task_graph import describe
from teams.tasks import TaskManager
from teams.tools.base import Tool, ToolContext, ToolError, tool
from teams.tools.explaining import explained
from teams.tools.team_door import TeamDoor

COORDINATION = frozenset(
    {
        "ask_teammate",
        "ask_user",
        "broadcast",
        "compact",
        "idle",
        "list_teammates",
        "note",
        "plan_step",
        "recall",
        "request_shutdown",
        "review_permission",
        "review_plan",
        "send_message",
        "shutdown_response",
        "spawn_teammate",
        "submit_plan",
        "task_claim",
        "task_complete",
        "task_create",
        "task_fail",
        "task_get",
        "task_list",
        "wait",
    }
)


def teammate_tools(engine: Engine, bus: MessageBus, tasks: TaskManager, door: TeamDoor, shutdown: ShutdownOptions) -> list[Tool]:
    """Make the tools of a teammate; they serve every member of the team."""
    return [
        *_mail_tools(bus, door),
        *_graph_tools(engine, tasks),
        *_work_tools(tasks, door),
        *_reviewing_tools(engine, bus, door),
        *_protocol_tools(engine, door, shutdown),
    ]


def lead_tools(engine: Engine, bus: MessageBus, door: TeamDoor) -> list[Tool]:
    """Make the tools that only a lead has."""
    return [*_crew_tools(engine, door), *_leading_tools(bus)]


def _crew_tools(engine: Engine, door: TeamDoor) -> list[Tool]:
    @tool(effect="writes")
    async def spawn_teammate(context: ToolContext, name: str, role: str, prompt: str, plan_required: bool = False) -> str:
        """Start a teammate. Spawning the same one again changes nothing.

        Args:
            name: letters, digits, _ and -.
            role: what it is, in a few words.
            prompt: its first message: everything it must know.
            plan_required: whether it needs your approval of a plan before it may write.
        """
        with explained():
            return await door.spawn_by_agent(context.agent, name, role, prompt, plan_required)

    @tool(effect="reads")
    async def list_teammates() -> str:
        """List the members of the team with their roles, status and open tasks."""
        state = engine.state
        lines: list[str] = []
        for member in state.roster.members.values():
            held = ", ".join(str(task_id) for task_id in state.tasks.owned.get(member.name, ()))
            lines.append(f"{member.name} ({escape_text(member.spec.role)}): {member.status.value}{f', task {held}' if held else ''}")
        return "\n".join(lines)

    @tool(effect="writes", time_limited=False)
    async def request_shutdown(context: ToolContext, name: str, reason: str = "", force: bool = False) -> str:
        """Ask a member to stop, and wait for the outcome. It may reject with a reason; force stops it in any case."""
        with explained():
            return await door.shutdown_by_agent(context.agent, name, reason, force)

    @tool(effect="reads", time_limited=False)
    async def wait(context: ToolContext, seconds: float = 600.0) -> str:
        """Wait until there is mail for you, for at most so many seconds."""
        with explained():
            return await door.wait_news(context.agent, seconds)

    return [spawn_teammate, list_teammates, request_shutdown, wait]


def _leading_tools(bus: MessageBus) -> list[Tool]:
    @tool(effect="writes")
    async def broadcast(context: ToolContext, content: str, priority: Literal["turn", "tool", "now"] = "tool") -> str:
        """Send one message to all other members."""
        with explained():
            receipts = await bus.broadcast(context.agent, content, priority=priority)
        reached = [
            f"{receipt.recipient}{f' (waits behind {receipt.waits_behind})' if receipt.waits_behind else ''}" for receipt in receipts
        ]
        return f"sent to {', '.join(reached) or 'nobody: you are alone'}"

    return [broadcast]


def _reviewing_tools(engine: Engine, bus: MessageBus, door: TeamDoor) -> list[Tool]:
    def check_read(agent: str, request_id: str) -> None:
        """Refuse a decision on a revision whose mail the agent has not been shown."""
        for mail in engine.state.mail.box(agent).values():
            is_of_plan = mail.type == "plan_approval_request" and mail.request_id == request_id
            if is_of_plan and bus.receipt(mail.id, agent).state == "stored":
                raise ToolError(f"cannot review {request_id}: there is a newer revision, which you have not read; it follows as mail")

    @tool(effect="writes")
    async def review_plan(context: ToolContext, request_id: str, approve: bool, feedback: str = "") -> str:
        """Decide a plan that was submitted to you.

        Args:
            request_id: of the plan, such as r3.
            approve: true lets its author write; false needs feedback.
            feedback: what must change, or what to mind.
        """
        if not approve and not feedback.strip():
            raise ToolError("cannot reject a plan without feedback: say what must change")
        with explained():
            if engine.state.requests.get(request_id).kind is not RequestKind.plan_approval:
                raise ToolError(f"cannot review {request_id}: it is no plan")
            check_read(context.agent, request_id)
            incarnation = door.incarnation(context.agent)
            request = await engine.submit(AnswerRequest(request_id, context.agent, approve, feedback, incarnation=incarnation))
        return f"plan {request.id} (revision {request.revision}) of {request.subject} is {request.state}"

    @tool(effect="writes")
    async def review_permission(context: ToolContext, request_id: str, approve: bool, feedback: str = "", alike: bool = False) -> str:
        """Decide whether a tool call may run, when you were asked.

        Args:
            request_id: of the request, such as r4.
            approve: whether the call may run, once.
            feedback: why not, or what to mind.
            alike: also decide every open request for the same call with the same input.
        """
        with explained():
            incarnation = door.incarnation(context.agent)
            command = AnswerPermission(request_id, context.agent, approve, feedback, alike, incarnation=incarnation)
            requests = await engine.submit(command)
        return "; ".join(f"permission {request.id} of {request.asker} is {request.state}" for request in requests)

    return [review_plan, review_permission]


def _mail_tools(bus: MessageBus, door: TeamDoor) -> list[Tool]:
    @tool(effect="writes")
    async def send_message(
        context: ToolContext, to: str, content: str, request_id: str | None = None, priority: Literal["turn", "tool", "now"] = "tool"
    ) -> str:
        """Send a message to a member of the team.

        Args:
            to: the member's name.
            content: what you want to say.
            request_id: the id of the message that you answer.
            priority: tool (at its next tool boundary), turn (when it next idles), now (interrupts it).
        """
        with explained():
            receipt = await bus.send(context.agent, to, content, priority=priority, request_id=request_id)
        return f"message {receipt.id} to {to} is stored{f'; it waits behind {receipt.waits_behind}' if receipt.waits_behind else ''}"

    @tool(effect="reads")
    async def idle(context: ToolContext) -> str:
        """End your turn: you have nothing to do until mail or a task comes."""
        door.want_idle(context.agent)
        return "your turn ends; you will be woken"

    return [send_message, idle]


def _graph_tools(engine: Engine, tasks: TaskManager) -> list[Tool]:
    @tool(effect="writes")
    async def task_create(
        context: ToolContext,
        subject: str,
        description: str = "",
        blocked_by: Sequence[int] = (),
        needs: Sequence[str] = (),
        assignee: str | None = None,
    ) -> str:
        """Add a task to the team's graph; you are told when it is over.

        Args:
            subject: one line.
            description: everything its owner must know.
            blocked_by: ids of the tasks that must be completed first.
            needs: capabilities that its owner must have.
            assignee: the only member that may take it.
        """
        with explained():
            command = CreateTask(
                subject=subject,
                by=context.agent,
                description=description,
                blocked_by=[(blocker, BlockerPolicy.fail) for blocker in blocked_by],
                needs=frozenset(needs),
                assignee=assignee,
                notify=(context.agent,),
            )
            task_id = await engine.submit(command)
        return f"task {task_id} is created"

    @tool(effect="reads")
    async def task_list() -> str:
        """List all tasks: [ ] pending, [>] in progress with its owner, [x] completed, [!] failed, [-] cancelled; <- names open blockers."""
        return escape_text(tasks.graph.text())

    @tool(effect="reads")
    async def task_get(task_id: int) -> str:
        """Show one task whole."""
        with explained():
            task = tasks.get(task_id)
        lines = [describe(engine.state.tasks, task), task.description, f"result: {task.result}" if task.result else ""]
        return escape_text("\n".join(line for line in lines if line))

    return [task_create, task_list, task_get]


def _work_tools(tasks: TaskManager, door: TeamDoor) -> list[Tool]:
    @tool(effect="writes")
    async def task_claim(context: ToolContext, task_id: int) -> str:
        """Take a task that is ready."""
        with explained():
            claim = await tasks.claim(task_id, context.agent, incarnation=door.incarnation(context.agent))
        return escape_text(f"task {task_id} is yours: {claim.task.subject}\n{claim.task.description}".strip())

    @tool(effect="writes")
    async def task_complete(context: ToolContext, task_id: int, result: str = "") -> str:
        """Say that your task is done.

        Args:
            task_id: a task that you own.
            result: what came of it, for those that build on it.
        """
        with explained():
            await tasks.complete(task_id, result, by=context.agent)
        return f"task {task_id} is completed"

    @tool(effect="writes")
    async def task_fail(context: ToolContext, task_id: int, reason: str) -> str:
        """Say that your task cannot be done, and why."""
        with explained():
            await tasks.fail(task_id, reason, by=context.agent)
        return f"task {task_id} is failed"

    return [task_claim, task_complete, task_fail]


def _protocol_tools(engine: Engine, door: TeamDoor, shutdown: ShutdownOptions) -> list[Tool]:
    @tool(effect="writes")
    async def note(context: ToolContext, text: str) -> str:
        """Pin one line that you must not forget: an identifier, a decision, a constraint."""
        with explained():
            await engine.submit(PinNote(context.agent, text, door.incarnation(context.agent)))
        return "noted"

    @tool(effect="writes")
    async def compact(context: ToolContext) -> str:
        """Have the older part of this conversation summed up before you go on; note first what must not be lost."""
        door.want_compaction(context.agent)
        return "the conversation is compacted before your next step"

    @tool(effect="writes")
    async def shutdown_response(context: ToolContext, request_id: str, approve: bool, reason: str = "") -> str:
        """Answer a shutdown request that was made to you; a rejection needs a reason."""
        if not approve and not reason.strip():
            raise ToolError("cannot reject a shutdown without a reason: say what you must finish")
        with explained():
            if engine.state.requests.get(request_id).kind is not RequestKind.shutdown:
                raise ToolError(f"cannot answer {request_id}: it is no shutdown request")
            request = await engine.submit(AnswerRequest(request_id, context.agent, approve, reason, grace_seconds=shutdown.drain_seconds))
        return f"shutdown {request.id} is {request.state}"

    return [note, compact, shutdown_response]
