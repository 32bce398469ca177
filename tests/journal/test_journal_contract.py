"""Both backends keep the contract of a journal."""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from teams.journal import FileJournalOptions, Journal, MemoryJournal, MemoryLog, open_file_journal
from teams.testing.journal_contract import JournalContract


class TestMemoryJournal(JournalContract):
    """The journal in memory keeps the contract."""

    @pytest.fixture(autouse=True)
    def _logs(self) -> None:
        self.logs: defaultdict[str, MemoryLog] = defaultdict(MemoryLog)

    @asynccontextmanager
    async def open(self, name: str) -> AsyncGenerator[Journal]:
        journal = MemoryJournal(self.logs[name])
        yield journal
        await journal.aclose()


class TestFileJournal(JournalContract):
    """The journal in files keeps the contract."""

    options = FileJournalOptions()

    @pytest.fixture(autouse=True)
    def _root(self, tmp_path: Path) -> None:
        self.root = tmp_path

    @asynccontextmanager
    async def open(self, name: str) -> AsyncGenerator[Journal]:
        async with open_file_journal(self.root / name / "journal", options=self.options) as journal:
            yield journal


class TestFileJournalInSmallPieces(TestFileJournal):
    """The journal in files keeps the contract when every append rotates and every read takes many slices."""

    options = FileJournalOptions(segment_bytes=1, slice_bytes=1)


class TestFileJournalByTheClock(TestFileJournal):
    """The journal in files keeps the contract where growth is looked for by the clock."""

    options = FileJournalOptions(poll_seconds=0.05)
