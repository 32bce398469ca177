"""Rules about calls and results, the client's (V13 to V21) and the provider's own (V30, V31)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import cast

from compaction.cleaning import ID_PATTERN, RESULT_PARTS
from compaction.request import Finding, Request, Span
from compaction.transcript import SERVER_CALL_TYPES, as_block, is_server_result

_SERVER_TOOLS_BY_NAME = frozenset({"web_search", "web_fetch"})


def _answers(request: Request) -> Iterator[tuple[Span, Span | None]]:
    """Yield each assistant span with the user span right after it."""
    spans = request.spans
    for at, span in enumerate(spans):
        if span.role == "assistant":
            following = spans[at + 1] if at + 1 < len(spans) else None
            yield span, following if following is not None and following.role == "user" else None


def _ids(request: Request, span: Span | None, kind: str, key: str) -> list[str]:
    return [str(block.get(key)) for _, block in request.in_span(span) if block.get("type") == kind] if span is not None else []


def calls_answered(request: Request) -> Iterator[Finding]:
    """V13."""
    for span, following in _answers(request):
        answered = set(_ids(request, following, "tool_result", "tool_use_id"))
        for call_id in _ids(request, span, "tool_use", "id"):
            if call_id not in answered:
                yield Finding(span.stop - 1, f"the call {call_id} has no result right after it")


def results_first(request: Request) -> Iterator[Finding]:
    """V14."""
    for span in request.spans:
        others = False
        for index, block in request.in_span(span) if span.role == "user" else ():
            if block.get("type") != "tool_result":
                others = True
            elif others:
                yield Finding(index, "a tool result stands after other content")


def results_match(request: Request) -> Iterator[Finding]:
    """V15."""
    calls: set[str] = set()
    for span in request.spans:
        if span.role == "user":
            for result_id in _ids(request, span, "tool_result", "tool_use_id"):
                if result_id not in calls:
                    yield Finding(span.start, f"the result {result_id} has no call in the message before")
        calls = set(_ids(request, span, "tool_use", "id")) if span.role == "assistant" else set()


def one_result(request: Request) -> Iterator[Finding]:
    """V16."""
    for span in request.spans:
        counts = Counter(_ids(request, span, "tool_result", "tool_use_id"))
        for result_id, count in counts.items():
            if count > 1:
                yield Finding(span.start, f"the call {result_id} has {count} results")


def unique_ids(request: Request) -> Iterator[Finding]:
    """V17."""
    seen: set[str] = set()
    for index, message in enumerate(request.messages):
        for block in message.content:
            if block.get("type") == "tool_use" or block.get("type") in SERVER_CALL_TYPES:
                call_id = str(block.get("id"))
                if call_id in seen:
                    yield Finding(index, f"the call id {call_id} was used before")
                seen.add(call_id)


def calls_formed(request: Request) -> Iterator[Finding]:
    """V18."""
    for index, message in enumerate(request.messages):
        for call in message.tool_calls:
            if not isinstance(call.get("id"), str) or not ID_PATTERN.match(call["id"]):
                yield Finding(index, f"the call id {call.get('id')!r} has other characters than letters, digits, '_' and '-'")
            if not isinstance(call.get("input"), Mapping):
                yield Finding(index, f"the input of the call {call.get('id')} is not an object")


def sides_kept(request: Request) -> Iterator[Finding]:
    """V19."""
    for index, message in enumerate(request.messages):
        if message.tool_calls and message.role != "assistant":
            yield Finding(index, f"a tool call in a message of the role {message.role}")
        if message.tool_results and message.role != "user":
            yield Finding(index, f"a tool result in a message of the role {message.role}")
        if message.role != "assistant" and message.uses_server_tools:
            yield Finding(index, f"a block of the provider's own tools in a message of the role {message.role}")


def tools_defined(request: Request) -> Iterator[Finding]:
    """V20."""
    if request.tools:
        return
    for index, message in enumerate(request.messages):
        if message.tool_calls or message.tool_results:
            yield Finding(index, "tool blocks in a request that defines no tools")
            return


def results_formed(request: Request) -> Iterator[Finding]:
    """V21."""
    for index, message in enumerate(request.messages):
        for result in message.tool_results:
            content = result.get("content")
            if isinstance(content, list | tuple):
                kinds = {str(as_block(part).get("type")) for part in cast("list[object]", content)}
                if wrong := sorted(kinds - RESULT_PARTS):
                    yield Finding(index, f"a tool result holds {', '.join(wrong)}")
            elif content is not None and not isinstance(content, str):
                yield Finding(index, "the content of a tool result is neither a string nor a list")
            if result.get("is_error") and not content:
                yield Finding(index, "a tool result that is an error is empty")


def server_calls_answered(request: Request) -> Iterator[Finding]:
    """V30 and V31: a call of the provider's own tools is answered in its message or the next, or its turn is still open."""
    open_calls: dict[str, int] = {}
    for index, message in enumerate(request.messages):
        if message.role != "assistant":
            if len(message.tool_results) < len(message.content) or not message.content:
                yield from (Finding(at, f"the provider's call {call_id} has no result") for call_id, at in open_calls.items())
                open_calls = {}
            continue
        waiting, open_calls = open_calls, {}
        for block in message.content:
            if block.get("type") in SERVER_CALL_TYPES:
                open_calls[str(block.get("id"))] = index
            elif is_server_result(block):
                call_id = str(block.get("tool_use_id"))
                if waiting.pop(call_id, None) is None and open_calls.pop(call_id, None) is None:
                    yield Finding(index, f"the provider's result {call_id} has no call")
        yield from (Finding(at, f"the provider's call {call_id} has no result") for call_id, at in waiting.items())


def server_tools_defined(request: Request) -> Iterator[Finding]:
    """V30, its second part."""
    names = {str(tool.get("name")) for tool in request.tools}
    for index, message in enumerate(request.messages):
        for block in message.content:
            name = block.get("name")
            if block.get("type") == "server_tool_use" and name in _SERVER_TOOLS_BY_NAME and name not in names:
                yield Finding(index, f"a call of {name}, but no {name} tool was provided")
