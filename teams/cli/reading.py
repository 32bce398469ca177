"""Looking into a team's directory without the runtime: commands that only read do not even wait for trio.

Laws: reading changes nothing but a torn tail, which is set aside as at every opening of a journal; what was met and got over is reported.
"""

import argparse
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from teams.cli.exits import CommandFailed
from teams.cli.output import complain
from teams.directory import read_team_name
from teams.hosts import dead_hosts, read_retries
from teams.journal.base import JournalReport
from teams.journal.fileops import FileOps
from teams.journal.records import Record
from teams.journal.segments import Cursor
from teams.journal.store import SegmentStore
from teams.state.decision import AGENT_KINDS
from teams.state.roster import Member
from teams.state.team_state import TeamState

SLICE_BYTES = 1024 * 1024
SEGMENT_BYTES = 16 * 1024 * 1024
LOCK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A team as its directory showed it at one moment."""

    name: str
    directory: Path
    state: TeamState
    last_at: str | None
    """When the last record was written."""
    reports: tuple[JournalReport, ...]
    dead: frozenset[str]
    """The hosts whose process is gone."""
    retries: Mapping[str, str]
    """For what each member waits that is about to call its model again."""


def add_directory(parser: argparse.ArgumentParser) -> None:
    """Add the argument that every command on a team has."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="the team's directory")


@contextmanager
def open_log(directory: Path) -> Generator[SegmentStore]:
    """Open the log of a team for reading.

    Raises: NotATeam, JournalDamaged, JournalError.
    """
    read_team_name(directory)
    journal = directory / "journal"
    store = SegmentStore(journal, segment_bytes=SEGMENT_BYTES, slice_bytes=SLICE_BYTES, lock_seconds=LOCK_SECONDS, ops=FileOps())
    try:
        yield store
    finally:
        store.close()


def read_records(store: SegmentStore, after_seq: int) -> Iterator[Record]:
    """Iterate over the records after one of them, up to the log's end; raises JournalDamaged at a record that cannot be read."""
    cursor: Cursor | None = None
    done = False
    while not done:
        records, cursor, done = store.read_slice(cursor, after_seq)
        yield from records
    assert cursor is not None
    store.advance(cursor)


def fold_state(store: SegmentStore) -> tuple[TeamState, str | None]:
    """Return the state at the log's end, and when its last record was written."""
    snapshot = store.load_snapshot()
    state = TeamState()
    if snapshot is not None:
        try:
            state = TeamState.from_json(snapshot[1])
        except (ValueError, KeyError, TypeError, IndexError) as error:  # another version wrote it; the journal has it all
            store.reports.append(JournalReport("snapshot_ignored", f"the snapshot cannot be used: {error!r}"))
    last: str | None = None
    for record in read_records(store, state.seq):
        state.apply(record)
        last = record.at
    if last is None and state.seq:
        last = next(read_records(store, state.seq - 1)).at
    return state, last


def look(directory: Path) -> Seen:
    """Read a team once.

    Raises: NotATeam, JournalDamaged, JournalError.
    """
    name = read_team_name(directory)
    with open_log(directory) as store:
        state, last = fold_state(store)
        reports = tuple(store.reports)
    hosts = {member.host for member in state.roster.live() if member.host is not None}
    dead = dead_hosts(directory / "hosts", hosts)
    return Seen(name, directory, state, last, reports, dead, read_retries(directory / "hosts", hosts - dead, time.time()))


def find_agent(seen: Seen, name: str) -> Member:
    """Return a member that has a context; raise CommandFailed for one that has none, UnknownMember for nobody."""
    member = seen.state.roster.get(name, operation="look into")
    if member.spec.kind not in AGENT_KINDS:
        raise CommandFailed(f"cannot look into {name!r}: it is a {member.spec.kind}, which has no context")
    return member


def tell_reports(reports: tuple[JournalReport, ...]) -> None:
    """Say on stderr what was wrong with the journal and was got over."""
    for report in reports:
        complain(f"note: {report.message}")
