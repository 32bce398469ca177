"""Rules about the shape of a request: roles, texts, fields, the body's size, and parameters that a model refuses (V01 to V12)."""

from collections.abc import Iterator, Mapping
from typing import cast

from compaction.cleaning import FIELDS, blank
from compaction.request import Finding, Request, blocks
from compaction.transcript import is_paused

MAX_MESSAGES = 100_000
MAX_BODY_BYTES = 32 * 1024 * 1024


def has_messages(request: Request) -> Iterator[Finding]:
    """V01."""
    if not request.messages:
        yield Finding(-1, "at least one message is required")


def starts_with_user(request: Request) -> Iterator[Finding]:
    """V02."""
    if request.messages and request.messages[0].role != "user":
        yield Finding(0, f"the first message has the role {request.messages[0].role}")


def roles_alternate(request: Request) -> Iterator[Finding]:
    """V03; a paused assistant message may be carried on by the next one."""
    for index in range(1, len(request.messages)):
        before, message = request.messages[index - 1], request.messages[index]
        if before.role == message.role and not (message.role == "assistant" and is_paused(before)):
            yield Finding(index, f"two messages of the role {message.role} in a row")


def few_messages(request: Request) -> Iterator[Finding]:
    """V04."""
    if len(request.messages) > MAX_MESSAGES:
        yield Finding(-1, f"{len(request.messages)} messages; the most is {MAX_MESSAGES}")


def small_body(request: Request) -> Iterator[Finding]:
    """V05."""
    size = request.size_bytes
    if size > MAX_BODY_BYTES:
        yield Finding(-1, f"the body has {size} bytes; the most is {MAX_BODY_BYTES}")


def system_placed(request: Request) -> Iterator[Finding]:
    """V06."""
    messages = request.messages
    for index, message in enumerate(messages):
        if message.role != "system":
            continue
        if not request.facts.system_messages:
            yield Finding(index, f"the model {request.facts.name or 'in use'} takes no message of the role system")
        before = next((messages[i] for i in range(index - 1, -1, -1) if messages[i].role != "system"), None)
        after = next((messages[i] for i in range(index + 1, len(messages)) if messages[i].role != "system"), None)
        if before is None or (before.role == "assistant" and not is_paused(before)):
            yield Finding(index, "a system message must follow a user message")
        if after is not None and after.role != "assistant":
            yield Finding(index, "a system message must be the last, or be followed by an assistant message")


def messages_filled(request: Request) -> Iterator[Finding]:
    """V07; an assistant message at the end may be empty."""
    for index, message in enumerate(request.messages):
        if not message.content and not (message.role == "assistant" and index == len(request.messages) - 1):
            yield Finding(index, "the message has no content")


def texts_filled(request: Request) -> Iterator[Finding]:
    """V08."""
    for index, block in blocks(request):
        if block.get("type") == "text" and blank(block.get("text")):
            yield Finding(index, "a text block is empty or only white space")


def prefill_trimmed(request: Request) -> Iterator[Finding]:
    """V09."""
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "assistant" or not last.content or is_paused(last):
        return
    text = last.content[-1].get("text")
    if isinstance(text, str) and text != text.rstrip():
        yield Finding(len(request.messages) - 1, "the text at the end of an assistant message ends in white space")


def no_prefill(request: Request) -> Iterator[Finding]:
    """V10."""
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "assistant" or is_paused(last):
        return
    if not request.facts.prefill or request.thinking_type in {"enabled", "adaptive"}:
        yield Finding(len(request.messages) - 1, "the list ends with an assistant message; it must end with a user message")


def known_fields(request: Request) -> Iterator[Finding]:
    """V11."""
    for index, block in blocks(request):
        kind = block.get("type")
        if not isinstance(kind, str):
            yield Finding(index, "a block has no type")
        elif (known := FIELDS.get(kind)) and (extra := sorted(set(block) - known - {"cache_control"})):
            yield Finding(index, f"extra inputs in a {kind} block: {', '.join(extra)}")
    for index, message in enumerate(request.messages):
        if not message.well_formed:
            yield Finding(index, "a text holds a lone surrogate, which is not Unicode")
    if "context_management" in request.params and not any(beta.startswith("context-management-") for beta in request.betas):
        yield Finding(-1, "context_management needs its beta header")


def parameters_taken(request: Request) -> Iterator[Finding]:
    """V12."""
    facts, kind = request.facts, request.thinking_type
    allowed = {"enabled": facts.manual_thinking, "adaptive": facts.adaptive_thinking, "disabled": facts.disabled_thinking}
    if not allowed.get(kind, True):
        yield Finding(-1, f"the model {facts.name or 'in use'} does not take thinking of type {kind}")
    choice = request.params.get("tool_choice")
    forced = isinstance(choice, Mapping) and cast("Mapping[str, object]", choice).get("type") in {"any", "tool"}
    if forced and not facts.forced_tool:
        yield Finding(-1, f"the model {facts.name} does not take a forced tool")
    if not facts.sampling:
        for name, default in (("temperature", 1), ("top_p", None), ("top_k", None)):
            if request.params.get(name, default) not in {default, None}:
                yield Finding(-1, f"the model {facts.name or 'in use'} does not take {name}")
