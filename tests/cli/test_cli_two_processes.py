"""One process hosts a team; others look, write, decide and stop members, and none can take a member away."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import pytest
import trio
import trio.testing

from teams import ScriptedModel, open_team
from teams.cli.log import Printer, follow
from teams.errors import HostConflict
from teams.journal import FileJournal, Record, utc_now_text
from tests.cli.team_on_disk import ROOT, command_environment, hosted_team, teams_command

Run = Callable[..., tuple[int, str, str]]
Host = subprocess.Popen[str]


@pytest.fixture
def hosted(tmp_path: Path) -> Generator[tuple[Path, Host]]:
    """A team that another process hosts."""
    root = tmp_path / ".team"
    with hosted_team(root) as host:
        yield root, host


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Path, Host]]:
    """A team that another process hosts, for tests in which nothing is to change."""
    root = tmp_path_factory.mktemp("untouched") / ".team"
    with hosted_team(root) as host:
        yield root, host


def test_a_hosted_team_is_seen_and_written_to_from_outside(hosted: tuple[Path, Host]) -> None:
    """Other processes see who hosts whom, read the waiting plan, send mail that is read, reject and approve."""
    root, host = hosted
    shown = json.loads(teams_command("status", root, "--json").stdout)
    (process,) = shown["hosts"]
    assert process["alive"] is True
    assert f"_{host.pid}_" in process["host"]
    assert f"process {host.pid} on" in teams_command("status", root).stdout
    plan = teams_command("plans", root).stdout
    assert f"teams approve {root} r1" in plan
    sent = json.loads(teams_command("send", root, "ben", "Are you there?", "--json").stdout)
    assert sent["from"] == "user"
    rejected = teams_command("reject", root, "r1", "--feedback", "name the test")
    assert (rejected.returncode, rejected.stdout) == (0, "r1 is rejected: ann is told why\n")
    again = teams_command("approve", root, "r1")
    assert again.returncode == 1
    assert "it was rejected by 'user'" in again.stderr
    stopped = json.loads(teams_command("shutdown", root, "ben", "--json").stdout)
    assert (stopped["name"], stopped["outcome"]) == ("ben", "stopped")
    read = json.loads(teams_command("log", root, "--kind", "mail.committed", "--json").stdout)
    assert sent["id"] in [message_id for record in read for message_id in record["ids"]]


def test_a_person_approves_from_another_process(hosted: tuple[Path, Host], run: Run) -> None:
    """An approval from outside opens the gate of the host's member; the same one again changes nothing."""
    root, _ = hosted
    assert run("approve", root, "r1", "--feedback", "go on") == (0, "r1 is approved: ann goes on\n", "")
    again = run("approve", root, "r1", "--feedback", "go on")
    assert again[0] == 0, again
    members = {member["name"]: member for member in json.loads(run("status", root, "--json")[1])["members"]}
    assert members["ann"]["plan"]["approved"] == "r1"


