"""A process that hosts a team until its input ends; run by `team_on_disk.hosted_team`."""

import sys
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[2]))

from teams import MemberOptions, ScriptedModel, open_team
from teams.models.script import call
from teams.testing.team import wait_for
from tests.cli.team_on_disk import PLAN, reviewer


async def main(root: Path) -> None:
    """Host ann, who waits for a decision, and ben, who reads his mail."""
    script = {"ann": [call("submit_plan", **PLAN), *reviewer()], "ben": reviewer()}
    async with open_team(root, model=ScriptedModel(script), name="rounding") as team:
        await team.spawn(
            "ann", role="developer", prompt="Mend the rounding.", tools=[], plan="required", options=MemberOptions(auto_claim=False)
        )
        await team.spawn("ben", role="reviewer", prompt="Review it.", tools=[], options=MemberOptions(auto_claim=False))
        async for _ in team.plan_requests():
            break
        task = await team.tasks.create("Mend it")
        await team.tasks.claim(task.id, "ann")
        await wait_for(team, lambda: not team.manager.anybody_awake and not team.state.mail.unread)
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)


trio.run(main, Path(sys.argv[1]))
