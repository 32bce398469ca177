"""The two views of a running team: plain lines, and the live one of rich."""

import io
import json
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from rich.console import Console

from teams import MemberOptions, ScriptedModel, Team, open_team
from teams.cli.board import Board
from teams.cli.live import FRAMES_PER_SECOND, watch_live
from teams.cli.output import Terminal
from teams.cli.plain import say_event, watch_plain
from teams.events import Event, MailStored, ModelCalled, RuntimeNotice, TextDelta, ToolEnded, ToolStarted
from teams.models.script import call, say
from tests.cli.team_on_disk import HOSTILE, PLAN, reviewer, teams_command

Clock = trio.testing.MockClock


def _model() -> ScriptedModel:
    script = {
        "ann": [call("submit_plan", **PLAN), say("Waiting."), *reviewer()],
        "ben": [call("send_message", to="ann", content=HOSTILE), *reviewer()],
    }
    return ScriptedModel(script)


async def _work(team: Team) -> None:
    await team.spawn("ann", role="developer", prompt="Mend the rounding.", tools=[], plan="required")
    await team.spawn("ben", role="reviewer", prompt="Review it.", tools=[], options=MemberOptions(auto_claim=False))
    async for request in team.plan_requests():
        await request.approve()
    await team.tasks.create("Mend it", assignee="ann")
    await trio.sleep(1)  # virtual; the live view draws


def _wall() -> float:
    return 1e9 + trio.current_time()


async def _watched_run(watch: Callable[..., Awaitable[object]]) -> None:
    async with trio.open_nursery() as nursery, open_team(None, model=_model(), name="rounding", wall_clock=_wall) as team:
        await nursery.start(watch, team)  # noqa: ASYNC111  # a view outlives its team, and sees how it ends
        await _work(team)


async def test_plain_view_has_a_line_for_each_event_and_ends_with_the_team(autojump_clock: Clock) -> None:
    """The plain view tells mail, plans, tools, tasks and the end of each member, one line each, and returns when the team has closed."""
    lines: list[str] = []

    await _watched_run(partial(watch_plain, terminal=Terminal(), write=lines.append))
    text = "\n".join(lines)
    assert all(re.match(r"\d\d:\d\d:\d\d  ", line) and line.isprintable() for line in lines)
    for words in (
        "lead -> ann",
        "submit_plan summary=Mend the rounding",
        "plan approval of ann is approved",
        "claimed: Mend it",
        "is stopped",
    ):
        assert words in text
    assert "stopped" in lines[-1]


async def test_plain_view_is_cut_to_the_terminal(autojump_clock: Clock) -> None:
    """No line of the plain view is longer than the terminal is wide."""
    lines: list[str] = []

    await _watched_run(partial(watch_plain, terminal=Terminal(60), write=lines.append))
    assert lines
    assert max(map(len, lines)) <= 60


def _console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, height=30, color_system=None, legacy_windows=False)


