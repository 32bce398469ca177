"""What a context still knows after 1, 2, 5 and 10 compactions, at equal size, by policy.

Prints one JSON line: for each arm the shares, over all sizes, numbers of compactions and seeds, of facts that are present word for word
(`presence`), that are equal in the record (`record`, where there is one), of team facts that are present (`team`), of facts that a search
of the transcript finds (`recoverable`), and how many ended rules are shown without their end (`stale`) and things never said (`invented`).
`--table` prints the same to be read; `--stub` chooses the summarizer: extractive (default), ideal, empty.
"""

import argparse
import json
from statistics import mean

import trio

from benchmarks.planted import Fact, Planted, planted, segments
from benchmarks.policies import Maker, Ours, arms, shown_text
from compaction.recall import Archive
from compaction.transcript import ModelMessage

SIZES = (4_000, 8_000, 16_000, 32_000)
COMPACTIONS = (1, 2, 5, 10)
SEEDS = (1, 2)
TEAM = frozenset({"teammate", "task", "request"})
STRUCTURED = frozenset({"path", "identifier", "error", "attempt", "artifact", "teammate", "task", "request"})


def presence(facts: list[Fact], text: str) -> float:
    """Return the share of facts that still hold and are there, with all that belongs to them."""
    holding = [fact for fact in facts if not fact.ended_by]
    return mean(fact.words in text and fact.also in text for fact in holding) if holding else 1.0


def stale(facts: list[Fact], text: str) -> int:
    """Count the rules that were ended and are shown without the words that ended them."""
    return sum(fact.words in text and fact.ended_by not in text for fact in facts if fact.ended_by)


def record_equality(session: Planted, policy: Ours) -> float:
    """Return the share of structured facts that the record holds exactly."""
    record = policy.view.carried.record
    if record is None:
        return 0.0
    artifacts = {artifact.path: artifact.state for artifact in record.artifacts}
    values = {identifier.name: identifier.value for identifier in record.identifiers}
    failed = {attempt.action: attempt.error for attempt in record.failed_attempts}
    right: list[bool] = []
    for fact in session.facts:
        match fact.kind:
            case "artifact":
                right.append(artifacts.get(fact.words) == fact.also)
            case "identifier":
                right.append(values.get(fact.words) == fact.also)
            case "path":
                right.append(any(fact.words in note for note in record.notes))
            case "error":
                right.append(any(fact.words in error for error in failed.values()))
            case "attempt":
                right.append(any(fact.words in action and fact.also in error for action, error in failed.items()))
            case "request":
                right.append(fact.words in record.open_requests)
            case _:
                pass
    return mean(right)


async def score(maker: Maker, session: Planted, size: int, count: int) -> dict[str, float]:
    """Run a session under one policy and look at what is left."""
    policy = maker(session)
    context: list[ModelMessage] = []
    for part in segments(session.messages, count):
        context = await policy.compact([*context, *part], size)
    text = shown_text(context)
    archive = Archive(session.messages)
    told = [fact for fact in session.facts if fact.kind not in TEAM]
    found = {
        "presence": presence(told, text),
        "team": presence([fact for fact in session.facts if fact.kind in TEAM], text),
        "recoverable": mean(bool(archive.find(fact.words, limit=1).found) for fact in told),
        "stale": float(stale(session.facts, text)),
        "invented": float(sum(words in text for words in session.never_said)),
    }
    if isinstance(policy, Ours):
        found["record"] = record_equality(session, policy)
    return found


async def measure(
    stub: str, sizes: tuple[int, ...] = SIZES, counts: tuple[int, ...] = COMPACTIONS, seeds: tuple[int, ...] = SEEDS
) -> dict[str, dict[str, float]]:
    """Return the mean scores of every arm."""
    totals: dict[str, list[dict[str, float]]] = {}
    for seed in seeds:
        session = planted(seed)
        for name, maker in arms(stub).items():
            for size in sizes:
                for count in counts:
                    totals.setdefault(name, []).append(await score(maker, session, size, count))
    return {name: {key: round(mean(run[key] for run in runs), 4) for key in runs[0]} for name, runs in totals.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stub", choices=("extractive", "ideal", "empty"), default="extractive")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    found = trio.run(measure, args.stub)
    if not args.table:
        print(json.dumps({"benchmark": "retention", "stub": args.stub, "arms": found}))
        return
    keys = ("presence", "team", "record", "recoverable", "stale", "invented")
    print(f"{'arm':20}" + "".join(f"{key:>13}" for key in keys))
    for name, scores in found.items():
        print(f"{name:20}" + "".join(f"{scores[key]:13.3f}" if key in scores else f"{'-':>13}" for key in keys))


if __name__ == "__main__":
    main()
