"""Every error that teams raises, by who caused it.

TeamError
├── UsageError              the caller asked for what cannot be
│   ├── NotATeam            a directory without a team in it
│   ├── InvalidName         a name that could not be a file name everywhere
│   ├── UnknownMember       no such recipient; near names are listed
│   ├── MemberExists        the name is taken by another member
│   ├── UnknownTask, TaskStateError, TaskGraphError, ClaimLost, StaleLease
│   ├── MailboxFull         the recipient has too much unread mail
│   ├── NoReply             a question got no answer
│   ├── WaitCycle           the wait could never end; names the circle
│   ├── PlanRequired        a write before the plan was approved
│   └── RegistryFrozen      a tool registered after the definitions were read
├── HostConflict            the member is hosted by another process
├── JournalError            the directory on disk
│   ├── JournalConflict     somebody else appended first
│   ├── JournalDamaged      a damaged record in the middle
│   └── JournalClosed       the journal was closed, or failed and may not be written
├── TeamClosed              the team is shutting down
└── ModelError              the provider, translated once in teams.models
    ├── ContextOverflow, Overloaded, RateLimited, QuotaExhausted
    ├── AuthenticationFailed, UnknownModel, InvalidRequest
    ├── ModelConnectionError
    └── ScriptMismatch      the scripted model met a request that its script does not know

Errors of the request protocols (AlreadyDecided, UnknownRequest, NotTheAnswerer, IllegalTransition) come from `protocols.errors`.
Wrong arguments stay TypeError and ValueError.
"""

from collections.abc import Collection, Sequence
from pathlib import Path


class TeamError(Exception):
    """The base of every error that teams raises."""


class UsageError(TeamError):
    """The caller asked for something that cannot be, in the state that the team is in."""


class NotATeam(UsageError):
    """A directory holds no team."""

    def __init__(self, directory: Path, *, reason: str) -> None:
        super().__init__(f"{str(directory)!r} is not a team directory: {reason}")
        self.directory, self.reason = directory, reason


class InvalidName(UsageError):
    """A name cannot be a member's, a tool's or an artifact's name."""

    def __init__(self, name: str, *, reason: str) -> None:
        super().__init__(f"{name!r} cannot be a name: {reason}; legal: letters, digits, '_' and '-', at most 64, not starting with '-'")
        self.name, self.reason = name, reason


class UnknownMember(UsageError):
    """No member has this name."""

    def __init__(self, name: str, *, operation: str, near: Sequence[str] = (), members: Collection[str] = ()) -> None:
        hint = f"did you mean {' or '.join(near)}?" if near else f"members: {', '.join(sorted(members)[:20]) or 'none yet'}"
        super().__init__(f"cannot {operation} {name!r}: no member of the team has that name; {hint}")
        self.name, self.near = name, tuple(near)


class MemberExists(UsageError):
    """The name belongs to a member with another role or prompt."""

    def __init__(self, name: str, *, status: str, difference: str) -> None:
        super().__init__(
            f"cannot spawn {name!r}: a member of that name is {status} with another {difference}; choose another name or shut it down first"
        )
        self.name, self.status, self.difference = name, status, difference


SPAWN_AGAIN = "spawn it again, in the program that runs the team"
"""What is legal for a member that has ended, in words for whoever reads them in Python or in a shell."""


class MemberStateError(UsageError):
    """An operation met a member in a state that forbids it."""

    def __init__(self, name: str, *, status: str, operation: str, legal: Collection[str]) -> None:
        super().__init__(f"cannot {operation} {name!r}: it is {status}; legal now: {', '.join(sorted(legal)) or 'nothing'}")
        self.name, self.status, self.operation, self.legal = name, status, operation, tuple(sorted(legal))


class UnknownTask(UsageError):
    """No task has this id."""

    def __init__(self, task_id: int, *, operation: str, highest: int) -> None:
        known = f"ids run from 1 to {highest}" if highest else "there are no tasks yet"
        super().__init__(f"cannot {operation} task {task_id}: no such task; {known}")
        self.task_id = task_id


class TaskStateError(UsageError):
    """An operation met a task in a state that forbids it."""

    def __init__(self, task_id: int, *, status: str, operation: str, legal: Collection[str]) -> None:
        super().__init__(f"cannot {operation} task {task_id}: it is {status}; legal now: {', '.join(sorted(legal)) or 'nothing'}")
        self.task_id, self.status, self.operation, self.legal = task_id, status, operation, tuple(sorted(legal))


