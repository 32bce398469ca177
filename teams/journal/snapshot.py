"""The snapshot file: one JSON object with the record number that it stands after, its state, and a checksum.

It is replaced as a whole by temporary file, fsync and rename, so a reader sees the former one or the new one. It only shortens replay:
whatever is wrong with it, the log still says everything.
"""

import json
import os
import re
from pathlib import Path
from typing import Any, cast
from zlib import crc32

from teams.journal.base import Snapshot
from teams.journal.fileops import FileOps

_HEAD = re.compile(rb'\{"seq":(\d+),"state":')
_TAIL = b',"crc":"%08x"}\n'
_TAIL_LENGTH = len(_TAIL % 0)


class SnapshotDamaged(ValueError):
    """The snapshot's bytes are not what was written."""


def encode_snapshot(seq: int, state: dict[str, Any]) -> bytes:
    """Return the snapshot's bytes.

    Raises: ValueError or TypeError when the state is not made of JSON values.
    """
    text = json.dumps(state, separators=(",", ":"), ensure_ascii=True, allow_nan=False)  # ASCII: lone surrogates have no other form
    body = f'{{"seq":{seq},"state":{text}'.encode("ascii")
    return body + _TAIL % crc32(body)


def decode_snapshot(data: bytes) -> Snapshot:
    """Return the snapshot of its bytes.

    Raises: SnapshotDamaged.
    """
    head, body = _HEAD.match(data), data[:-_TAIL_LENGTH]
    if head is None or data[-_TAIL_LENGTH:] != _TAIL % crc32(body):
        raise SnapshotDamaged("its checksum does not match")
    try:
        state: object = json.loads(body[head.end() :])
    except ValueError as error:
        raise SnapshotDamaged(f"it is not JSON: {error}") from error
    if not isinstance(state, dict):
        raise SnapshotDamaged("its state is not an object")
    return int(head[1]), cast("dict[str, Any]", state)


def read_snapshot(path: Path) -> Snapshot | None:
    """Return the snapshot; None when there is no file.

    Raises: SnapshotDamaged; OSError when the file cannot be read.
    """
    try:
        return decode_snapshot(path.read_bytes())
    except FileNotFoundError:
        return None


def replace_snapshot(ops: FileOps, path: Path, seq: int, data: bytes) -> bool:
    """Put the snapshot's bytes in the place of an older one, durably; False when a newer one stands there. The caller holds a lock.

    Raises: OSError; the former snapshot stands then.
    """
    if (standing := _standing_seq(path)) is not None and standing > seq:
        return False
    temporary = path.with_name(path.name + ".tmp")  # one name is enough under the lock, and nothing piles up after crashes
    fd = ops.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        ops.write_all(fd, data)
        ops.sync(fd)
    finally:
        ops.close(fd)
    ops.replace(temporary, path)
    ops.sync_directory(path.parent)
    return True


def _standing_seq(path: Path) -> int | None:
    try:
        snapshot = read_snapshot(path)
    except SnapshotDamaged:
        return None
    return snapshot[0] if snapshot else None
