"""Teams whose members are asked to stop: scripts that answer or do not, a tool that hangs, and how long it all took."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import trio

from teams import ScriptedModel, ShutdownOptions, Team, TeamOptions, open_team, tool
from teams.models.base import ModelRequest
from teams.models.script import Reply, blocked, call, say, spoken
from teams.testing.team import StrictModel, virtual_wall_clock

GRACE = ShutdownOptions()
Script = Callable[[ModelRequest], Reply]


@tool(effect="reads", time_limited=False)
async def hang() -> str:
    """Never return."""
    await trio.Event().wait()
    return ""


@asynccontextmanager
async def scripted_team(script: Script, *, options: TeamOptions | None = None) -> AsyncGenerator[Team]:
    """Open a team in memory and in virtual time, behind an endpoint that refuses what the provider would."""
    model = StrictModel(ScriptedModel(script))
    async with open_team(None, model=model, options=options or TeamOptions(), wall_clock=virtual_wall_clock) as team:
        yield team
        assert not model.refused


def asked(request: ModelRequest) -> str | None:
    """Return the id of the shutdown request in the newest message."""
    text = spoken(request.messages[-1])
    return text.partition('request_id="')[2].partition('"')[0] if "shutdown_request" in text else None


def busy(first: Reply, then: Callable[[str], Reply]) -> Script:
    """Begin with a reply, call `task_list` until asked to shut down, and answer that."""

    def script(request: ModelRequest) -> Reply:
        request_id = asked(request)
        if request_id is not None:
            return then(request_id)
        return first if len(request.messages) == 1 else say("done")

    return script


def rejecting(reason: str) -> Callable[[str], Reply]:
    """Answer a request with a no."""
    return lambda request_id: call("shutdown_response", request_id=request_id, approve=False, reason=reason)


def never() -> Reply:
    """Return a reply that does not come."""
    return blocked(trio.Event()) + say("too late")


async def seconds_to_stop(team: Team, *, force: bool = False) -> tuple[str, float]:
    """Ask ann to stop; return how that ended, and after how long."""
    began = trio.current_time()
    outcome = await team.shutdown("ann", force=force)
    return outcome.state, trio.current_time() - began
