"""The tools by which an agent asks somebody and waits for the answer.

Laws: a question is a request: it has a deadline, is answered once, and survives the process (the tools count as writing, so that the call
is on disk before anybody is asked); a call that was cut short takes its question
back; a wait that could never end is refused before anybody is asked.
"""

from protocols.envelope import escape_text
from protocols.question import QuestionState
from teams.approvals import ASKED_TO_STOP, wait_decision, withdraw
from teams.engine import Engine
from teams.options import QuestionOptions
from teams.state.permission_commands import AskQuestion
from teams.tools.base import Tool, ToolContext, ToolError, tool
from teams.tools.explaining import explained
from teams.tools.team_door import TeamDoor
from teams.waits import WaitGraph


def asking_tools(engine: Engine, waits: WaitGraph, door: TeamDoor, questions: QuestionOptions, person: str) -> list[Tool]:
    """Make the tools; they serve every member of the team."""

    async def ask(context: ToolContext, to: str, question: str) -> str:
        if not question.strip():
            raise ToolError("cannot ask a blank question; say what you want to know")
        request_id = door.asked_before(context.agent, context.call_id)
        try:
            with waits.waiting(context.agent, to, kind="question"):
                if request_id is None:
                    incarnation = door.incarnation(context.agent)
                    command = AskQuestion(context.agent, incarnation, context.call_id, to, question, questions.deadline_seconds)
                    request_id = (await engine.submit(command)).id
                request = await wait_decision(engine, request_id, context.agent)
            if request.decision is None:
                raise ToolError(f"{to} has not answered, and {ASKED_TO_STOP}")
            request_id = None
        finally:
            if request_id is not None:
                withdraw(engine, request_id)
        decision = request.decision
        if request.state == QuestionState.answered:
            return escape_text(f"{decision.by} answers: {decision.feedback}")
        why = {QuestionState.expired: f"{to} did not answer in time, or has ended"}
        said = f": {decision.feedback}" if decision.feedback else ""
        raise ToolError(escape_text(why.get(QuestionState(request.state), f"{decision.by} gives no answer{said}")))

    @tool(effect="writes", time_limited=False)
    async def ask_user(context: ToolContext, question: str) -> str:
        """Ask the person for whom the team works, and wait for the answer. Ask only what nobody in the team can know.

        Args:
            question: one question, with what the person must know to answer it.
        """
        with explained():
            return await ask(context, person, question)

    @tool(effect="writes", time_limited=False)
    async def ask_teammate(context: ToolContext, name: str, question: str) -> str:
        """Ask a member of the team, and wait for the answer; send_message is for what you need not wait for.

        Args:
            name: the member's name.
            question: one question, with what the member must know to answer it.
        """
        with explained():
            return await ask(context, name, question)

    return [ask_user, ask_teammate]
