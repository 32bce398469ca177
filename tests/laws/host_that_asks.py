"""A process that hosts a team whose members ask; killed by a test, and started again: `python host_that_asks.py DIR`.

Prints a line once all requests wait, and one for each thing that a member did.
"""

import sys
from collections.abc import Callable

import trio

from teams import MemberOptions, ScriptedModel, Team, TeamOptions, Touches, open_team, tool
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, say, spoken
from teams.testing.team import wait_for

ASKING = 3


@tool(effect="writes", touches=Touches(asks=True))
async def deploy(service: str) -> str:
    """Deploy."""
    await trio.lowlevel.checkpoint()
    print(f"deployed {service}", flush=True)
    return f"deployed {service}"


@tool(effect="writes", touches=Touches(paths=("path",)))
async def write(path: str) -> str:
    """Write."""
    await trio.lowlevel.checkpoint()
    print(f"wrote {path}", flush=True)
    return "written"


def begins(made: Reply, then: Reply | None = None) -> Callable[[ModelRequest], Reply]:
    """Make a call at the beginning, another one after the approval, and tell what came back."""

    def script(request: ModelRequest) -> Reply:
        newest = request.messages[-1]
        if newest.tool_results and "is submitted" in str(newest.tool_results[-1]["content"]):
            return say("waiting")
        if newest.tool_results:
            print(f"{request.agent} was told: {newest.tool_results[-1]['content']}", flush=True)
            return say("done")
        if then is not None and 'approve="true"' in spoken(newest):
            return then
        return made if "begin" in spoken(newest) else say("waiting")

    return script


SCRIPTS = {
    "ann": begins(call("submit_plan", summary="s", steps=["one"], files=["a.txt"]), call("write", path="a.txt")),
    "ben": begins(call("deploy", service="web")),
    "cora": begins(call("ask_user", question="Which port?")),
}


async def host(directory: str) -> None:
    """Host the team until everything is decided and done."""
    async with open_team(directory, model=ScriptedModel(SCRIPTS), options=TeamOptions(views=False)) as team:
        options = MemberOptions(auto_claim=False)
        await team.spawn("ann", prompt="begin", plan="required", tools=[write], options=options)
        await team.spawn("ben", prompt="begin", tools=[deploy], options=options)
        await team.spawn("cora", prompt="begin", tools=[deploy], options=options)
        await wait_for(team, lambda: all_asked(team))
        print("all have asked", flush=True)
        await team.wait_quiescent()
        print("quiescent", flush=True)


def all_asked(team: Team) -> bool:
    """Tell whether every request was made, and the one with a plan has gone to rest."""
    return team.state.requests_opened >= ASKING and team.member("ann").status != "working"


if __name__ == "__main__":
    trio.run(host, sys.argv[1])
