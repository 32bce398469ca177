"""Each rule of the provider: one request that keeps it, and one or more that break it and nothing else."""

from collections.abc import Sequence
from typing import Any

import pytest

from compaction.models import UNKNOWN_MODEL, ModelFacts, model_facts
from compaction.request import Request
from compaction.transcript import ModelMessage
from compaction.validity import RULES, problems, valid
from tests.compaction.strategies import assistant, call, image, png, result, say, user

TOOLS: Sequence[dict[str, Any]] = ({"name": "read"}, {"name": "web_search"})
NEW, OLD = model_facts("claude-opus-5-5"), model_facts("claude-sonnet-4-5")
SYSTEM = ModelMessage("system", "be brief")
SERVER_CALL: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
SERVER_RESULT: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
MANUAL = {"thinking": {"type": "enabled", "budget_tokens": 2_000}}


def request(*messages: ModelMessage, facts: ModelFacts = NEW, tools: Any = TOOLS, **more: Any) -> Request:
    """Return a request."""
    return Request(messages=messages, facts=facts, tools=tools, **more)


def marked(ttl: str = "5m", **block: Any) -> dict[str, Any]:
    """Return a text block with a cache mark."""
    return {**say("word"), "cache_control": {"type": "ephemeral", "ttl": ttl}, **block}


def picture(width: int, height: int, media_type: str = "image/png", data: str | None = None) -> dict[str, Any]:
    """Return an image block, its data by hand if asked."""
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data or png(width, height)}}


