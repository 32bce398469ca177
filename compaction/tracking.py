"""What is known of a session without asking a model: folded from calls that succeeded, from notes, and from what the user said.

Laws: a fold is pure, and folding in parts gives what folding at once gives; a failed call changes no artifact; a later value takes the
place of an earlier one, and what was revoked is never shown as current; every list is bounded. Bodies of results are not read, but for
their first line where they are errors.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from compaction.layers.arrival import cap
from compaction.recall import recall_id
from compaction.record import (
    Artifact,
    ArtifactState,
    CompressedHistory,
    Constraint,
    Decision,
    FailedAttempt,
    Identifier,
)
from compaction.state import NO_STATE, StateDigest
from compaction.statements import STATEMENT_LIMIT_CHARS, Statements
from compaction.transcript import MAPPINGS, Block, ModelMessage, parts_of, spoken

CONSTRAINTS_LIMIT = DECISIONS_LIMIT = IDENTIFIERS_LIMIT = NOTES_LIMIT = 300
ARTIFACTS_LIMIT = 1_000
FAILURES_LIMIT = 50
LINE_LIMIT_CHARS = 300

READERS: Final = frozenset({"read", "read_file", "read_files", "view", "view_file", "open", "open_file", "cat"})
WRITERS: Final = frozenset({"write", "write_file", "create", "create_file"})
EDITORS: Final = frozenset(
    {"edit", "edit_file", "editor", "insert", "multiedit", "multi_edit", "str_replace", "str_replace_editor", "str_replace_based_edit_tool"}
)
SHELLS: Final = frozenset({"bash", "shell", "run_command", "run_commands", "execute_command"})
_PATH_KEYS = ("path", "file_path", "filename", "file", "file_name")

_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_BINDING = re.compile(
    r"\b(must|never|always|do not|don't|may not|shall|should not|shouldn't|only|at most|at least|no more than|required|forbidden|keep|"
    r"avoid|use|without|constraint)\b",
    re.IGNORECASE,
)
_REVOKING = re.compile(
    r"\b(no longer|forget|scrap|drop the|ignore the|ignore my|never ?mind|revoke[sd]?|withdraw|lifted|not any ?more|"
    r"does not apply|changed my mind|cancel(?:led)? the)\b",
    re.IGNORECASE,
)
_CORRECTING = re.compile(r"\b(instead|rather than|correction|actually|now use|changed? to|replace[sd]? by|from now on)\b", re.IGNORECASE)
_DECISION = re.compile(r"^\W*(?:decision|decided)\b[:\s]*(.+)$|^\W*((?:i|we)(?:'ve| have)? (?:decided|chose|choose)\b.+)$", re.IGNORECASE)
_REASON = re.compile(r"\s+\(?(?:because|since|reason:|as)\s+|\s*[;,]\s*reason:\s*", re.IGNORECASE)
_VALUE = re.compile(r"(?<![\w/.-])([A-Za-z][\w.-]{1,60})\s*(?:=|:\s)\s*([^\s,;\"'`]{1,200})")
_WORD = re.compile(r"[\w./-]{3,}")
_COMMON = frozenset(
    """
    the and for with that this from into must never always not use only keep avoid all any are was were has have had will would shall
    should may can you your our its they them then than when where which please don longer instead rather rule constraint more now about
    forget scrap drop ignore revoke withdraw does apply changed mind actually correction
    """.split()  # noqa: SIM905  # words, to be read as such
)


def fold(
    record: CompressedHistory, messages: Sequence[ModelMessage], *, state: StateDigest = NO_STATE, user_speaks: bool = True
) -> CompressedHistory:
    """Return the record with what these messages add to it.

    Args:
        messages: what came after everything that is in the record.
        user_speaks: whether texts of user messages are the user's own words; in a team they are mail, under the name of whoever sent it,
            and nothing in it becomes a constraint.
        state: what the surroundings know; its tasks and requests take the place of those in the record.
    """
    folding = _Folding(record, user_speaks=user_speaks)
    for message in messages:
        folding.follow(message)
    return folding.finish(state)


def add_from_model(record: CompressedHistory, proposed: CompressedHistory) -> CompressedHistory:
    """Return the record with what a model proposes to add; it takes nothing away, and revives nothing."""
    known = {constraint.text for constraint in record.constraints}
    decided = {decision.text for decision in record.decisions}
    paths = {artifact.path for artifact in record.artifacts}
    names = {identifier.name for identifier in record.identifiers}
    tried = {failure.action for failure in record.failed_attempts}
    return record.model_copy(
        update={
            "summary": proposed.summary or record.summary,
            "constraints": (*record.constraints, *(item for item in proposed.constraints if item.text not in known)),
            "decisions": (*record.decisions, *(item for item in proposed.decisions if item.text not in decided)),
            "artifacts": (*record.artifacts, *(item for item in proposed.artifacts if item.path not in paths)),
            "identifiers": (*record.identifiers, *(item for item in proposed.identifiers if item.name not in names)),
            "failed_attempts": (*record.failed_attempts, *(item for item in proposed.failed_attempts if item.action not in tried)),
            "next_step": record.next_step or proposed.next_step,
            "active_task": record.active_task or proposed.active_task,
        }
    )


class _Folding:
    """The record while it is built: what is looked up by a key is kept by it."""

    def __init__(self, record: CompressedHistory, *, user_speaks: bool) -> None:
        self._base, self._user_speaks = record, user_speaks
        self._said = Statements(record.user_statements)
        self._received = Statements(record.received)
        self._constraints = {constraint.text: constraint for constraint in record.constraints}
        self._decisions = {decision.text: decision for decision in record.decisions}
        self._artifacts: dict[str, tuple[ArtifactState, str]] = {item.path: (item.state, item.detail) for item in record.artifacts}
        self._values = {identifier.name: identifier.value for identifier in record.identifiers}
        self._failed = {attempt.action: attempt.error for attempt in record.failed_attempts}
        self._notes = dict.fromkeys(record.notes)
        self._task = record.active_task
        self._open: dict[str, Block] = {}

    def follow(self, message: ModelMessage) -> None:
        role = message.role
        if role == "assistant":
            self._open.clear()
            for asked in message.tool_calls:
                self._open[str(asked.get("id"))] = asked
            text = message.text
            if "ecided" in text or "ecision" in text or "chose" in text:
                for line in text.split("\n"):
                    self._decide(line)
        elif role == "user":  # a system message holds nobody's words but those of whoever runs the agent
            for result in message.tool_results:
                call = self._open.pop(str(result.get("tool_use_id")), None)
                if call is not None:
                    self._called(call, result)
            if len(message.tool_results) < len(message.content):
                for block in spoken(message):
                    if block.get("type") == "text":
                        self._hear(block)

    def finish(self, state: StateDigest) -> CompressedHistory:
        notes = dict.fromkeys((*self._notes, *state.notes))
        known = state != NO_STATE
        return self._base.model_copy(
            update={
                "user_statements": self._said.all(),
                "received": self._received.all(),
                "constraints": _bounded_constraints(self._constraints.values()),
                "decisions": tuple(self._decisions.values())[-DECISIONS_LIMIT:],
                "artifacts": tuple(
                    Artifact(path=path, state=state, detail=detail)
                    for path, (state, detail) in list(self._artifacts.items())[-ARTIFACTS_LIMIT:]
                ),
                "identifiers": tuple(Identifier(name=name, value=value) for name, value in self._values.items())[-IDENTIFIERS_LIMIT:],
                "failed_attempts": tuple(FailedAttempt(action=a, error=e) for a, e in self._failed.items())[-FAILURES_LIMIT:],
                "notes": tuple(notes)[-NOTES_LIMIT:],
                "active_task": state.active_task if known else self._task,
                "next_step": state.next_step if known else self._base.next_step,
                "open_requests": state.open_requests if known else self._base.open_requests,
            }
        )

    # -- what was said ---------------------------------------------------------------

    def _hear(self, block: Block) -> None:
        """Keep what the user said, and what of it binds."""
        if not self._user_speaks:
            self._received.add(block)
            return
        self._said.add(block)
        for raw in _SENTENCE.split(str(block.get("text", ""))[:STATEMENT_LIMIT_CHARS]):
            sentence = raw.strip()
            if len(sentence) < 8:
                continue
            if len(sentence) > LINE_LIMIT_CHARS:  # a rule that ended in the middle could say the opposite of what was meant
                sentence = cap(sentence, LINE_LIMIT_CHARS, recall_id(block)).text
            revokes, corrects = _REVOKING.search(sentence), _CORRECTING.search(sentence)
            if revokes or corrects:
                self._replace_constraint(sentence, revoked=bool(revokes))
            if _BINDING.search(sentence) and not revokes:
                self._bind(sentence)
            self._take_values(sentence)

    def _bind(self, sentence: str) -> None:
        """Put down a rule; one that had ended and is given again holds again."""
        known = self._constraints.get(sentence)
        if known is not None and known.status == "current":
            return
        self._constraints.pop(sentence, None)
        self._constraints[sentence] = Constraint(text=sentence)
        if len(self._constraints) > 3 * CONSTRAINTS_LIMIT:  # so that looking for the one that is meant stays cheap
            self._constraints = {constraint.text: constraint for constraint in _bounded_constraints(self._constraints.values())}

    def _replace_constraint(self, sentence: str, *, revoked: bool) -> None:
        """Mark the constraint that a sentence speaks of; none where no one is meant clearly."""
        words = _key_words(sentence)
        best, best_share = None, 0.0
        for constraint in self._constraints.values():
            if constraint.status != "current" or constraint.text == sentence:
                continue
            own = _key_words(constraint.text)
            common = len(own & words)
            share = common / max(1, len(own))
            if (common >= 2 or share > 0.5) and share >= best_share:
                best, best_share = constraint, share
        if best is not None and best_share >= 0.34:
            status = "revoked" if revoked else "corrected"
            self._constraints[best.text] = best.model_copy(update={"status": status, "replaced_by": sentence})

    def _take_values(self, text: str) -> None:
        for name, value in _VALUE.findall(text):
            if not value.startswith("//") and any(char.isdigit() or char in "/._-" for char in value):
                self._values.pop(name, None)
                self._values[name] = value.rstrip(".")

    def _decide(self, line: str) -> None:
        found = _DECISION.match(line.strip())
        if found is None:
            return
        whole = (found.group(1) or found.group(2)).strip()[:LINE_LIMIT_CHARS]
        text, *reason = _REASON.split(whole, maxsplit=1)
        if text:
            self._decisions[text] = Decision(text=text, reason=reason[0].rstrip(")") if reason else "")

    # -- what was done ---------------------------------------------------------------

    def _called(self, call: Block, result: Block) -> None:
        name = str(call.get("name"))
        given = call.get("input")
        inputs: Mapping[str, Any] = cast("Mapping[str, Any]", given) if isinstance(given, MAPPINGS) else {}
        if result.get("is_error") or self._failed:
            action = f"{name} {_shortest(inputs)}".strip()[:LINE_LIMIT_CHARS]
            self._failed.pop(action, None)
            if result.get("is_error"):
                self._failed[action] = _first_line(result)
                return
        self._done(name.lower(), inputs)
        self._take_new_files(result)

    def _done(self, name: str, inputs: Mapping[str, Any]) -> None:
        if name in READERS:
            for path in _paths(inputs):
                self._touch(path, "read")
        elif name in WRITERS:
            for path in _paths(inputs):
                self._touch(path, "modified" if path in self._artifacts and self._artifacts[path][0] != "deleted" else "created")
        elif name in EDITORS:
            created = inputs.get("command") == "create"
            for path in _paths(inputs):
                self._touch(path, "created" if created else "read" if inputs.get("command") == "view" else "modified")
        elif name in SHELLS:
            for command in _commands(inputs):
                self._ran(command)
        elif name == "note":
            self._note(str(inputs.get("text", "")))
        elif name == "submit_plan":
            self._decide(f"Decision: plan: {inputs.get('summary', '')}")
        elif name == "task_claim":
            self._task = f"task {inputs.get('task_id', '')}".strip()
        elif name in {"task_complete", "task_fail"}:
            self._task = ""

    def _touch(self, path: str, state: ArtifactState, detail: str = "") -> None:
        """Put down what was last done to a path; what was modified stays so when it is read again."""
        before = self._artifacts.pop(path, None)
        if before is not None and before[0] not in {"deleted", "renamed"}:
            was, known = before
            if state == "read" or (state == "modified" and was == "created"):
                state, detail = was, detail or known
        self._artifacts[path] = state, detail

    def _ran(self, command: str) -> None:
        if "rm " not in command and "mv " not in command:
            return
        for part in re.split(r"&&|\|\||[;\n|]", command):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:
                continue
            words = words[1:] if words[:1] == ["git"] else words
            plain = [word for word in words[1:] if not word.startswith("-")]
            if words[:1] == ["rm"]:
                for path in plain:
                    self._touch(path, "deleted")
            elif words[:1] == ["mv"] and len(plain) == 2:
                known = self._artifacts.get(plain[0])
                self._touch(plain[0], "renamed", plain[1])
                self._touch(plain[1], "modified" if known is not None and known[0] == "modified" else "created")

    def _take_new_files(self, result: Block) -> None:
        """Take in files that a tool says it has made, in a result that is a JSON object with `new_files`."""
        content = result.get("content")
        texts = (content,) if isinstance(content, str) else [str(part.get("text", "")) for part in parts_of(result)]
        for text in texts:
            if not text[:50].lstrip().startswith("{") or '"new_files"' not in text:
                continue
            try:
                listed = json.loads(text).get("new_files")
            except ValueError:
                continue
            for item in cast("Sequence[object]", listed if isinstance(listed, list) else ()):
                if isinstance(item, Mapping) and isinstance(path := cast("Mapping[str, object]", item).get("filename"), str):
                    self._touch(path, "created")

    def _note(self, text: str) -> None:
        text = text.strip()[:LINE_LIMIT_CHARS]
        if not text:
            return
        self._notes.pop(text, None)
        self._notes[text] = None
        self._decide(text)
        self._take_values(text)


def _bounded_constraints(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Keep all that bind, and of the others the newest."""
    every = list(constraints)
    current = [constraint for constraint in every if constraint.status == "current"][-CONSTRAINTS_LIMIT:]
    others = [constraint for constraint in every if constraint.status != "current"][-CONSTRAINTS_LIMIT:]
    kept = {id(constraint) for constraint in (*current, *others)}
    return tuple(constraint for constraint in every if id(constraint) in kept)


