"""A team that has run to its end, built once and copied for each test."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from teams.cli import main
from tests.cli.team_on_disk import build


@pytest.fixture(scope="session")
def built_team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A team directory that no test may change."""
    return build(tmp_path_factory.mktemp("built") / ".team")


@pytest.fixture
def team(built_team: Path, tmp_path: Path) -> Path:
    """A copy of the finished team."""
    copy = tmp_path / ".team"
    shutil.copytree(built_team, copy)
    return copy


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process; return its exit code, output and complaints."""
    for name in ("COLUMNS", "NO_COLOR", "TEAMS_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def command(*arguments: object) -> tuple[int, str, str]:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return command
