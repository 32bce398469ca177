"""The strict endpoint's rules: for each, a body that it takes and one that it refuses."""

import base64
import copy
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from teams.testing.wire_rules import refusal

Body = dict[str, Any]

TOOLS: list[Any] = [{"name": "ls", "description": "List.", "input_schema": {"type": "object"}}]


def text(value: str = "hi", **more: Any) -> Body:
    """A text block."""
    return {"type": "text", "text": value, **more}


def use(call_id: str = "t1", **more: Any) -> Body:
    """A tool call."""
    return {"type": "tool_use", "id": call_id, "name": "ls", "input": {}, **more}


def result(call_id: str = "t1", **more: Any) -> Body:
    """A tool result."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok", **more}


def png(width: int, height: int) -> Body:
    """An image block whose header says this size."""
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\0" * 24
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}}


def body(*messages: tuple[str, Any], **top: Any) -> Body:
    """A request body with tools."""
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "tools": copy.deepcopy(TOOLS),
        "messages": [{"role": role, "content": content} for role, content in messages or (("user", "hi"),)],
        **top,
    }


def loop(*blocks: Body, answer: Any = None, **top: Any) -> Body:
    """A body with one round: these blocks of the assistant, and their answer."""
    return body(("user", "go"), ("assistant", list(blocks)), ("user", answer if answer is not None else [result()]), **top)


MARK: Body = {"cache_control": {"type": "ephemeral"}}
LONG: Body = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
THOUGHT: Body = {"type": "thinking", "thinking": "hm", "signature": "s"}
ENABLED: Body = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}
SEARCH_TOOL: Body = {"type": "web_search_20250305", "name": "web_search"}
SEARCH: Body = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND: Body = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
SYSTEM_MODEL: Body = {"model": "claude-opus-4-8"}

ACCEPTED: dict[str, Body] = {
    "V01 one message": body(),
    "V03 same roles in a row": body(("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("user", "e")),
    "V06 system after the user": body(("user", "a"), ("system", "note"), **SYSTEM_MODEL),
    "V06 system between": body(("user", "a"), ("system", "x"), ("system", "y"), ("assistant", "b"), ("user", "c"), **SYSTEM_MODEL),
    "V07 empty final assistant": body(("user", "a"), ("assistant", [])),
    "V09 prefill": body(("user", "a"), ("assistant", "The answer is")),
    "V11 all known fields": loop(use(**MARK), answer=[result(is_error=True)]),
    "V12 adaptive": body(thinking={"type": "adaptive"}, model="claude-opus-4-6"),
    "V12 temperature": body(temperature=0.3),
    "V13 V14 result, then text": loop(text(), use(), answer=[result(), text()]),
    "V13 V16 two calls": loop(use("a"), use("b"), answer=[result("b"), result("a")]),
    "V20 no tools, no tool blocks": {name: value for name, value in body().items() if name != "tools"},
    "V21 parts of a result": loop(use(), answer=[result(content=[text(), png(10, 10)])]),
    "V21 no content": loop(use(), answer=[{"type": "tool_result", "tool_use_id": "t1"}]),
    "V30 mixed turn, open": loop(SEARCH, use(), tools=[*TOOLS, SEARCH_TOOL]),
    "V31 result in the next turn": body(
        ("user", "go"),
        ("assistant", [SEARCH, use()]),
        ("user", [result()]),
        ("assistant", [FOUND, text()]),
        ("user", "go on"),
        tools=[*TOOLS, SEARCH_TOOL],
    ),
    "V32 paused turn": body(("user", "go"), ("assistant", [SEARCH]), tools=[SEARCH_TOOL]),
    "V42 signed empty thinking": loop({**THOUGHT, "thinking": ""}, use()),
    "V43 begins with thinking": loop(THOUGHT, use(), **ENABLED),
    "V50 four marks": body(("user", [text(**MARK)]), system=[text(**MARK), text(**MARK)], tools=[{**TOOLS[0], **MARK}]),
    "V52 long before short": body(("user", [text(**MARK)]), system=[text(**LONG)]),
    "V58 warm-up": body(max_tokens=0),
    "V60 a large image": body(("user", [png(8000, 10)])),
    "V61 twenty images": body(("user", [png(2001, 10)] * 20)),
    "tool choice": body(tool_choice={"type": "tool", "name": "ls"}),
    "metadata": body(metadata={"user_id": "x"}, stop_sequences=["x"], stream=True),
}

REFUSED: dict[str, tuple[Body, str]] = {
    "shape: no object": ([], "expected a JSON object"),  # type: ignore[dict-item]  # what must be refused
    "shape: unknown field": (body(agent="ann"), "agent: Extra inputs are not permitted"),
    "shape: no model": ({"messages": [], "max_tokens": 1}, "model: Field required"),
    "shape: no max_tokens": ({"model": "m", "messages": [{"role": "user", "content": "x"}]}, "max_tokens: Field required"),
    "shape: max_tokens as text": (body(max_tokens="9"), "max_tokens: Input should be a valid integer"),
    "shape: boolean for a number": (body(max_tokens=True), "max_tokens: Input should be a valid integer"),
    "shape: role": (body(("tool", "x")), "messages.0.role"),
    "shape: message field": (body() | {"messages": [{"role": "user", "content": "x", "id": "1"}]}, "messages.0.id: Extra inputs"),
    "shape: content": (body(("user", None)), "messages.0.content: Input should be a valid list"),
    "shape: blank system": (body(system=[text(" ")]), "system.0: text content blocks must be non-empty"),
    "V01": (body() | {"messages": []}, "at least one message is required"),
    "V02": (body(("assistant", "x"), ("user", "y")), "first message must use"),
    "V06 model": (body(("user", "a"), ("system", "note")), 'role "system" is not supported'),
    "V06 first": (body(("system", "x"), ("user", "a"), **SYSTEM_MODEL), "first message must use"),
    "V06 after the assistant": (body(("user", "a"), ("assistant", "b"), ("system", "x"), **SYSTEM_MODEL), "must follow a user turn"),
    "V06 before the user": (body(("user", "a"), ("system", "x"), ("user", "b"), **SYSTEM_MODEL), "followed by an assistant"),
    "V06 between call and result": (
        body(("user", "a"), ("assistant", [use()]), ("system", "x"), ("user", [result()]), **SYSTEM_MODEL),
        "must follow a user turn",
    ),
    "V07": (body(("user", []), ("assistant", "x"), ("user", "y")), "must have non-empty content"),
    "V08 empty": (body(("user", [text("")])), "text content blocks must be non-empty"),
    "V08 blank": (body(("user", " \n")), "non-whitespace text"),
    "V08 in a result": (loop(use(), answer=[result(content=[text("")])]), "messages.2.content.0: text content blocks"),
    "V09": (body(("user", "a"), ("assistant", "The answer ")), "trailing whitespace"),
    "V10 model": (body(("user", "a"), ("assistant", "x"), model="claude-opus-4-6"), "does not support assistant message prefill"),
    "V10 thinking": (body(("user", "a"), ("assistant", [THOUGHT, text("x")]), **ENABLED), "does not support assistant message prefill"),
    "V11 private field": (loop(use(round=3)), "messages.1.content.0.tool_use.round: Extra inputs are not permitted"),
    "V11 null field": (body(("user", [text(citations=None)])), "citations: Input should be a valid list"),
    "V12 enabled": (body(model="claude-opus-4-7", **ENABLED), "thinking.type.enabled"),
    "V12 adaptive": (body(thinking={"type": "adaptive"}), "thinking.type.adaptive"),
    "V12 disabled": (body(thinking={"type": "disabled"}, model="claude-opus-5-5"), "thinking.type.disabled"),
    "V12 forced tool": (body(tool_choice={"type": "any"}, model="claude-opus-5-5"), "forcing a tool"),
    "V12 forced tool with thinking": (body(tool_choice={"type": "any"}, **ENABLED), "Thinking may not be enabled"),
    "V12 sampling": (body(temperature=0.3, model="claude-opus-4-7"), "temperature"),
    "V12 budget": (body(thinking={"type": "enabled", "budget_tokens": 1024}), "must be greater than"),
    "V13 no result": (loop(use(), answer="never mind"), "`tool_use` ids were found without `tool_result`.*: t1"),
    "V13 at the end": (body(("user", "a"), ("assistant", [use()])), "without `tool_result`"),
    "V13 one of two": (loop(use("a"), use("b"), answer=[result("a")]), "immediately after: b"),
    "V14": (loop(use(), answer=[text(), result()]), "must come first"),
    "V14 after the merge": (body(("user", "a"), ("assistant", [use()]), ("user", "b"), ("user", [result()])), "must come first"),
    "V15 first message": (body(("user", [result()])), "unexpected `tool_use_id`.*: t1"),
    "V15 earlier call": (
        body(("user", "a"), ("assistant", [use()]), ("user", [result()]), ("assistant", "b"), ("user", [result()])),
        "messages.4.content.0: unexpected `tool_use_id`",
    ),
    "V16": (loop(use(), answer=[result(), result()]), "each tool_use must have a single result"),
    "V17": (
        body(("user", "a"), ("assistant", [use()]), ("user", [result()]), ("assistant", [use()]), ("user", [result()])),
        "`tool_use` ids must be unique",
    ),
    "V18 id": (loop(use("t 1"), answer=[result("t 1")]), "String should match pattern"),
    "V18 input": (loop(use(input="{}")), "input: Input should be a valid dictionary"),
    "V18 null input": (loop(use(input=None)), "input: Input should be a valid dictionary"),
    "V19 use": (body(("user", [use()])), "`tool_use` blocks can only be in `assistant`"),
    "V19 result": (body(("user", "a"), ("assistant", [result()]), ("user", "b")), "`tool_result` blocks can only be in `user`"),
    "V20": ({name: value for name, value in loop(use()).items() if name != "tools"}, "must define tools"),
    "V21": (loop(use(), answer=[result(content=[use()])]), "Input tag 'tool_use'"),
    "V30 followed": (
        body(("user", "a"), ("assistant", [SEARCH, text()]), ("user", "b"), tools=[SEARCH_TOOL]),
        "web_search.*srvtoolu_1 was found without a corresponding",
    ),
    "V30 no tool": (loop(SEARCH, use()), "no `web_search` tool was provided"),
    "V30 orphan result": (body(("user", "a"), ("assistant", [FOUND]), ("user", "b")), "unexpected `tool_use_id`"),
    "V41 no signature": (loop({"type": "thinking", "thinking": "x"}, use()), "signature: Field required"),
    "V42": (loop({**THOUGHT, "thinking": "", "signature": ""}, use()), "each thinking block must contain thinking"),
    "V43": (loop(use(), **ENABLED), "Expected `thinking` or `redacted_thinking`, but found `tool_use`"),
    "V48": (loop({**THOUGHT, **MARK}, use()), "thinking.cache_control: Extra inputs are not permitted"),
    "V50": (body(("user", [text(**MARK)] * 5)), "A maximum of 4 blocks with cache_control may be provided. Found 5"),
    "V50 automatic": (body(("user", [text(**MARK)] * 4), cache_control={"type": "ephemeral"}), "Found 5"),
    "V51": (body(("user", [text(), text("", **MARK)])), "cache_control cannot be set for empty text blocks"),
    "V52": (body(("user", [text(**LONG)]), system=[text(**MARK)]), "ttl='1h' cache_control block must not come after"),
    "V52 value": (body(("user", [text(cache_control={"type": "ephemeral", "ttl": "2h"})])), "ttl: Input should be"),
    "V58 warm-up in a stream": (body(max_tokens=0, stream=True), "greater than or equal to 1"),
    "V60 number": (body(("user", [png(1, 1)] * 101)), "too many images: 101"),
    "V60 side": (body(("user", [png(8001, 1)])), "8000 pixels"),
    "V61": (body(("user", [png(2001, 10)] * 21)), "many-image requests: 2000 pixels"),
    "V63 bytes": (
        body(("user", [{"type": "image", "source": {**png(1, 1)["source"], "media_type": "image/jpeg"}}])),
        "does not appear to be a image/jpeg image",
    ),
    "V63 base64": (body(("user", [{"type": "image", "source": {**png(1, 1)["source"], "data": "%%"}}])), "invalid base64"),
    "limits: output": (body(max_tokens=64_001), "64001 > 64000, which is the maximum allowed number of output tokens"),
    "tools: name": (body(tools=[{**TOOLS[0], "name": "a b"}]), "tools.0.custom.name: String should match"),
    "tools: twice": (body(tools=TOOLS * 2), "Tool names must be unique"),
    "tools: schema": (body(tools=[{**TOOLS[0], "input_schema": {"type": "string"}}]), "input_schema.type"),
    "tools: private field": (body(tools=[{**TOOLS[0], "effect": "reads"}]), "effect: Extra inputs"),
    "tool choice: unknown tool": (body(tool_choice={"type": "tool", "name": "rm"}), "'rm' not found"),
    "tool choice: shape": (body(tool_choice={"type": "must"}), "tool_choice: Input tag 'must'"),
    "block: unknown": (body(("user", [{"type": "note", "text": "x"}])), "Input tag 'note'"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_body_is_accepted(name: str) -> None:
    """A body that the provider takes is not refused."""
    assert refusal(ACCEPTED[name]) is None


@pytest.mark.parametrize("name", REFUSED)
def test_body_is_refused(name: str) -> None:
    """A body that breaks one rule is refused in the provider's words."""
    broken, words = REFUSED[name]
    refused = refusal(broken)
    assert refused is not None
    assert re.search(words, refused), refused


