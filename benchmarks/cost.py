"""The bill of replaying real sessions under each policy, with the provider's cache simulated.

Each reply of a session is one call: what the request shares with the one before, message by message from the start, is read from the cache,
the rest is written to it; a summary is a call of its own, uncached, with its output. Prices are in `prices.json`. Calls follow each other
while the cache lives; windows are small, so that sessions are compacted several times.

Prints one JSON line: for each price of a cached token and each policy the bill in thousands of input tokens (`bill`), over all sessions and
windows, and how much of what the user said is still shown at the end (`said`). `--table` prints the same to be read.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import trio

from benchmarks.policies import (
    ClearResults,
    DropOldest,
    LearnClaudeCode,
    Policy,
    SkillCompose,
    Stub,
    clear_results,
    extractive,
    shown_text,
)
from compaction.compactor import Around, Compactor
from compaction.models import ModelFacts
from compaction.options import CompactionOptions
from compaction.repair import repair
from compaction.tokens import count_text, weigh, weigh_all
from compaction.transcript import ModelMessage, is_real_user, message_from_wire
from compaction.view import View

TRANSCRIPTS = Path(__file__).parents[2] / "shared" / "transcripts"
PRICES = json.loads((Path(__file__).parent / "prices.json").read_text(encoding="utf-8"))
WINDOWS = (8_000, 16_000, 32_000, 64_000)
TRIGGER_SHARE = 0.7
SECONDS_PER_CALL = 10.0


@dataclass(slots=True)
class Bill:
    """What was paid, in input tokens."""

    read_factor: float
    paid: float = 0.0

    def call(self, request: Sequence[ModelMessage], before: Sequence[ModelMessage]) -> None:
        """Add one call of the agent."""
        shared = 0
        for old, new in zip(before, request, strict=False):
            if old is not new and old.json != new.json:
                break
            shared += weigh(new).text_tokens
        whole = PRICES["fixed_tokens"] + weigh_all(request).text_tokens
        if whole < PRICES["least_cached_tokens"]:
            self.paid += whole
            return
        read = PRICES["fixed_tokens"] + shared if before else 0
        self.paid += read * self.read_factor + (whole - read) * PRICES["write"]

    def summary(self, text: str, limit_tokens: int) -> str:
        """Make a summary and add its call."""
        said = extractive(text, limit_tokens)
        self.paid += count_text(text) + 600 + PRICES["output"] * count_text(said)
        return said


class Sliding:
    """Clears old results before every call, and drops the oldest when that is not enough."""

    async def compact(self, messages: Sequence[ModelMessage], budget_tokens: int) -> list[ModelMessage]:
        """Clear all results but the newest three."""
        cleared = clear_results(messages, "[cleared]")
        return cleared if weigh_all(cleared).text_tokens <= budget_tokens else await DropOldest().compact(cleared, budget_tokens // 2)


def others(stub: Stub) -> dict[str, tuple[Policy, bool]]:
    """Return the other policies, and whether each one acts before every call."""
    return {
        "drop oldest": (DropOldest(), False),
        "clear results": (ClearResults(), False),
        "clear results, sliding": (Sliding(), True),
        "Skill Compose": (SkillCompose(stub), False),
        "learn-claude-code": (LearnClaudeCode(stub), True),
    }


def sessions() -> list[list[ModelMessage]]:
    """Return the recorded sessions that are long enough to need a compaction."""
    found: list[list[ModelMessage]] = []
    for path in sorted(TRANSCRIPTS.glob("*.json")):
        raw: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["messages"]
        messages = repair(message_from_wire(message) for message in raw)
        if weigh_all(messages).text_tokens > WINDOWS[0]:
            found.append(messages)
    return found


async def replay(session: Sequence[ModelMessage], policy: Policy, window: int, bill: Bill, *, always: bool) -> list[ModelMessage]:
    """Replay a session under a policy that is asked when the window is filled, or before every call."""
    context: list[ModelMessage] = []
    sent: list[ModelMessage] = []
    for message in session:
        if message.role == "assistant" and context:
            size = weigh_all(context).text_tokens
            if size > TRIGGER_SHARE * window or always:
                context = await policy.compact(context, window // 2 if size > TRIGGER_SHARE * window else window)
            bill.call(context, sent)
            sent = list(context)
        context.append(message)
    return context


async def replay_ours(session: Sequence[ModelMessage], window: int, bill: Bill) -> list[ModelMessage]:
    """Replay a session under the compactor, which is asked before every call and decides itself."""
    facts = ModelFacts(name="bench", token_factor=1.0, window_tokens=window, cache_read_factor=bill.read_factor)
    now = [0.0]
    compactor = Compactor(CompactionOptions(), facts=facts, reply_tokens=0, around=Around(clock=lambda: now[0]))
    view, sent = View(), list[ModelMessage]()
    for message in session:
        if message.role == "assistant" and len(view):
            now[0] += SECONDS_PER_CALL
            view = (await compactor.prepare(view)).view
            bill.call(view.messages, sent)
            sent = list(view.messages)
            compactor.replied(view, input_tokens=0)
        view.append(message)
    return list(view.messages)


def said_share(session: Sequence[ModelMessage], context: Sequence[ModelMessage]) -> float:
    """Return how many of the things that the user said are still shown, by their first words."""
    text = shown_text(context)
    said = [message.text.strip()[:60] for message in session if is_real_user(message) and message.text.strip()]
    return mean(words in text for words in said) if said else 1.0


async def measure(windows: Sequence[int] = WINDOWS, reads: Sequence[float] | None = None) -> dict[str, dict[str, dict[str, float]]]:
    """Return bills and what is still shown, by price and policy."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    recorded = sessions()
    for read in reads or PRICES["read"]:
        rows: dict[str, list[tuple[float, float]]] = {}
        for session in recorded:
            for window in windows:
                bill = Bill(read)
                context = await replay_ours(session, window, bill)
                rows.setdefault("ours", []).append((bill.paid, said_share(session, context)))
                for name in others(extractive):
                    bill = Bill(read)
                    policy, always = others(bill.summary)[name]
                    context = await replay(session, policy, window, bill, always=always)
                    rows.setdefault(name, []).append((bill.paid, said_share(session, context)))
        found[str(read)] = {
            name: {"bill": round(sum(paid for paid, _ in each) / 1_000, 1), "said": round(mean(share for _, share in each), 3)}
            for name, each in rows.items()
        }
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    found = trio.run(measure)
    if not args.table:
        print(json.dumps({"benchmark": "cost", "bills": found}))
        return
    for read, rows in found.items():
        print(f"read factor {read}")
        for name, row in sorted(rows.items(), key=lambda item: item[1]["bill"]):
            dollars = row["bill"] * PRICES["dollars_per_million_input"] / 1_000
            print(f"  {name:24}{row['bill']:>12,.1f}k{dollars:>10.2f} $   said {row['said']:.2f}")


if __name__ == "__main__":
    main()
