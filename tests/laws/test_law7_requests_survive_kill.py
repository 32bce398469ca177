"""Law 7: what waits for a decision survives SIGKILL; decided while the process is down, it happens once, with what was approved."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.team_on_disk import ROOT, command_environment, teams_command

HOST = Path(__file__).parent / "host_that_asks.py"


def start(root: Path) -> "subprocess.Popen[str]":
    """Start the host."""
    return subprocess.Popen([sys.executable, str(HOST), str(root)], stdout=subprocess.PIPE, text=True, env=command_environment(), cwd=ROOT)


def lines_until(host: "subprocess.Popen[str]", last: str) -> list[str]:
    """Read what the host prints, up to a line."""
    assert host.stdout is not None
    lines: list[str] = []
    while (line := host.stdout.readline()) != "":
        if line == f"{last}\n":
            return lines
        lines.append(line.rstrip("\n"))
    raise AssertionError(f"the host ended before {last!r}, after {lines}")


@pytest.mark.slow
@pytest.mark.parametrize("approved", [True, False])
def test_requests_are_decided_while_the_process_is_dead(tmp_path: Path, approved: bool) -> None:
    """A plan, a permission and a question wait at two kills in a row; each is decided once from the shell, and acted on once."""
    root = tmp_path / "team"
    for _ in range(2):
        with start(root) as host:
            assert lines_until(host, "all have asked") == []
            host.send_signal(signal.SIGKILL)
    members = {member["name"]: member["status"] for member in json.loads(teams_command("status", root, "--json").stdout)["members"]}
    assert members["ann"] == "awaiting_plan_approval"
    ids = {request["asker"]: request["id"] for request in json.loads(teams_command("requests", root, "--json").stdout)}
    verb = ["approve"] if approved else ["reject", "--feedback", "no"]
    for asker in ("ann", "ben"):
        done = teams_command(verb[0], root, ids[asker], *verb[1:])
        assert done.returncode == 0, done.stderr
    assert teams_command("answer", root, ids["cora"], *(["8080"] if approved else ["--decline", "no idea"])).returncode == 0
    with start(root) as host:
        did = lines_until(host, "quiescent")
        assert host.wait(20) == 0
    if approved:
        expected = [
            "ann was told: written",
            "ben was told: deployed web",
            "cora was told: user answers: 8080",
            "deployed web",
            "wrote a.txt",
        ]
    else:
        expected = [
            f"ben was told: cannot run deploy: permission {ids['ben']} is rejected, by user: no",
            "cora was told: user gives no answer: no idea",
        ]
    assert sorted(line for line in did if line != "all have asked") == expected
    with start(root) as host:
        assert [line for line in lines_until(host, "quiescent") if line != "all have asked"] == []
        assert host.wait(20) == 0
