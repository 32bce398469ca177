"""Which tools a member gets; members with the same tools share one dispatcher.

A dispatcher and its schemas cost more than an idle member, so ten thousand members of one kind must not have one each.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from protocols.envelope import escape_text
from teams.directory import AGENT_VARIABLE
from teams.services import Services
from teams.state.decision import AGENT_KINDS
from teams.state.request_commands import describe_rejections
from teams.state.roster import MemberSpec
from teams.tools.asking import asking_tools
from teams.tools.base import Tool, ToolError
from teams.tools.coordination import COORDINATION, lead_tools, teammate_tools
from teams.tools.defaults import make_default_dispatcher
from teams.tools.dispatcher import ToolDispatcher, ToolLimits
from teams.tools.planning import planning_tools
from teams.tools.recall import recall_tool

if TYPE_CHECKING:
    from teams.manager import TeammateManager


ROLE_LIMIT_CHARS = 100
"""A role stands in the system prompt of its member: a model that spawns may put a few words there, not a page."""


class Toolsets:
    """Makes dispatchers, and is the door through which the coordination tools reach the team."""

    manager: "TeammateManager"

    def __init__(self, services: Services, workdir: str | os.PathLike[str] | None, *, keep_out: Path | None) -> None:
        self._services, self._workdir, self._keep_out = services, workdir, keep_out
        self._made: dict[tuple[tuple[int, ...] | None, bool], ToolDispatcher] = {}
        self._kept: list[Sequence[Tool]] = []  # their ids are keys
        self._coordination: tuple[list[Tool], list[Tool]] | None = None
        self._default: list[Tool] | None = None

    def dispatcher(self, tools: Sequence[Tool] | None, lead: bool) -> ToolDispatcher:
        """Return the dispatcher for these tools, or for the default ones, with those of teammates or leads.

        Raises: ValueError when two tools have one name, or one has the name of a coordination tool.
        """
        key = (None if tools is None else tuple(id(tool) for tool in tools), lead)
        made = self._made.get(key)
        if made is None:
            services = self._services
            if self._coordination is None:
                options = services.options
                shared = teammate_tools(services.engine, services.bus, services.tasks, self, options.shutdown)
                shared += planning_tools(services.engine, self, options.plans)
                shared += asking_tools(services.engine, services.waits, self, options.questions, options.person)
                shared.append(recall_tool(services.sessions.archive, services.artifacts))
                self._coordination = shared, lead_tools(services.engine, services.bus, self)
            own = self._default_tools() if tools is None else list(tools)
            made = ToolDispatcher(workdir=None, overflow=lambda text: services.artifacts.save_now("tools", text))
            made.register_many(own)
            if taken := sorted(COORDINATION.intersection(made.names)):
                raise ValueError(f"cannot give a member a tool named {taken[0]!r}: the plan gate knows that name as one of the team's own")
            made.register_many([*self._coordination[0], *(self._coordination[1] if lead else [])])
            self._made[key] = made
            if tools is not None:
                self._kept.append(tools)
        return made

    def _default_tools(self) -> list[Tool]:
        if self._default is None:
            self._default = []
            if self._workdir is not None:
                stages = self._services.options.shutdown
                dispatcher = make_default_dispatcher(
                    self._workdir,
                    limits=ToolLimits(cancel_seconds=stages.cancel_seconds, kill_seconds=stages.kill_seconds),
                    shell_environment={AGENT_VARIABLE: self._services.name},
                    denied=self._denied(),
                )
                self._default = [tool for name in dispatcher.names if (tool := dispatcher.get(name)) is not None]
        return self._default

    def _denied(self) -> Sequence[Path]:
        """Return the team's own directory when it lies where the file tools work: no agent writes the journal."""
        assert self._workdir is not None
        if self._keep_out is None or not self._keep_out.resolve().is_relative_to(Path(self._workdir).resolve()):
            return ()
        return (self._keep_out.resolve(),)

    # -- the door of the coordination tools ------------------------------------------

    def want_idle(self, agent: str) -> None:
        """End the agent's turn at the next tool boundary."""
        self.manager.want_idle(agent)

    def want_compaction(self, agent: str) -> None:
        """Have the agent's context compacted before its next call."""
        self.manager.want_compaction(agent)

    def incarnation(self, agent: str) -> int:
        """Return the incarnation under which this process hosts the agent."""
        return self.manager.incarnation(agent)

    def asked_before(self, agent: str, call_id: str) -> str | None:
        """Return, once, the request that this call had made before its process died."""
        return self.manager.asked_before(agent, call_id)

    async def spawn_by_agent(self, agent: str, name: str, role: str, prompt: str, plan_required: bool) -> str:
        """Spawn a teammate for a lead and return its status."""
        if len(role) > ROLE_LIMIT_CHARS or not role.isprintable():
            raise ToolError(f"cannot spawn {name!r}: its role is one line of at most {ROLE_LIMIT_CHARS} characters; say more in the prompt")
        options, members = self._services.options, self._services.engine.state.roster.members
        self._refuse_approver(name)
        spawner = members[agent].spec
        bound = spawner.plan_required  # what it may not write itself it does not let others write either, nor decide for them
        approvers = spawner.approvers if bound else (agent, options.person)
        spec = MemberSpec(
            name=name,
            role=role,
            prompt=prompt,
            plan_required=plan_required or bound,
            approvers=tuple(approver for approver in approvers if approver != name),
            approval=spawner.approval if bound else (),
            capabilities=(role,),
            max_revisions=options.plans.max_revisions,
            steps_as_tasks=options.plans.steps_as_tasks,
        )
        member = await self.manager.spawn(spec, by=agent)
        return f"{name} is {member.status.value}"

    def _refuse_approver(self, name: str) -> None:
        """Refuse the name of somebody who decides what others ask for, unless it runs: an agent would take over its decisions."""
        members = self._services.engine.state.roster.members
        member = members.get(name)
        for other in members.values() if member is None or not member.live else ():
            if other.name != name and name in other.spec.approvers:
                raise ToolError(f"cannot spawn {name!r}: it decides what {other.name} asks for, and only people and scripts bring it up")

    async def shutdown_by_agent(self, agent: str, name: str, reason: str, force: bool) -> str:
        """Ask a member to stop and return how that ended."""
        member = self._services.engine.state.roster.get(name, operation="shut down")
        if member.spec.kind not in AGENT_KINDS:
            raise ToolError(f"cannot shut down {name!r}: it is a {member.spec.kind}, and agents can stop agents alone")
        with self._services.waits.waiting(agent, name, kind="shutdown"):
            outcome = await self.manager.shutdown(name, by=agent, reason=reason, force=force)
        reason_given = f" ({escape_text(outcome.reason)})" if outcome.reason else ""
        handed_back = f"; handed back: task {', '.join(map(str, outcome.handed_back))}" if outcome.handed_back else ""
        before = f"; it rejected before: {escape_text(describe_rejections(outcome.rejected_before))}" if outcome.rejected_before else ""
        return f"{name}: {outcome.state}{reason_given}{handed_back}{before}"

    async def wait_news(self, agent: str, seconds: float) -> str:
        """Wait for mail of the agent, for at most so long, and say what there is."""
        bus = self._services.bus
        with trio.move_on_after(seconds):
            await self._services.engine.wait_until(("member", agent), lambda: bus.has_mail(agent) or None)
            self.manager.show_all_mail(agent)  # who waits for news has nothing else to do first
            return "there is mail for you; it follows"
        return f"no mail came within {seconds:g} seconds"
