"""bash: what it shows, what it hides, and that nothing it starts outlives the call."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from teams.tools import ToolCall, ToolContext, ToolDispatcher, ToolLimits, ToolResult, make_default_dispatcher
from teams.tools.shell import explain_exit, scrubbed_environment, shell_tool


async def _bash(root: Path, command: str, *, time_seconds: float | None = 20) -> ToolResult:
    dispatcher = make_default_dispatcher(root, limits=ToolLimits(time_seconds=time_seconds))
    return await dispatcher.call(ToolCall("c", "bash", {"command": command}), ToolContext("ann"))


class Witness:
    """A FIFO that a command's descendants hold open: it ends when the last of them is dead."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    async def said(self) -> bytes:
        """Wait for the next words of a descendant; empty when all are dead."""
        await trio.lowlevel.wait_readable(self._descriptor)
        return os.read(self._descriptor, 1_000)

    def close(self) -> None:
        """Close the reading end."""
        os.close(self._descriptor)


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    """A FIFO beside the work directory."""
    made = Witness(tmp_path.with_name(f"{tmp_path.name}.fifo"))
    yield made
    made.close()


def _no_child_left() -> None:
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def _dead(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"  # killed, and only its new parent has not looked yet


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo out; echo err >&2", "out\nerr\n[exit code 0]"),
        ("exit 3", "[exit code 3]"),
        ("printf x", "x\n[exit code 0]"),
        ("pwd", "{root}\n[exit code 0]"),
        ("kill -KILL $$", "[ended by SIGKILL]"),
        ("cat; read answer; echo \"got '$answer' $?\"", "got '' 1\n[exit code 0]"),
        ("printf '\\xff\\xc3\\xa9'", "\ufffdé\n[exit code 0]"),
        ("for i in 1 2; do echo $i; done | tail -1", "2\n[exit code 0]"),
    ],
)
async def test_output_and_exit_code_are_shown(tmp_path: Path, command: str, text: str) -> None:
    """Both streams come in their order, then how the command ended; standard input is at its end."""
    result = await _bash(tmp_path, command)
    assert result.text == text.format(root=tmp_path)
    assert not result.is_error
    _no_child_left()


