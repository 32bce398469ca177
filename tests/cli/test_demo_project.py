"""The demo's project is broken in two ways that its own tests show, and can be mended by two small edits."""

import re
import subprocess
from pathlib import Path

import pytest

from teams.cli.demo_project import TEST_COMMAND, break_in_another_way, materialize
from teams.errors import UsageError

FAILING = {
    "test_half_a_cent_is_rounded_up",
    "test_discount_of_half_a_cent_is_rounded_up",
    "test_small_order_has_no_discount",
    "test_invoice_of_a_small_order",
}
BEST_RATE = "max(rate for minimum, rate in TIERS if subtotal >= minimum)"
EDITS = (
    ("invoicing/money.py", "decimal.ROUND_HALF_EVEN", "decimal.ROUND_HALF_UP"),
    ("invoicing/discounts.py", BEST_RATE, BEST_RATE.replace("max(", "max((").replace(" minimum)", " minimum), default=Decimal(0))")),
)


def run_tests(project: Path) -> tuple[int, str]:
    """Run the project's own tests; return the exit code and what they printed."""
    done = subprocess.run(TEST_COMMAND, cwd=project, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def failures(output: str) -> set[str]:
    """Name the tests that failed or raised."""
    return set(re.findall(r"^(?:FAIL|ERROR): (\w+)", output, re.MULTILINE))


def mend(project: Path) -> None:
    """Make the two edits, each of which matches exactly once."""
    for name, old, new in EDITS:
        text = (project / name).read_text(encoding="utf-8")
        assert text.count(old) == 1
        (project / name).write_text(text.replace(old, new), encoding="utf-8")


def test_project_is_a_clean_repository_whose_tests_fail(tmp_path: Path) -> None:
    """A fresh project has one commit, nothing uncommitted, and fails exactly the four tests of its two faults."""
    materialize(tmp_path / "project")
    code, output = run_tests(tmp_path / "project")
    assert code == 1
    assert failures(output) == FAILING
    assert "Ran 17 tests" in output
    status = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path / "project", capture_output=True, text=True, check=True)
    assert status.stdout == ""
    log = subprocess.run(["git", "log", "--format=%an %s"], cwd=tmp_path / "project", capture_output=True, text=True, check=True)
    assert log.stdout.splitlines() == ["Demo Turn orders into invoices"]


def test_output_names_what_is_wrong(tmp_path: Path) -> None:
    """The output of the failing tests tells expected and actual, and the module and line of what raised."""
    materialize(tmp_path)
    _, output = run_tests(tmp_path)
    assert "AssertionError: Decimal('2.34') != Decimal('2.35')" in output
    assert re.search(r'invoicing/discounts\.py", line \d+, in rate_for', output)
    assert "ValueError: max() " in output


def test_two_edits_mend_it(tmp_path: Path) -> None:
    """Two edits by exact match make every test pass."""
    materialize(tmp_path)
    mend(tmp_path)
    code, output = run_tests(tmp_path)
    assert (code, failures(output)) == (0, set())


def test_other_fault_outlives_the_two_edits(tmp_path: Path) -> None:
    """Broken in another way, the project fails a test of a third module, before and after the two edits."""
    materialize(tmp_path)
    break_in_another_way(tmp_path)
    assert failures(run_tests(tmp_path)[1]) == FAILING | {"test_price_may_group_thousands"}
    mend(tmp_path)
    code, output = run_tests(tmp_path)
    assert (code, failures(output)) == (1, {"test_price_may_group_thousands"})


def test_directory_in_use_is_refused(tmp_path: Path) -> None:
    """A directory that holds something is left as it is."""
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="is not empty"):
        materialize(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
