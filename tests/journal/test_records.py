"""Records become lines and come back; a line that was changed never does."""

import json
import subprocess
import sys
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teams.journal.records import RESERVED_NAMES, DamagedLine, Record, check_group, decode, encode, together, utc_now_text, utc_seconds

TEXTS = st.text(st.characters(exclude_categories=()))  # lone surrogates too: models do send them
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.dictionaries(TEXTS.filter(lambda name: name not in RESERVED_NAMES), VALUES, max_size=6)
EXAMPLE = Record(7, "2026-01-31T12:00:00.000001Z", "mail.sent", {"body": 'two\nlines, a "quote", é', "n": 1})


def joined(value: Any) -> Any:
    """Return the value with every pair of surrogates joined: JSON has one way to write both."""
    return json.loads(json.dumps(value))


@given(st.integers(1, 2**60), TEXTS, FIELDS, st.integers(0, 5))
def test_records_survive_their_line(seq: int, kind: str, fields: dict[str, Any], more: int) -> None:
    """Every record of JSON values decodes to itself, from exactly one line."""
    record = Record(seq, utc_now_text(seq % 10**9), joined(kind), joined(fields), more)
    line = encode(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == decode(line[:-1]) == record


def test_a_line_is_json_with_its_checksum_last() -> None:
    """Other programs can read and check a line without this package."""
    line = encode(EXAMPLE)
    assert json.loads(line) == {"seq": 7, "at": EXAMPLE.at, "kind": "mail.sent", **EXAMPLE.fields, "crc": json.loads(line)["crc"]}
    body, checksum = line.rsplit(b',"crc":', 1)
    assert checksum == b'"%08x"}\n' % crc32(body)


def test_every_changed_or_missing_byte_is_noticed() -> None:
    """No line with one byte changed, left out or cut behind it decodes."""
    line = encode(EXAMPLE)
    for index in range(len(line) - 1):
        for damaged in (line[:index] + bytes([line[index] ^ 1]) + line[index + 1 :], line[:index] + line[index + 1 :], line[:index]):
            with pytest.raises(DamagedLine):
                decode(damaged)


@pytest.mark.parametrize(
    "body",
    [b"[1", b'{"seq":"1","at":"","kind":""', b'{"seq":1,"at":"","kind":"x"}', b'{"seq":1', b'{"seq":true,"at":"","kind":""', b"\xff"],
)
def test_a_good_checksum_over_no_record_is_damage(body: bytes) -> None:
    """A line that checks but is not a record is refused, not half read."""
    with pytest.raises(DamagedLine, match=r"not a record|follows the object"):
        decode(body + b',"crc":"%08x"}' % crc32(body))


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_reserved_names_cannot_name_a_field(name: str) -> None:
    """A field of the line's own names would be lost, so it is refused."""
    with pytest.raises(ValueError, match=f"{name} cannot name a field"):
        encode(EXAMPLE._replace(fields={name: 1}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}, b"bytes"])
def test_values_that_json_lacks_are_refused(value: object) -> None:
    """What would not come back is not written."""
    with pytest.raises((ValueError, TypeError)):
        encode(EXAMPLE._replace(fields={"x": value}))


def test_transactions_count_down_to_zero() -> None:
    """`together` marks a group, and a group that breaks off, skips or overlaps is refused."""
    records = together([EXAMPLE._replace(seq=seq) for seq in (1, 2, 3)])
    assert [record.more for record in records] == [2, 1, 0]
    check_group(records, 0)
    check_group([*records, EXAMPLE._replace(seq=4)], 0)
    with pytest.raises(ValueError, match="lacks 1 records"):
        check_group(records[:2], 0)
    with pytest.raises(ValueError, match="0 records to follow, but 1 were announced"):
        check_group([records[0], records[1]._replace(more=0)], 0)
    with pytest.raises(ValueError, match="sequence numbers go up by one"):
        check_group(records, 1)


@given(st.integers(0, 4_000_000_000_000_000))
def test_times_keep_their_microseconds_and_their_order(microseconds: int) -> None:
    """A time's text reads back to the microsecond and sorts as the time does."""
    text = utc_now_text(microseconds / 1e6)
    assert utc_seconds(text) == pytest.approx(microseconds / 1e6, abs=2e-6)
    assert len(text) == len("2026-01-31T12:00:00.000000Z")
    assert text < utc_now_text(microseconds / 1e6 + 0.01)


def test_the_records_module_loads_without_trio() -> None:
    """Whoever only reads lines does not pay for trio, nor does the package's front load anything else."""
    code = """
import sys, teams.journal, teams.journal.base, teams.journal.records
print([name for name in ("trio", "teams.journal.file", "pydantic") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