def _frames(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().split("╭─ ")[1:]


async def test_live_view_shows_members_tasks_mail_and_ends_with_the_team(autojump_clock: Clock) -> None:
    """The last frame of the live view has every member with its status, the tasks and the mail; the cursor is back."""
    console = _console()

    await _watched_run(partial(watch_live, console=console))
    last = _frames(console)[-1]
    assert last.startswith("rounding  ")
    for words in ("ann", "developer", "stopped", "r1 approved", "Mend it", "ben -> ann", "Approved!"):
        assert words in last
    assert "\x1b[31m" not in last
    assert last.rstrip("\n").endswith("\x1b[?25h")


async def test_live_view_draws_at_a_bounded_rate(autojump_clock: Clock) -> None:
    """Ten thousand events in one second are drawn in no more frames than a second may have."""
    console = _console()
    async with trio.open_nursery() as nursery, open_team(None, model=_model(), wall_clock=_wall) as team:
        await team.add_member("cleo")
        await team.add_member("dan")
        await nursery.start(partial(watch_live, console=console), team)  # noqa: ASYNC111  # as above
        began = trio.current_time()
        for _ in range(50):
            for number in range(10):
                await team.bus.send("cleo", "dan", f"news {number}")
            await trio.sleep(0.02)
        seconds = trio.current_time() - began
        drawn = len(_frames(console))
        assert drawn <= seconds * FRAMES_PER_SECOND + 3
        assert drawn >= FRAMES_PER_SECOND - 1


async def test_live_view_goes_on_counting_time_without_events(autojump_clock: Clock) -> None:
    """While nothing happens, the frame is drawn again once a second and no oftener."""
    console = _console()
    async with trio.open_nursery() as nursery, open_team(None, model=_model(), wall_clock=_wall) as team:
        await nursery.start(partial(watch_live, console=console), team)  # noqa: ASYNC111  # as above
        await trio.sleep(5)
        before = len(_frames(console))
        await trio.sleep(20)
        assert 15 <= len(_frames(console)) - before <= 21


@pytest.mark.parametrize("kind", ["live", "plain"])
async def test_a_cancelled_view_leaves_the_team_alone(autojump_clock: Clock, kind: str) -> None:
    """A view that is cancelled ends at once, gives the cursor back, and the team goes on."""
    console = _console()
    async with open_team(None, model=_model(), wall_clock=_wall) as team:
        async with trio.open_nursery() as nursery:
            if kind == "live":
                await nursery.start(partial(watch_live, console=console), team)
            else:
                lines: list[str] = []
                await nursery.start(partial(watch_plain, terminal=Terminal(), write=lines.append), team)
            nursery.cancel_scope.cancel()
        await _work(team)
        assert team.member("ann").status.value == "idle"
    if kind == "live":
        assert isinstance(console.file, io.StringIO)
        assert "\x1b[?25h" in console.file.getvalue()


def test_the_board_knows_who_does_what_since_when() -> None:
    """A member does its newest running tool, and thinks again when that has ended; tokens add up."""
    board = Board()
    board.note(ToolStarted("ann", "bash", "c1", {"command": "sleep 9"}), 1.0)
    board.note(ToolStarted("ann", "grep", "c2", {"pattern": "x"}), 2.0)
    assert (board.doing["ann"].what, board.doing["ann"].since) == ("grep pattern=x", 2.0)
    board.note(ToolEnded("ann", "grep", "c2", False, False, ""), 3.0)
    assert (board.doing["ann"].what, board.doing["ann"].since) == ("bash command=sleep 9", 1.0)
    board.note(ToolEnded("ann", "bash", "c1", False, False, ""), 4.0)
    assert board.doing["ann"].what == "thinking"
    for _ in range(2):
        board.note(ModelCalled("ann", "end_turn", "Done.", 100, 5, 90), 5.0)
    assert board.tokens == {"ann": 210}


def test_an_event_is_one_line_whatever_it_holds() -> None:
    """Controls and line ends in texts of models and tools do not survive; a piece of a text is no line."""
    hostile: list[Event] = [
        MailStored("m1", "message", "ann", ("ben",), HOSTILE),
        ToolEnded("ann", "bash", "c1", True, False, HOSTILE),
        ToolStarted("ann", "bash", "c1", {"command": HOSTILE}),
        RuntimeNotice("error", HOSTILE, "ann"),
        ModelCalled("ann", "end_turn", HOSTILE, 1, 1, 0),
    ]
    for event in hostile:
        saying = say_event(event)
        assert saying is not None
        assert saying.what.isprintable()
        assert "Approved!" in saying.what
    assert say_event(TextDelta("ann", "Appr")) is None


@pytest.mark.limit(60)
def test_demo_mends_the_project_and_leaves_a_team_to_look_at(tmp_path: Path) -> None:
    """The demo ends with 0, tells it in one JSON document, and leaves a team that the other commands explain."""
    done = teams_command("demo", "--json", "--keep", tmp_path)
    told = json.loads(done.stdout)
    assert (done.returncode, told["exit_code"]) == (0, 0)
    assert told["tasks"]["completed"] == told["tasks"]["total"] > 0
    assert teams_command("status", told["directory"]).returncode == 0
    again = teams_command("demo", "--plain", "--keep", tmp_path)
    assert again.returncode == 1
    assert again.stderr.count("\n") == 1


def test_demo_without_a_key_says_which_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """--live without a key is one line that names the variable, before anything is made."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    done = teams_command("demo", "--live", "--keep", tmp_path / "new")
    assert done.returncode == 1
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()
    assert teams_command("demo", "--model", "x").returncode == 2
