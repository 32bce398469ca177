"""A session is read back as it was written; a crash loses what was not written whole, and nothing else."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.assembly import without_written
from compaction.carried import Carried
from compaction.compactor import Checkpoint
from compaction.errors import NotASession, SessionError
from compaction.record import CompressedHistory, Constraint, Statement
from compaction.session import Entry, Header, Rewind, encode_checkpoint, encode_header, encode_message, encode_rewind, load
from compaction.sessionfile import SessionArchive, SessionFile, fork, last_call, rewind
from compaction.transcript import ModelMessage
from compaction.triggers import Cause
from tests.compaction.strategies import assistant, broken, call, result, user

AT = "2026-10-01T12:00:00.000000Z"
HEADER = encode_header(Header("ann", AT))
USAGE = {"input_tokens": 10, "output_tokens": 3, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 90}


def line(message: ModelMessage, *, epoch: int = 0, mail: Sequence[str] = (), usage: dict[str, int] | None = None) -> bytes:
    """Return a message as a line."""
    return encode_message(Entry(message, AT, epoch, tuple(mail), usage, "end_turn" if usage else None, "m" if usage else None))


CARRIED = Carried(
    task_blocks=1,
    memory_blocks=1,
    memory_kind="summary",
    state_block=(2, 0),
    recorded=3,
    record=CompressedHistory(
        user_statements=(Statement(text="die Aufgabe 🚀"),), constraints=(Constraint(text="never", status="revoked"),)
    ),
    summary="what was",
    removed_messages=7,
)


def checkpoint(*messages: ModelMessage, epoch: int = 1) -> bytes:
    """Return a compaction as a line."""
    return encode_checkpoint(
        Checkpoint(
            epoch=epoch,
            trigger=Cause.SIZE,
            layers=("trim",),
            tokens_before=900,
            tokens_after=100,
            replaces=9,
            messages=messages,
            carried=CARRIED,
        ),
        AT,
    )


LINES = [
    HEADER,
    line(user("die Aufgabe 🚀"), mail=["m1"]),
    line(assistant("ja"), usage=USAGE),
    line(user("weiter"), mail=["m2", "m3"]),
    checkpoint(user("die Aufgabe 🚀"), assistant("kurz"), user("weiter")),
    line(assistant(call("a")), epoch=1, usage=USAGE),
    line(user(result("a", "é")), epoch=1, mail=["m4"]),
    encode_rewind(Rewind(before_epoch=1, to_epoch=2, at=AT)),
    line(assistant("anders"), epoch=2),
]


@given(broken(), st.lists(st.text()))
def test_messages_are_read_back_as_they_were(messages: list[ModelMessage], mail: list[str]) -> None:
    """Whatever a message holds, its line is one line and gives the same message, its mail and its usage."""
    lines = [HEADER, *(line(message, mail=mail, usage=USAGE) for message in messages)]
    assert all(each.endswith(b"\n") and each.count(b"\n") == 1 for each in lines)
    loaded = load(lines)
    assert [json.loads(message.json) for message in loaded.messages] == [json.loads(message.json) for message in messages]
    assert loaded.mail_ids == (set(mail) if messages else set())
    assert loaded.last_usage == (USAGE if messages else None)
    assert (loaded.damaged, loaded.torn, loaded.epoch) == ((), False, 0)


def test_loading_starts_at_the_newest_checkpoint() -> None:
    """The view is what the checkpoint holds and what came after; mail ids of all time are known."""
    loaded = load(LINES[:7])
    assert loaded.header == Header("ann", AT)
    assert loaded.messages == [user("die Aufgabe 🚀"), assistant("kurz"), user("weiter"), assistant(call("a")), user(result("a", "é"))]
    assert loaded.epoch == 1
    assert loaded.view.carried == CARRIED
    assert [stored.trigger for stored in loaded.checkpoints] == ["size"]
    assert len(loaded.transcript) == 5, "what the checkpoint replaced is still there to be recalled"
    assert loaded.mail_ids == {"m1", "m2", "m3", "m4"}
    assert loaded.last_usage == USAGE
    assert loaded.view.sendable
    assert load(LINES[:5]).last_usage is None, "a usage from before the checkpoint says nothing of the view"


def test_a_rewind_goes_back_to_before_a_checkpoint() -> None:
    """The view is what it was before the checkpoint, in a new epoch and without thinking; what came since is still in the transcript."""
    loaded = load(LINES)
    assert loaded.messages == [user("die Aufgabe 🚀"), assistant("ja"), user("weiter"), assistant("anders")]
    assert (loaded.epoch, loaded.view.sound, loaded.damaged) == (2, True, ())
    assert loaded.view.carried == Carried()
    assert assistant(call("a")) in loaded.transcript
    assert loaded.mail_ids == {"m1", "m2", "m3", "m4"}
    lost = load([*LINES[:4], *LINES[7:]])
    assert lost.damaged == ((5, "a rewind to before epoch 1, which has no checkpoint"),)


def test_a_record_that_cannot_be_read_is_left_out_and_named() -> None:
    """A record of a form that is not known costs the record, not the view."""
    bad = LINES[4].replace(b'"status":"revoked"', b'"status":"vague"')
    assert bad != LINES[4]
    loaded = load([*LINES[:4], bad])
    assert loaded.view.carried == CARRIED._replace(record=None)
    assert [number for number, _ in loaded.damaged] == [5]
    assert loaded.view.sound


def test_sessions_without_checkpoints_load() -> None:
    """A session that was never compacted, also one whose lines have only role and content, is its messages."""
    bare = [HEADER, b'{"type":"message","role":"user","content":"hello"}\n']
    assert load(bare).messages == [user("hello")]
    assert load(LINES[:4]).messages == [user("die Aufgabe 🚀"), assistant("ja"), user("weiter")]


@pytest.mark.parametrize("which", range(1, len(LINES)))
def test_a_line_torn_at_any_byte_was_not_written(which: int) -> None:
    """Cut at every byte, the last line is as if it had never been; a checkpoint leaves the view before it."""
    before = load(LINES[:which])
    whole = load(LINES[: which + 1])
    for cut in range(len(LINES[which])):
        loaded = load([*LINES[:which], LINES[which][:cut]])
        ended = cut == len(LINES[which]) - 1  # all but the line end: whole
        assert loaded.messages == (whole if ended else before).messages
        assert loaded.epoch == (whole if ended else before).epoch
        assert loaded.torn == (0 < cut < len(LINES[which]) - 1)
        assert loaded.damaged == ()
        assert loaded.view.sound == before.view.sound or ended


@pytest.mark.parametrize(
    "damage", [b"\x00\xff\n", b"{}\n", b"[1]\n", b'{"type":"message","role":"robot","content":"x"}\n', b'{"type":"future"}\n', HEADER]
)
def test_a_damaged_middle_line_is_reported(damage: bytes) -> None:
    """A line in the middle that cannot be read is left out and named; the rest is there, and is not trusted as it is."""
    loaded = load([*LINES[:2], damage, *LINES[3:4]])
    assert [number for number, _ in loaded.damaged] == [3]
    assert loaded.messages == [user("die Aufgabe 🚀"), user("weiter")]
    assert not loaded.torn
    assert not loaded.view.sound


def test_a_list_that_lost_a_line_is_not_trusted() -> None:
    """A list that would look right without the damaged line is not trusted either: thinking in it may be bound to what is lost."""
    loaded = load([*LINES[:3], b"garbage\n", LINES[3]])
    assert loaded.messages == load(LINES[:4]).messages
    assert not loaded.view.sound
    assert load(LINES[:4]).view.sound


def test_a_lost_checkpoint_is_noticed() -> None:
    """Where the checkpoint itself is damaged, the older view goes on, in the epoch of the newest message, and is not trusted."""
    loaded = load([*LINES[:4], b"garbage\n", *LINES[5:7]])
    assert [number for number, _ in loaded.damaged] == [5]
    assert len(loaded.messages) == 5
    assert loaded.epoch == 1
    assert not loaded.view.sound


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "it is empty"),
        ([LINES[1]], "its first line is not a header"),
        ([b"\x00\n"], "its first line is damaged"),
        ([encode_header(Header("ann", AT, version=99))], "version 99; this version reads up to 1"),
    ],
)
def test_what_is_no_session_is_refused(lines: list[bytes], reason: str) -> None:
    """A file without a header that can be read is an error that says why."""
    with pytest.raises(NotASession, match=reason):
        load(lines)


def test_file_is_written_and_read(tmp_path: Path) -> None:
    """Lines appended in several sittings are read back in order."""
    path = tmp_path / "ann.jsonl"
    with SessionFile(path) as file:
        file.append(LINES[:3])
        file.sync()
    with SessionFile(path) as file:
        file.append([])
        file.append(LINES[3:])
        assert file.read() == LINES
    assert load(path.read_bytes().splitlines(keepends=True)).messages == load(LINES).messages


def test_a_torn_end_is_cut_and_kept_aside(tmp_path: Path) -> None:
    """At every byte of a torn last line, opening gives the file a clean end; what was cut stays beside it."""
    path = tmp_path / "ann.jsonl"
    for cut in range(1, len(LINES[3])):
        path.write_bytes(b"".join(LINES[:3]) + LINES[3][:cut])
        aside = tmp_path / "ann.jsonl.torn"
        aside.unlink(missing_ok=True)
        with SessionFile(path) as file:
            file.append([LINES[4]])
        whole = cut == len(LINES[3]) - 1
        assert path.read_bytes() == b"".join([*LINES[:3], *([LINES[3]] if whole else []), LINES[4]])
        assert aside.exists() != whole
        if not whole:
            assert aside.read_bytes() == LINES[3][:cut] + b"\n"


def test_open_tells_how_much_was_cut(tmp_path: Path) -> None:
    """Opening returns the bytes that were cut off, also where the torn line is longer than what is read at once."""
    path = tmp_path / "ann.jsonl"
    torn = b'{"type":"message","role":"user","content":"' + b"x" * 3_000_000
    path.write_bytes(HEADER + torn)
    file = SessionFile(path)
    assert file.open() == len(torn)
    file.close()
    assert path.read_bytes() == HEADER
    path.write_bytes(torn)
    assert file.open() == len(torn)
    file.close()
    file.close()
    assert path.read_bytes() == b""


def test_file_refuses_what_would_break_it(tmp_path: Path) -> None:
    """Half lines and double lines are refused before anything is written; a closed file says that it is closed."""
    file = SessionFile(tmp_path / "ann.jsonl")
    with pytest.raises(SessionError, match=r"cannot append to .*: it is not open"):
        file.append([HEADER])
    with pytest.raises(SessionError, match="cannot sync"):
        file.sync()
    with file:
        with pytest.raises(SessionError, match="open already"):
            file.open()
        for wrong in (b"", b"{}", b"{}\n{}\n"):
            with pytest.raises(ValueError, match="its only line end"):
                file.append([HEADER, wrong])
    assert file.read() == []


def written(path: Path, lines: Sequence[bytes]) -> Path:
    """Write a session."""
    path.write_bytes(b"".join(lines))
    return path


def test_a_session_file_is_rewound_and_goes_on(tmp_path: Path) -> None:
    """A rewind is one more line; an epoch that no compaction began is refused by the names of those that one did."""
    path = written(tmp_path / "ann.jsonl", LINES[:7])
    assert rewind(path, before_epoch=1, at=AT) == 2
    loaded = load(path.read_bytes().splitlines(keepends=True))
    assert loaded.messages == load(LINES[:4]).messages
    assert path.read_bytes().startswith(b"".join(LINES[:7]))
    with pytest.raises(SessionError, match="to before epoch 7: compactions began the epochs 1"):
        rewind(path, before_epoch=7, at=AT)


@pytest.mark.parametrize("full", [True, False])
def test_a_fork_begins_where_the_other_session_stands(tmp_path: Path, *, full: bool) -> None:
    """A fork has the same view; everything said before it can be recalled, in its own file or in the other one's."""
    source, target = written(tmp_path / "ann.jsonl", LINES[:7]), tmp_path / "ben.jsonl"
    fork(source, target, agent="ben", created_at=AT, full=full)
    one, other = (load(path.read_bytes().splitlines(keepends=True)) for path in (source, target))
    assert (other.messages, other.epoch, other.view.carried) == (one.messages, one.epoch, one.view.carried)
    size = 0 if full else source.stat().st_size
    assert other.header == Header("ben", AT, forked_from=f"ann {AT}", source="" if full else "ann.jsonl", source_bytes=size)
    with source.open("ab") as file:
        file.write(line(user("only the first one hears this")))
    archive = SessionArchive(target).update()
    assert [text for text in ("die Aufgabe 🚀", "ja", "weiter", "é") if not archive.find(text).found] == []
    assert archive.find("only the first one").found == ()
    assert (other.transcript == one.transcript) is full
    with pytest.raises(SessionError, match="it exists"):
        fork(source, target, agent="ben", created_at=AT)


