"""Contexts for property tests: right ones, and the same with what goes wrong in real logs."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from compaction.transcript import Block, ModelMessage, message_from_wire

TRANSCRIPTS = sorted((Path(__file__).parents[2].parent / "shared" / "transcripts").glob("*.json"))


def transcript(path: Path) -> list[ModelMessage]:
    """Read a real session."""
    return [message_from_wire(message) for message in json.loads(path.read_text(encoding="utf-8"))["messages"]]


def png(width: int, height: int) -> str:
    """Return the base64 head of a PNG of this size; no model will look at it."""
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x02" + b"\0" * 22).decode()


def image(width: int = 100, height: int = 100, media_type: str = "image/png") -> Block:
    """Return an image block."""
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": png(width, height)}}


def say(text: str) -> Block:
    """Return a text block."""
    return {"type": "text", "text": text}


def call(call_id: str, **inputs: Any) -> Block:
    """Return a tool call."""
    return {"type": "tool_use", "id": call_id, "name": "read", "input": inputs}


def result(call_id: str, content: Any = "done", **more: Any) -> Block:
    """Return a tool result."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def user(*content: Block | str) -> ModelMessage:
    """Return a user message."""
    return ModelMessage("user", [say(part) if isinstance(part, str) else part for part in content])


def assistant(*content: Block | str) -> ModelMessage:
    """Return an assistant message."""
    return ModelMessage("assistant", [say(part) if isinstance(part, str) else part for part in content])


def rounds_of(count: int, result_chars: int = 40) -> list[ModelMessage]:
    """Return rounds of one call each."""
    found: list[ModelMessage] = []
    for number in range(count):
        found.append(assistant(f"step {number}", call(f"r{number}", path=f"src/{number}.py")))
        found.append(user(result(f"r{number}", f"line {number}\n" * (result_chars // 8 + 1))))
    return found


WORDS = st.sampled_from(
    [
        "Fix the parser",
        "看看测试结果",
        "テストを確認して",
        "😀👨‍👩‍👧🇩🇪",
        "e\u0301te\u0301",
        "{'a': [1, 2]}",
        "x" * 400,
        "def f(x):\n    return x\n" * 30,
        "Ж" * 90,
    ]
)
TEXTS = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
THINKING: st.SearchStrategy[Block] = st.sampled_from(
    [
        {"type": "thinking", "thinking": "I should look first.", "signature": "c2ln"},
        {"type": "thinking", "thinking": "", "signature": "c2ln" * 40},
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
    ]
)
RESULT_CONTENTS: st.SearchStrategy[Any] = st.one_of(
    TEXTS,
    st.just(""),
    st.tuples(TEXTS, WORDS).map(lambda pair: [say(pair[0]), image(), say(pair[1])]),
    TEXTS.map(lambda text: [say(text * 20)]),
)


@st.composite
def conversations(draw: st.DrawFn, max_rounds: int = 12) -> list[ModelMessage]:
    """Draw a right list: it starts with a task, and ends where the model may go on."""
    messages = [user(draw(TEXTS))]
    for number in range(draw(st.integers(0, max_rounds))):
        kind = draw(st.sampled_from(["calls", "calls", "talk"]))
        thought = [draw(THINKING)] if draw(st.booleans()) else []
        if kind == "talk":
            messages += [assistant(*thought, draw(TEXTS)), user(draw(TEXTS))]
            continue
        ids = [f"c{number}_{each}" for each in range(draw(st.integers(1, 4)))]
        words = [say(draw(TEXTS))] if draw(st.booleans()) else []
        messages.append(assistant(*thought, *words, *(call(one, path=draw(WORDS), lines=[1, {"to": draw(TEXTS)}]) for one in ids)))
        mail = [say(draw(TEXTS))] if draw(st.integers(0, 3)) == 0 else []
        messages.append(user(*(result(one, draw(RESULT_CONTENTS)) for one in draw(st.permutations(ids))), *mail))
    return messages


_ODD: st.SearchStrategy[Block] = st.sampled_from(
    [
        say(""),
        say("  \n"),
        say("lone \ud83d surrogate"),
        {"type": "text", "text": "x", "private": 1},
        {"type": "thinking", "thinking": "unsigned"},
        {"type": "thinking", "thinking": ""},
        call("c0_0", again=True),
        call("bad id!", x=1),
        {"type": "tool_use", "id": "s1", "name": "read", "input": '{"a": 1}'},
        {"type": "tool_use", "id": "s2", "name": "", "input": None},
        result("nobody"),
        result("c0_0", "a second result"),
        result("c1_0", [{"type": "tool_reference_list", "x": 1}, say(" ")]),
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_9", "content": []},
        image(9_000, 10),
        image(10, 10, "image/jpeg"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    ]
)


@st.composite
def broken(draw: st.DrawFn) -> list[ModelMessage]:
    """Draw a list with what real logs hold: lost and doubled messages, odd blocks, calls never answered."""
    messages = draw(conversations(max_rounds=6))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, max(0, len(messages) - 1)))
        match draw(st.sampled_from(["lose", "double", "odd", "odd", "shuffle", "move", "role", "system"])):
            case "lose" if messages:
                del messages[at]
            case "double" if messages:
                messages.insert(at, messages[at])
            case "odd" if messages:
                place = draw(st.integers(0, len(messages[at].content)))
                blocks = list(messages[at].content)
                blocks.insert(place, draw(_ODD))
                messages[at] = messages[at].with_content(blocks)
            case "shuffle" if messages:
                messages[at] = messages[at].with_content(draw(st.permutations(messages[at].content)))
            case "move" if messages:
                messages.insert(draw(st.integers(0, len(messages) - 1)), messages.pop(at))
            case "role" if messages:
                messages[at] = ModelMessage("assistant" if messages[at].role == "user" else "user", messages[at].content)
            case "system":
                messages.insert(at, ModelMessage("system", draw(TEXTS)))
            case _:
                pass
    return messages