class TaskGraphError(UsageError):
    """An edge would break the graph: a cycle, an edge to itself or to an unknown task."""

    def __init__(self, message: str, *, cycle: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.cycle = tuple(cycle)


class ClaimLost(UsageError):
    """A task cannot be claimed by this owner now."""

    def __init__(self, task_id: int, *, claimant: str, reason: str, owner: str | None = None) -> None:
        super().__init__(f"{claimant!r} cannot claim task {task_id}: {reason}")
        self.task_id, self.claimant, self.reason, self.owner = task_id, claimant, reason, owner


class StaleLease(UsageError):
    """A write to a task showed a fence that is no longer the current one."""

    def __init__(self, task_id: int, *, operation: str, fence: int, current: int, owner: str | None) -> None:
        holder = f"it is owned by {owner!r} now" if owner else "nobody owns it now"
        super().__init__(
            f"cannot {operation} task {task_id} with fence {fence}: the lease ended, the fence is {current} and {holder}; claim it anew"
        )
        self.task_id, self.fence, self.current, self.owner = task_id, fence, current, owner


class MailboxFull(UsageError):
    """The recipient has as much unread mail as its quota allows."""

    def __init__(self, recipient: str, *, unread: int, quota: int) -> None:
        super().__init__(
            f"cannot send to {recipient!r}: it has {unread} unread messages and its quota is {quota}; wait until it has read some"
        )
        self.recipient, self.unread, self.quota = recipient, unread, quota


class NoReply(UsageError):
    """A question got no answer."""

    def __init__(self, message_id: str, asked: str, reply_seconds: float | None) -> None:
        limit = f"within {reply_seconds:g} seconds " if reply_seconds is not None else ""
        super().__init__(f"{asked!r} did not answer {message_id} {limit}or has ended; a late answer is mail of its own")
        self.message_id, self.asked = message_id, asked


class WaitCycle(UsageError):
    """A wait could never end: whoever could end it waits, through others, for it to end.

    `cycle` are the members and tasks of the circle as it runs, `kinds` how each of them depends on the next.
    """

    def __init__(self, cycle: Sequence[str], kinds: Sequence[str], sentence: str) -> None:
        super().__init__(f"cannot wait: {sentence}; nobody in this circle could ever go on")
        self.cycle, self.kinds = tuple(cycle), tuple(kinds)


class PlanRequired(UsageError):
    """A tool that writes was called while no plan of the agent is approved."""


class RegistryFrozen(UsageError):
    """A tool was registered after the definitions had been read."""


class HostConflict(TeamError):
    """The member is hosted by another live process."""

    def __init__(self, name: str, *, host: str, incarnation: int) -> None:
        super().__init__(f"cannot host {name!r}: it is hosted by {host} (incarnation {incarnation}); stop that process first")
        self.name, self.host, self.incarnation = name, host, incarnation


class JournalError(TeamError):
    """The journal could not be read or written."""


class JournalConflict(JournalError):
    """Somebody else appended first; catch up, decide again, append again."""

    def __init__(self, *, expected_seq: int, head_seq: int) -> None:
        super().__init__(f"cannot append after record {expected_seq}: the journal has grown to record {head_seq}")
        self.expected_seq, self.head_seq = expected_seq, head_seq


class JournalDamaged(JournalError):
    """A record that is not the last one cannot be read."""

    def __init__(self, path: Path, *, line: int, reason: str, remedy: str) -> None:
        super().__init__(f"{path}:{line}: damaged record: {reason}; {remedy}")
        self.path, self.line, self.reason, self.remedy = path, line, reason, remedy


class JournalClosed(JournalError):
    """The journal is closed, or a write failed and nothing may be assumed of it."""


class TeamClosed(TeamError):
    """The team takes nothing new: it is closing or closed."""


class ModelError(TeamError):
    """The model gave no answer; `retryable` tells whether the same request may be sent again."""

    retryable = False

    def __init__(self, message: str, *, request_id: str | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id


class ContextOverflow(ModelError):
    """The request does not fit the model's window."""


class Overloaded(ModelError):
    """The provider is overloaded (529, or an internal error)."""

    retryable = True


class RateLimited(ModelError):
    """Too many requests; `retry_after_seconds` as the provider said, None when it did not."""

    retryable = True

    def __init__(self, message: str, *, retry_after_seconds: float | None = None, request_id: str | None = None) -> None:
        super().__init__(message, request_id=request_id)
        self.retry_after_seconds = retry_after_seconds


class QuotaExhausted(ModelError):
    """The account has no credit or quota left; `resets_in_seconds` as the provider said, None when it did not."""

    def __init__(self, message: str, *, resets_in_seconds: float | None = None, request_id: str | None = None) -> None:
        super().__init__(message, request_id=request_id)
        self.resets_in_seconds = resets_in_seconds


class AuthenticationFailed(ModelError):
    """The key is missing, wrong, or may not use the model."""


class UnknownModel(ModelError):
    """The provider has no model of this name."""


class InvalidRequest(ModelError):
    """The provider refused the request as malformed; sending it again would not help."""


class ModelConnectionError(ModelError):
    """The connection failed, timed out, or was cut in mid-stream."""

    retryable = True


class ScriptMismatch(ModelError):
    """The scripted model met a call that its script does not know, or was left with unused steps."""
