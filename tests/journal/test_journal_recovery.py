"""What a crash or a bad disk leaves behind is cut and kept when it is the log's end, and named when it is not."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from teams.errors import JournalDamaged
from teams.journal import FileJournalOptions, Record, encode, open_file_journal, together
from teams.journal.fileops import FileOps
from teams.testing.journal_contract import make_records

LINES = [encode(record) for record in make_records(0, 4, body="some text")]


def write_log(root: Path, data: bytes, first: int = 1) -> Path:
    """Lay a segment down and return its path."""
    (root / "journal").mkdir(parents=True, exist_ok=True)
    path = root / "journal" / f"{first:08d}.jsonl"
    path.write_bytes(data)
    return path


class QuickOps(FileOps):
    """Real operations that trust the disk: these tests cut files, not power."""

    def sync(self, fd: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


QUICK = FileJournalOptions(ops=QuickOps())


async def check_recovery(root: Path, standing: Sequence[Record], torn: bytes) -> None:
    """Open a torn log: the standing records are there, the torn bytes are kept, appending works, and opening again is clean."""
    seq = len(standing)
    async with open_file_journal(root / "journal", options=QUICK) as journal:
        assert journal.head_seq == seq
        assert await journal.read(0) == standing
        assert journal.statistics().torn_bytes == len(torn)
        assert [report.kind for report in journal.reports] == ["torn"] * bool(torn)
        await journal.append(make_records(seq, 1, new=True), seq)
    kept = list((root / "journal").glob("torn-*.bin"))
    assert [path.read_bytes() for path in kept] == [torn] * bool(torn)
    async with open_file_journal(root / "journal", options=QUICK) as journal:
        assert await journal.read(0) == [*standing, *make_records(seq, 1, new=True)]
        assert (journal.reports, journal.statistics().torn_bytes) == ((), 0)


async def test_a_tail_torn_at_any_byte_is_cut_and_kept(tmp_path: Path) -> None:
    """Whatever prefix of the last record reached the disk, the records before it stand and the log goes on."""
    for length in range(len(LINES[3])):
        root = tmp_path / str(length)
        write_log(root, b"".join(LINES[:3]) + LINES[3][:length])
        await check_recovery(root, make_records(0, 3, body="some text"), LINES[3][:length])


async def test_a_last_line_with_any_changed_byte_is_cut_and_kept(tmp_path: Path) -> None:
    """A last line that is all there but does not check is torn as well."""
    for index in range(len(LINES[3]) - 1):
        torn = LINES[3][:index] + bytes([LINES[3][index] ^ 1]) + LINES[3][index + 1 :]
        if b"\n" not in torn[:-1]:
            root = tmp_path / str(index)
            write_log(root, b"".join(LINES[:3]) + torn)
            await check_recovery(root, make_records(0, 3, body="some text"), torn)


async def test_a_transaction_cut_at_any_byte_goes_as_a_whole(tmp_path: Path) -> None:
    """Of records that belong together all stand or none."""
    group = b"".join(map(encode, together(make_records(1, 3, part=True))))
    for length in range(len(group)):
        root = tmp_path / str(length)
        write_log(root, LINES[0] + group[:length])
        await check_recovery(root, make_records(0, 1, body="some text"), group[:length])


async def test_a_group_cut_at_any_byte_keeps_its_whole_records(tmp_path: Path) -> None:
    """Records that merely shared an append are facts of their own."""
    group = b"".join(LINES)
    for length in range(0, len(group), 7):
        root = tmp_path / str(length)
        write_log(root, group[:length])
        whole = group[:length].count(b"\n")
        await check_recovery(root, make_records(0, whole, body="some text"), group[:length][len(b"".join(LINES[:whole])) :])


async def test_a_long_torn_tail_is_found(tmp_path: Path) -> None:
    """A transaction and a record far larger than any window are cut or kept as small ones are."""
    big = make_records(1, 3, body="x" * 300_000)
    cut = b"".join(map(encode, together(big)))[:-1]
    write_log(tmp_path / "torn", LINES[0] + cut)
    await check_recovery(tmp_path / "torn", make_records(0, 1, body="some text"), cut)
    write_log(tmp_path / "whole", LINES[0] + b"".join(map(encode, big)))
    await check_recovery(tmp_path / "whole", [*make_records(0, 1, body="some text"), *big], b"")


async def test_a_damaged_byte_before_the_end_is_named_by_file_and_line(tmp_path: Path) -> None:
    """No position of the damage is passed over: reading names the file, the line and the remedy, and changes nothing on the disk."""
    good = b"".join(LINES)
    for index in range(0, len(good) - len(LINES[3]), 3):
        root = tmp_path / str(index)
        damaged = good[:index] + bytes([good[index] ^ 1]) + good[index + 1 :]
        path = write_log(root, damaged)
        with pytest.raises(JournalDamaged, match="put the file back from a copy") as caught:
            async with open_file_journal(root / "journal", options=QUICK) as journal:
                await journal.read(0)
        assert caught.value.path == path
        assert caught.value.line == good[:index].count(b"\n") + 1
        assert path.read_bytes() == damaged


async def test_what_the_error_tells_to_do_makes_the_log_readable(tmp_path: Path) -> None:
    """Whoever removes the damaged line and all after it, as the error says, reads every record before it."""
    good = b"".join(LINES)
    at = len(b"".join(LINES[:2])) + 5
    path = write_log(tmp_path, good[:at] + b"?" + good[at + 1 :])
    with pytest.raises(JournalDamaged, match="remove this line and all after it, all later") as caught:
        async with open_file_journal(tmp_path / "journal", options=QUICK) as journal:
            await journal.read(0)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: caught.value.line - 1]))
    async with open_file_journal(tmp_path / "journal", options=QUICK) as journal:
        assert await journal.read(0) == make_records(0, 2, body="some text")


@pytest.mark.parametrize(
    ("numbers", "line", "reason"),
    [
        ((1, 2, 4, 5), 3, "it is record 4, but record 3 should follow"),
        ((1, 2, 2, 3), 3, "it is record 2, but record 3 should follow"),
        ((2, 3), 1, "it is record 2, but record 1 should follow"),
    ],
)
async def test_gaps_and_repeats_are_damage(tmp_path: Path, numbers: Sequence[int], line: int, reason: str) -> None:
    """Sound records in a wrong order are no log."""
    write_log(tmp_path, b"".join(encode(make_records(number - 1, 1)[0]) for number in numbers))
    async with open_file_journal(tmp_path / "journal") as journal:
        with pytest.raises(JournalDamaged, match=reason) as caught:
            await journal.read(0)
        assert caught.value.line == line


async def test_a_transaction_that_breaks_off_in_the_middle_is_damage(tmp_path: Path) -> None:
    """A record that does not count its transaction down is named."""
    records = [*together(make_records(0, 3))[:2], *make_records(2, 1), *make_records(3, 1)]
    records[2] = records[2]._replace(more=5)
    write_log(tmp_path, b"".join(map(encode, records)))
    async with open_file_journal(tmp_path / "journal") as journal:
        with pytest.raises(JournalDamaged, match="the transaction before record 3 lacks 1 records"):
            await journal.read(0)


async def test_segments_must_follow_each_other(tmp_path: Path) -> None:
    """A missing first or middle segment, and one that ends within a record, are damage and not a shorter log."""
    missing_first, missing_middle, cut = tmp_path / "first", tmp_path / "middle", tmp_path / "cut"
    for root in (missing_first, missing_middle, cut):
        for seq, line in enumerate(LINES, 1):
            write_log(root, line, first=seq)
    (missing_first / "journal/00000001.jsonl").unlink()
    (missing_middle / "journal/00000002.jsonl").unlink()
    (cut / "journal/00000002.jsonl").write_bytes(LINES[1][:-5])
    for root, path, reason in (
        (missing_first, "00000002.jsonl", "record 1 should stand before it"),
        (missing_middle, "00000003.jsonl", "record 2 should stand before it"),
        (cut, "00000002.jsonl", "ends within a record"),
    ):
        async with open_file_journal(root / "journal") as journal:
            with pytest.raises(JournalDamaged, match=reason) as caught:
                await journal.read(0)
            assert caught.value.path == root / "journal" / path


async def test_a_reader_leaves_the_half_written_append_of_another_alone(tmp_path: Path) -> None:
    """Bytes without an end are neither returned nor cut by a read; the next append, under the lock, cuts and keeps them."""
    async with open_file_journal(tmp_path / "journal") as journal:
        await journal.append(make_records(0, 1), 0)
        path = tmp_path / "journal/00000001.jsonl"
        with path.open("ab") as file:
            file.write(LINES[1][:20])
        assert journal.grown()
        assert await journal.read(1) == []
        assert not journal.grown()  # looked at, and not again before it changes
        assert path.read_bytes().endswith(LINES[1][:20])
        with path.open("ab") as file:
            file.write(LINES[1][20:])
        assert journal.grown()
        assert [record.seq for record in await journal.read(1)] == [2]
        with path.open("ab") as file:
            file.write(LINES[2][:20])
        await journal.append(make_records(2, 1), 2)
        assert [record.seq for record in await journal.read(0)] == [1, 2, 3]
        assert [report.kind for report in journal.reports] == ["torn"]


async def test_a_transaction_is_never_half_read(tmp_path: Path) -> None:
    """A reader gets nothing of a transaction whose last record is not there yet, and then all of it, however small its slices."""
    lines = [encode(record) for record in together(make_records(1, 3, part=True))]
    for slice_bytes in (1, 1_000_000):
        root = tmp_path / str(slice_bytes)
        async with open_file_journal(root / "journal", options=FileJournalOptions(slice_bytes=slice_bytes)) as journal:
            await journal.append(make_records(0, 1), 0)
            with (root / "journal/00000001.jsonl").open("ab") as file:
                file.write(b"".join(lines[:2]))
            assert await journal.read(1) == []
            assert [record.seq for record in await journal.read(0)] == [1]
            with (root / "journal/00000001.jsonl").open("ab") as file:
                file.write(lines[2])
            assert await journal.read(1) == together(make_records(1, 3, part=True))


async def test_a_new_segment_without_a_record_is_gone_on_with(tmp_path: Path) -> None:
    """A crash between making a segment and writing to it loses nothing."""
    write_log(tmp_path, LINES[0])
    write_log(tmp_path, b"", first=2)
    async with open_file_journal(tmp_path / "journal") as journal:
        assert journal.head_seq == 1
        await journal.append(make_records(1, 1), 1)
        assert [record.seq for record in await journal.read(0)] == [1, 2]
    assert (tmp_path / "journal/00000002.jsonl").stat().st_size


async def test_three_segments_read_as_one_log(tmp_path: Path) -> None:
    """Rotation is invisible: any place can be read from, by the writer, by a follower, and after opening again."""
    options = FileJournalOptions(segment_bytes=1000, slice_bytes=300)
    async with open_file_journal(tmp_path / "journal", options=options) as journal, open_file_journal(tmp_path / "journal") as follower:
        while journal.statistics().segments < 3:
            await journal.append(make_records(journal.head_seq, 2, body="x" * 100), journal.head_seq)
        everything = await journal.read(0)
        assert [record.seq for record in everything] == list(range(1, journal.head_seq + 1))
        assert await follower.read(0) == everything
        assert follower.statistics()[:2] == journal.statistics()[:2]
    names = sorted(path.name for path in (tmp_path / "journal").glob("*.jsonl"))
    assert names[0] == "00000001.jsonl"
    assert len(names) == 3
    async with open_file_journal(tmp_path / "journal", options=options) as journal:
        for after_seq in range(len(everything) + 1):
            assert await journal.read(after_seq) == everything[after_seq:]


async def test_a_removed_or_shortened_segment_is_noticed(tmp_path: Path) -> None:
    """A log that lost durable records under an open handle is never written to."""
    for name in ("removed", "shortened"):
        async with open_file_journal(tmp_path / name / "journal") as journal:
            await journal.append(make_records(0, 2), 0)
            path = tmp_path / name / "journal/00000001.jsonl"
            if name == "removed":
                path.unlink()
            else:
                path.write_bytes(path.read_bytes()[:-10])
            assert journal.grown()
            with pytest.raises(JournalDamaged, match="removed, replaced or cut"):
                await journal.read(2)
