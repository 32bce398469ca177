"""The journal's interface: the one place where order is made.

What every backend keeps, and `teams.testing.journal_contract` checks:

- The log is a sequence of records 1, 2, 3 ... that only grows; what `append` returned for is durable and never changes.
- `append` succeeds only at the end that its caller knows; otherwise it changes nothing and raises JournalConflict.
- Transactions (see `records.together`) are appended and read whole or not at all.
- A handle knows the log up to `head_seq`. Only `append` and `read` move it forward, so nothing that others append can be skipped.

A handle belongs to one task at a time; calls that overlap wait for each other.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from teams.journal.records import Record

Snapshot: TypeAlias = tuple[int, dict[str, Any]]


class JournalReport(NamedTuple):
    """Something that the journal met and got over: `kind` is "torn", "snapshot_ignored" or "watch_fallback"."""

    kind: str
    message: str
    path: Path | None = None


class JournalStatistics(NamedTuple):
    """What a handle knows of the log, and what it did.

    `records`, `bytes` and `segments` describe the log up to the handle's head; `appends`, `fsyncs` and `torn_bytes` (cut from the log's end
    and kept aside) count what this handle did since it was opened.
    """

    records: int
    bytes: int
    appends: int
    fsyncs: int
    segments: int
    torn_bytes: int


class Journal(ABC):
    """One handle on a team's durable log."""

    @property
    @abstractmethod
    def head_seq(self) -> int:
        """The number of the last record that this handle knows; 0 in an empty log."""

    @property
    @abstractmethod
    def reports(self) -> tuple[JournalReport, ...]:
        """What was met and got over since the handle was opened, oldest first."""

    @abstractmethod
    async def append(self, records: Sequence[Record], expected_seq: int) -> None:
        """Append the records as one group, durable when this returns; `head_seq` is then the last one's number.

        Args: the records are numbered `expected_seq + 1, ...`; none at all is a successful append that only looks for conflicts.

        Raises:
            JournalConflict: the log goes on after `expected_seq`; nothing was written. `read(head_seq)`, decide again, append again.
            JournalError: the write failed and was undone; the log is as before and the handle still works. The cause is attached.
            JournalDamaged: what others appended is damaged before the log's end; nothing was written.
            JournalClosed: the handle is closed, or a write failed and may or may not be in the log: open the journal again to learn it.
            ValueError, TypeError: the records are not numbered so, break a transaction or cannot be encoded, or `expected_seq` is beyond
                `head_seq`; nothing was written.

        Checkpoints: always; when Cancelled, nothing was written. A write that has begun is not interrupted: it ends, and the call returns.
        """

    @abstractmethod
    async def read(self, after_seq: int) -> list[Record]:
        """Return every record after `after_seq`, in order, also those of other processes; `head_seq` is then the last one's number.

        Only whole transactions are returned. Beyond the log's end there is nothing: the list is empty then. What was read before is not
        read again when `after_seq` is `head_seq`.

        Raises:
            JournalDamaged: a record that is not the last cannot be read, or the sequence has a gap or a repeat.
            JournalClosed: the handle is closed or failed.

        Checkpoints: always; when Cancelled, `head_seq` is unchanged and the same records come again.
        """

    @abstractmethod
    def grown(self) -> bool:
        """Tell, at the price of a stat, whether the log may have changed behind `head_seq` since this handle last looked.

        True for what `read` has not yet looked at; False while a call of this handle is under way, and once the handle is closed or failed.
        """

    @abstractmethod
    async def wait_grown(self, after_seq: int) -> None:
        """Wait until another handle has appended after `head_seq`; return at once when `head_seq` is beyond `after_seq`.

        Growth from before the call counts. What this handle appends or reads during the wait does not end it. A return is a hint: `read`
        may still find nothing.

        Raises: JournalClosed when the handle is closed or failed, also during the wait.

        Checkpoints: always; when Cancelled, nothing has changed.
        """

    @abstractmethod
    async def load_snapshot(self) -> Snapshot | None:
        """Return the newest snapshot's sequence number and state; None when it is missing, damaged or newer than the log (reported).

        Raises: JournalDamaged when the log's end cannot be read; JournalClosed.

        Checkpoints: always; when Cancelled, nothing has changed.
        """

    @abstractmethod
    async def save_snapshot(self, seq: int, state: dict[str, Any]) -> None:
        """Replace the snapshot by the state after record `seq`, made of JSON values; durable when this returns.

        An older snapshot never replaces a newer one: such a call changes nothing.

        Raises:
            ValueError, TypeError: `seq` is beyond `head_seq`, or the state cannot be encoded.
            JournalError: it could not be written; the former snapshot stands. JournalClosed.

        Checkpoints: always; when Cancelled, the former snapshot stands.
        """

    @abstractmethod
    def statistics(self) -> JournalStatistics:
        """Return a frozen snapshot of the figures of this handle."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the handle; a write that has begun ends first, other calls and waits end with JournalClosed. Closing twice is nothing.

        Checkpoints: always; when Cancelled, the handle is closed nevertheless.
        """