def test_the_newest_call_is_read_from_the_end_of_a_session(tmp_path: Path) -> None:
    """What the newest call sent is known without reading the session; after a compaction it is not known until the next call."""
    assert last_call(tmp_path / "none.jsonl") is None
    assert last_call(written(tmp_path / "a.jsonl", LINES[:4])) == (100, "m")
    assert last_call(written(tmp_path / "b.jsonl", LINES[:5])) is None
    padding = [line(user("x" * 300_000)), line(assistant("late"), usage=USAGE)]
    assert last_call(written(tmp_path / "c.jsonl", [*LINES[:4], *padding])) == (100, "m")


@pytest.mark.parametrize(
    ("field", "value"),
    [("state_block", b"[99, 0]"), ("state_block", b"[]"), ("task_blocks", b"-3"), ("memory_blocks", b"1e999"), ("epoch", b"1e999")],
)
def test_a_checkpoint_with_figures_that_cannot_be_is_named_and_never_an_error(field: str, value: bytes) -> None:
    """Places outside of the view, and numbers that are none, are left out and told; the session loads and can be compacted."""
    bad = re.sub(rb'"%s":(\[[^\]]*\]|[^,]*)' % field.encode(), b'"%s":%s' % (field.encode(), value), LINES[4], count=1)
    assert bad != LINES[4]
    loaded = load([*LINES[:4], bad])
    assert [number for number, _ in loaded.damaged] == [5]
    assert without_written(loaded.view)
