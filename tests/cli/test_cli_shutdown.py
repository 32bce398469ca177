"""`teams shutdown DIR --all`: everybody who runs is asked at once, and each outcome is told as it comes."""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from teams import MemberOptions, ScriptedModel, Team, open_team, tool
from teams.cli import shutdown
from teams.models.base import ModelRequest
from teams.models.script import Reply, blocked, call, fail, say
from tests.cli.team_on_disk import ROOT, command_environment, hosted_team, teams_command
from tests.laws.shutting import asked, rejecting

Run = Callable[..., tuple[int, str, str]]
NAMES = ("first", "second", "third")


@asynccontextmanager
async def _busy_team(root: Path, script: Callable[[ModelRequest], Reply]) -> AsyncGenerator[Team]:
    """Host a lead and two teammates that each own a task, so that each is asked by its own script."""
    async with open_team(root, model=ScriptedModel(script), name="many") as team:
        for name in NAMES:
            task = await team.tasks.create(f"work of {name}")
            await team.spawn(name, lead=name == "first", options=MemberOptions(auto_claim=False))
            await team.tasks.claim(task.id, name)
        yield team


def _each(answers: dict[str, Callable[[str], Reply]]) -> Callable[[ModelRequest], Reply]:
    def script(request: ModelRequest) -> Reply:
        request_id = asked(request)
        return say("done") if request_id is None else answers[request.agent](request_id)

    return script


def _agreeing(request_id: str) -> Reply:
    return call("shutdown_response", request_id=request_id, approve=True, reason="gladly")


async def _command(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return await trio.to_thread.run_sync(lambda: teams_command(*arguments))


async def test_all_are_asked_at_once_and_told_as_they_end(tmp_path: Path) -> None:
    """Who ends first is told first, while another is still waited for; one that rejects makes the exit code 1, and goes on."""
    go_on = trio.Event()

    def late(request_id: str) -> Reply:
        return blocked(go_on) + _agreeing(request_id)

    answers = {"first": late, "second": _agreeing, "third": rejecting("not yet")}
    async with _busy_team(tmp_path / "team", _each(answers)) as team, trio.open_nursery() as nursery:
        command = [sys.executable, "-m", "teams", "shutdown", str(tmp_path / "team"), "--all", "--reason", "enough"]
        environment = {key: value for key, value in command_environment().items() if key != "PYTHONUNBUFFERED"}
        process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, env=environment, cwd=ROOT)
        assert process.stdout is not None
        nursery.start_soon(process.wait)
        said = b""
        while said.count(b"\n") < 2:
            said += await process.stdout.receive_some()
        assert sorted(said.decode().splitlines()) == [
            "second has stopped: gladly; task 2 can be taken again",
            "third does not want to stop: not yet; --force stops it all the same",
        ]
        assert team.state.roster.members["first"].live
        go_on.set()
        assert await process.stdout.receive_some() == b"first has stopped: gladly; task 1 can be taken again\n"
        assert await process.wait() == 1
        await process.stdout.aclose()
        assert team.state.roster.members["third"].live
        assert {request.body["reason"] for request in map(team.state.requests.get, ("r1", "r2", "r3"))} == {"enough"}


async def test_all_as_data_is_a_list_and_force_asks_nobody(tmp_path: Path) -> None:
    """--json prints one list in the order of the roster; a second time the rejection is shown; --force ends who rejects."""
    answers = {"first": _agreeing, "second": _agreeing, "third": rejecting("not yet")}
    async with _busy_team(tmp_path / "team", _each(answers)) as team:
        done = await _command("shutdown", tmp_path / "team", "--all", "--json")
        assert done.returncode == 1
        outcomes = json.loads(done.stdout)
        assert [(ended["name"], ended["outcome"], ended["handed_back"]) for ended in outcomes] == [
            ("first", "stopped", [1]),
            ("second", "stopped", [2]),
            ("third", "rejected", []),
        ]
        (again,) = json.loads((await _command("shutdown", tmp_path / "team", "--all", "--json")).stdout)
        assert (again["name"], again["outcome"], again["rejected_before"]) == ("third", "rejected", ["not yet"])
        assert "it rejected before: once because: not yet" in again["text"]
        forced = await _command("shutdown", tmp_path / "team", "--all", "--force")
        assert (forced.returncode, forced.stdout) == (0, "third was stopped by force; task 3 can be taken again\n")
        assert not any(team.state.roster.members[name].live for name in NAMES)
        assert (await _command("shutdown", tmp_path / "team", "--all")).stdout == "nobody runs\n"
        assert json.loads((await _command("shutdown", tmp_path / "team", "--all", "--json")).stdout) == []


async def test_who_fails_while_it_is_asked_is_told_as_failed(tmp_path: Path) -> None:
    """A member whose model breaks over the request has not stopped as it was asked to."""
    async with _busy_team(tmp_path / "team", _each({"second": lambda _: fail(RuntimeError("out of order"))})):
        done = await _command("shutdown", tmp_path / "team", "second", "--json")
        ended = json.loads(done.stdout)
        assert (done.returncode, ended["outcome"]) == (0, "failed")
        assert ended["text"] == "second failed on the way: RuntimeError: out of order"


async def test_a_tool_that_holds_on_does_not_hold_up_the_command(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that cannot be stopped is told as still cancelling, with exit code 1, once the time for that is over."""
    monkeypatch.setattr(shutdown, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(shutdown, "END_SECONDS", 0.1)
    entered, let_go = trio.Event(), trio.Event()

    @tool(effect="reads", time_limited=False)
    async def cling() -> str:
        """Take the cancellation badly."""
        entered.set()
        with trio.CancelScope(shield=True):
            await let_go.wait()
        return ""

    async with open_team(tmp_path / "team", model=ScriptedModel([call("cling")])) as team:
        await team.spawn("ann", prompt="begin", tools=[cling])
        await entered.wait()
        try:
            code, out, err = await trio.to_thread.run_sync(run, "shutdown", tmp_path / "team", "ann", "--force")
        finally:
            let_go.set()
        assert (code, out, err) == (1, "ann is cancelled, and has not ended yet: a tool of it holds on\n", "")


def test_all_members_of_a_killed_host_are_marked_lost(tmp_path: Path, run: Run) -> None:
    """After kill -9 nobody can answer: each is told as lost, with what it held, and a second time nobody runs."""
    root = tmp_path / ".team"
    with hosted_team(root) as host:
        host.send_signal(signal.SIGKILL)
        host.wait(20)
        code, out, err = run("shutdown", root, "--all")
        assert (code, err) == (0, "")
        ann, ben = sorted(out.splitlines())
        assert ann.startswith(f"ann was lost: process {host.pid} on")
        assert ann.endswith("; task 1 can be taken again")
        assert ben.startswith("ben was lost")
        assert run("shutdown", root, "--all") == (0, "nobody runs\n", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ann", "--all"), "NAME and --all exclude each other: leave out 'ann' to stop everybody, or --all to stop it alone"),
        ((), "nobody is named to shut down: give a NAME, or --all"),
    ],
)
def test_a_name_and_all_exclude_each_other(team: Path, run: Run, arguments: tuple[str, ...], words: str) -> None:
    """Exactly one of NAME and --all is wanted; anything else is a usage error that writes nothing."""
    before = run("log", team, "--json")[1]
    code, out, err = run("shutdown", team, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert run("log", team, "--json")[1] == before
