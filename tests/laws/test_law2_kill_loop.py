"""Laws 2 and 7 under a real SIGKILL: the same directory, killed again and again in mid-work, loses no mail and doubles none."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from random import Random

import pytest
import trio

from teams import ScriptedModel, TeamOptions, open_team
from teams.testing.team import StrictModel
from tests.laws.crashes import injected, sent_to

ROUNDS = 8
PROGRAM = """
import sys, trio
from teams import ScriptedModel, TeamOptions, open_team
from teams.models.script import call, say
from teams.testing.team import StrictModel

def answer(request):
    other = "ben" if request.agent == "ann" else "ann"
    newest = request.messages[-1]
    if newest.tool_results:
        return say("read")
    return call("send_message", to=other, content=f"from {request.agent} at {len(request.messages)}")

async def main():
    async with open_team(sys.argv[1], model=StrictModel(ScriptedModel(answer)), options=TeamOptions(view_interval_seconds=0.01)) as team:
        await team.spawn("ann", prompt="begin")
        await team.spawn("ben", prompt="begin")
        number = 0
        while True:
            key = f"{sys.argv[2]}-{number}"
            receipt = await team.send("ann", "tick " + key, key=key)
            print(receipt.id, flush=True)
            number += 1

trio.run(main)
"""


async def _run_and_kill(directory: Path, number: int, seconds: float) -> list[str]:
    program = [sys.executable, "-c", PROGRAM, str(directory), str(number)]
    said = bytearray()
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(partial(trio.run_process, program, stdout=subprocess.PIPE, check=False))
        assert process.stdout is not None
        said += await process.stdout.receive_some()
        with trio.move_on_after(seconds):
            while chunk := await process.stdout.receive_some():
                said += chunk
        process.kill()
        while chunk := await process.stdout.receive_some():
            said += chunk
    return [line for line in said.decode().splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.slow
@pytest.mark.limit(90)
async def test_team_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """After eight kills in mid-work, every id that send returned is in the transcript exactly once, and the team comes to rest."""
    random, promised = Random(7), set[str]()
    for number in range(ROUNDS):
        promised |= {line.strip() for line in await _run_and_kill(tmp_path / "team", number, random.uniform(0.0, 0.25))}
    model = StrictModel(ScriptedModel(lambda _: "done"))
    async with open_team(tmp_path / "team", model=model, options=TeamOptions(views=False)) as team:
        await team.spawn("ann", prompt="begin")
        await team.spawn("ben", prompt="begin")
        await team.wait_quiescent()
    assert not model.refused
    for member in ("ann", "ben"):
        assert injected(tmp_path / "team", member) == dict.fromkeys(sent_to(tmp_path / "team", member), 1)
    assert promised <= set(sent_to(tmp_path / "team", "ann"))
    assert len(promised) >= ROUNDS
