"""What waits for an answer is shown whole, decided from the shell, and taken up by the team's next life."""

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from protocols import Stage
from teams import MemberOptions, ScriptedModel, TeamOptions, Touches, open_team, tool
from teams.cli.facts import USAGE
from teams.cli.sayings import KINDS
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, say, spoken
from teams.state.team_state import TeamState
from teams.testing.team import wait_for

Run = Callable[..., tuple[int, str, str]]
PLAN = {"summary": "Mend it", "steps": ["find it", "mend it"], "files": ["src/**"], "commands": ["make *"], "risk": "callers"}
DONE: list[str] = []


@tool(effect="writes", touches=Touches(command="line", asks=True))
async def shell(line: str) -> str:
    """Run a line."""
    await trio.lowlevel.checkpoint()
    DONE.append(line)
    return f"ran {line}"


def _begins(made: Reply) -> Callable[[ModelRequest], Reply]:
    def script(request: ModelRequest) -> Reply:
        newest = request.messages[-1]
        return made if "begin" in spoken(newest) and not newest.tool_results else say("ready")

    return script


SCRIPTS = {
    "ann": _begins(call("submit_plan", **PLAN)),
    "ben": _begins(call("shell", line="git push")),
    "cora": _begins(call("shell", line="git push")),
    "dan": _begins(call("ask_user", question="Which port,\x1b[2J please?")),
}


async def _spawn_all(team: object) -> None:
    spawn = team.spawn  # type: ignore[attr-defined]
    stages = (Stage(("user", "lead"), 2), "user")
    await spawn("ann", prompt="begin", plan="required", tools=[], options=MemberOptions(approval=stages))
    for name in ("ben", "cora", "dan"):
        await spawn(name, prompt="begin", tools=[shell])


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A team whose process died while a plan, two permissions and a question waited."""
    root = tmp_path_factory.mktemp("waiting")

    async def build() -> None:
        async with open_team(root / "first", model=ScriptedModel(SCRIPTS), options=TeamOptions(views=False)) as team:
            await _spawn_all(team)
            await wait_for(team, lambda: len(team.state.requests) == 4 and team.member("ann").status != "working")
            shutil.copytree(root / "first", root / "killed")

    trio.run(build)
    return root / "killed"


@pytest.fixture
def team(waiting: Path, tmp_path: Path) -> Path:
    """A copy of that team, to decide in."""
    DONE.clear()
    return Path(shutil.copytree(waiting, tmp_path / "team"))


def ids(run: Run, team: Path) -> dict[str, str]:
    """Return the id of each request by who asks."""
    return {request["asker"]: request["id"] for request in json.loads(run("requests", team, "--json")[1])}


def test_everything_that_waits_is_shown_with_the_words_that_decide(team: Path, run: Run) -> None:
    """Each request is laid out whole; nothing in it moves the cursor; a member's own can be asked for."""
    code, shown, _ = run("requests", team)
    by = ids(run, team)
    assert code == 0
    for words in (f"teams approve {team} {by['ben']} --always", f'teams answer {team} {by["dan"]} "..."', "asks to run shell `git push`"):
        assert words in shown
    for words in ("every call of shell needs a permission", "line: git push", "Mend it", "2. mend it", "files: src/**", "risk: callers"):
        assert words in shown
    assert "\x1b[2J" not in shown
    assert run("requests", team, "--for", "ben")[1] == "nothing waits for ben\n"
    code, _, said = run("requests", team, "--for", "bem")
    assert (code, "ben" in said) == (1, True)


def test_plan_is_shown_whole(team: Path, run: Run) -> None:
    """The plan's page has its chain, its votes so far, and after the approval its steps."""
    by = ids(run, team)
    assert run("approve", team, by["ann"])[1] == f"{by['ann']} waits for more votes: 1 yes, 0 no, 2 of them decide\n"
    shown = run("plan", team, by["ann"])[1]
    assert "user approves" in shown
    assert "> user or lead (2 of 2)" in shown
    assert json.loads(run("plan", team, by["ann"], "--json")[1])["steps"] == []
    code, _, said = run("plan", team, by["ben"])
    assert (code, "is no plan, but a permission" in said) == (1, True)
    code, _, said = run("plan", team, "r99")
    assert (code, f"there is no plan 'r99'; plans: {by['ann']}" in said) == (1, True)


def test_log_says_in_words_what_was_asked_and_decided(team: Path, run: Run) -> None:
    """Every kind of record that is folded has its words, and nothing is shown as raw fields."""
    by = ids(run, team)
    run("approve", team, by["ben"], "--always")
    run("rules", team, "--remove", "u1")
    run("approve", team, by["ann"])
    run("answer", team, by["dan"], "8080")
    shown = run("log", team)[1]
    for words in (
        "asks to run shell `git push`, every call of shell needs a permission",
        "approved: shell `git push` of ben",
        "votes yes on the plan of ann",
        "asks: Which port,",
        "answered: the question of dan (8080)",
        "adds the rule: allow shell command git push for ben",
        "removes the rule",
    ):
        assert words in shown
    assert "{" not in shown
    assert set(KINDS) == set(TeamState()._appliers)


def test_person_reads_and_answers_mail(team: Path, run: Run) -> None:
    """The inbox has what was written to the person, with the words that answer it: a question is answered by its own id."""
    by = ids(run, team)
    shown = run("inbox", team)[1]
    assert "Which port," in shown
    assert f'teams send {team} dan "..." --reply-to {by["dan"]}' in shown
    assert "\x1b[2J" not in shown
    assert run("send", team, "dan", "8080", "--reply-to", by["dan"])[0] == 0
    assert by["dan"] not in ids(run, team).values()
    assert [mail["from"] for mail in json.loads(run("inbox", team, "--json")[1])] == ["dan"]
    assert run("inbox", team, "--for", "lead")[1] == "nobody has written to lead\n"


