"""Ways to keep a context within its size: ours, simple ones, and those of three systems that people know, stated anew from what they do.

A policy takes a context and gives a smaller one. Summaries are made by stubs, the same for all: `extractive` keeps the first words of each
thing that was said, `ideal` keeps every planted fact that it is shown, `empty` fails.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import trio

from benchmarks.planted import Planted
from compaction.compactor import Around, Compactor
from compaction.models import ModelFacts
from compaction.options import CompactionOptions
from compaction.summarizer import Summarizer, SummaryFailed, SummaryOptions, SummaryReply, SummaryRequest
from compaction.tokens import count_text, weigh, weigh_all
from compaction.transcript import ModelMessage, is_real_user, rounds
from compaction.triggers import RULES, Cause, Rule
from compaction.view import View

Stub = Callable[[str, int], str]


class Policy(Protocol):
    """One way to keep a context small; it may keep a state from one compaction to the next."""

    async def compact(self, messages: Sequence[ModelMessage], budget_tokens: int) -> list[ModelMessage]:
        """Return a context of at most so many base tokens."""
        ...


# -- stubs of a summarizer ---------------------------------------------------------------


def empty(_text: str, _limit_tokens: int) -> str:
    """Fail, as a model that answers nothing."""
    return ""


def extractive(text: str, limit_tokens: int) -> str:
    """Keep the first 120 characters of each paragraph, the newest first, as many as fit."""
    kept: list[str] = []
    left = limit_tokens
    for paragraph in reversed(text.split("\n\n")):
        line = paragraph.strip().replace("\n", " ")[:120]
        cost = count_text(line) + 1
        if cost > left:
            break
        left -= cost
        kept.append(line)
    return "\n".join(reversed(kept))


def ideal_for(session: Planted) -> Stub:
    """Return a summarizer that keeps every planted fact that it is shown and that still holds, as far as there is room."""

    def ideal(text: str, limit_tokens: int) -> str:
        lines = [
            f"{fact.words} {fact.also}".strip()
            for fact in session.facts
            if fact.words in text and not (fact.ended_by and fact.ended_by in text)
        ]
        kept: list[str] = []
        for line in lines:
            if count_text("\n".join([*kept, line])) > limit_tokens:
                break
            kept.append(line)
        return "\n".join(kept)

    return ideal


def serialised(messages: Sequence[ModelMessage], input_chars: int, result_chars: int) -> str:
    """Return messages as paragraphs, with inputs and results cut."""
    parts: list[str] = []
    for message in messages:
        for block in message.content:
            match block.get("type"):
                case "text":
                    parts.append(f"[{message.role}]: {block['text']}")
                case "tool_use":
                    parts.append(f"[{message.role} -> {block['name']}]: {json.dumps(block['input'])[:input_chars]}")
                case "tool_result":
                    parts.append(f"[tool_result]: {str(block['content'])[:result_chars]}")
                case _:
                    pass
    return "\n\n".join(parts)


# -- simple policies ------------------------------------------------------------------------


def _size(messages: Sequence[ModelMessage]) -> int:
    return weigh_all(messages).text_tokens


def _newest_that_fit(messages: Sequence[ModelMessage], room: int) -> list[ModelMessage]:
    """Return the newest messages that fit, beginning where a list may begin."""
    start, size = len(messages), 0
    while start > 0 and size + weigh(messages[start - 1]).text_tokens <= room:
        start -= 1
        size += weigh(messages[start]).text_tokens
    while start < len(messages) and messages[start].tool_results:
        start += 1
    return list(messages[start:])


class DropOldest:
    """Keep the first message, and the newest that fit."""

    async def compact(self, messages: Sequence[ModelMessage], budget_tokens: int) -> list[ModelMessage]:
        """Drop what is oldest."""
        await trio.lowlevel.checkpoint()
        first = messages[0]
        return [first, *_newest_that_fit(messages[1:], budget_tokens - weigh(first).text_tokens)]


class HeadAndTail:
    """Keep a third of the room for the oldest messages and the rest for the newest."""

    async def compact(self, messages: Sequence[ModelMessage], budget_tokens: int) -> list[ModelMessage]:
        """Drop the middle."""
        await trio.lowlevel.checkpoint()
        stop, size = 0, 0
        while stop < len(messages) and size + weigh(messages[stop]).text_tokens <= budget_tokens // 3:
            size += weigh(messages[stop]).text_tokens
            stop += 1
        return [*messages[:stop], *_newest_that_fit(messages[stop:], budget_tokens - size)]


class ClearResults:
    """Replace all results but the newest three by a word; drop the oldest when that is not enough."""

    async def compact(self, messages: Sequence[ModelMessage], budget_tokens: int) -> list[ModelMessage]:
        """Clear results, then drop what is oldest."""
        return await DropOldest().compact(clear_results(messages, "[cleared]"), budget_tokens)


def clear_results(messages: Sequence[ModelMessage], word: str, *, keep: int = 3, least_chars: int = 100) -> list[ModelMessage]:
    """Replace the content of every result but the newest few."""
    holders = [at for at, message in enumerate(messages) if message.tool_results]
    old = set(holders[: max(0, len(holders) - keep)])
    return [
        message.with_content(
            {**block, "content": word} if block.get("type") == "tool_result" and len(str(block["content"])) > least_chars else block
            for block in message.content
        )
        if at in old
        else message
        for at, message in enumerate(messages)
    ]


# -- three systems ---------------------------------------------------------------------------


class SkillCompose:
    """At most five newest turns within a quarter stay; the rest is one summary of at most 4,096 tokens, updated from the one before.

    What failed is replaced by the previous summary or the text itself, cut to 5,000 characters at both ends.
    """

    def __init__(self, stub: Stub) -> None:
        self._stub, self._previous = stub, ""

    async def compact(self, messages: Sequence[ModelMessage], budget_tokens: int) -> list[ModelMessage]:
        """Summarize what is older than the recent turns."""
        await trio.lowlevel.checkpoint()
        starts = [at for at, message in enumerate(messages) if is_real_user(message) and not message.tool_results]
        cut, kept = len(messages), 0
        for at in reversed(starts):
            if kept and (kept == 5 or _size(messages[at:]) > budget_tokens // 4):
                break
            cut, kept = at, kept + 1
        if _size(messages[cut:]) > budget_tokens // 2:  # the oversized turn is split between rounds
            spans = [span.start for span in rounds(messages) if span.start > cut]
            cut = next((at for at in spans if _size(messages[at:]) <= budget_tokens // 4), spans[-1] if spans else cut)
        old = messages[1 if self._previous else 0 : cut]
        text = serialised(old, 500, 1_000)
        text = text if len(text) <= 100_000 else text[:50_000] + "\n...\n" + text[-50_000:]
        room = min(4_096, budget_tokens - _size(messages[cut:]) - 60)
        source = f"{self._previous}\n\n{text}" if self._previous else text
        summary = self._stub(source, max(40, room))
        if not summary:
            summary = self._previous or text
            summary = summary if len(summary) <= 10_000 else summary[:5_000] + "\n...\n" + summary[-5_000:]
        self._previous = summary
        head = ModelMessage("user", f"This session is continued from an earlier one. <summary>{summary}</summary> Go on without questions.")
        return await DropOldest().compact([head, *messages[cut:]], max(budget_tokens, weigh(head).text_tokens + 1))


class ThClaws:
    """Drop the oldest to half of the budget."""

    async def compact(self, messages: Sequence[ModelMessage], budget_tokens: int) -> list[ModelMessage]:
        """Keep what is newest."""
        await trio.lowlevel.checkpoint()
        return _newest_that_fit(messages, budget_tokens)


class LearnClaudeCode:
    """Old results become a word; then everything becomes one summary of the first 80,000 characters."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub

    async def compact(self, messages: Sequence[ModelMessage], budget_tokens: int) -> list[ModelMessage]:
        """Clear results, and summarize all when that is not enough."""
        await trio.lowlevel.checkpoint()
        cleared = clear_results(messages, "[Previous: used a tool]")
        if _size(cleared) <= budget_tokens:
            return cleared
        text = json.dumps([message.wire() for message in cleared])[:80_000]
        summary = self._stub(serialised(cleared, 500, 1_000)[: len(text)], min(2_000, budget_tokens - 60))
        return [
            ModelMessage("user", f"[Compressed]\n\n{summary or '(no summary)'}"),
            ModelMessage("assistant", "Understood, I go on."),
            ModelMessage("user", "Go on."),
        ]


