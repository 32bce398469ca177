"""Agents that would wait for each other for ever: who closes the circle is refused and told why, and the team goes on."""

from collections.abc import Callable

import trio
from trio.testing import MockClock

from protocols.task_status import TaskStatus
from teams import MemberOptions, ScriptedModel, Team, Tool, ToolContext, ToolError, open_team, tool
from teams.errors import WaitCycle
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, say, spoken
from teams.testing.team import StrictModel, virtual_wall_clock, wait_for

Script = Callable[[ModelRequest], Reply]


def waiting_tools(team: Team) -> list[Tool]:
    """Make tools by which an agent waits, as a user of the library would."""

    @tool(effect="reads", time_limited=False)
    async def ask(context: ToolContext, to: str, content: str) -> str:
        """Ask a member and wait for its answer."""
        try:
            return (await team.bus.ask(context.agent, to, content)).content
        except WaitCycle as error:
            raise ToolError(str(error)) from error

    @tool(effect="reads", time_limited=False)
    async def await_task(context: ToolContext, task_id: int) -> str:
        """Wait until a task is over."""
        try:
            return (await team.tasks.wait(task_id, waiter=context.agent)).status.value
        except WaitCycle as error:
            raise ToolError(str(error)) from error

    @tool(effect="reads", time_limited=False)
    async def join(context: ToolContext, name: str) -> str:
        """Wait until a member has ended."""
        try:
            return (await team.manager.join(name, waiter=context.agent)).status.value
        except WaitCycle as error:
            raise ToolError(str(error)) from error

    @tool(effect="reads", time_limited=False)
    async def join_any(context: ToolContext, names: list[str]) -> str:
        """Wait for whichever of several members ends first."""
        try:
            with team._services.waits.waiting(context.agent, *names, kind="join"):
                await wait_for(team, lambda: any(not team.state.roster.members[name].live for name in names))
        except WaitCycle as error:
            raise ToolError(str(error)) from error
        return "somebody has ended"

    return [ask, await_task, join, join_any]


class Cast:
    """Scripts by member, and everything that each was told."""

    def __init__(self, **scripts: Script) -> None:
        self.told: dict[str, list[str]] = {name: [] for name in scripts}

        def play(request: ModelRequest) -> Reply:
            self.told[request.agent].append(spoken(request.messages[-1]))
            return scripts[request.agent](request)

        self.model = StrictModel(ScriptedModel(play))

    def heard(self, name: str) -> str:
        """Return everything that a member was told."""
        return "\n".join(self.told[name])


def _asked_id(request: ModelRequest) -> str:
    """Return the id of the newest message that was ever seen."""
    ids = [part.partition('"')[0] for message in request.messages for part in spoken(message).split('<message id="')[1:]]
    return ids[-1]


async def test_two_agents_that_ask_each_other_go_on(autojump_clock: MockClock) -> None:
    """Ann asks ben, and ben, before he answers, asks ann: he is refused by name, answers her, and both end their turns."""

    def ann(request: ModelRequest) -> Reply:
        return call("ask", to="ben", content="which port?") if len(request.messages) == 1 else say("done")

    def ben(request: ModelRequest) -> Reply:
        text = spoken(request.messages[-1])
        if "which port?" in text:
            return call("ask", to="ann", content="of which service?")
        if "nobody in this circle" in text:
            return call("send_message", to="ann", content="8080", request_id=_asked_id(request))
        return say("done")

    cast = Cast(ann=ann, ben=ben)
    async with open_team(None, model=cast.model, wall_clock=virtual_wall_clock) as team:
        tools = waiting_tools(team)
        await team.spawn("ben", tools=tools)
        await team.spawn("ann", prompt="begin", tools=tools)
        await team.wait_quiescent()
        assert not team._services.waits.waits_of("ann")
    assert "cannot wait: ben waits for a reply from ann, who waits for a reply from ben;" in cast.heard("ben")
    assert "8080" in cast.heard("ann")
    assert not cast.model.refused


