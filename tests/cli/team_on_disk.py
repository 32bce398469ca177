"""Teams on disk for the tests of the command, and the command itself in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import trio

from teams import MemberOptions, ScriptedModel, Team, open_team
from teams.models.script import Reply, call, say

ROOT = Path(__file__).parents[2]
HOST = Path(__file__).parent / "host_a_team.py"
PLAN = {"summary": "Mend the rounding", "steps": ["Reproduce it", "Mend it", "Run the tests"], "files": ["src/money.py"]}
HOSTILE = "Approved!\x1b[2J\x1b[31m\n12:00:00  user -> ann  \u202efdp.exe"
"""A body that would clear a screen, colour it, begin a line of its own and turn the direction of writing."""


def reviewer(*, steps: int = 50) -> list[Reply]:
    """Make a script that says the same thing as often as it is asked."""
    return [say("I have read it.") for _ in range(steps)]


async def build_finished_team(root: Path) -> None:
    """Run a team to its end: one plan rejected and approved, one hostile mail, tasks in every state."""
    script = {
        "ann": [call("submit_plan", **PLAN), say("Waiting."), call("submit_plan", **PLAN), say("Waiting."), *reviewer()],
        "ben": [call("send_message", to="ann", content=HOSTILE), *reviewer()],
    }
    async with open_team(root, model=ScriptedModel(script), name="rounding") as team:
        await team.spawn(
            "ann", role="developer", prompt="Mend the rounding.", tools=[], plan="required", options=MemberOptions(auto_claim=False)
        )
        rejected = approved = False
        async for request in team.plan_requests():
            if not rejected:
                await request.reject("name the test")
                rejected = True
            else:
                await request.approve()
                approved = True
        assert approved
        await team.spawn("ben", role="reviewer", prompt="Review it.", tools=[], options=MemberOptions(auto_claim=False))
        await add_tasks(team)
        await team.wait_quiescent()


async def add_tasks(team: Team) -> None:
    """Make a small graph: 1 done, 2 in progress, 3 blocked, 4 failed, 5 failed because of it, 6 ready."""
    first = await team.tasks.create("Find what is broken")
    claim = await team.tasks.claim(first.id, "lead")
    await team.tasks.complete(first.id, "the rounding", fence=claim.fence)
    second = await team.tasks.create("Mend it", blocked_by=[first.id])
    await team.tasks.create("Review it", blocked_by=[second.id], needs=["reviewer"])
    fourth = await team.tasks.create("Ask the bank")
    await team.tasks.create("Tell the customers", blocked_by=[fourth.id])
    claim = await team.tasks.claim(fourth.id, "lead")
    await team.tasks.fail(fourth.id, "nobody answers", fence=claim.fence)
    await team.tasks.create("Write it down")
    await team.tasks.claim(second.id, "ann")


def teams_command(*arguments: str | Path, columns: int | None = None) -> "subprocess.CompletedProcess[str]":
    """Run `python -m teams` to its end."""
    command = [sys.executable, "-m", "teams", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=command_environment(columns), cwd=ROOT)


def command_environment(columns: int | None = None) -> dict[str, str]:
    """Return the environment of a command: UTC, no terminal, a width only where one is asked for."""
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "TEAMS_DEBUG")}
    return {**kept, "TZ": "UTC", "PYTHONUTF8": "1"} | ({} if columns is None else {"COLUMNS": str(columns)})


@contextmanager
def hosted_team(root: Path) -> "Generator[subprocess.Popen[str]]":
    """Host a team in another process until the block ends: ann waits for the decision on a plan, ben is idle."""
    process = subprocess.Popen(
        [sys.executable, str(HOST), str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=command_environment(),
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    with process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.stdin.close()  # the host's word to end
            process.wait(20)


def build(root: Path) -> Path:
    """Build the finished team from a test that is not async."""
    trio.run(build_finished_team, root)
    return root