async def test_secrets_of_the_host_do_not_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in the host's environment is not in the command's, nor in its descendants'; what the owner gives is."""
    for name in ("ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "BASH_ENV", "LD_PRELOAD_X", "PYTHONPATH"):
        monkeypatch.setenv(name, "sk-very-secret")
    monkeypatch.setenv("LC_ALL", "C")
    dispatcher = make_default_dispatcher(tmp_path, shell_environment={"GIVEN": "by the owner"})
    text = await dispatcher.dispatch("bash", command="env; sh -c env; cat /proc/self/environ | tr '\\0' '\\n'")
    assert "very-secret" not in text
    assert "LC_ALL=C" in text
    assert "GIVEN=by the owner" in text
    assert "PATH=" in text


def test_environment_is_an_allow_list() -> None:
    """Only the named variables and the locale's pass; the owner's own come on top."""
    source = {"PATH": "p", "HOME": "h", "LC_TIME": "t", "TOKEN": "s", "path": "x", "LANGUAGES": "y"}
    assert scrubbed_environment(source, {"A": "b", "HOME": "mine"}) == {"PATH": "p", "HOME": "mine", "LC_TIME": "t", "A": "b"}


STUBBORN = "trap '' TERM HUP INT; exec 9>{fifo}; echo $BASHPID >&9; while :; do sleep 100; done"
FAMILIES = {
    "child": "{stubborn}",
    "grandchild": "bash -c '({nested}) & wait'",
    "background": "({stubborn}) & ({stubborn}) & wait",
    "pipe": "({stubborn}) | cat",
    "own session": "setsid bash -c '{nested}' & wait",
    "own environment": "env -i bash -c '{nested}' & wait",
}


def _family(kind: str, fifo: Path) -> str:
    stubborn = STUBBORN.format(fifo=fifo)
    return FAMILIES[kind].format(stubborn=stubborn, nested=stubborn.replace("'", "'\\''"))


@pytest.mark.parametrize("kind", FAMILIES)
async def test_time_limit_kills_the_whole_family(tmp_path: Path, witness: Witness, kind: str) -> None:
    """At the limit every descendant dies, also one that ignores SIGTERM or left the process group, and the output until then is shown."""
    result = await _bash(tmp_path, f"echo begun; {_family(kind, witness.path)}", time_seconds=0.5)
    assert result.is_error
    assert result.text == "begun\n[stopped: not finished within 0.5 seconds; it and all it started was killed]"
    pids = (await witness.said()).split()
    assert pids
    assert await witness.said() == b""
    assert all(_dead(int(pid)) for pid in pids)
    _no_child_left()


@pytest.mark.parametrize("kind", FAMILIES)
async def test_cancellation_kills_the_whole_family(tmp_path: Path, witness: Witness, kind: str) -> None:
    """When the call is cancelled every descendant dies before the call returns."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_bash, tmp_path, _family(kind, witness.path))
        pids = (await witness.said()).split()
        nursery.cancel_scope.cancel()
    while late := await witness.said():  # a descendant that spoke between the first words and its end
        pids += late.split()
    assert pids
    assert all(_dead(int(pid)) for pid in pids)
    _no_child_left()


@pytest.mark.parametrize("start", ["({stubborn}) &", "setsid bash -c '{nested}' &", "nohup bash -c '{nested}' >/dev/null 2>&1 & disown;"])
async def test_background_process_ends_with_the_command(tmp_path: Path, witness: Witness, start: str) -> None:
    """A background process that keeps the pipe open neither holds up the call nor outlives it."""
    stubborn = STUBBORN.format(fifo=witness.path)
    begin = start.format(stubborn=stubborn, nested=stubborn.replace("'", "'\\''"))
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    begin = begin.replace("echo $BASHPID >&9;", f"echo $BASHPID >&9; : > {ready};")
    result = await _bash(tmp_path, f"{begin} read x < {ready}; echo done")
    assert result.text == "done\n[exit code 0]"
    assert await witness.said()
    assert await witness.said() == b""
    _no_child_left()


async def test_process_that_hides_holds_nobody_up(tmp_path: Path) -> None:
    """A process that left both the group and the environment cannot be found, but the pipe that it holds open delays nothing."""
    text = (await _bash(tmp_path, "setsid env -i sleep 1000 & echo $!")).text
    hidden = int(text.splitlines()[0])
    assert text == f"{hidden}\n[exit code 0]"
    os.kill(hidden, signal.SIGKILL)


async def test_gentle_process_may_clean_up_at_the_limit(tmp_path: Path) -> None:
    """SIGTERM comes first, so that a command can put its things in order."""
    result = await _bash(tmp_path, "trap 'echo cleaned > mark; exit' TERM; echo begun; sleep 100 & wait", time_seconds=0.3)
    assert result.is_error
    assert (tmp_path / "mark").read_text() == "cleaned\n"


@pytest.mark.parametrize("limit", [1, 100, 1_000])
async def test_endless_output_is_bounded(tmp_path: Path, limit: int) -> None:
    """A command that writes megabytes is not held up; head, tail and the exit code are shown within the limit."""
    dispatcher = make_default_dispatcher(tmp_path, limits=ToolLimits(output_chars=limit))
    text = await dispatcher.dispatch("bash", command="echo first; yes é | head -c 5000000; echo; echo last; exit 4")
    assert len(text) <= limit
    if limit == 1_000:
        assert text.startswith("first\né\n")
        assert text.endswith("last\n[exit code 4]")
        assert "output of 5,000,012 bytes in all" in text


@pytest.mark.parametrize("command", ["a\0b", "echo " + "x" * 3_000_000, "echo \ud800"])
async def test_command_that_cannot_be_started_is_explained(tmp_path: Path, command: str) -> None:
    """What the system cannot run is an error text."""
    result = await _bash(tmp_path, command)
    assert result.is_error
    assert result.text.startswith("the command was not run: ")


async def test_directory_that_vanished_is_explained(tmp_path: Path) -> None:
    """A work directory that was removed is an error text and not a crash."""
    root = tmp_path / "gone"
    root.mkdir()
    dispatcher = ToolDispatcher([shell_tool(root)])
    root.rmdir()
    assert "the command was not run: " in await dispatcher.dispatch("bash", command="true")


async def test_another_program_can_be_put_around(tmp_path: Path) -> None:
    """An owner can run commands through a program of its own, such as a sandbox."""
    dispatcher = ToolDispatcher([shell_tool(tmp_path, program=("/bin/echo", "sandboxed"))])
    assert await dispatcher.dispatch("bash", command="rm -rf /") == "sandboxed rm -rf /\n[exit code 0]"


async def test_many_commands_at_once_leave_nothing(tmp_path: Path) -> None:
    """Commands side by side do not disturb each other, and no process or descriptor is left."""
    await _bash(tmp_path, "true")
    before = len(os.listdir("/dev/fd"))
    texts: list[str] = []

    async def run(number: int) -> None:
        texts.append((await _bash(tmp_path, f"sleep 100 & echo {number}")).text)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(run, number)
    assert sorted(texts) == [f"{number}\n[exit code 0]" for number in range(8)]
    assert len(os.listdir("/dev/fd")) == before
    _no_child_left()


@pytest.mark.parametrize(
    ("code", "said"), [(0, "exit code 0"), (-signal.SIGSEGV, "ended by SIGSEGV"), (-250, "ended by signal 250"), (None, "does not end")]
)
def test_exit_is_explained(code: int | None, said: str) -> None:
    """Codes, signals and the process that cannot be reaped have each their words."""
    assert said in explain_exit(code)