GO, PAIR = user("go"), (assistant(call("a")), user(result("a")))
KEEPS: dict[str, list[Request]] = {
    "V01": [request(GO)],
    "V02": [request(GO, assistant("yes"), user("on"))],
    "V03": [request(GO, assistant(SERVER_CALL, SERVER_RESULT), assistant("on"), user("go"))],
    "V04": [request(GO)],
    "V05": [request(user("x" * 1_000_000))],
    "V06": [request(GO, SYSTEM, assistant("yes"), user("on"), SYSTEM)],
    "V07": [request(GO, assistant(), facts=OLD)],
    "V08": [request(GO)],
    "V09": [request(GO, assistant("The answer is"), facts=OLD)],
    "V10": [request(GO, assistant(SERVER_CALL)), request(GO, assistant("{"), facts=OLD)],
    "V11": [
        request(
            user({"type": "text", "text": "x", "citations": []}), params={"context_management": {}}, betas=["context-management-2025-06-27"]
        )
    ],
    "V12": [
        request(GO, params={"thinking": {"type": "adaptive"}, "tool_choice": {"type": "auto"}, "temperature": 1}),
        request(GO, facts=OLD, params={**MANUAL, "tool_choice": {"type": "any"}, "temperature": 0.2}),
    ],
    "V13": [request(GO, *PAIR)],
    "V14": [request(GO, PAIR[0], user(result("a"), "and mail"))],
    "V15": [request(GO, *PAIR)],
    "V16": [request(GO, assistant(call("a"), call("b")), user(result("b"), result("a")))],
    "V17": [request(GO, *PAIR, assistant(call("b")), user(result("b")))],
    "V18": [request(GO, assistant(call("toolu_01-A")), user(result("toolu_01-A")))],
    "V19": [request(GO, *PAIR)],
    "V20": [request(GO, *PAIR), request(GO, tools=())],
    "V21": [request(GO, PAIR[0], user(result("a", [say("x"), image()]))), request(GO, PAIR[0], user(result("a", "")))],
    "V30": [
        request(GO, assistant(SERVER_CALL, SERVER_RESULT, call("a")), user(result("a"))),
        request(GO, assistant(SERVER_CALL, call("a")), user(result("a"))),
        request(GO, assistant(SERVER_CALL, call("a")), user(result("a")), assistant(SERVER_RESULT), user("on")),
    ],
    "V41": [request(GO, assistant({**THINKING, "thinking": ""}, "x"), user("on"))],
    "V42": [request(GO, assistant({**THINKING, "thinking": ""}, "x"), user("on"))],
    "V43": [
        request(GO, assistant(THINKING, call("a")), user(result("a")), facts=OLD, params=MANUAL),
        request(GO, *PAIR, params={"thinking": {"type": "adaptive"}}),
    ],
    "V46": [
        request(
            GO,
            params={"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}, "thinking": {"type": "adaptive"}},
            betas=["context-management-2025-06-27"],
        )
    ],
    "V50": [request(user(*(marked() for _ in range(4))))],
    "V51": [request(user(marked()))],
    "V52": [request(user(marked("1h"), marked("5m")))],
    "V60": [request(user(picture(8_000, 10)))],
    "V61": [request(user(*(picture(3_000, 10) for _ in range(20)))), request(user(*(picture(2_000, 10) for _ in range(30))))],
    "V63": [request(user(picture(10, 10)))],
}
BREAKS: dict[str, list[Request]] = {
    "V01": [request()],
    "V02": [request(assistant("yes"), user("on"))],
    "V03": [request(GO, user("again")), request(GO, assistant("a"), assistant("b"), user("on"))],
    "V04": [request(*[GO, assistant("yes")] * 50_000, GO)],
    "V05": [request(user("x" * 34_000_000))],
    "V06": [request(GO, SYSTEM, facts=OLD), request(GO, assistant("x"), SYSTEM), request(GO, SYSTEM, user("on"))],
    "V07": [request(user(), assistant("x"), GO)],
    "V08": [request(user("")), request(user(" \n")), request(GO, PAIR[0], user(result("a", [say("")])))],
    "V09": [request(GO, assistant("The answer is "), facts=OLD)],
    "V10": [request(GO, assistant("{")), request(GO, assistant("{"), facts=UNKNOWN_MODEL)],
    "V11": [
        request(user({"type": "text", "text": "x", "private": 1})),
        request(user({"text": "x"})),
        request(GO, params={"context_management": {}}),
        request(user("lone \ud83d")),
    ],
    "V12": [
        request(GO, params=MANUAL),
        request(GO, params={"thinking": {"type": "disabled"}}),
        request(GO, params={"tool_choice": {"type": "tool", "name": "read"}}),
        request(GO, params={"temperature": 0.2}),
        request(GO, facts=OLD, params={"thinking": {"type": "adaptive"}}),
    ],
    "V13": [request(GO, assistant(call("a"), call("b")), user(result("a")))],
    "V14": [request(GO, PAIR[0], user("mail", result("a")))],
    "V15": [request(GO, assistant("yes"), user(result("z"))), request(user(result("z")), assistant("yes"), GO)],
    "V16": [request(GO, PAIR[0], user(result("a"), result("a", "again")))],
    "V17": [request(GO, *PAIR, *PAIR)],
    "V18": [
        request(GO, assistant(call("a b")), user(result("a b"))),
        request(GO, assistant({**call("a"), "input": "{}"}), user(result("a"))),
        request(GO, assistant({**call("a"), "input": None}), user(result("a"))),
    ],
    "V19": [request(user("go", call("z"))), request(GO, assistant("x", result("z")), user("on"))],
    "V20": [request(GO, *PAIR, tools=())],
    "V21": [request(GO, PAIR[0], user(result("a", [{"type": "video"}]))), request(GO, PAIR[0], user(result("a", "", is_error=True)))],
    "V30": [
        request(GO, assistant(SERVER_CALL, call("a")), user(result("a"), "and mail")),
        request(GO, assistant(SERVER_CALL), user("on")),
        request(GO, assistant("x", SERVER_RESULT), user("on")),
        request(GO, assistant(SERVER_CALL, SERVER_RESULT), user("on"), tools=()),
    ],
    "V41": [
        request(GO, assistant({"type": "thinking", "thinking": "hm"}, "x"), user("on")),
        request(GO, assistant({"type": "redacted_thinking", "data": ""}, "x"), user("on")),
        request(user("go", THINKING)),
    ],
    "V42": [request(GO, assistant({"type": "thinking", "thinking": "", "signature": ""}, "x"), user("on"))],
    "V43": [request(GO, *PAIR, facts=OLD, params=MANUAL)],
    "V46": [
        request(
            GO, params={"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}, betas=["context-management-2025-06-27"]
        ),
        request(
            GO,
            params={
                "context_management": {"edits": [{"type": "x"}, {"type": "clear_thinking_20251015"}]},
                "thinking": {"type": "adaptive"},
            },
            betas=["context-management-2025-06-27"],
        ),
    ],
    "V50": [
        request(user(*(marked() for _ in range(5)))),
        request(user(*(marked() for _ in range(3))), system=[marked()], tools=[{"name": "read", "cache_control": {"type": "ephemeral"}}]),
        request(user(*(marked() for _ in range(4))), params={"cache_control": {"type": "ephemeral"}}),
    ],
    "V51": [request(GO, assistant({**THINKING, "cache_control": {"type": "ephemeral"}}, "x"), user("on"))],
    "V52": [
        request(user(marked("5m"), marked("1h"))),
        request(user(marked("1h")), system=[marked("5m")]),
        request(user(marked("1h")), params={"cache_control": {"type": "ephemeral"}}),
    ],
    "V60": [request(user(picture(8_001, 10))), request(user(*(picture(10, 10) for _ in range(101))), facts=OLD)],
    "V61": [request(user(*(picture(10, 10) for _ in range(20)), picture(2_001, 10)))],
    "V63": [request(user(picture(10, 10, "image/jpeg"))), request(user(picture(0, 0, data="AAAA")))],
}
CASES = [(rule, number) for rule, requests in BREAKS.items() if rule != "V04" for number in range(len(requests))]


def broken_rules(candidate: Request) -> set[str]:
    """Return the ids of the rules that a request breaks."""
    return {problem.rule for problem in problems(candidate)}


def test_every_rule_has_its_examples() -> None:
    """No rule of the table is without an example on either side, and no example without a rule."""
    assert {rule.id for rule in RULES} == set(KEEPS) == set(BREAKS)


@pytest.mark.parametrize("rule", KEEPS)
def test_rule_is_kept(rule: str) -> None:
    """What keeps a rule breaks none."""
    for candidate in KEEPS[rule]:
        assert problems(candidate) == []
        assert valid(candidate)


@pytest.mark.parametrize(("rule", "number"), CASES)
def test_rule_is_broken(rule: str, number: int) -> None:
    """What breaks a rule is found by that rule, and by none that is about something else."""
    candidate = BREAKS[rule][number]
    assert broken_rules(candidate) == {rule}
    assert not valid(candidate)


def test_too_many_messages_are_found() -> None:
    """100,001 messages break V04; it alone is looked at, for all rules together would take seconds."""
    rule = next(rule for rule in RULES if rule.id == "V04")
    assert [finding.message_index for finding in rule.check(BREAKS["V04"][0])] == [-1]


def test_problem_names_the_place() -> None:
    """A problem tells the message it is in, and what is wrong in words."""
    problem = problems(request(GO, assistant(call("a")), user("hello")))[0]
    assert (problem.rule, problem.message_index) == ("V13", 1)
    assert "the call a has no result" in problem.detail
