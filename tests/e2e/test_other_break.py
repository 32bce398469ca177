"""Broken in another way, the project gets another ending: the scripts decide by what they find."""

import re
import subprocess
from pathlib import Path

import pytest

from teams.cli.bugfix import run_bugfix
from teams.cli.demo_project import break_in_another_way, materialize
from teams.errors import UsageError

BEST_RATE = "max(rate for minimum, rate in TIERS if subtotal >= minimum)"
pytestmark = pytest.mark.slow


async def run(directory: Path) -> tuple[int, str]:
    """Run the team on the project that is in the directory; return the exit code and the report, on one line."""
    lines: list[str] = []
    code = await run_bugfix(directory=directory, live_model=None, report=lines.append)
    return code, " ".join(" ".join(lines).split())


def swap(directory: Path, name: str, old: str, new: str) -> None:
    """Replace the one place where a file has some text, and commit that."""
    path = directory / "project" / "invoicing" / name
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    person = ("-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *person, "commit", "--quiet", "--all", "--message", "Another fault"], cwd=directory / "project", check=True)


async def test_fault_that_nobody_can_mend_is_reported(tmp_path: Path) -> None:
    """What can be mended is mended; the rest fails its task with what was tried, what waited for it fails too, and the exit code is 1."""
    materialize(tmp_path / "project")
    break_in_another_way(tmp_path / "project")
    code, text = await run(tmp_path)
    assert code == 1
    assert "Not done: 17 tests, 1 fail. Task 4 failed: no repair that I know helps" in text
    assert "after: 17 tests, 1 fail - tests.test_parsing.ParsingTest.test_price_may_group_thousands Changes" in text
    assert re.search(r"\[!\] 4 Mend parse_price .* tried and taken back: strip blanks", text)
    assert "[!] 5 Review the whole change, after 2, 3, 4 not begun: task 4 did not complete [!] 6" in text
    assert "strip" not in (tmp_path / "project" / "invoicing" / "parsing.py").read_text(encoding="utf-8").partition("def parse_line")[0]
    assert "cora: asked by lead, approved by cora (idle), drained, stopped" in text


async def test_one_other_fault_makes_one_other_fix(tmp_path: Path) -> None:
    """With one module mended beforehand and the other broken otherwise, there is one task to mend, and its repair is another."""
    materialize(tmp_path / "project")
    swap(tmp_path, "money.py", "ROUND_HALF_EVEN", "ROUND_DOWN")
    swap(tmp_path, "discounts.py", BEST_RATE, f"max(({BEST_RATE.removeprefix('max(').removesuffix(')')}), default=Decimal(0))")
    code, text = await run(tmp_path)
    assert code == 0
    assert "round by ROUND_HALF_UP instead of ROUND_DOWN" in text
    assert len(re.findall(r"\[x\] \d Mend", text)) == 1
    assert "[x] 4 Run all tests, after 3" in text


async def test_fault_without_a_candidate_fails_at_once(tmp_path: Path) -> None:
    """A developer that knows nothing to try says so, without a plan and without touching the file."""
    materialize(tmp_path / "project")
    swap(tmp_path, "money.py", "rounding=decimal.ROUND_HALF_EVEN", "rounding=decimal.ROUND_HALF_UP")
    swap(tmp_path, "discounts.py", BEST_RATE, "RATES[subtotal]")
    code, text = await run(tmp_path)
    assert code == 1
    assert re.search(r"\[!\] 2 Mend rate_for .*I know no repair for this: .*NameError", text)
    assert "Plans none" in text


async def test_healthy_project_needs_no_team(tmp_path: Path) -> None:
    """When all tests pass beforehand, nobody is spawned and the exit code is 0."""
    materialize(tmp_path / "project")
    swap(tmp_path, "money.py", "ROUND_HALF_EVEN", "ROUND_HALF_UP")
    swap(
        tmp_path,
        "discounts.py",
        BEST_RATE,
        "max([0, *[r for m, r in TIERS if subtotal >= m]])",
    )
    code, text = await run(tmp_path)
    assert code == 0
    assert text.endswith("17 tests, all pass There is nothing to mend.")
    assert not (tmp_path / ".team").exists()


async def test_directory_of_an_earlier_team_is_refused(tmp_path: Path) -> None:
    """A second run in one directory is refused before anything is touched."""
    (tmp_path / ".team").mkdir()
    with pytest.raises(UsageError, match="a team worked there already"):
        await run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".team"]


async def test_a_project_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    """A folder of that name that git does not know is refused before any agent runs, and left as it is."""
    (tmp_path / "project").mkdir()
    with pytest.raises(UsageError, match="it is no git repository"):
        await run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["project"]
