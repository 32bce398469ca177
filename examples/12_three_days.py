"""A session of three days on a clock that is set by hand: every cause for which a context is compacted, and what it did.

You see a table: when, why, by which layers, how large the context was and became, and after how many calls the edit has paid for itself.

    python examples/12_three_days.py          offline: no model is asked for anything
    python examples/12_three_days.py --live   the same, with summaries by the real model; needs ANTHROPIC_API_KEY
"""

import sys
from dataclasses import replace
from itertools import count as counted
from itertools import islice

import trio

from compaction import (
    Around,
    Cause,
    CompactionOptions,
    Compactor,
    ModelMessage,
    Summarizer,
    SummaryReply,
    SummaryRequest,
    View,
    model_facts,
)
from teams import AnthropicModel, Gateway, TeamError
from teams.compacting import ask_for_summary

MODEL = "claude-sonnet-4-5"
numbers = counted(1)


def rounds(count: int, chars: int, *, words: str = "") -> list[ModelMessage]:
    """Return rounds of tool work, each with a result of so many characters."""
    made: list[ModelMessage] = []
    for number in islice(numbers, count):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "read_file", "input": {"path": f"src/part{number}.py"}}
        text = [{"type": "text", "text": words}] if words else []
        made.append(ModelMessage("assistant", [*text, call]))
        made.append(
            ModelMessage("user", [{"type": "tool_result", "tool_use_id": call["id"], "content": "a line of code\n" * (chars // 15)}])
        )
    return made


def talk(text: str) -> list[ModelMessage]:
    """Return the end of a turn and the beginning of the next one."""
    return [ModelMessage("assistant", "Done so far."), ModelMessage("user", text)]


# Hours since the last line, what happens in them, and why a compaction is asked for, where somebody asks.
DAYS: list[tuple[float, list[ModelMessage], Cause | None]] = [
    (0.0, [ModelMessage("user", "Mend the parser. Never touch vendor/."), *rounds(14, 9_000)], None),
    (0.1, [*talk("Good. Go on with the printer."), *rounds(25, 4_500, words="I look at the next part.")], None),
    (0.1, [*talk("The first step is done."), *rounds(12, 6_000)], Cause.STEP_BOUNDARY),
    (2.5, [*talk("After lunch: the tests."), *rounds(12, 6_000)], None),
    (9.0, [*talk("Next day: the docs."), *rounds(14, 6_500)], None),
    (0.1, [*talk("All of it now."), *rounds(8, 30_000, words="A large one.")], None),
    (0.1, [*talk("Sum up, please."), *rounds(4, 9_000)], Cause.ASKED),
    (14.0, [*talk("Third day."), *rounds(5, 15_000)], Cause.OVERFLOW),
]


async def main() -> None:
    """Live through the days."""
    facts, now = replace(model_facts(MODEL), window_tokens=100_000), [0.0]
    model = AnthropicModel(MODEL) if "--live" in sys.argv else None

    async def summarize(request: SummaryRequest) -> SummaryReply:
        if model is None:
            await trio.lowlevel.checkpoint()
            return SummaryReply("The parser is mended and the printer looked at; next come the tests. Nothing in vendor/ was touched.")
        return await ask_for_summary(request, gateway=Gateway(model), model=model, agent="ann", system="", tools=())

    around = Around(clock=lambda: now[0], summarizer=Summarizer(summarize))
    compactor, view = Compactor(CompactionOptions(), facts=facts, reply_tokens=8_000, around=around), View()
    print(f"{'hour':>5}  {'cause':14}{'layers':18}{'before':>9}{'after':>9}  pays back after")
    for hours, messages, asked in DAYS:
        now[0] += hours * 3_600
        for message in messages:
            view.append(message)
            if message.role == "assistant":
                continue
            prepared = await compactor.prepare(view, cause=asked if message is messages[-1] else None)
            view, done = prepared.view, prepared.checkpoint
            compactor.replied(view, input_tokens=0)
            if done is not None:
                row = f"{now[0] / 3_600:5.1f}  {done.trigger:14}{', '.join(done.layers):18}{done.tokens_before:9,}{done.tokens_after:9,}"
                print(f"{row}  {done.cost.payback_calls or 0:.0f} calls")


if __name__ == "__main__":
    try:
        trio.run(main)
    except TeamError as error:
        sys.exit(str(error))
