"""What a newcomer types: versions and help, wrong ranges and folders, the directory beside the team's."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.team_on_disk import ROOT, command_environment

Run = Callable[..., tuple[int, str, str]]
STOPPED_WHILE_LOADING = """
import builtins, os, signal, sys
load = builtins.__import__

def stop(name, *rest, **more):
    if name == "argparse":
        os.kill(os.getpid(), signal.SIGINT)
    return load(name, *rest, **more)

from teams.cli import main
builtins.__import__ = stop
sys.exit(main(["--version"]))
"""


def test_version_and_help_are_words_of_their_own(run: Run) -> None:
    """`--version` prints the installed one; `help COMMAND` is `COMMAND --help`, and `help` alone lists the commands."""
    assert run("--version") == (0, f"teams {version('trio-teams')}\n", "")
    assert run("help", "recall") == run("recall", "--help")
    assert "show everything that waits for an answer" in run("help")[1]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("recall", "{team}", "ann", "m1", "--lines", "abc"), 2, "give them as 10-40"),
        (("recall", "{team}", "ann", "m1", "--lines", "5-2"), 2, "give them as 10-40"),
        (("recall", "{team}", "ann", "m1", "--lines", " "), 2, "it is blank"),
        (("recall", "{team}", "ann", "m1", "--lines", "9000"), 1, "cannot show line 9000 of m1: it has"),
        (("recall", "{team}", "ann", "rounding", "--lines", "1"), 2, "is no id here; leave it out to search"),
        (("import-tasks", "{team}", "{team}/none"), 2, "there is no such directory"),
        (("import-tasks", "{team}", "{team}/team.json"), 2, "it is no directory"),
        (("demo", "--keep", ""), 2, "it is blank; name a directory"),
        (("demo", "--keep", "{team}/team.json"), 2, "is a file; name a directory"),
        (("send", "{team}", "ann", "hello"), 1, "spawn it again, in the program that runs the team"),
    ],
)
def test_what_is_typed_wrong_is_told_in_one_line(team: Path, run: Run, arguments: tuple[str, ...], code: int, words: str) -> None:
    """A wrong command line ends with exit code 2, what cannot be done with 1; both say what would be right."""
    got, shown, said = run(*(argument.format(team=team) for argument in arguments))
    assert (got, shown, words in said) == (code, "", True), said


def test_directory_that_holds_the_teams_directory_is_told_so(team: Path, run: Run) -> None:
    """Who names the folder beside the team is told which one to name."""
    code, _, said = run("status", team.parent)
    assert (code, f"{str(team)!r} has: name that one" in said) == (3, True)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interrupt_while_the_command_is_loaded_is_quiet() -> None:
    """A Ctrl-C that comes before the command runs ends it with 130 and no traceback."""
    command = [sys.executable, "-c", STOPPED_WHILE_LOADING]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=command_environment(), cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")
