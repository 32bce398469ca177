"""Many processes share one directory: none loses, doubles or misses a record, and each is woken by the system."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from teams.journal import FileJournal, FileJournalOptions, open_file_journal
from teams.journal.watch import InotifyWatch, PollWatch
from teams.testing.journal_contract import make_records

WORKER = """
import sys
from pathlib import Path

import trio

from teams.errors import JournalConflict
from teams.journal import FileJournalOptions, Record, open_file_journal


async def main(directory: str, name: str, count: int) -> None:
    async with open_file_journal(Path(directory), options=FileJournalOptions(segment_bytes=20_000)) as journal:
        print("ready", flush=True)
        sys.stdin.readline()
        number = conflicts = 0
        while number < count:
            record = Record(journal.head_seq + 1, "2026-01-31T12:00:00.000000Z", "test.made", {"by": name, "number": number + 1})
            try:
                await journal.append([record], journal.head_seq)
                number += 1
            except JournalConflict:
                conflicts += 1
                await journal.read(journal.head_seq)
        print(conflicts, flush=True)


trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


class Worker:
    """A process that waits for `go` and then appends."""

    def __init__(self, directory: Path, name: str, count: int) -> None:
        command = [sys.executable, "-c", WORKER, str(directory), name, str(count)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait_ready(self) -> None:
        """Wait until the process has opened the journal."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def go(self) -> None:
        """Let it append."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def finish(self) -> int:
        """Wait for its end and return how many conflicts it had."""
        output, _ = self._process.communicate()
        assert self._process.returncode == 0
        return int(output)


@pytest.mark.limit(60)
async def test_two_processes_append_500_each_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    """Appends of two processes interleave into one sequence, over many segments, and each process's own order is kept."""
    workers = [Worker(tmp_path / "journal", name, 500) for name in ("ann", "ben")]
    for worker in workers:
        await trio.to_thread.run_sync(worker.wait_ready)
    for worker in workers:
        worker.go()
    conflicts = [await trio.to_thread.run_sync(worker.finish) for worker in workers]
    assert sum(conflicts) > 0, "the two never met: this run proved nothing"
    async with open_file_journal(tmp_path / "journal") as journal:
        records = await journal.read(0)
        assert [record.seq for record in records] == list(range(1, 1001))
        for name in ("ann", "ben"):
            assert [record.fields["number"] for record in records if record.fields["by"] == name] == list(range(1, 501))
        assert journal.statistics().segments > 3
        assert journal.reports == ()


async def test_a_waiter_is_woken_by_another_process_through_the_kernel(tmp_path: Path) -> None:
    """On Linux the wait ends by inotify, with no look by the clock; elsewhere it ends too."""
    async with open_file_journal(tmp_path / "journal") as journal:
        worker = Worker(tmp_path / "journal", "ann", 1)
        await trio.to_thread.run_sync(worker.wait_ready)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.wait_grown, 0)
            await trio.testing.wait_all_tasks_blocked(0.02)
            worker.go()
        assert [record.fields["by"] for record in await journal.read(0)] == ["ann"]
        assert isinstance(journal._watch, InotifyWatch if sys.platform == "linux" else PollWatch)
        await trio.to_thread.run_sync(worker.finish)


async def wake_through(journal: FileJournal, root: Path) -> None:
    """Check that a wait ends when another handle appends."""
    async with open_file_journal(root / "journal") as other, trio.open_nursery() as nursery:
        await other.read(0)
        nursery.start_soon(journal.wait_grown, other.head_seq)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await other.append(make_records(other.head_seq, 1), other.head_seq)


async def test_waiting_opens_one_descriptor_and_closing_frees_it(tmp_path: Path) -> None:
    """The watch begins with the first wait, serves all later ones, and ends with the handle."""
    folder = Path("/proc/self/fd")
    if not folder.exists():
        folder = Path("/dev/fd")
    before = len(os.listdir(folder))
    async with open_file_journal(tmp_path / "journal") as journal:
        assert journal._watch is None
        await wake_through(journal, tmp_path)
        watch = journal._watch
        await journal.read(0)
        await wake_through(journal, tmp_path)
        assert journal._watch is watch
    assert len(os.listdir(folder)) == before


async def test_growth_is_found_by_the_clock_where_it_is_asked_for(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """With `poll_seconds` a wait looks at that interval and needs nothing of the system."""
    async with open_file_journal(tmp_path / "journal", options=FileJournalOptions(poll_seconds=60)) as journal:
        await wake_through(journal, tmp_path)
        assert isinstance(journal._watch, PollWatch)
        assert journal.reports == ()


async def test_a_wait_survives_torn_bytes_without_spinning(tmp_path: Path) -> None:
    """Bytes of an append that never ends wake a waiter once, not for ever."""
    async with open_file_journal(tmp_path / "journal") as journal:
        await journal.append(make_records(0, 1), 0)
        with (tmp_path / "journal/00000001.jsonl").open("ab") as file:
            file.write(b'{"seq":2,')
        await journal.wait_grown(1)
        assert await journal.read(1) == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.wait_grown, 1)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert len(nursery.child_tasks) == 1
            nursery.cancel_scope.cancel()