@lru_cache(maxsize=4 * CONSTRAINTS_LIMIT)
def _key_words(sentence: str) -> frozenset[str]:
    return frozenset(word.lower().strip("./-") for word in _WORD.findall(sentence)) - _COMMON


def _paths(inputs: Mapping[str, Any]) -> list[str]:
    for key in _PATH_KEYS:
        if isinstance(path := inputs.get(key), str) and path:
            return [path]
    paths: list[str] = []
    for key in ("files", "paths"):
        listed = inputs.get(key)
        for item in cast("Sequence[object]", listed if isinstance(listed, list | tuple) else ()):
            if isinstance(item, str):
                paths.append(item)
            elif isinstance(item, Mapping):
                paths += _paths(cast("Mapping[str, Any]", item))
    return paths


def _commands(inputs: Mapping[str, Any]) -> Iterator[str]:
    for key in ("command", "commands", "cmd"):
        given = inputs.get(key)
        if isinstance(given, str):
            yield given
        elif isinstance(given, list | tuple):
            yield from (str(item) for item in cast("Sequence[object]", given))


def _shortest(inputs: Mapping[str, Any]) -> str:
    """Return what tells one call from another: its command or path, or else its first short text."""
    for key in ("command", *_PATH_KEYS, "query", "pattern", "url"):
        if isinstance(given := inputs.get(key), str):
            return given.strip().split("\n", 1)[0]
    return next((f"{key}={value}" for key, value in inputs.items() if isinstance(value, str | int) and len(str(value)) < 100), "")


def _first_line(result: Block) -> str:
    for part in parts_of(result):
        for line in str(part.get("text", ""))[:2_000].splitlines():
            if line.strip():
                return line.strip()[:LINE_LIMIT_CHARS]
    return "an error"