def test_count_tokens_wants_no_max_tokens() -> None:
    """The body of a count has no max_tokens and no stream."""
    counted = {name: value for name, value in body().items() if name != "max_tokens"}
    assert refusal(counted, counting=True) is None
    assert refusal(body(), counting=True) == "max_tokens: Extra inputs are not permitted"


def test_too_many_messages_are_refused() -> None:
    """V04: a request holds at most 100,000 messages."""
    message = {"role": "user", "content": "x"}
    assert refusal(body() | {"messages": [message] * 100_001}) == "messages: at most 100000 messages are allowed"


@pytest.mark.parametrize(
    "name", ["28_api_pause_turn_server_tools", "30_api_parallel_tools", "31_api_tool_with_thinking", "33_api_multi_image_results"]
)
def test_recorded_bodies_are_accepted(name: str) -> None:
    """What a real endpoint was sent and took is taken here: the recorded list without its last answer."""
    path = Path(__file__).parents[2].parent / "shared" / "transcripts" / f"{name}.json"
    messages = json.loads(path.read_text())["messages"][:-1]
    used = {(block["type"], block["name"]) for message in messages for block in message["content"] if "name" in block}
    tools = [{**TOOLS[0], "name": tool} if kind == "tool_use" else SEARCH_TOOL for kind, tool in sorted(used)]
    assert used
    assert refusal({"model": "claude-opus-4-6", "max_tokens": 100, "messages": messages, "tools": tools}) is None
