"""The commands that only look: status, log, tasks, plans."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.team_on_disk import PLAN, command_environment, teams_command

Run = Callable[..., tuple[int, str, str]]


def test_status_shows_members_tasks_and_what_they_used(team: Path, run: Run) -> None:
    """Status names every member with role, status and tokens, counts the tasks, and says nothing on stderr."""
    code, out, err = run("status", team)
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "developer" in rows["ann"]
    assert "stopped" in rows["ann"]
    assert "reviewer" in rows["ben"]
    assert rows["tasks"] == "tasks  1 completed, 2 ready, 1 blocked, 2 failed"
    assert out.startswith("rounding  4 members, ")
    assert out.splitlines()[1] == "closed  no process hosts it"
    assert "\x1b" not in out


def test_status_json_is_one_document_with_every_member(team: Path, run: Run) -> None:
    """Status for programs is one JSON document that holds members, tasks, requests and hosts."""
    code, out, _ = run("status", team, "--json")
    shown = json.loads(out)
    assert code == 0
    assert [member["name"] for member in shown["members"]] == ["lead", "user", "ann", "ben"]
    assert shown["members"][2]["plan"]["required"] is True
    assert shown["members"][2]["spending"]["input_tokens"] > 0
    assert shown["tasks"] == {"total": 6, "ready": 2, "blocked": 1, "completed": 1, "in_progress": 0, "failed": 2, "cancelled": 0}


def test_status_fits_the_width_of_the_terminal(team: Path) -> None:
    """No line of a status is longer than the terminal is wide."""
    wide, narrow = teams_command("status", team), teams_command("status", team, columns=60)
    assert max(map(len, wide.stdout.splitlines())) > 60
    table = narrow.stdout.splitlines()[2:]
    assert max(map(len, table)) <= 60
    assert "…" in narrow.stdout


def test_log_has_a_line_for_each_record_in_order(team: Path, run: Run) -> None:
    """The log tells every record in one line, under a line for the day; JSON tells the same records."""
    code, out, err = run("log", team)
    _, as_json, _ = run("log", team, "--json")
    records = json.loads(as_json)
    assert (code, err) == (0, "")
    days = [line for line in out.splitlines() if not line[:2].isdigit()]
    assert len(out.splitlines()) - len(days) == len(records)
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert "asks for the approval of a plan: Mend the rounding" in out
    assert "rejected: the plan of ann (name the test)" in out
    assert "failed: Tell the customers (task 4 did not complete)" in out


def test_log_mail_reads_from_sender_to_recipient(team: Path, run: Run) -> None:
    """A message is shown as sender, arrow, recipient, id and text."""
    _, out, _ = run("log", team, "--kind", "mail.sent")
    assert any(line.split()[1:5] == ["lead", "->", "ann", "m1"] and line.endswith("Mend the rounding.") for line in out.splitlines())


def test_log_shows_hostile_text_as_text(team: Path, run: Run) -> None:
    """No control character of a message reaches the terminal, and a message cannot begin a line of its own."""
    _, out, _ = run("log", team, "--kind", "mail")
    hostile = [line for line in out.splitlines() if "Approved!" in line]
    assert len(hostile) == 1
    assert "fdp.exe" in hostile[0]
    assert all(line.isprintable() for line in out.splitlines())


def test_log_last_and_kind_choose_records(team: Path, run: Run) -> None:
    """--last keeps the newest records, also of one kind; a kind before the dot stands for all of its verbs."""
    everything = json.loads(run("log", team, "--json")[1])
    assert json.loads(run("log", team, "--last", 3, "--json")[1]) == everything[-3:]
    tasks = [record for record in everything if record["kind"].startswith("task.")]
    assert json.loads(run("log", team, "--kind", "task", "--json")[1]) == tasks
    assert json.loads(run("log", team, "--kind", "task", "--last", 2, "--json")[1]) == tasks[-2:]
    assert json.loads(run("log", team, "-n", 9999, "--json")[1]) == everything


@pytest.mark.parametrize(
    ("arguments", "words"), [(["--kind", "mial"], "did you mean mail"), (["--last", "0"], "give 1 or more"), (["--lats", "3"], "--lats")]
)
def test_log_refuses_what_it_does_not_know(team: Path, run: Run, arguments: list[str], words: str) -> None:
    """A wrong kind, count or option is a usage error that says what is legal."""
    code, out, err = run("log", team, *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_tasks_show_marks_owners_and_blockers(team: Path, run: Run) -> None:
    """Tasks are listed with mark, id, subject, and what each waits for or came to."""
    code, out, _ = run("tasks", team)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 0
    assert lines[1].startswith("[x] 1 Find what is broken completed")
    assert lines[1].endswith("the rounding")
    assert lines[3] == "[ ] 3 Review it after 2"
    assert lines[4].startswith("[!] 4 Ask the bank failed")
    assert lines[6] == "[ ] 6 Write it down ready"


def test_tasks_json_has_the_keys_of_the_views(team: Path, run: Run) -> None:
    """Tasks for programs have the keys of the task files on disk, and agree with them."""
    shown = json.loads(run("tasks", team, "--json")[1])
    for task in shown:
        view = json.loads((team / "tasks" / f"task_{task['id']}.json").read_text(encoding="utf-8"))
        assert {key: task[key] for key in view} == view
    assert shown[4]["edges"] == {"4": "fail"}


def test_tasks_draw_a_graph_and_its_critical_path(team: Path, run: Run) -> None:
    """The graph can be drawn by Mermaid; the critical path is the longest chain of open tasks."""
    drawn = run("tasks", team, "--mermaid")[1]
    assert drawn.startswith("flowchart TD")
    assert "t2 --> t3" in drawn
    chain = json.loads(run("tasks", team, "--critical-path", "--json")[1])
    assert [task["id"] for task in chain] == [2, 3]
    assert run("tasks", team, "--critical-path", "--mermaid")[0] == 2


def test_plans_show_the_decided_ones_when_asked(team: Path, run: Run) -> None:
    """A decided plan is hidden unless --all is given; then it tells its steps, files, and each decision with feedback."""
    assert run("plans", team)[1] == "no plan waits for a decision; --all shows 1 more\n"
    out = run("plans", team, "--all")[1]
    for words in (*PLAN["steps"], "src/money.py", "revision 1 was rejected by lead", "name the test", "approved by lead"):
        assert words in out
    (plan,) = json.loads(run("plans", team, "--all", "--json")[1])
    assert (plan["state"], plan["revision"], plan["body"]["summary"]) == ("approved", 2, PLAN["summary"])


@pytest.mark.parametrize("command", ["status", "log", "tasks", "plans"])
def test_reading_loads_no_runtime(team: Path, command: str) -> None:
    """A command that only reads loads neither trio nor a model's client, a graph library, pydantic or rich."""
    probe = "import sys; from teams.cli import main; code = main(sys.argv[1:]); sys.stderr.write(' '.join(sys.modules)); sys.exit(code)"
    done = subprocess.run(
        [sys.executable, "-c", probe, command, str(team)], capture_output=True, text=True, check=True, env=command_environment()
    )
    assert {"trio", "anthropic", "networkx", "pydantic", "rich", "httpx2", "asyncio"} & set(done.stderr.split()) == set()


def test_colours_are_for_terminals_that_want_them(team: Path) -> None:
    """Output into a pipe has no colours; help tells the exit codes."""
    assert "\x1b" not in teams_command("status", team).stdout
    told = teams_command("status", "--help").stdout
    assert "exit codes:" in told
    assert "130" in told


def test_python_m_teams_lists_its_commands() -> None:
    """Without a command, the list of commands is shown and the exit code is that of a usage error; an unknown one is an error."""
    done = teams_command()
    assert done.returncode == 2
    assert "import-tasks" in done.stdout
    unknown = teams_command("statsu")
    assert unknown.returncode == 2
    assert "Traceback" not in unknown.stderr


@pytest.mark.parametrize(("revision", "decided"), [("1", "rejected"), ("2", "approved")])
def test_an_answer_is_for_the_revision_that_was_read(team: Path, run: Run, revision: str, decided: str) -> None:
    """An answer that names a revision meets the decision on that one, not on a newer one."""
    code, out, err = run("approve" if decided == "rejected" else "reject", team, "r1", "--revision", revision, "--feedback", "as I said")
    assert (code, out) == (1, "")
    assert f"it was {decided} by 'lead'" in err
