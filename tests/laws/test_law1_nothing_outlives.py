"""Law 1: when open_team exits, for whatever reason, no task, thread at work, child process or descriptor of it is left."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from teams import MemberOptions, ScriptedModel, ShutdownOptions, Team, TeamOptions, open_team
from teams.models.base import ModelRequest
from teams.models.script import Reply, blocked, call, say
from teams.testing.team import cancel_at_step, virtual_wall_clock
from tests.laws.residue import NOTHING, residue, wait_for_file

QUICK = TeamOptions(shutdown=ShutdownOptions(answer_seconds=0.2, drain_seconds=0.2, cancel_seconds=0.2), view_interval_seconds=0.01)


class LeavingError(Exception):
    """How a block ends that ends by an exception."""


class Activity:
    """What runs in a team when its owner leaves; `begun` is set once it does."""

    def __init__(self, kind: str) -> None:
        self.kind, self.begun, self.called, self.never = kind, trio.Event(), trio.Event(), trio.Event()
        self.marker = f"7{secrets.randbelow(10**9):09d}"
        self.model = ScriptedModel({"busy": self._busy, "*": self._other})

    def _busy(self, request: ModelRequest) -> Reply:
        self.called.set()
        if len(request.messages) > 1:
            return blocked(self.never) + say("over")
        match self.kind:
            case "process":
                return call("bash", command=f"(sleep {self.marker} & setsid sleep {self.marker} & echo up > up; sleep {self.marker})")
            case "wait":
                return call("wait", seconds=10_000)
            case "shutdown":
                return call("request_shutdown", name="other")
            case "spawn":
                return call("spawn_teammate", name="third", role="helper", prompt="work") + call("wait")
            case _:
                return blocked(self.never, entered=self.begun) + say("over")

    def _other(self, request: ModelRequest) -> Reply:
        self.begun.set()
        return blocked(self.never) + say("over")

    async def start(self, team: Team, nursery: trio.Nursery, workdir: Path) -> None:
        """Bring the team to the moment at which it is left."""
        if self.kind == "shutdown":
            await team.spawn("other", prompt="work")
            await self.begun.wait()
        await team.spawn("busy", prompt="work", lead=True)
        if self.kind == "ask":
            nursery.start_soon(team.bus.ask, "lead", "busy", "and?")
        if self.kind == "process":
            await wait_for_file(workdir / "up")
        elif self.kind in ("wait", "shutdown"):
            await self.called.wait()
            await trio.testing.wait_all_tasks_blocked(0.01)
        else:
            await self.begun.wait()


Leave = Callable[[trio.CancelScope], Awaitable[None]]


async def _return(scope: trio.CancelScope) -> None:
    del scope
    await trio.lowlevel.checkpoint()


async def _raise(scope: trio.CancelScope) -> None:
    await trio.lowlevel.checkpoint()
    raise LeavingError


async def _cancel(scope: trio.CancelScope) -> None:
    scope.cancel()
    await trio.sleep_forever()


@pytest.mark.parametrize("leave", [_return, _raise, _cancel])
@pytest.mark.parametrize("kind", ["model", "process", "wait", "ask", "spawn", "shutdown"])
@pytest.mark.parametrize("durable", [True, False], ids=["file", "memory"])
async def test_nothing_is_left_whatever_runs(tmp_path: Path, leave: Leave, kind: str, durable: bool) -> None:
    """A block left by return, exception or cancellation leaves nothing, whatever the team was doing."""
    workdir = tmp_path / "work"
    workdir.mkdir()
    await trio.to_thread.run_sync(os.getpid)  # the first thread makes descriptors of trio's own
    before = residue()
    activity = Activity(kind)
    with trio.CancelScope() as scope:
        try:
            directory = tmp_path / "team" if durable else None
            async with (
                open_team(directory, model=activity.model, workdir=workdir, options=QUICK) as team,
                trio.open_nursery() as nursery,
            ):
                await activity.start(team, nursery, workdir)
                await leave(scope)
                nursery.cancel_scope.cancel()
        except* LeavingError:
            pass
    assert residue(activity.marker).more_than(before) == NOTHING


async def _work(directory: Path | None, model: ScriptedModel) -> None:
    options = TeamOptions(shutdown=QUICK.shutdown, views=False)
    async with open_team(directory, model=model, options=options, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin")
        await team.tasks.create("one", assignee="ann")
        await team.send("ann", "more", priority="now")
        await team.wait_quiescent()
        await team.spawn("ben", prompt="begin")
        await team.shutdown("ann")


def _answer(request: ModelRequest) -> Reply:
    return call("task_list") if request.messages[-1].tool_results == () else say("done")


async def _steps(directory: Path | None) -> int:
    with cancel_at_step(None) as counter:
        await _work(directory, ScriptedModel(_answer))
    return counter.steps


@pytest.mark.parametrize("durable", [True, False], ids=["file", "memory"])
async def test_nothing_is_left_when_cancelled_at_any_step(tmp_path: Path, durable: bool) -> None:
    """Cancelled before any of sixty steps spread over its life, a team ends at once and leaves nothing; on disk it opens again."""
    await trio.to_thread.run_sync(os.getpid)
    steps = await _steps(tmp_path / "whole" if durable else None)
    before = residue()
    for number in range(60):
        directory = tmp_path / f"team{number}" if durable else None
        with trio.fail_after(5), cancel_at_step(1 + number * steps // 60):
            await _work(directory, ScriptedModel(_answer))
        assert residue().more_than(before) == NOTHING, f"cancelled before step {1 + number * steps // 60} of {steps}"
        if directory is not None and number % 6 == 0:
            async with open_team(directory, model=ScriptedModel(_answer), options=TeamOptions(views=False)) as team:
                await team.wait_quiescent()


INTERRUPTED_PROGRAM = """
import sys, trio
from teams import ScriptedModel, open_team
from teams.models.script import call, say

async def main():
    model = ScriptedModel(lambda request: call("bash", command="echo up; sleep 7654321.%s & sleep 7654321.%s" % (sys.argv[2], sys.argv[2])))
    async with open_team(sys.argv[1] + "/team", model=model, workdir=sys.argv[1]) as team:
        await team.spawn("ann", prompt="begin")
        while model.calls.get("ann") != 1:
            await trio.sleep(0.01)
        print("running", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_interrupt_key_ends_a_team_at_once(tmp_path: Path) -> None:
    """Ctrl-C in mid-tool ends the program within seconds, with the tool's processes; the journal opens and the member comes back."""
    marker = str(secrets.randbelow(10**9))
    program = [sys.executable, "-c", INTERRUPTED_PROGRAM, str(tmp_path), marker]
    async with trio.open_nursery() as nursery:
        quiet = partial(trio.run_process, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        process: trio.Process = await nursery.start(quiet, program)
        assert process.stdout is not None
        assert (await process.stdout.receive_some(100)).startswith(b"running")
        process.send_signal(signal.SIGINT)
        with trio.fail_after(5):
            await process.wait()
    assert not residue(f"7654321.{marker}").children
    async with open_team(tmp_path / "team", model=ScriptedModel(lambda _: "done")) as team:
        await team.spawn("ann", prompt="begin", options=MemberOptions(auto_claim=False))
        assert team.state.roster.members["ann"].incarnation == 2
