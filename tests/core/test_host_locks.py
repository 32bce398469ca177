"""A host is alive as long as its process is, whatever becomes of the process."""

import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from teams.hosts import dead_hosts, describe_host, host_lock, new_host_name

HOLD = """
import sys
from pathlib import Path
from teams.hosts import host_lock
with host_lock(Path(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def process_of(directory: Path, host: str) -> Generator[subprocess.Popen[str]]:
    """Run a process that holds the lock of a host until its input ends."""
    command = [sys.executable, "-c", HOLD, str(directory), host]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_running_process_is_alive_and_a_killed_one_is_dead(tmp_path: Path) -> None:
    """The very moment that a process is gone its host is known to be dead; its neighbour lives on."""
    hosts = tmp_path / "hosts"
    with process_of(hosts, "killed_1_a") as killed, process_of(hosts, "other_2_b"):
        assert dead_hosts(hosts, ["killed_1_a", "other_2_b"]) == frozenset()
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert dead_hosts(hosts, ["killed_1_a", "other_2_b"]) == {"killed_1_a"}


def test_a_stopped_process_is_alive(tmp_path: Path) -> None:
    """A process that only stands still keeps its members: nobody may take them over."""
    with process_of(tmp_path, "still_1_a") as process:
        process.send_signal(signal.SIGSTOP)
        assert dead_hosts(tmp_path, ["still_1_a"]) == frozenset()


def test_a_process_that_ended_in_order_is_dead_and_leaves_no_file(tmp_path: Path) -> None:
    """The file goes with its host, and a host without a file is dead."""
    with process_of(tmp_path, "done_1_a") as process:
        process.communicate("")
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert dead_hosts(tmp_path, ["done_1_a", "never_2_b"]) == {"done_1_a", "never_2_b"}


def test_the_own_host_is_alive_until_its_block_ends(tmp_path: Path) -> None:
    """Also within one process a host is alive, and asking does not end it; an error in the block does."""
    host = new_host_name()

    def fail_while_alive() -> None:
        with host_lock(tmp_path, host):
            assert [dead_hosts(tmp_path, [host]) for _ in range(2)] == [frozenset(), frozenset()]
            raise LookupError

    with pytest.raises(LookupError):
        fail_while_alive()
    assert dead_hosts(tmp_path, [host]) == {host}


def test_several_that_ask_at_once_hear_the_same(tmp_path: Path) -> None:
    """Asking whether a host is dead does not make it look alive to somebody else who asks at that moment."""
    with process_of(tmp_path, "dead_1_a") as process:
        process.kill()
        process.wait()
    wrong: list[int] = []

    def ask() -> None:
        wrong.extend(number for number in range(400) if not dead_hosts(tmp_path, ["dead_1_a"]))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_team_in_memory_has_nobody_to_fear(tmp_path: Path) -> None:
    """Without a directory there is no lock to hold, and no host is dead."""
    with host_lock(None, "here_1_a"):
        assert dead_hosts(None, ["here_1_a", "there_2_b"]) == frozenset()
    assert list(tmp_path.iterdir()) == []


def test_a_host_is_named_so_that_a_person_finds_it() -> None:
    """Two names of one process differ, each is a file name, and in words it says which process where."""
    first, second = new_host_name(), new_host_name()
    assert first != second
    assert not set(first) & set("/\\. ")
    assert describe_host("box-1_4711_abcd") == "process 4711 on box-1"
