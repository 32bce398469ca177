"""The small broken project that the demo's team mends, as a template.

The files of the template end in `.txt`, so that no tool of ours takes them for its own. `materialize` lays them out in a git repository.
Two things are wrong in it, each found by two of its tests; `break_in_another_way` adds a third, unknown to a script written for those two.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from teams.errors import UsageError

TEST_COMMAND = (sys.executable, "-B", "-m", "unittest", "-v")
"""Runs the project's tests in its folder; -B, for an edit within a second and of equal length would meet a stale cache of bytecode."""

_TEMPLATE = Path(__file__).parent / "template"
_GIT_ENVIRONMENT = {
    **{f"GIT_{role}_NAME": "Demo" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "demo@example.invalid" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_DATE": "2026-01-05T09:00:00Z" for role in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_GLOBAL": os.devnull,  # a person's signing key, hooks and templates stay out of it
    "GIT_CONFIG_NOSYSTEM": "1",
}


def materialize(directory: Path) -> None:
    """Lay the project out in a new or empty directory, as a git repository with one commit.

    Raises UsageError when the directory holds something, or git is missing.
    """
    if shutil.which("git") is None:
        raise UsageError("cannot make the demo's project: there is no git on PATH; install git and try again")
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"cannot make the demo's project in {str(directory)!r}: the directory is not empty")
    for source in sorted(_TEMPLATE.rglob("*.txt")):
        target = directory / source.relative_to(_TEMPLATE).with_suffix("")
        if target.name.startswith("dot."):
            target = target.with_name(target.name.removeprefix("dot"))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    _git(directory, "-c", "init.defaultBranch=main", "init", "--quiet")
    _commit(directory, "Turn orders into invoices")


def break_in_another_way(directory: Path) -> None:
    """Break a third module of a materialized project, and commit that: prices with grouped thousands are no longer read."""
    module = directory / "invoicing" / "parsing.py"
    before = module.read_text(encoding="utf-8")
    after = before.replace('Decimal(text.replace(",", ""))', "Decimal(text)")
    assert after != before
    module.write_text(after, encoding="utf-8")
    _commit(directory, "Simplify the reading of prices")


def _commit(directory: Path, subject: str) -> None:
    _git(directory, "add", "--all")
    _git(directory, "commit", "--quiet", "--message", subject)


def _git(directory: Path, *arguments: str) -> None:
    """Run git in the project, without the settings of the person or of a repository around it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(("git", *arguments), cwd=directory, env=inherited | _GIT_ENVIRONMENT, check=True, stdin=subprocess.DEVNULL)