# -- ours -------------------------------------------------------------------------------------


class Ours:
    """The compactor of this project, by the layers of one form."""

    def __init__(self, form: str, stub: Stub | None, session: Planted | None = None, facts: ModelFacts | None = None) -> None:
        self._stub = stub
        self.view = View()
        summarizer = Summarizer(self._call, SummaryOptions(same_prefix=False, least_chars=1)) if form == "summary" and stub else None
        layers = ("trim",) if form == "trim" else ("elide", form)
        rules: list[Rule] = [Rule(Cause.SIZE, layers), *(rule for rule in RULES if rule.cause is not Cause.SIZE)]
        state = (lambda: session.state) if session is not None else None
        self._around = Around(summarizer=summarizer, state=state, rules=rules)
        self._facts = facts or ModelFacts(name="bench", token_factor=1.0)
        self._sent = 0

    async def _call(self, request: SummaryRequest) -> SummaryReply:
        await trio.lowlevel.checkpoint()
        assert self._stub is not None
        text = request.messages[0].text
        previous = request.system.partition("<previous_summary>")[2].partition("</previous_summary>")[0]
        said = self._stub(f"{previous}\n\n{text}", request.max_tokens)
        if not said:
            raise SummaryFailed("blank")
        return SummaryReply(said, usage={"output_tokens": count_text(said)})

    async def compact(self, messages: Sequence[ModelMessage], budget_tokens: int) -> list[ModelMessage]:
        """Compact by size, whatever the context's share."""
        for message in messages[self._sent :]:
            self.view.append(message)
        facts = ModelFacts(name="bench", token_factor=1.0, window_tokens=int(budget_tokens / 0.9))
        options = CompactionOptions(margin_share=0.1, trigger_share=0.9, target_share=0.9, keep_share=0.45, memory_share=0.4)
        compactor = Compactor(options, facts=facts, reply_tokens=0, around=self._around)
        self.view = (await compactor.prepare(self.view, cause=Cause.SIZE)).view
        self._sent = len(self.view)
        return list(self.view.messages)


