"""A plain loop over the provider's client, without a team, kept inside its window by `compaction` alone.

You see a small window fill up, what each compaction did, and a search that finds what the model does not see any more.

    python examples/07_compaction_alone.py          offline: a script plays the model
    python examples/07_compaction_alone.py --live   on the real model; needs ANTHROPIC_API_KEY
"""

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import trio

from compaction import Archive, CompactionOptions, Compactor, ModelMessage, View, model_facts

MODEL = "claude-haiku-4-5"
SYSTEM = "Read every chapter with read_chapter, one after the other, and then say the names of all captains."
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
TOOL: dict[str, Any] = {"name": "read_chapter", "description": "Read one chapter.", "input_schema": NUMBER}
Ask = Callable[[list[dict[str, Any]]], Awaitable[tuple[list[dict[str, Any]], int]]]


def read_chapter(number: int) -> str:
    """Return a chapter; the book has 30."""
    return f"Chapter {number}. Captain {chr(65 + number % 26)}-{number} went aboard. " + "The sea was calm. " * 300


async def offline(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Play the model: read the next chapter, whatever has been cut from its context meanwhile."""
    await trio.lowlevel.checkpoint()
    read = max((block["input"]["number"] for m in messages for block in m["content"] if block["type"] == "tool_use"), default=0)
    if read < 30:
        return [{"type": "tool_use", "id": f"toolu_{read + 1}", "name": "read_chapter", "input": {"number": read + 1}}], 0
    return [{"type": "text", "text": "I have read all 30 chapters."}], 0


def live(model: str) -> Ask:
    """Return calls of the real model."""
    if not os.environ.get("ANTHROPIC_API_KEY"):
        sys.exit(f"cannot use model {model!r}: no key; set ANTHROPIC_API_KEY to your key, or leave out --live")
    import anthropic  # takes seconds

    client: Any = anthropic.AsyncAnthropic()

    async def ask(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
        body: dict[str, Any] = {"model": model, "system": SYSTEM, "messages": messages, "tools": [TOOL], "max_tokens": 1_000}
        try:
            reply = await client.messages.create(**body)
        except anthropic.AnthropicError as error:
            raise SystemExit(f"cannot use model {model!r}: {error}") from error
        return [block.model_dump(exclude_none=True) for block in reply.content], reply.usage.input_tokens

    return ask


async def main() -> None:
    """Run one turn of many rounds in a window that holds a few chapters."""
    ask = live(MODEL) if "--live" in sys.argv else offline
    facts = replace(model_facts(MODEL), window_tokens=20_000)  # small, so that something is to be seen
    compactor = Compactor(CompactionOptions(), facts=facts, reply_tokens=1_000, system=SYSTEM, tools=[TOOL])
    view, archive = View([ModelMessage("user", "Begin with chapter 1.")]), Archive()
    while True:
        prepared = await compactor.prepare(view)
        view, done = prepared.view, prepared.checkpoint
        if done is not None:
            archive.add_view(done.messages)
            print(f"compacted by {done.trigger}: {', '.join(done.layers)}; {done.tokens_before:,} -> {done.tokens_after:,} tokens")
        content, input_tokens = await ask([message.wire() for message in view.messages])
        compactor.replied(view, input_tokens=input_tokens)
        view.append(ModelMessage("assistant", content))
        calls = view.messages[-1].tool_calls
        if not calls:
            break
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": read_chapter(call["input"]["number"])} for call in calls]
        view.append(ModelMessage("user", results))
        archive.add(view.messages[-1])
    print(view.messages[-1].text)
    found = archive.find("Captain C-2 ").found[-1]
    print(f"the context holds {len(view)} messages; recall finds: {found.snippet[:60]} ({found.recall_id})")


if __name__ == "__main__":
    trio.run(main)
