"""The team's one durable log: its records, its interface, and its backends in files and in memory.

Names are loaded on first use: whoever needs only the records does not pay for trio.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from teams.journal.base import Journal, JournalReport, JournalStatistics, Snapshot
    from teams.journal.file import FileJournal, FileJournalOptions, open_file_journal
    from teams.journal.memory import MemoryJournal, MemoryLog
    from teams.journal.records import DamagedLine, Record, decode, encode, together, utc_now_text, utc_seconds

__all__ = [
    "DamagedLine",
    "FileJournal",
    "FileJournalOptions",
    "Journal",
    "JournalReport",
    "JournalStatistics",
    "MemoryJournal",
    "MemoryLog",
    "Record",
    "Snapshot",
    "decode",
    "encode",
    "open_file_journal",
    "together",
    "utc_now_text",
    "utc_seconds",
]

_MODULES = {
    "DamagedLine": "records",
    "FileJournal": "file",
    "FileJournalOptions": "file",
    "Journal": "base",
    "JournalReport": "base",
    "JournalStatistics": "base",
    "MemoryJournal": "memory",
    "MemoryLog": "memory",
    "Record": "records",
    "Snapshot": "base",
    "decode": "records",
    "encode": "records",
    "open_file_journal": "file",
    "together": "records",
    "utc_now_text": "records",
    "utc_seconds": "records",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
