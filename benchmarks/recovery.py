"""Opening a team of 200,000 records, by replay and from a snapshot.

The limit beside it is reading and decoding the same lines without folding them.
"""

import time
from pathlib import Path

from benchmarks._common import fsync_p50_us, join_all, open_core, report, run, scratch
from teams.engine import load_state
from teams.journal.file import FileJournal
from teams.journal.records import Record, decode, utc_now_text

RECORDS = 200_000


async def build(directory: Path) -> None:
    """Write a history of mail and tasks, as a team would have left it."""
    async with open_core(directory) as core:
        await join_all(core.engine, "ann", "ben")
    journal = await FileJournal.open(directory / "journal")
    seq, at = journal.head_seq, utc_now_text(time.time())
    batch: list[Record] = []
    mails = tasks = 0
    while seq < RECORDS:
        seq += 1
        match seq % 20:
            case 3:
                tasks += 1
                batch.append(Record(seq, at, "task.created", {"id": tasks, "subject": f"task {tasks}", "by": "ann"}))
            case 4 if tasks:
                batch.append(Record(seq, at, "task.changed", {"id": tasks, "status": "completed", "fence": 2, "result": "ok"}))
            case even if even % 2 == 0:
                mails += 1
                fields = {"id": f"m{mails}", "type": "message", "from": "ann", "to": ["ben"], "content": "x" * 200, "priority": "tool"}
                batch.append(Record(seq, at, "mail.sent", fields))
            case _:
                batch.append(Record(seq, at, "mail.committed", {"member": "ben", "ids": [f"m{mails}"]}))
        if len(batch) == 1_000:
            await journal.append(batch, batch[0].seq - 1)
            batch = []
    if batch:
        await journal.append(batch, batch[0].seq - 1)
    await journal.aclose()


async def opened(directory: Path) -> float:
    """Open the journal and fold it; return seconds."""
    started = time.perf_counter()
    journal = await FileJournal.open(directory / "journal")
    state = await load_state(journal)
    taken = time.perf_counter() - started
    if state.seq != RECORDS:
        raise RuntimeError(f"the state ends at record {state.seq}")
    await journal.aclose()
    return taken


async def main() -> None:
    """Build the history once, then open it in both ways."""
    with scratch() as directory:
        await build(directory)
        (directory / "snapshot.json").unlink(missing_ok=True)
        started = time.perf_counter()
        for path in sorted((directory / "journal").glob("*.jsonl")):
            with path.open("rb") as lines:
                for line in lines:
                    decode(line)
        decoded = time.perf_counter() - started
        plain = min([await opened(directory) for _ in range(3)])
        journal = await FileJournal.open(directory / "journal")
        state = await load_state(journal)
        await journal.save_snapshot(state.seq, state.to_json())
        await journal.aclose()
        fast = min([await opened(directory) for _ in range(3)])
        report(
            benchmark="recovery",
            records=RECORDS,
            open_s=plain,
            open_s_with_snapshot=fast,
            decode_s=decoded,
            ratio=plain / decoded,
            tasks=len(state.tasks.by_id),
            fsync_p50_us=fsync_p50_us(directory),
        )


if __name__ == "__main__":
    run(main)
