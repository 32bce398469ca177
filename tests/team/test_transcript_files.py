"""A transcript on disk holds what was added to it, once and in order, wherever its writer is cancelled."""

from pathlib import Path

import trio

from compaction.session import load
from compaction.transcript import ModelMessage
from teams.sessions import SessionStore
from teams.testing.team import EPOCH_SECONDS, cancel_at_step


async def _write(store: SessionStore, said: dict[str, list[str]]) -> None:
    """Let members add and sync, and add once more while they are being cancelled, as interrupted turns do."""

    async def live(name: str) -> None:
        log = store.log(name)

        def add(text: str) -> None:
            said.setdefault(name, []).append(text)
            log.add(ModelMessage("user", text))

        try:
            for number in range(3):
                add(f"line {number}")
                await log.sync()
        finally:
            add("interrupted")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        async with trio.open_nursery() as members:
            for name in ("ann", "ben"):
                members.start_soon(live, name)
        nursery.cancel_scope.cancel()


async def test_transcript_is_whole_wherever_its_writer_is_cancelled(tmp_path: Path) -> None:
    """Cancelled before any step, every line that was added is in the file once the store is closed, under a header."""
    step, cancelled = 0, True
    while cancelled:
        step += 1
        directory = tmp_path / str(step)
        directory.mkdir()
        store, said = SessionStore(directory, wall_clock=lambda: EPOCH_SECONDS), dict[str, list[str]]()
        with cancel_at_step(step) as counter:
            await _write(store, said)
        cancelled = counter.scope.cancelled_caught
        store.close()
        for name, texts in said.items():
            with (directory / f"{name}.jsonl").open("rb") as lines:
                loaded = load(lines)
            assert [message.text for message in loaded.messages] == texts, f"cancelled before step {step}"
            assert not loaded.damaged
    assert step > 10  # it was cancelled in the middle as well
