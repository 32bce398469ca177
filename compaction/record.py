"""The structured memory of what was cut from a context: data that no model has to remember.

Laws: a record is a value; it only leaves a view together with the view that replaces it. A model may add to it and take nothing away.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict

ConstraintStatus: TypeAlias = Literal["current", "corrected", "revoked"]
ArtifactState: TypeAlias = Literal["read", "created", "modified", "renamed", "deleted"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Statement(_Value):
    """What was said, word for word; of a long one perhaps head and tail alone.

    `recall_id` finds the whole of a long one, which had so many characters; both are empty for one that is never shortened.
    """

    text: str
    recall_id: str = ""
    chars: int = 0


def _as_statement(value: Any) -> Any:
    """Take a plain text for a statement; the first sessions hold them so."""
    return Statement(text=value) if isinstance(value, str) else value


_Statements: TypeAlias = tuple[Annotated[Statement, BeforeValidator(_as_statement)], ...]


class Decision(_Value):
    """What was decided, and why."""

    text: str
    reason: str = ""


class Constraint(_Value):
    """What must be kept to, in the words in which it was given; one that is not current says what came in its place."""

    text: str
    status: ConstraintStatus = "current"
    replaced_by: str = ""


class Artifact(_Value):
    """A file or the like, and what was last done to it; `detail` is the new name of a renamed one, or what is known of it."""

    path: str
    state: ArtifactState
    detail: str = ""


class FailedAttempt(_Value):
    """What was tried and did not work, so that it is not tried again."""

    action: str
    error: str


class Identifier(_Value):
    """A value that must survive as it is: a port, a commit, an id, a key of a table."""

    name: str
    value: str


class CompressedHistory(_Value):
    """What is known of the part of a session that the model no longer sees."""

    type: Literal["compressed_history"] = "compressed_history"
    summary: str = ""
    user_statements: _Statements = ()
    received: _Statements = ()
    constraints: tuple[Constraint, ...] = ()
    decisions: tuple[Decision, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    identifiers: tuple[Identifier, ...] = ()
    failed_attempts: tuple[FailedAttempt, ...] = ()
    notes: tuple[str, ...] = ()
    active_task: str = ""
    next_step: str = ""
    open_requests: tuple[str, ...] = ()

    @property
    def files_touched(self) -> tuple[str, ...]:
        """The paths of all artifacts."""
        return tuple(artifact.path for artifact in self.artifacts)


EMPTY_RECORD = CompressedHistory()
