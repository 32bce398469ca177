"""A snapshot shortens replay and is never believed against the log."""

from pathlib import Path

import pytest

from teams.errors import JournalError
from teams.journal import FileJournalOptions, open_file_journal
from teams.journal.fileops import FileOps
from teams.journal.snapshot import SnapshotDamaged, decode_snapshot, encode_snapshot
from teams.testing.journal_contract import make_records


async def test_a_snapshot_stands_beside_the_journal_folder(tmp_path: Path) -> None:
    """The snapshot is `snapshot.json` in the team's folder, and no temporary file stays."""
    async with open_file_journal(tmp_path / "journal") as journal:
        await journal.append(make_records(0, 2), 0)
        await journal.save_snapshot(2, {"n": 2})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal", "snapshot.json"]
    assert decode_snapshot((tmp_path / "snapshot.json").read_bytes()) == (2, {"n": 2})


def test_a_changed_or_cut_snapshot_is_noticed() -> None:
    """No single changed byte and no cut passes."""
    data = encode_snapshot(12, {"members": ["ann", "ben"], "text": "é\ud800"})
    for index in range(len(data)):
        for damaged in (data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :], data[:index]):
            with pytest.raises(SnapshotDamaged):
                decode_snapshot(damaged)


async def test_a_damaged_snapshot_is_ignored_and_reported(tmp_path: Path) -> None:
    """A bad snapshot costs a longer replay and nothing else, and the next one replaces it."""
    async with open_file_journal(tmp_path / "journal") as journal:
        await journal.append(make_records(0, 2), 0)
        (tmp_path / "snapshot.json").write_bytes(encode_snapshot(2, {"n": 2})[:-4])
        assert await journal.load_snapshot() is None
        assert [report.kind for report in journal.reports] == ["snapshot_ignored"]
        await journal.save_snapshot(1, {"n": 1})
        assert await journal.load_snapshot() == (1, {"n": 1})


async def test_a_snapshot_newer_than_the_log_is_ignored_and_reported(tmp_path: Path) -> None:
    """A snapshot that knows records which the log lacks belongs to another log."""
    async with open_file_journal(tmp_path / "journal") as journal:
        await journal.append(make_records(0, 2), 0)
        (tmp_path / "snapshot.json").write_bytes(encode_snapshot(3, {}))
        assert await journal.load_snapshot() is None
        assert "after record 3, but the log ends with record 2" in journal.reports[0].message


async def test_a_snapshot_of_another_process_is_newer_than_the_handle_and_good(tmp_path: Path) -> None:
    """What others appended since this handle looked counts for the snapshot, and reading goes on behind it."""
    async with open_file_journal(tmp_path / "journal") as mine, open_file_journal(tmp_path / "journal") as other:
        await other.append(make_records(0, 5), 0)
        await other.save_snapshot(4, {"n": 4})
        assert await mine.load_snapshot() == (4, {"n": 4})
        assert [record.seq for record in await mine.read(4)] == [5]
        assert mine.head_seq == 5


async def test_after_a_snapshot_only_later_segments_are_opened(tmp_path: Path) -> None:
    """The segments that a snapshot covers could be gone, and opening with it would not notice."""
    options = FileJournalOptions(segment_bytes=1)
    async with open_file_journal(tmp_path / "journal", options=options) as journal:
        for seq in range(6):
            await journal.append(make_records(seq, 1), seq)
        await journal.save_snapshot(4, {})
    opened: list[str] = []

    class SpyOps(FileOps):
        def open(self, path: Path, flags: int) -> int:
            opened.append(path.name)
            return super().open(path, flags)

    async with open_file_journal(tmp_path / "journal", options=FileJournalOptions(ops=SpyOps())) as journal:
        assert await journal.load_snapshot() == (4, {})
        assert [record.seq for record in await journal.read(4)] == [5, 6]
    assert set(opened) == {"00000005.jsonl", "00000006.jsonl"}


async def test_reading_from_the_middle_of_a_large_segment_reads_little_before_it(tmp_path: Path) -> None:
    """The place is found by bisection: what lies before it is not decoded again."""
    read = 0

    class SpyOps(FileOps):
        def read_at(self, fd: int, size: int, offset: int) -> bytes:
            nonlocal read
            read += size
            return super().read_at(fd, size, offset)

    options = FileJournalOptions(ops=SpyOps())
    async with open_file_journal(tmp_path / "journal", options=options) as journal:
        await journal.append(make_records(0, 10_000, body="x" * 300), 0)
        for after_seq in (0, 1, 5000, 9_998, 9_999):
            assert (await journal.read(after_seq))[0].seq == after_seq + 1
        read = 0
        assert len(await journal.read(9_990)) == 10
        assert read < 1_000_000


async def test_a_snapshot_that_cannot_be_written_leaves_the_former_one(tmp_path: Path) -> None:
    """A failing disk is an error with its cause, and the former snapshot stands."""

    class NoReplace(FileOps):
        def replace(self, source: Path, target: Path) -> None:
            raise OSError("no rename today")

    async with open_file_journal(tmp_path / "journal") as journal:
        await journal.append(make_records(0, 2), 0)
        await journal.save_snapshot(1, {"n": 1})
    async with open_file_journal(tmp_path / "journal", options=FileJournalOptions(ops=NoReplace())) as journal:
        with pytest.raises(JournalError, match="no rename today; the former one stands"):
            await journal.save_snapshot(2, {"n": 2})
        assert await journal.load_snapshot() == (1, {"n": 1})
