"""A crash of the machine, simulated: the disk as it was at one moment, opened again by a process that knows nothing else."""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from teams.journal.base import Journal, JournalReport, JournalStatistics, Snapshot
from teams.journal.records import Record


class Disk:
    """Takes copies of a team's directory while it runs."""

    def __init__(self, root: Path, copies: Path) -> None:
        self.root, self.copies = root, copies
        self.points: list[tuple[str, Path]] = []

    def copy(self, point: str) -> Path:
        """Keep the directory as it is now, under the name of the point."""
        target = self.copies / f"{len(self.points):03d}"
        shutil.copytree(self.root, target)
        self.points.append((point, target))
        return target


class CopyingJournal(Journal):
    """A journal that copies the disk before and after each append."""

    def __init__(self, journal: Journal, disk: Disk) -> None:
        self._journal, self._disk = journal, disk

    @property
    def head_seq(self) -> int:
        return self._journal.head_seq

    @property
    def reports(self) -> tuple[JournalReport, ...]:
        return self._journal.reports

    async def append(self, records: Sequence[Record], expected_seq: int) -> None:
        kinds = ", ".join(sorted({record.kind for record in records}))
        self._disk.copy(f"before {kinds}")
        await self._journal.append(records, expected_seq)
        self._disk.copy(f"after {kinds}")

    async def read(self, after_seq: int) -> list[Record]:
        return await self._journal.read(after_seq)

    def grown(self) -> bool:
        return self._journal.grown()

    async def wait_grown(self, after_seq: int) -> None:
        await self._journal.wait_grown(after_seq)

    async def load_snapshot(self) -> Snapshot | None:
        return await self._journal.load_snapshot()

    async def save_snapshot(self, seq: int, state: dict[str, Any]) -> None:
        await self._journal.save_snapshot(seq, state)

    def statistics(self) -> JournalStatistics:
        return self._journal.statistics()

    async def aclose(self) -> None:
        await self._journal.aclose()


def transcript_lines(root: Path, member: str) -> list[dict[str, Any]]:
    """Return the lines of a member's transcript, as a reader who knows nothing of the code would see them."""
    path = root / "sessions" / f"{member}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def injected(root: Path, member: str) -> Counter[str]:
    """Count how often each message stands in a member's transcript."""
    return Counter(mail_id for line in transcript_lines(root, member) for mail_id in line.get("mail", ()))


def sent_to(root: Path, member: str) -> list[str]:
    """Return the ids of all messages that the journal holds for a member."""
    lines = [line for path in sorted((root / "journal").glob("0*.jsonl")) for line in path.read_text().splitlines()]
    found: list[str] = []
    for line in lines:
        record = json.loads(line)
        if record.get("kind") == "mail.sent" and member in record["to"]:
            found.append(record["id"])
    return found
