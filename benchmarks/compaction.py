"""What compaction costs: a check with nothing to do, and a whole deterministic pass, against copying the list.

Prints one JSON line: noop_us_2k and noop_us_20k (a `prepare` with nothing to do, over 2,000 and 20,000 messages), full_pass_ms (take apart,
fold, elide, digest or record, trim, assemble, validate, over 2,000 messages of 4 MB), growth (the cost for each message at 20,000 over that
at 2,000), copy_ms (copying the list deeply: the physical limit of whoever copies).
"""

import copy
import json
import random
import time
from collections.abc import Sequence
from statistics import median

import trio

from compaction.compactor import Compactor
from compaction.models import ModelFacts
from compaction.options import CompactionOptions
from compaction.transcript import ModelMessage
from compaction.triggers import Cause
from compaction.view import View

MESSAGES = 2_000
BYTES = 4_000_000
NOOPS = 300
PASSES = 7
WORDS = ("the parser reads a line and returns its value", "or raises an error that names the path", "and what is legal there")


def session(messages: int, size_bytes: int, seed: int = 1) -> list[ModelMessage]:
    """Make a session of tool rounds with a word of the user now and then."""
    rng = random.Random(seed)
    each = size_bytes // messages
    text = " ".join(rng.choice(WORDS) for _ in range(each))
    made = [ModelMessage("user", "Mend the parser. Never touch the vendor directory.")]
    number = 0
    while len(made) < messages - 1:
        number += 1
        if number % 25 == 0:
            made.append(ModelMessage("assistant", f"Decision: use way {number} because it is shorter."))
            made.append(ModelMessage("user", f"Go on with part {number}."))
            continue
        path, at = f"src/part{number % 90}.py", rng.randrange(len(text) // 2)
        body = text[at : at + each - 100] + f"\nline {number}"
        name, given = ("write_file", {"path": path, "content": body}) if number % 6 == 0 else ("read_file", {"path": path})
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "written" if number % 6 == 0 else body * 2}
        made.append(ModelMessage("assistant", [{"type": "text", "text": f"Step {number}."}, call]))
        made.append(ModelMessage("user", [result]))
    return made


def door(window_tokens: int, **options: float) -> Compactor:
    """Return a compactor whose budget is the whole window."""
    return Compactor(CompactionOptions(**options), facts=ModelFacts(name="bench", window_tokens=window_tokens), reply_tokens=0)  # type: ignore[arg-type]


async def noop_us(messages: Sequence[ModelMessage]) -> float:
    """Time a check of a view that needs nothing."""
    view, compactor = View(messages), door(1_000_000_000, limit_bytes=1_000_000_000)
    await compactor.prepare(view)
    times: list[float] = []
    for _ in range(NOOPS):
        begun = time.perf_counter()
        prepared = await compactor.prepare(view)
        times.append(time.perf_counter() - begun)
        assert prepared.view is view
    return median(times) * 1e6


async def pass_ms(messages: Sequence[ModelMessage]) -> float:
    """Time a whole pass, by size: elide, then digest, each time over messages whose sizes are known, as in a live session."""
    view = View(messages)
    times: list[float] = []
    for _ in range(PASSES):
        compactor = door(compactor_window(view))
        begun = time.perf_counter()
        prepared = await compactor.prepare(view, cause=Cause.SIZE)
        times.append(time.perf_counter() - begun)
        assert prepared.checkpoint is not None
        assert prepared.over_tokens == 0
    return min(times) * 1e3


def compactor_window(view: View) -> int:
    """Return a window of which the view fills nine tenths."""
    return int(door(1_000_000_000).used_tokens(view) / 0.9)


async def main() -> None:
    """Measure and print."""
    small, large = session(MESSAGES, BYTES), session(10 * MESSAGES, 10 * BYTES)
    copied: list[float] = []
    wire = [message.wire() for message in small]
    for _ in range(PASSES):
        begun = time.perf_counter()
        copy.deepcopy(wire)
        copied.append(time.perf_counter() - begun)
    full, full_large = await pass_ms(small), await pass_ms(large)
    print(
        json.dumps(
            {
                "benchmark": "compaction",
                "noop_us_2k": round(await noop_us(small), 1),
                "noop_us_20k": round(await noop_us(large), 1),
                "full_pass_ms": round(full, 2),
                "growth": round(full_large / full / 10, 2),
                "copy_ms": round(min(copied) * 1e3, 2),
                "bytes": sum(message.size_bytes for message in small),
            }
        )
    )


if __name__ == "__main__":
    trio.run(main)
