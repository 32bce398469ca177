"""Directories that are no team, and journals that are torn or damaged."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from teams.cli.entry import COMMANDS
from tests.cli.team_on_disk import ROOT, command_environment, teams_command

Run = Callable[..., tuple[int, str, str]]
ON_A_TEAM = sorted(set(COMMANDS) - {"demo", "protocols"})
FURTHER = {
    "send": ["ben", "hello"],
    "answer": ["r1", "yes"],
    "approve": ["r1"],
    "plan": ["r1"],
    "reject": ["r1", "--feedback", "no"],
    "shutdown": ["ann"],
    "compact": ["ann"],
    "context": ["ann"],
    "recall": ["ann", "words"],
    "import-tasks": ["."],
}


@pytest.mark.parametrize("command", ON_A_TEAM)
def test_a_directory_without_a_team_is_exit_3(tmp_path: Path, run: Run, command: str) -> None:
    """Every command on something that is no team says so in one line, exits with 3 and leaves no trace."""
    empty = tmp_path / "empty"
    empty.mkdir()
    file = tmp_path / "file"
    file.write_text("x", encoding="utf-8")
    for place, words in ((empty, "no team.json"), (tmp_path / "nowhere", "no such directory"), (file, "it is a file")):
        code, out, err = run(command, place, *FURTHER.get(command, []))
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert words in err
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}', '{"format": 99, "name": "x"}'])
def test_a_marker_that_cannot_be_read_is_exit_3(team: Path, run: Run, text: str) -> None:
    """A team.json that is broken or of another format is told as such."""
    (team / "team.json").write_text(text, encoding="utf-8")
    code, _, err = run("status", team)
    assert code == 3
    assert "team.json cannot be read" in err or "its format is 99" in err


@pytest.mark.parametrize("command", ["status", "log", "tasks", "plans"])
def test_a_torn_tail_is_reported_and_survived(team: Path, run: Run, command: str) -> None:
    """A record that a crash cut off is set aside; the command says so on stderr and does its work."""
    segment = next((team / "journal").glob("*.jsonl"))
    before = run(command, team, "--json")[1]
    with segment.open("ab") as file:
        file.write(b'{"seq":9999,"at":"20')
    code, out, err = run(command, team, "--json")
    assert code == 0
    assert err.startswith("teams: note: ")
    assert "torn" in err
    assert err.count("\n") == 1
    if command != "status":
        assert out == before
    else:
        assert json.loads(out)["reports"]
    assert run(command, team)[2] == ""


@pytest.mark.parametrize("command", ["status", "log", "send"])
def test_a_damaged_record_in_the_middle_is_exit_3_with_its_place(team: Path, run: Run, command: str) -> None:
    """A record in the middle that cannot be read is named by file and line; nothing is changed."""
    (team / "snapshot.json").unlink(missing_ok=True)
    segment = next((team / "journal").glob("*.jsonl"))
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"kind"', b'"kinD"')
    segment.write_bytes(b"".join(lines))
    code, _, err = run(command, team, *FURTHER.get(command, []))
    assert (code, err.count("\n")) == (3, 1)
    assert f"{segment}:5: damaged record" in err
    assert segment.read_bytes() == b"".join(lines)


def test_a_log_shows_what_stands_before_the_damage(team: Path, run: Run) -> None:
    """The log needs no whole journal to begin with: a snapshot may hide the damage from status, never from the log."""
    segment = next((team / "journal").glob("*.jsonl"))
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"kind"', b'"kinD"')
    segment.write_bytes(b"".join(lines))
    code, _, err = run("log", team, "--json")
    assert code == 3
    assert ":5: damaged record" in err


def test_a_broken_snapshot_is_not_needed(team: Path, run: Run) -> None:
    """A snapshot that cannot be read is passed over with a word: the journal is the truth."""
    before = run("tasks", team, "--json")[1]
    (team / "snapshot.json").write_text("{", encoding="utf-8")
    code, out, err = run("tasks", team, "--json")
    assert (code, out) == (0, before)
    assert "the snapshot cannot be used" in err


def test_a_directory_that_may_not_be_read_is_one_line(team: Path) -> None:
    """What the operating system refuses is told in one line, without a traceback."""
    shutil.rmtree(team / "journal")
    (team / "journal").write_text("x", encoding="utf-8")
    done = teams_command("status", team)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "journal" in done.stderr


def test_a_reader_that_goes_away_is_no_error(team: Path) -> None:
    """When what reads the output has gone, the command ends without a word."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "teams", "log", str(team)],
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=command_environment(),
        cwd=ROOT,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, "")