async def test_a_lead_cannot_wait_for_work_whose_plan_it_has_not_decided(autojump_clock: MockClock) -> None:
    """Boss waits for ann's task while ann's plan waits for boss: the wait is refused, boss decides, and may then wait."""

    def ann(request: ModelRequest) -> Reply:
        text = spoken(request.messages[-1])
        if "is approved" in text:
            return call("task_complete", task_id=1, result="built")
        if "task_assignment" in text:
            return call("submit_plan", summary="Build", steps=["Build it"])
        return say("I wait.")

    def boss(request: ModelRequest) -> Reply:
        text = spoken(request.messages[-1])
        if "plan_approval_request" in text or "is approved" in text:
            return call("await_task", task_id=1)
        if "nobody in this circle" in text:
            return call("review_plan", request_id="r1", approve=True)
        return say("done")

    cast = Cast(ann=ann, boss=boss)
    async with open_team(None, model=cast.model, wall_clock=virtual_wall_clock) as team:
        tools = waiting_tools(team)
        await team.spawn("boss", lead=True, tools=tools)
        await team.spawn("ann", tools=tools, plan="required", options=MemberOptions(approvers=("boss",)))
        task = await team.tasks.create("build")
        await team.wait_quiescent()
        assert team.tasks.get(task.id).status is TaskStatus.completed
    assert "cannot wait: boss waits for task 1, which is owned by ann, who has a plan that waits for boss;" in cast.heard("boss")
    assert "completed" in cast.heard("boss")
    assert not cast.model.refused


async def test_a_question_reaches_a_member_whose_plan_waits_for_the_asker(autojump_clock: MockClock) -> None:
    """Boss may ask ann about the plan that boss shall decide: she answers mail while she may not work."""

    def ann(request: ModelRequest) -> Reply:
        text = spoken(request.messages[-1])
        if "how long?" in text:
            return call("send_message", to="boss", content="a day", request_id=_asked_id(request))
        return call("submit_plan", summary="Build", steps=["Build it"]) if len(request.messages) == 1 else say("I wait.")

    def boss(request: ModelRequest) -> Reply:
        text = spoken(request.messages[-1])
        if "plan_approval_request" in text:
            return call("ask", to="ann", content="how long?")
        return call("review_plan", request_id="r1", approve=True) if "a day" in text else say("done")

    cast = Cast(ann=ann, boss=boss)
    async with open_team(None, model=cast.model, wall_clock=virtual_wall_clock) as team:
        tools = waiting_tools(team)
        await team.spawn("boss", lead=True, tools=tools)
        await team.spawn("ann", prompt="begin", tools=tools, plan="required", options=MemberOptions(approvers=("boss",)))
        await team.wait_quiescent()
        assert team.state.requests.get("r1").decision is not None
    assert "nobody in this circle" not in cast.heard("boss")


async def test_two_agents_that_wait_for_each_other_to_end_are_told(autojump_clock: MockClock) -> None:
    """Ann waits for ben's end and ben for hers: one of the two is refused and goes on."""

    def script(request: ModelRequest) -> Reply:
        other = "ben" if request.agent == "ann" else "ann"
        return call("join", name=other) if len(request.messages) == 1 else say("done")

    cast = Cast(ann=script, ben=script)
    async with open_team(None, model=cast.model, wall_clock=virtual_wall_clock) as team:
        tools = waiting_tools(team)
        await team.spawn("ben", tools=tools)
        await team.spawn("ann", prompt="begin", tools=tools)
        await trio.sleep(1)
        await team.send("ben", "begin")
        await trio.sleep(1)
        await team.shutdown("ben")
        await team.wait_quiescent()
    assert "cannot wait: ben waits for the end of ann, who waits for the end of ben;" in cast.heard("ben")
    assert "stopped" in cast.told["ann"][-1]


async def test_a_wait_that_one_of_two_can_end_is_not_refused(autojump_clock: MockClock) -> None:
    """Ben waits for ann's end or cat's, and ann for ben's: cat's end wakes ben, so nothing is refused; cat's own wait would be."""

    def ann(request: ModelRequest) -> Reply:
        return call("join", name="ben") if len(request.messages) == 1 else say("done")

    def ben(request: ModelRequest) -> Reply:
        return call("join_any", names=["ann", "cat"]) if len(request.messages) == 1 else say("done")

    def cat(request: ModelRequest) -> Reply:
        return call("join", name="ann") if "close it" in spoken(request.messages[-1]) else say("done")

    cast = Cast(ann=ann, ben=ben, cat=cat)
    async with open_team(None, model=cast.model, wall_clock=virtual_wall_clock) as team:
        tools = waiting_tools(team)
        await team.spawn("cat", tools=tools)
        await team.spawn("ben", tools=tools)
        await team.spawn("ann", prompt="begin", tools=tools)
        await trio.sleep(1)
        await team.send("ben", "begin")
        await trio.sleep(1)
        await team.send("cat", "close it")
        await trio.sleep(1)
        await team.shutdown("cat")
        await trio.sleep(1)
    assert "somebody has ended" in cast.heard("ben")
    assert "cannot wait: cat waits for the end of ann, who waits for the end of ben, who waits for the end of" in cast.heard("cat")
