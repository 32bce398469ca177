"""What the record knows comes from calls that succeeded and from what was said, and stays right through corrections and in parts."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.record import EMPTY_RECORD, Artifact, CompressedHistory, Constraint, Decision, FailedAttempt, Identifier, Statement
from compaction.state import StateDigest
from compaction.tracking import add_from_model, fold
from compaction.transcript import Block, ModelMessage, safe_cuts
from tests.compaction.strategies import TRANSCRIPTS, assistant, conversations, result, transcript, user


def done(name: str, content: Any = "ok", *, failed: bool = False, **inputs: Any) -> list[ModelMessage]:
    """Return one call of a tool and what came of it."""
    asked: Block = {"type": "tool_use", "id": f"c{name}{len(str(inputs))}", "name": name, "input": inputs}
    more = {"is_error": True} if failed else {}
    return [assistant(asked), user(result(str(asked["id"]), content, **more))]


def states(*steps: list[ModelMessage]) -> dict[str, str]:
    """Return the state of each artifact after these steps."""
    record = fold(EMPTY_RECORD, [message for step in steps for message in step])
    return {artifact.path: artifact.state for artifact in record.artifacts}


def test_artifacts_follow_successful_calls() -> None:
    """Read, created, modified, renamed and deleted, the last one counting; what failed changed nothing."""
    assert states(done("read_file", path="a")) == {"a": "read"}
    assert states(done("write_file", path="a", content="x")) == {"a": "created"}
    assert states(done("read", path="a"), done("write", path="a", content="x")) == {"a": "modified"}
    assert states(done("edit", path="a"), done("read", path="a")) == {"a": "modified"}
    assert states(done("write", path="a"), done("edit_file", path="a"), done("read", path="a")) == {"a": "created"}
    assert states(done("write", path="a", failed=True), done("read", path="b", failed=True)) == {}
    assert states(done("read", path="a"), done("bash", command="cd x && rm -f a; echo")) == {"a": "deleted"}
    assert states(done("edit", path="a"), done("bash", command="git mv a b")) == {"a": "renamed", "b": "modified"}
    assert states(done("bash", '{"new_files": [{"filename": "out.csv"}]}', command="make")) == {"out.csv": "created"}
    assert states(done("str_replace_editor", command="create", path="n"), done("read_files", files=["x", {"path": "y"}])) == {
        "n": "created",
        "x": "read",
        "y": "read",
    }
    assert states(done("bash", command="rm 'unclosed")) == {}


def test_failed_attempts_stay_until_the_same_thing_works() -> None:
    """What did not work is kept with its error, once; when it works later, it is no failed attempt any more."""
    record = fold(
        EMPTY_RECORD, [*done("bash", "E1\nmore", failed=True, command="make"), *done("bash", "\n E2", failed=True, command="make")]
    )
    assert record.failed_attempts == (FailedAttempt(action="bash make", error="E2"),)
    assert fold(record, done("bash", command="make")).failed_attempts == ()


def test_constraints_are_kept_in_their_words_and_end_when_they_are_revoked_or_corrected() -> None:
    """A rule binds until the user takes it back or puts another one in its place; then the record says so."""
    record = fold(EMPTY_RECORD, [user("Never touch the vendor directory. Thanks!"), user("Always use port 8080 for the proxy.")])
    assert [c.text for c in record.constraints] == ["Never touch the vendor directory.", "Always use port 8080 for the proxy."]
    record = fold(record, [user("Forget the rule about the vendor directory."), user("Use port 9090 for the proxy instead.")])
    shown = {c.text: (c.status, c.replaced_by) for c in record.constraints}
    assert shown["Never touch the vendor directory."] == ("revoked", "Forget the rule about the vendor directory.")
    assert shown["Always use port 8080 for the proxy."] == ("corrected", "Use port 9090 for the proxy instead.")
    assert shown["Use port 9090 for the proxy instead."] == ("current", "")
    other = fold(EMPTY_RECORD, [user("Never push to main."), user("The weather is no longer bad.")])
    assert other.constraints[0].status == "current"


def test_decisions_notes_and_values_are_kept() -> None:
    """Decisions with their reasons, notes, and values by name, the later value in the place of the earlier one."""
    record = fold(
        EMPTY_RECORD,
        [
            assistant("Decision: use SQLite because it needs no server"),
            assistant("maybe we should use Redis"),
            user("on"),
            *done("note", text="db_port=5432"),
            *done("note", text="decided: retry twice (because the network drops)"),
            user("the commit is base=1f3e9a2 now"),
            *done("note", text="db_port=5433"),
        ],
    )
    assert Decision(text="use SQLite", reason="it needs no server") in record.decisions
    assert Decision(text="retry twice", reason="the network drops") in record.decisions
    assert not any("Redis" in decision.text for decision in record.decisions)
    assert record.identifiers == (Identifier(name="base", value="1f3e9a2"), Identifier(name="db_port", value="5433"))
    assert record.notes[0] == "db_port=5432"


def test_the_state_of_the_team_takes_the_place_of_what_was_known() -> None:
    """Tasks and requests are as the team's records have them now, not as they once were."""
    first = fold(EMPTY_RECORD, [], state=StateDigest(active_task="1 Build", open_requests=("plan r1 waits",), tasks=("1 Build",)))
    assert (first.active_task, first.open_requests) == ("1 Build", ("plan r1 waits",))
    later = fold(first, [], state=StateDigest(text="you are ann"))
    assert (later.active_task, later.open_requests) == ("", ())


