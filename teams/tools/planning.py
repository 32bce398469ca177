"""The tools by which an agent plans: submit a plan, and work through the steps of the approved one."""

from collections.abc import Sequence
from typing import Any, Literal

from protocols.envelope import escape_text
from protocols.plan_step import StepEvent, StepStatus
from teams.engine import Engine
from teams.options import PlanOptions
from teams.state.plan_commands import OUTPUT_LIMIT_CHARS, AdvanceStep, SubmitPlan
from teams.state.plans import PlanStep
from teams.tools.base import Tool, ToolContext, ToolError, tool
from teams.tools.explaining import explained
from teams.tools.team_door import TeamDoor

_EVENTS = {"in_progress": StepEvent.start, "done": StepEvent.finish, "failed": StepEvent.fail}


def planning_tools(engine: Engine, door: TeamDoor, plans: PlanOptions) -> list[Tool]:
    """Make the tools; they serve every member of the team."""

    @tool(effect="writes")
    async def submit_plan(
        context: ToolContext, summary: str, steps: Sequence[str], files: Sequence[str] = (), commands: Sequence[str] = (), risk: str = ""
    ) -> str:
        """Submit your plan for approval, or a revision of the one that was rejected; then end your turn.

        Args:
            summary: what you will do and why.
            steps: the steps, in order.
            files: the paths or patterns that you mean to write, relative to the work directory, such as src/app.py or docs/**.
            commands: the commands that you mean to run, such as "python -m pytest *"; * at the end stands for any arguments.
            risk: what could go wrong, in your words.
        """
        from pydantic import ValidationError  # with `Plan`, whose import costs 0.1 s

        from protocols.plan import Plan  # as above

        try:
            plan = Plan(summary=summary, steps=tuple(steps), files=tuple(files), commands=tuple(commands), risk=risk)
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
            raise ToolError(f"cannot submit the plan: {problems}") from error
        body: dict[str, Any] = plan.model_dump(mode="json")
        command = SubmitPlan(context.agent, door.incarnation(context.agent), body, plans.deadline_seconds, plans.default_approved)
        with explained():
            request = await engine.submit(command)
        approvers = " or ".join(request.answerers)
        return f"plan {request.id} (revision {request.revision}) is submitted to {approvers}; end your turn, the decision comes as mail"

    @tool(effect="writes")
    async def plan_step(
        context: ToolContext, step: int, status: Literal["in_progress", "done", "failed"], note: str = "", output: str = ""
    ) -> str:
        """Say where a step of your approved plan stands. One step is in progress at a time.

        Args:
            step: its number in the plan, from 1.
            status: in_progress when you begin it (again), done, or failed.
            note: why it failed, or why you begin it before those above it.
            output: what later steps must know of it.
        """
        with explained():
            steps = await engine.submit(AdvanceStep(context.agent, door.incarnation(context.agent), step, _EVENTS[status], note, output))
        return escape_text(_told(steps, step, status, len(output)))

    return [submit_plan, plan_step]


def _told(steps: Sequence[PlanStep], number: int, status: str, output_chars: int) -> str:
    """Say what the agent needs to know next: the step with what the ones before handed on, or what is left."""
    if status == "in_progress":
        handed = [f"Output of step {at}: {item.output}" for at, item in enumerate(steps[: number - 1], 1) if item.output]
        attempt = steps[number - 1].attempts + 1
        head = f"step {number} is in progress{f', attempt {attempt}' if attempt > 1 else ''}: {steps[number - 1].text}"
        return "\n".join([head, *handed])
    left = ", ".join(str(at) for at, item in enumerate(steps, 1) if at != number and item.status is not StepStatus.done)
    cut = f"; its output was cut to {OUTPUT_LIMIT_CHARS} characters" if output_chars > OUTPUT_LIMIT_CHARS else ""
    return f"step {number} is {status}{cut}; {f'open: {left}' if left else 'no other step is open'}"