Maker = Callable[[Planted], Policy]


def arms(stub_name: str) -> Mapping[str, Maker]:
    """Return every policy, with a summarizer of this kind where it has one."""

    def stub(session: Planted) -> Stub:
        return ideal_for(session) if stub_name == "ideal" else extractive if stub_name == "extractive" else empty

    made: dict[str, Maker] = {
        "ours trim": lambda session: Ours("trim", None, session),
        "ours digest": lambda session: Ours("digest", None, session),
        "ours record": lambda session: Ours("record", None, session),
        "ours summary": lambda session: Ours("summary", stub(session), session),
        "drop oldest": lambda _: DropOldest(),
        "head and tail": lambda _: HeadAndTail(),
        "clear results": lambda _: ClearResults(),
        "Skill Compose": lambda session: SkillCompose(stub(session)),
        "thClaws": lambda _: ThClaws(),
        "learn-claude-code": lambda session: LearnClaudeCode(stub(session)),
    }
    return made


def shown_text(messages: Sequence[ModelMessage]) -> str:
    """Return everything that a context shows to a model."""
    parts: list[str] = []
    for message in messages:
        for block in message.content:
            content: Any = block.get("text") or block.get("content") or json.dumps(block.get("input", ""), ensure_ascii=False)
            parts.append(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
    return "\n".join(parts)
