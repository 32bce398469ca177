"""The bug-fix team offline, from the broken project to the directory that explains what happened."""

import re
from pathlib import Path

import pytest
import trio

from teams import Team, connect_team
from teams.cli.bugfix import run_bugfix
from teams.cli.demo_project import TEST_COMMAND

pytestmark = pytest.mark.slow


def silent(_line: str) -> None:
    """Take a report and say nothing."""


def told(text: str) -> str:
    """Return a report without what differs from run to run: the directory and the tokens."""
    return re.sub(r"(/\S+)+|[\d,]+ in \([\d,]+ from the cache\), [\d,]+ out|\d+ calls", "*", text)


async def test_project_is_mended_and_the_report_tells_how(tmp_path: Path) -> None:
    """The tests pass, untouched; one plan is rejected, then approved; changes are reviewed by mail; members shut down by handshake."""
    lines: list[str] = []
    assert await run_bugfix(directory=tmp_path, live_model=None, report=lines.append) == 0
    text = "\n".join(lines)
    await trio.run_process(TEST_COMMAND, cwd=tmp_path / "project", capture_stderr=True)
    changed = await trio.run_process(["git", "diff", "--name-only"], cwd=tmp_path / "project", capture_stdout=True)
    assert changed.stdout.split() == [b"invoicing/discounts.py", b"invoicing/money.py"]
    assert lines[0].endswith("17 tests, 4 fail")
    told_plans = r"revision 1, for (\S+), tests/\S+, is rejected by lead: .* revision 2, for (\S+), is approved by lead"
    found = re.search(told_plans, " ".join(text.split()))
    assert found is not None
    assert found[1] == found[2] == "invoicing/discounts.py"
    for developer in ("ann", "ben"):
        assert re.search(rf"{developer} to cora: Please review .*\n(?: .*\n)*? +- cora to {developer}: Approved", text)
    for member in ("ann", "ben", "cora"):
        assert f"{member}: asked by lead, approved by {member} (idle), drained, stopped" in text
    assert max(len(line) for line in lines[1:] if str(tmp_path) not in line) <= 100


async def test_directory_explains_the_team_afterwards(tmp_path: Path) -> None:
    """Another process finds the members stopped, all tasks completed, and the spending of each."""
    assert await run_bugfix(directory=tmp_path, live_model=None, report=silent) == 0
    async with connect_team(tmp_path / ".team") as client:
        assert {task.status.value for task in client.tasks.list_all()} == {"completed"}
        assert [member.status.value for member in client.state.roster.members.values() if member.spec.role == "developer"] == [
            "stopped"
        ] * 2
        assert all(client.state.roster.spending[name].calls for name in ("ann", "ben", "cora"))
        assert not list(client.state.requests.open())


async def test_same_project_same_story(tmp_path: Path) -> None:
    """Two runs differ in their directories and tokens alone, whoever was faster."""
    reports: list[str] = []
    for name in ("one", "two"):
        lines: list[str] = []
        await run_bugfix(directory=tmp_path / name, live_model=None, report=lines.append)
        reports.append(told("\n".join(lines)))
    assert reports[0] == reports[1]


async def test_watcher_sees_the_team_to_its_last_event_and_cannot_hold_it_up(tmp_path: Path) -> None:
    """A watcher gets the end of the last member, and one that never ends is ended."""
    seen: list[str] = []

    async def watch(team: Team) -> None:
        async with team.events() as events:
            async for event in events:
                seen.append(repr(event))  # noqa: PERF401  # it is looked at while the loop still runs
        await trio.sleep_forever()

    assert await run_bugfix(directory=tmp_path, live_model=None, on_team=watch, report=silent) == 0
    assert "lead" in seen[-1]
    assert "stopped" in seen[-1]