def test_a_model_adds_and_takes_nothing_away() -> None:
    """What a model proposes is added where nothing is known, and revives nothing that was revoked."""
    record = CompressedHistory(
        constraints=(Constraint(text="a", status="revoked"),), artifacts=(Artifact(path="x", state="deleted"),), active_task="1"
    )
    merged = add_from_model(
        record,
        CompressedHistory(
            constraints=(Constraint(text="a"), Constraint(text="b")),
            artifacts=(Artifact(path="x", state="read"), Artifact(path="y", state="read")),
            active_task="2",
            summary="s",
        ),
    )
    assert [(c.text, c.status) for c in merged.constraints] == [("a", "revoked"), ("b", "current")]
    assert [(a.path, a.state) for a in merged.artifacts] == [("x", "deleted"), ("y", "read")]
    assert (merged.active_task, merged.summary) == ("1", "s")


@given(conversations(max_rounds=10), st.data())
def test_folding_in_parts_is_folding_at_once(messages: list[ModelMessage], data: st.DataObject) -> None:
    """Wherever the session is cut between rounds, the record comes out the same."""
    cut = data.draw(st.sampled_from(safe_cuts(messages)))
    assert fold(fold(EMPTY_RECORD, messages[:cut]), messages[cut:]) == fold(EMPTY_RECORD, messages)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_real_sessions_fold_and_come_back_from_json(path: Path) -> None:
    """The record of a real session is bounded, and the same after a round trip through JSON."""
    record = fold(EMPTY_RECORD, transcript(path))
    assert CompressedHistory.model_validate_json(record.model_dump_json()) == record
    assert len(record.user_statements) <= 200
    assert all(len(statement.text) <= 4_000 for statement in record.user_statements)


def test_a_rule_that_is_given_again_holds_again() -> None:
    """Taken back and then given once more, a rule binds; one that forbids something from now on is a rule, and takes nothing back."""
    rule = "Never push to the main branch."
    record = fold(EMPTY_RECORD, [user(rule), user("Forget the rule about pushing to the main branch."), user(rule)])
    assert [(c.text, c.status) for c in record.constraints] == [(rule, "current")]
    record = fold(EMPTY_RECORD, [user("Always write reports to /srv/reports."), user("You must not write to /srv/archive any more.")])
    assert [c.status for c in record.constraints] == ["current", "current"]


def test_system_messages_are_no_words_of_the_user() -> None:
    """What whoever runs the agent says in between is neither a statement nor a rule of the user."""
    record = fold(EMPTY_RECORD, [user("go"), ModelMessage("system", "You must always obey ben.")])
    assert (record.user_statements, record.constraints) == ((Statement(text="go"),), ())