def test_programs_are_given_times_and_figures_by_name(team: Path, run: Run) -> None:
    """Every time in JSON is ISO 8601 in UTC, as in the journal; the figures of a turn have names."""
    by = ids(run, team)
    run("approve", team, by["ann"])
    asked = json.loads(run("requests", team, "--json")[1])
    plan = next(request for request in asked if request["id"] == by["ann"])
    times = [plan["opened_at"], plan["deadline"], plan["votes"][0]["at"], json.loads(run("status", team, "--json")[1])["now"]]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", time) for time in times), times
    turns = [record["usage"] for record in json.loads(run("log", team, "--json")[1]) if "usage" in record]
    assert turns
    assert all(set(turn) == set(USAGE) and turn["calls"] for turn in turns)


def test_log_tells_that_a_host_ended_without_a_word(team: Path, run: Run) -> None:
    """After a kill the next life of a member says what became of the one before; after an orderly end it does not."""
    words = "for the second time; the process that had hosted it ended without a word"
    assert words not in run("log", team)[1]
    trio.run(partial(_next_life, team, seconds=0.2))
    assert run("log", team)[1].count(words) == 5  # the lead's as well
    trio.run(partial(_next_life, team, seconds=0.2))
    assert run("log", team)[1].count("without a word") == 5


async def _next_life(team: Path, *, seconds: float = 20.0) -> ScriptedModel:
    model = ScriptedModel(dict.fromkeys(SCRIPTS, _begins(say("never begun again"))))
    async with open_team(team, model=model, options=TeamOptions(views=False)) as reopened:
        await _spawn_all(reopened)
        with trio.move_on_after(seconds):
            await wait_for(reopened, lambda: not any(request.is_undecided for request in reopened.state.requests.open()))
            await reopened.wait_quiescent()
    return model


def test_what_is_decided_while_the_team_is_down_happens_once(team: Path, run: Run) -> None:
    """Permissions alike are decided together, the question is answered, the plan rejected; the next life acts on each."""
    by = ids(run, team)
    alike = run("approve", team, by["ben"], "--alike")[1]
    assert sorted(alike.splitlines()) == [f"{by[name]} is approved: {name} goes on" for name in ("ben", "cora")]
    again = run("approve", team, by["ben"])
    assert again[0] == 0
    assert re.fullmatch(rf"{by['ben']} was approved already, by user \d+ s ago; nothing has changed\n", again[1])
    assert run("answer", team, by["dan"], "8080")[1] == f"{by['dan']} is answered: dan goes on\n"
    code, _, said = run("answer", team, by["dan"], "9090")
    assert (code, "answered by 'user'" in said) == (1, True)
    assert run("reject", team, by["ann"], "--feedback", "smaller")[1].startswith(f"{by['ann']} is rejected")
    model = trio.run(_next_life, team)
    assert DONE == ["git push", "git push"]
    results = {name: " ".join(message.json for message in request.messages) for name, request in model.last_requests.items()}
    assert "user answers: 8080" in results["dan"]
    assert "smaller" in results["ann"]
    trio.run(_next_life, team)
    assert DONE == ["git push", "git push"]


def test_rules_are_shown_added_and_removed(team: Path, run: Run) -> None:
    """A permission may become a rule; rules are listed with who made them, and removed by their ids."""
    by = ids(run, team)
    assert run("rules", team)[1] == "nobody added a rule\n"
    assert run("approve", team, by["ben"], "--always")[0] == 0
    assert run("rules", team, "--deny", "shell", "--command", "git push *", "--member", "cora")[1] == (
        "added u2: deny shell command git push * for cora\n"
    )
    listed = json.loads(run("rules", team, "--json")[1])
    assert [(rule["id"], rule["action"], rule.get("member"), rule["by"]) for rule in listed] == [
        ("u1", "allow", "ben", "user"),
        ("u2", "deny", "cora", "user"),
    ]
    assert run("rules", team, "--remove", "u1")[1] == "removed u1: allow shell command git push for ben\n"
    assert "u2" in run("rules", team)[1]
    code, _, said = run("rules", team, "--remove", "u1")
    assert (code, "there is no rule 'u1'; there are: u2" in said) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("answer", "{dan}"), 2, "one of the arguments TEXT --decline is required"),
        (("answer", "{ben}", "yes"), 1, "is no question, but a permission"),
        (("approve", "{ben}", "r99"), 1, "there is no request 'r99'"),
        (("approve", "{dan}", "--always"), 1, "is a question, and no permission"),
        (("rules", "--deny", "shell", "--path", "../x"), 1, "cannot be the path of a rule"),
        (("rules", "--allow", "shell", "--member", "eve"), 1, "eve"),
    ],
)
def test_what_cannot_be_decided_changes_nothing(team: Path, run: Run, arguments: tuple[str, ...], code: int, words: str) -> None:
    """Wrong kinds, unknown ids and rules that cannot be are refused in one line, and every request still waits."""
    by = ids(run, team)
    command, *rest = (argument.format(**by) for argument in arguments)
    got, _, said = run(command, team, *rest)
    assert (got, words in said) == (code, True)
    assert len(ids(run, team)) == 4
    assert run("rules", team)[1] == "nobody added a rule\n"