def test_an_answer_to_an_older_revision_is_refused(untouched: tuple[Path, Host], run: Run) -> None:
    """A person who names a revision that does not exist decides nothing."""
    root, _ = untouched
    code, _, err = run("approve", root, "r1", "--revision", 2)
    assert (code, err) == (1, "teams: cannot answer revision 2 of request 'r1': the newest is 1\n")
    assert json.loads(run("plans", root, "--json")[1])[0]["state"] == "submitted"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("send", "bne", "hello"), "did you mean ben?"),
        (("send", "../x", "hello"), "cannot send to '../x': no member of the team has that name; members: ann, ben, lead, user"),
        (("send", "ben", " "), "blank"),
        (("send", "ben", "hello", "--from", "ghost"), "cannot send as 'ghost'"),
        (("approve", "r7"), "there is no request 'r7', neither open nor recently closed; waiting for user: r1"),
        (("shutdown", "ghost"), "cannot shut down 'ghost'"),
        (("shutdown", "lead"), "it is a script"),
        (("shutdown", "../../etc"), "no member of the team has that name"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(untouched: tuple[Path, Host], run: Run, arguments: tuple[str, ...], words: str) -> None:
    """Unknown names, requests and blank texts end with exit code 1 and one helpful line, and nothing is written."""
    root, _ = untouched
    before = json.loads(run("log", root, "--json")[1])
    command, *rest = arguments
    code, out, err = run(command, root, *rest)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert words in err
    assert json.loads(run("log", root, "--json")[1]) == before


def test_a_rejection_needs_feedback(untouched: tuple[Path, Host], run: Run) -> None:
    """A rejection without feedback, or with a blank one, is a usage error."""
    root, _ = untouched
    assert run("reject", root, "r1")[0] == 2
    assert run("reject", root, "r1", "--feedback", " ")[0] == 2


async def test_a_second_host_of_the_same_member_is_refused_by_name(untouched: tuple[Path, Host]) -> None:
    """Who opens the team a second time is refused, and told which process hosts it; the first goes on."""
    root, host = untouched
    with pytest.raises(HostConflict, match=rf"cannot host 'lead': it is hosted by \S+_{host.pid}_"):
        async with open_team(root, model=ScriptedModel([])):
            pytest.fail("the team was opened twice")
    shown = json.loads((await trio.to_thread.run_sync(teams_command, "status", root, "--json")).stdout)
    assert [member["host_alive"] for member in shown["members"]] == [True] * 4


def test_a_killed_host_is_seen_and_its_member_marked_lost(hosted: tuple[Path, Host], run: Run) -> None:
    """After kill -9 the status says that the host is gone, mail is stored all the same, and a shutdown marks the member lost."""
    root, host = hosted
    host.send_signal(signal.SIGKILL)
    host.wait(20)
    status = run("status", root)[1]
    assert f"gone   process {host.pid} on" in status
    assert "ann and ben wait for somebody to open the team again" in status
    assert "host gone" in status
    assert "it reads it when the team is opened again" in run("send", root, "ben", "Hello?")[1]
    code, out, err = run("shutdown", root, "ann")
    assert (code, err) == (0, "")
    assert out.startswith(f"ann was lost: process {host.pid} on")
    assert out.endswith("; task 1 can be taken again\n")
    members = {member["name"]: member for member in json.loads(run("status", root, "--json")[1])["members"]}
    assert members["ann"]["status"] == "failed"
    assert members["ann"]["tasks"] == []
    assert run("shutdown", root, "ann")[1] == "ann does not run: it is failed\n"


def test_follow_shows_what_another_process_does(hosted: tuple[Path, Host]) -> None:
    """A follower prints what was, then what others do, as JSON lines; Ctrl-C ends it quietly with 130."""
    root, _ = hosted
    command = [sys.executable, "-m", "teams", "log", str(root), "--follow", "--json", "--last", "1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=command_environment(), cwd=ROOT
    ) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        first = json.loads(follower.stdout.readline())
        teams_command("send", root, "ben", "News!", "--priority", "turn")
        second = json.loads(follower.stdout.readline())
        assert second["seq"] == first["seq"] + 1
        assert (second["kind"], second["content"]) == ("mail.sent", "News!")
        os.kill(follower.pid, signal.SIGINT)
        assert follower.wait(20) == 130
        assert follower.stderr.read() == ""


class _Seen(Printer):
    """Tells what was shown."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.shown = trio.Event()

    def show(self, records: Iterable[Record]) -> None:
        """Remember the kinds of records."""
        self.kinds += [record.kind for record in records]
        if self.kinds:
            self.shown.set()


async def test_follow_waits_without_a_clock(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Following wakes on growth alone: no virtual time passes, which any wait by the clock would have let pass."""
    printer = _Seen()
    journal = await FileJournal.open(tmp_path / "journal")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, tmp_path / "journal", 0, (), printer)
        await trio.testing.wait_all_tasks_blocked()
        await journal.append([Record(1, utc_now_text(1e9), "mail.sent", {"id": "m1"})], 0)
        await printer.shown.wait()
        nursery.cancel_scope.cancel()
    await journal.aclose()
    assert printer.kinds == ["mail.sent"]
    assert trio.current_time() == 0.0


def test_send_reads_the_input_and_takes_sender_and_priority(hosted: tuple[Path, Host]) -> None:
    """Text comes from the input for -, another member may be named as sender, and the receipt tells all of it."""
    root, _ = hosted
    command = [sys.executable, "-m", "teams", "send", str(root), "ben", "-", "--from", "lead", "--priority", "turn", "--json"]
    done = subprocess.run(command, input="two\nlines", capture_output=True, text=True, check=True, env=command_environment(), cwd=ROOT)
    receipt = json.loads(done.stdout)
    assert (receipt["from"], receipt["to"], receipt["priority"], receipt["state"]) == ("lead", "ben", "turn", "stored")
    sent = json.loads(teams_command("log", root, "--kind", "mail.sent", "--last", "1", "--json").stdout)
    assert (sent[0]["id"], sent[0]["content"]) == (receipt["id"], "two\nlines")
    assert teams_command("send", root, "ben", "x", "--priority", "soon").returncode == 2


@pytest.mark.parametrize("command", ["send", "approve"])
def test_writing_loads_no_model_no_graph_and_no_pydantic(hosted: tuple[Path, Host], command: str) -> None:
    """A command that writes one fact loads neither a model's client, a graph library, pydantic nor rich."""
    root, _ = hosted
    probe = "import sys; from teams.cli import main; code = main(sys.argv[1:]); sys.stderr.write(' '.join(sys.modules)); sys.exit(code)"
    arguments = {"send": ["ben", "hello"], "approve": ["r1"]}[command]
    done = subprocess.run(
        [sys.executable, "-c", probe, command, str(root), *arguments], capture_output=True, text=True, check=True, env=command_environment()
    )
    assert {"anthropic", "networkx", "pydantic", "rich", "httpx2"} & set(done.stderr.split()) == set()
