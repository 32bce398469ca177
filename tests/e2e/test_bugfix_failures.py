"""What can go wrong with the bug-fix team itself: every ending is an exit code 1 with the reason in its first line."""

from pathlib import Path

import pytest
import trio

from teams import Model, ModelRequest, ScriptedModel
from teams.cli import bugfix
from teams.cli.bugfix_replay import Hand, replay
from teams.errors import AuthenticationFailed
from teams.models import Reply, blocked, fail

pytestmark = pytest.mark.slow

EMPTY_TEST = "import unittest\\n\\nclass T(unittest.TestCase):\\n    def test(self):\\n        pass\\n"
CHEAT = f"for file in tests/test_*.py; do printf '{EMPTY_TEST}' > $file; done"


async def run(directory: Path, model: Model) -> tuple[int, list[str]]:
    """Run the team on a model; return the exit code and the lines of the report that are not blank."""
    lines: list[str] = []
    code = await bugfix.run_bugfix(directory=directory, live_model=model, report=lines.append)
    return code, [line for line in lines if line]


def cheat(hand: Hand) -> str:
    """Make all tests pass by replacing them, and call the task done."""
    for mail in hand.mail:
        if mail.type == "task_assignment":
            hand.do("bash", command=CHEAT)
            hand.do("task_complete", task_id=1, result="all tests pass")
    return "Done."


async def test_team_that_changes_the_tests_has_not_succeeded(tmp_path: Path) -> None:
    """Tests that pass because they were replaced prove nothing: the exit code is 1, and the report names them."""
    code, lines = await run(tmp_path, ScriptedModel(replay(cheat)))
    assert code == 1
    assert " ".join(lines[1:3]).startswith("Not done: the tests were changed: tests/test_discounts.py, tests/test_money.py, tests/test_p")
    assert any("after: 4 tests, all pass" in line for line in lines)


async def test_model_that_refuses_everybody_ends_the_run(tmp_path: Path) -> None:
    """When no member can reach the model, the run ends by itself and says why."""
    code, lines = await run(tmp_path, ScriptedModel(lambda _request: fail(AuthenticationFailed("this key is not valid"))))
    assert (code, lines[1]) == (1, "Not done: 17 tests, 4 fail. ann failed: AuthenticationFailed: this key is not valid")
    assert any("meant for cora, who is failed" in line for line in lines)


async def test_model_that_never_answers_runs_into_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is over, all members are stopped by force, and the report says so."""
    monkeypatch.setattr(bugfix, "LIVE_SECONDS", 2.0)  # enough for three members to come up, also on a busy machine

    def script(_request: ModelRequest) -> Reply:
        return blocked(trio.Event())

    code, lines = await run(tmp_path, ScriptedModel(script))
    assert (code, lines[1]) == (1, "Not done: 17 tests, 4 fail. The time ran out.")
    assert sum("stopped_forced" in line for line in lines) == 3
