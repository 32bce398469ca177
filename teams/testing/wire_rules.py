"""What a strict Messages endpoint refuses: every rule that can be seen in a request body, in the provider's words.

Laws: pure; knows nothing of how this project builds or checks its requests, so that it can contradict it; the first broken
rule is reported, in the order in which the provider looks: the shape, then the model, then the conversation. Rules that
only some models have are applied by the model's name. The ids (V01 ...) are those under which the project keeps
the provider's rules.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, cast

from teams.testing.wire_shape import ShapeError, check_block, check_top, facts_of, image_size

Body: TypeAlias = Mapping[str, Any]
Json: TypeAlias = dict[str, Any]

MAX_MESSAGES = 100_000  # V04
MAX_BODY_BYTES = 32_000_000  # V05
MAX_CACHE_MARKS = 4  # V50
_PREFIX_CALL_TYPES = ("server_tool_use", "mcp_tool_use")


def refusal(body: object, *, counting: bool = False) -> str | None:
    """Return the text of the 400 that this body gets, None when it is accepted.

    Args:
        body: the decoded JSON of the request.
        counting: it was sent to count_tokens, which wants no max_tokens and no stream.
    """
    try:
        top = check_top(body, counting=counting)
        _check_model(top)
        _check_shapes(top)
        turns = _merged(top["messages"])
        _check_marks(top)
        _check_roles(top)
        _check_texts(top["messages"])
        _check_calls(turns)
        _check_server_calls(turns, top)
        _check_definitions(top)
        _check_thinking(turns, top)
        _check_images(top)
    except ShapeError as exc:
        return str(exc)
    return None


def blocks_of(message: Body) -> list[Json]:
    """Return a message's content as blocks; a string is one text block."""
    content = message["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast("list[Json]", content)


def _check_shapes(top: Json) -> None:
    messages = top["messages"]
    if len(messages) > MAX_MESSAGES:
        raise ShapeError(f"messages: at most {MAX_MESSAGES} messages are allowed")
    for index, message in enumerate(messages):
        for at, block in enumerate(blocks_of(message)):
            check_block(block, f"messages.{index}.content.{at}", role=message["role"])


def _check_model(top: Json) -> None:
    """V12: what the model of the request does not take."""
    facts = facts_of(top["model"])
    thinking: Json = top.get("thinking") or {}
    if (limit := facts.max_output) < top.get("max_tokens", 0):
        raise ShapeError(
            f"max_tokens: {top['max_tokens']} > {limit}, which is the maximum allowed number of output tokens for {top['model']}"
        )
    mode = thinking.get("type")
    if mode and mode not in facts.thinking_modes:
        raise ShapeError(f'"thinking.type.{mode}" is not supported for this model.')
    if mode == "enabled" and thinking["budget_tokens"] >= top.get("max_tokens", float("inf")):
        raise ShapeError("`max_tokens` must be greater than `thinking.budget_tokens`.")
    wanted: Json = top.get("tool_choice") or {}
    choice = wanted.get("type")
    if choice in {"any", "tool"}:
        if not facts.forced_tool:
            raise ShapeError(f"tool_choice: forcing a tool ({choice}) is not supported for this model.")
        if mode in {"enabled", "adaptive"}:
            raise ShapeError("Thinking may not be enabled when tool_choice forces tool use.")
    if not facts.sampling:
        for name in ("temperature", "top_p", "top_k"):
            if top.get(name) not in {None, 1} or (name == "top_k" and name in top):
                raise ShapeError(f"`{name}` may only be left out or set to its default for this model.")


def _check_roles(top: Json) -> None:
    messages = top["messages"]
    if messages[0]["role"] != "user":  # V02
        raise ShapeError('messages: first message must use the "user" role')
    last = len(messages) - 1
    for index, message in enumerate(messages):
        blocks = blocks_of(message)
        if not blocks and not (index == last and message["role"] == "assistant"):  # V07
            raise ShapeError(f"messages.{index}: all messages must have non-empty content except for the optional final assistant message")
        if message["role"] == "system":
            _check_system_message(top, index)
    if messages[last]["role"] == "assistant":
        _check_prefill(top, blocks_of(messages[last]))


def _check_system_message(top: Json, index: int) -> None:
    """V06."""
    messages = top["messages"]
    if not facts_of(top["model"]).system_messages:
        raise ShapeError(f'messages.{index}: role "system" is not supported for this model')
    before = index - 1
    while before >= 0 and messages[before]["role"] == "system":
        before -= 1
    after = index + 1
    while after < len(messages) and messages[after]["role"] == "system":
        after += 1
    if before < 0:
        raise ShapeError(f'messages.{index}: a "system" message cannot come first')
    if messages[before]["role"] == "assistant" and not _ends_in_server_result(messages[before]):
        raise ShapeError(f'messages.{index}: a "system" message must follow a user turn')
    if after < len(messages) and messages[after]["role"] != "assistant":
        raise ShapeError(f'messages.{index}: a "system" message must be last or be followed by an assistant turn')


def _ends_in_server_result(message: Body) -> bool:
    blocks = blocks_of(message)
    return bool(blocks) and blocks[-1]["type"].endswith("_tool_result") and blocks[-1]["type"] != "tool_result"


def _check_prefill(top: Json, blocks: list[Json]) -> None:
    if blocks and (blocks[-1]["type"].endswith("_tool_result") or blocks[-1]["type"] in _PREFIX_CALL_TYPES):
        return  # a paused turn that goes on (V32) is no prefill
    if not facts_of(top["model"]).prefill or (top.get("thinking") or {}).get("type") in {"enabled", "adaptive"}:  # V10
        raise ShapeError("This model does not support assistant message prefill. The conversation must end with a user message.")
    if blocks and blocks[-1]["type"] == "text" and blocks[-1]["text"] != blocks[-1]["text"].rstrip():  # V09
        raise ShapeError("messages: final assistant content cannot end with trailing whitespace")


def _check_texts(messages: list[Json]) -> None:
    """V08."""
    for index, message in enumerate(messages):
        for at, block in enumerate(blocks_of(message)):
            inner = (
                cast("list[Json]", block["content"]) if block["type"] == "tool_result" and isinstance(block.get("content"), list) else []
            )
            for part in (block, *inner):
                if part["type"] != "text" or part["text"].strip():
                    continue
                what = "text content blocks must contain non-whitespace text" if part["text"] else "text content blocks must be non-empty"
                raise ShapeError(f"messages.{index}.content.{at}: {what}")


def _merged(messages: list[Json]) -> list[tuple[int, str, list[Json]]]:
    """Return turns as the provider sees them: (first index, role, blocks), messages of one role after another joined (V03)."""
    turns: list[tuple[int, str, list[Json]]] = []
    for index, message in enumerate(messages):
        if turns and turns[-1][1] == message["role"]:
            turns[-1][2].extend(blocks_of(message))
        else:
            turns.append((index, message["role"], list(blocks_of(message))))
    return turns


def _check_calls(turns: list[tuple[int, str, list[Json]]]) -> None:
    """V13 to V17."""
    seen: set[str] = set()
    open_ids: list[str] = []
    for index, role, blocks in turns:
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        missing = [one for one in open_ids if role != "user" or one not in results]
        if missing:
            ids = ", ".join(missing)
            raise ShapeError(
                f"messages.{index - 1 if index else 0}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. "
                "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
            )
        for at, block in enumerate(blocks):
            if block["type"] == "tool_result":
                _check_result(index, at, blocks, open_ids)
        open_ids = []
        for at, block in enumerate(blocks):
            if block["type"] in {"tool_use", *_PREFIX_CALL_TYPES}:
                if block["id"] in seen:
                    raise ShapeError(f"messages.{index}.content.{at}: `tool_use` ids must be unique")
                seen.add(block["id"])
                if block["type"] == "tool_use":
                    open_ids.append(block["id"])
    if open_ids:
        raise ShapeError(
            f"messages.{turns[-1][0]}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(open_ids)}."
        )


def _check_result(index: int, at: int, blocks: list[Json], open_ids: list[str]) -> None:
    block = blocks[at]
    used = block["tool_use_id"]
    if used not in open_ids:
        raise ShapeError(
            f"messages.{index}.content.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {used}. "
            "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
        )
    if any(other["type"] == "tool_result" and other["tool_use_id"] == used for other in blocks[:at]):
        raise ShapeError(
            f"messages.{index}.content.{at}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {used}"
        )
    if any(other["type"] != "tool_result" for other in blocks[:at]):
        raise ShapeError(f"messages.{index}.content.{at}: `tool_result` blocks must come first in the content of their message")


def _check_server_calls(turns: list[tuple[int, str, list[Json]]], top: Json) -> None:
    """V30, V31: pairs match by id, the result may stand in the next assistant turn; only an open turn may lack it."""
    offered = {str(tool.get("name")) for tool in top.get("tools") or () if tool.get("type", "custom") != "custom"}
    calls: dict[str, tuple[int, str]] = {}
    for number, (index, _role, blocks) in enumerate(turns):
        for at, block in enumerate(blocks):
            kind = block["type"]
            if kind in _PREFIX_CALL_TYPES:
                if kind == "server_tool_use" and block["name"] not in offered:
                    raise ShapeError(f"messages.{index}.content.{at}: `server_tool_use` found, but no `{block['name']}` tool was provided")
                calls[block["id"]] = (number, block["name"])
            elif kind.endswith("_tool_result") and kind != "tool_result":
                if block["tool_use_id"] not in calls:
                    raise ShapeError(
                        f"messages.{index}.content.{at}: unexpected `tool_use_id` found in `{kind}` blocks: {block['tool_use_id']}"
                    )
                del calls[block["tool_use_id"]]
    for used, (number, name) in calls.items():
        rest = turns[number + 1 :]
        only_results = len(rest) == 1 and rest[0][1] == "user" and all(block["type"] == "tool_result" for block in rest[0][2])
        if rest and not only_results:
            raise ShapeError(f"`{name}` tool use with id {used} was found without a corresponding `{name}_tool_result` block")


def _check_definitions(top: Json) -> None:
    """V20."""
    if not top.get("tools") and any(
        block["type"] in {"tool_use", "tool_result"} for message in top["messages"] for block in blocks_of(message)
    ):
        raise ShapeError("Requests which include `tool_use` or `tool_result` blocks must define tools")
    choice: Json = top.get("tool_choice") or {}
    names = {tool.get("name") for tool in top.get("tools") or ()}
    if choice.get("type") == "tool" and choice["name"] not in names:
        raise ShapeError(f"tool_choice: Tool '{choice['name']}' not found in provided tools")
    if choice and not names:
        raise ShapeError("tool_choice: tool_choice may only be specified while providing tools.")


def _check_marks(top: Json) -> None:
    """V50 to V52."""
    marks = list(_marks(top))
    if len(marks) > MAX_CACHE_MARKS:
        raise ShapeError(f"A maximum of {MAX_CACHE_MARKS} blocks with cache_control may be provided. Found {len(marks)}.")
    short = ""
    for place, mark in marks:
        if mark.get("ttl", "5m") == "5m":
            short = short or place
        elif short:
            raise ShapeError(f"{place}: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block.")


def _marks(top: Json) -> Iterator[tuple[str, Json]]:
    places: list[tuple[str, Json]] = [(f"tools.{index}", tool) for index, tool in enumerate(top.get("tools") or ())]
    system = top.get("system")
    if isinstance(system, list):
        places += [(f"system.{index}", block) for index, block in enumerate(cast("list[Json]", system))]
    for index, message in enumerate(top["messages"]):
        for at, block in enumerate(blocks_of(message)):
            places.append((f"messages.{index}.content.{at}", block))
            if block["type"] == "tool_result" and isinstance(block.get("content"), list):
                places += [(f"messages.{index}.content.{at}.content.{deep}", part) for deep, part in enumerate(block["content"])]
    for place, block in places:
        if (mark := block.get("cache_control")) is not None:
            if block.get("type") == "text" and not block["text"].strip():
                raise ShapeError(f"{place}: cache_control cannot be set for empty text blocks")
            yield place, mark
    if (mark := top.get("cache_control")) is not None:
        yield "cache_control", mark


def _check_thinking(turns: list[tuple[int, str, list[Json]]], top: Json) -> None:
    """V42, V43; whether a signature is genuine only its maker knows (V41, V66): see the fake server."""
    for index, _role, blocks in turns:
        for at, block in enumerate(blocks):
            if block["type"] == "thinking" and not block["thinking"] and not block["signature"]:
                raise ShapeError(f"messages.{index}.content.{at}: each thinking block must contain thinking")
    if (top.get("thinking") or {}).get("type") != "enabled":
        return
    last = next((turn for turn in reversed(turns) if turn[1] == "assistant"), None)
    if last and last[2] and turns[-1][1] == "user" and any(block["type"] == "tool_result" for block in turns[-1][2]):
        # An earlier round of the same tool loop may hold the thinking; the loop's first assistant turn must begin with it.
        first = _loop_start(turns)
        if first and first[2][0]["type"] not in {"thinking", "redacted_thinking"}:
            raise ShapeError(
                f"messages.{first[0]}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first[2][0]['type']}`. "
                "When `thinking` is enabled, a final `assistant` message must start with a thinking block."
            )


def _loop_start(turns: list[tuple[int, str, list[Json]]]) -> tuple[int, str, list[Json]] | None:
    found = None
    for turn in reversed(turns):
        if turn[1] == "user" and any(block["type"] != "tool_result" for block in turn[2]):
            break
        if turn[1] == "assistant":
            found = turn
    return found


def _check_images(top: Json) -> None:
    """V60, V61; single images are looked at with their block."""
    images = [
        (f"messages.{index}.content.{at}", part)
        for index, message in enumerate(top["messages"])
        for at, block in enumerate(blocks_of(message))
        for part in (block, *(block["content"] if isinstance(block.get("content"), list) else ()))
        if part.get("type") == "image"
    ]
    limit = facts_of(top["model"]).max_images
    if len(images) > limit:
        raise ShapeError(f"messages: too many images: {len(images)} > {limit}")
    for place, image in images:
        side = max(image_size(image) or (0, 0))
        if side > 8000:
            raise ShapeError(f"{place}: image dimensions exceed max allowed size: 8000 pixels")
        if len(images) > 20 and side > 2000:
            raise ShapeError(f"{place}: image dimensions exceed max allowed size for many-image requests: 2000 pixels")
