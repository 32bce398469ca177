"""The shapes that a strict Messages endpoint takes: fields of the body and of each block, and facts of the models.

Laws: pure; a field that is not listed is refused ("Extra inputs are not permitted"), so is one of another type. Null stands
for an absent field only where the provider says so. Used by `wire_rules` alone.
"""

import base64
import binascii
import re
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, cast

Json: TypeAlias = dict[str, Any]

ID = re.compile(r"[a-zA-Z0-9_-]+\Z")  # V18
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
MAX_IMAGE_BYTES = 10_000_000  # V60, of the base64 text


class ShapeError(Exception):
    """A body is refused; the text is the provider's."""


class ModelFacts(NamedTuple):
    """What differs from model to model."""

    max_output: int = 64_000
    max_images: int = 100
    thinking_modes: frozenset[str] = frozenset({"enabled", "disabled"})
    prefill: bool = True
    forced_tool: bool = True
    sampling: bool = True
    system_messages: bool = False


_ADAPTIVE = frozenset({"adaptive", "disabled"})
_BIG = ModelFacts(128_000, 600, frozenset({"enabled", "adaptive", "disabled"}), prefill=False)
_47 = _BIG._replace(thinking_modes=_ADAPTIVE, sampling=False)
_48 = _47._replace(system_messages=True)
_ALWAYS = _48._replace(thinking_modes=frozenset({"adaptive"}), forced_tool=False)
# part of the model's name -> facts; the first that fits counts
MODEL_FACTS: tuple[tuple[str, ModelFacts], ...] = (
    ("fable-5-1", _ALWAYS),
    ("mythos-5-1", _ALWAYS),
    ("opus-5-5", _ALWAYS),
    ("sonnet-5-5", _48._replace(thinking_modes=frozenset({"adaptive", "between_tools"}), forced_tool=False)),
    ("haiku-5-5", _47),
    ("fable-5", _48._replace(thinking_modes=frozenset({"adaptive"}))),
    ("mythos", _48._replace(thinking_modes=frozenset({"adaptive"}))),
    ("opus-5", _48),
    ("sonnet-5", _47),
    ("opus-4-8", _48),
    ("opus-4-7", _47),
    ("opus-4-6", _BIG),
    ("sonnet-4-6", _BIG),
)
_DEFAULT_FACTS = ModelFacts()

_TOP: dict[str, type | tuple[type, ...]] = {
    "model": str,
    "messages": list,
    "max_tokens": int,
    "system": (str, list),
    "tools": list,
    "tool_choice": dict,
    "thinking": dict,
    "stream": bool,
    "temperature": (int, float),
    "top_p": (int, float),
    "top_k": int,
    "stop_sequences": list,
    "metadata": dict,
    "cache_control": dict,
    "service_tier": str,
    "output_config": dict,
    "container": (str, dict),
}
_NOT_COUNTED = {"max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier", "container"}
# block type -> (roles that may hold it, required fields, optional fields)
_Fields: TypeAlias = dict[str, type | tuple[type, ...]]
_BLOCKS: dict[str, tuple[frozenset[str], _Fields, _Fields]] = {}


def _define(kind: str, roles: str, required: _Fields, optional: _Fields | None = None) -> None:
    _BLOCKS[kind] = (frozenset(roles.split()), required, optional or {})


_MARK: _Fields = {"cache_control": dict}
_NULL = type(None)
_define("text", "user assistant system", {"text": str}, {**_MARK, "citations": list})
_define("image", "user", {"source": dict}, _MARK)
_define("document", "user", {"source": dict}, {**_MARK, "title": (str, _NULL), "context": (str, _NULL), "citations": dict})
_define("search_result", "user", {"source": str, "title": str, "content": list}, {**_MARK, "citations": dict})
_define("tool_use", "assistant", {"id": str, "name": str, "input": dict}, {**_MARK, "caller": dict})
_define("tool_result", "user", {"tool_use_id": str}, {**_MARK, "content": (str, list), "is_error": bool, "toolset_name": str})
_define("thinking", "assistant", {"thinking": str, "signature": str})
_define("redacted_thinking", "assistant", {"data": str})
_define("server_tool_use", "assistant", {"id": str, "name": str, "input": dict}, {**_MARK, "caller": dict})
_define("mcp_tool_use", "assistant", {"id": str, "name": str, "input": dict, "server_name": str}, _MARK)
for _kind in ("web_search", "web_fetch", "code_execution", "bash_code_execution", "text_editor_code_execution", "tool_search"):
    _define(f"{_kind}_tool_result", "assistant", {"tool_use_id": str, "content": (dict, list)}, {**_MARK, "caller": dict})
_define("mcp_tool_result", "assistant", {"tool_use_id": str, "content": (str, list)}, {**_MARK, "is_error": bool})
_define("container_upload", "user", {"file_id": str}, _MARK)
_RESULT_PARTS = frozenset({"text", "image", "document", "search_result"})  # V21
_MAGIC = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8", "image/webp": b"RIFF"}


def facts_of(model: str) -> ModelFacts:
    """Return what is known of a model by its name."""
    return next((facts for part, facts in MODEL_FACTS if part in model), _DEFAULT_FACTS)


def check_top(body: object, *, counting: bool) -> Json:
    """Check the body without its blocks; return it.

    Raises: ShapeError.
    """
    if not isinstance(body, dict):
        raise ShapeError("The request body is not valid: expected a JSON object")
    top = cast("Json", body)
    for name, value in top.items():
        if name not in _TOP or (counting and name in _NOT_COUNTED):
            raise ShapeError(f"{name}: Extra inputs are not permitted")
        _check_type(value, _TOP[name], name)
    required = ("model", "messages") if counting else ("model", "messages", "max_tokens")
    for name in required:
        if name not in top:
            raise ShapeError(f"{name}: Field required")
    if not counting and top["max_tokens"] < (0 if not top.get("stream") else 1):  # V58
        raise ShapeError("max_tokens: Input should be greater than or equal to 1")
    if not top["messages"]:
        raise ShapeError("messages: at least one message is required")  # V01
    for index, message in enumerate(top["messages"]):
        _check_message(message, f"messages.{index}")
    _check_system(top.get("system"))
    for index, tool in enumerate(top.get("tools") or ()):
        _check_tool(tool, f"tools.{index}")
    names = [tool.get("name") for tool in top.get("tools") or ()]
    if len(set(names)) < len(names):
        raise ShapeError("tools: Tool names must be unique.")
    if "tool_choice" in top:
        _check_choice(top["tool_choice"])
    if "thinking" in top:
        _check_thinking_config(top["thinking"])
    if "cache_control" in top:
        _check_mark(top["cache_control"], "cache_control")
    return top


def check_block(value: object, place: str, *, role: str) -> None:
    """Check one block of a message: its fields, their types, whether its role may hold it.

    Raises: ShapeError.
    """
    block = _object(value, place)
    kind = block.get("type")
    if kind not in _BLOCKS:
        raise ShapeError(f"{place}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    roles, required, optional = _BLOCKS[kind]
    for name, field in block.items():
        allowed = required.get(name) or optional.get(name)
        if name != "type" and allowed is None:
            raise ShapeError(f"{place}.{kind}.{name}: Extra inputs are not permitted")  # V11, V48
        if allowed is not None:
            _check_type(field, allowed, f"{place}.{kind}.{name}")
    for name in required:
        if name not in block:
            raise ShapeError(f"{place}.{kind}.{name}: Field required")
    if role not in roles:  # V19
        raise ShapeError(f"{place}: `{kind}` blocks can only be in {' or '.join(f'`{one}`' for one in sorted(roles))} messages")
    if "cache_control" in block:
        _check_mark(block["cache_control"], f"{place}.{kind}.cache_control")
    _check_ids(block, f"{place}.{kind}")
    if kind == "tool_result" and isinstance(block.get("content"), list):
        for at, part in enumerate(block["content"]):
            inner = _object(part, f"{place}.tool_result.content.{at}")
            if inner.get("type") not in _RESULT_PARTS:
                raise ShapeError(
                    f"{place}.tool_result.content.{at}: Input tag '{inner.get('type')}' does not match any of the expected tags"
                )
            check_block(inner, f"{place}.tool_result.content.{at}", role="user")
    if kind == "image":
        _check_image(block["source"], f"{place}.image.source")


def _check_ids(block: Json, place: str) -> None:
    kind = block["type"]
    for name in ("id", "tool_use_id"):
        if name in block and not ID.match(block[name]):
            raise ShapeError(f"{place}.{name}: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if kind == "server_tool_use" and not block["id"].startswith("srvtoolu_"):
        raise ShapeError(f"{place}.id: String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'")
    if kind == "tool_use" and not TOOL_NAME.match(block["name"]):
        raise ShapeError(f"{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")


def image_size(block: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return width and height of a PNG or GIF image block, None where they cannot be read."""
    source = block["source"]
    if source.get("type") != "base64":
        return None
    head = base64.b64decode(source["data"][:64])
    if head.startswith(_MAGIC["image/png"]) and len(head) >= 24:
        return struct.unpack(">II", head[16:24])
    if head.startswith(b"GIF8"):
        return struct.unpack("<HH", head[6:10])
    return None


def _check_message(value: object, place: str) -> None:
    message = _object(value, place)
    for name in message:
        if name not in {"role", "content"}:
            raise ShapeError(f"{place}.{name}: Extra inputs are not permitted")
    if message.get("role") not in {"user", "assistant", "system"}:
        raise ShapeError(f"{place}.role: Input should be 'user' or 'assistant'")
    if not isinstance(message.get("content"), str | list):
        raise ShapeError(f"{place}.content: Input should be a valid list")


def _check_system(system: object) -> None:
    if not isinstance(system, list):
        return
    for index, block in enumerate(cast("list[object]", system)):
        check_block(block, f"system.{index}", role="system")
        if not cast("Json", block)["text"].strip():
            raise ShapeError(f"system.{index}: text content blocks must be non-empty")


def _check_tool(value: object, place: str) -> None:
    tool = _object(value, place)
    if tool.get("type", "custom") != "custom":
        return  # a tool of the provider's: its fields are its own
    for name, field in tool.items():
        allowed = {"type": str, "name": str, "description": str, "input_schema": dict, "cache_control": dict, "strict": bool}.get(name)
        if allowed is None:
            raise ShapeError(f"{place}.custom.{name}: Extra inputs are not permitted")
        _check_type(field, allowed, f"{place}.custom.{name}")
    for name in ("name", "input_schema"):
        if name not in tool:
            raise ShapeError(f"{place}.custom.{name}: Field required")
    if not TOOL_NAME.match(tool["name"]):
        raise ShapeError(f"{place}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    if tool["input_schema"].get("type") != "object":
        raise ShapeError(f"{place}.custom.input_schema.type: Input should be 'object'")
    if "cache_control" in tool:
        _check_mark(tool["cache_control"], f"{place}.custom.cache_control")


def _check_choice(choice: Json) -> None:
    kind = choice.get("type")
    fields = {"auto": set[str](), "any": set[str](), "none": set[str](), "tool": {"name"}}.get(str(kind))
    if fields is None:
        raise ShapeError(f"tool_choice: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    if extra := set(choice) - fields - {"type", "disable_parallel_tool_use"}:
        raise ShapeError(f"tool_choice.{kind}.{min(extra)}: Extra inputs are not permitted")
    if missing := fields - set(choice):
        raise ShapeError(f"tool_choice.{kind}.{min(missing)}: Field required")


def _check_thinking_config(config: Json) -> None:
    kind = config.get("type")
    if kind not in {"enabled", "disabled", "adaptive", "between_tools"}:
        raise ShapeError(f"thinking: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    if extra := set(config) - {"type", "budget_tokens", "display", "block_binding"}:
        raise ShapeError(f"thinking.{kind}.{min(extra)}: Extra inputs are not permitted")
    if kind == "enabled":
        if not isinstance(config.get("budget_tokens"), int):
            raise ShapeError("thinking.enabled.budget_tokens: Field required")
        if config["budget_tokens"] < 1024:
            raise ShapeError("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")


def _check_mark(mark: object, place: str) -> None:
    fields = _object(mark, place)
    if fields.get("type") != "ephemeral":
        raise ShapeError(f"{place}.type: Input should be 'ephemeral'")
    if fields.get("ttl", "5m") not in {"5m", "1h"}:
        raise ShapeError(f"{place}.ttl: Input should be '5m' or '1h'")
    if extra := set(fields) - {"type", "ttl"}:
        raise ShapeError(f"{place}.{min(extra)}: Extra inputs are not permitted")


def _check_image(source: Json, place: str) -> None:
    kind = source.get("type")
    if kind in {"url", "file"}:
        return
    if kind != "base64":
        raise ShapeError(f"{place}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    media, data = source.get("media_type"), source.get("data")
    if media not in _MAGIC:
        raise ShapeError(f"{place}.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'")
    if not isinstance(data, str) or len(data) > MAX_IMAGE_BYTES:
        raise ShapeError(f"{place}.base64.data: image exceeds {MAX_IMAGE_BYTES} bytes maximum")
    try:
        head = base64.b64decode(data[:64], validate=True)
    except binascii.Error as exc:
        raise ShapeError(f"{place}.base64.data: invalid base64 data") from exc
    if not head.startswith(_MAGIC[str(media)]):  # V63
        raise ShapeError(f"{place}.base64: The image was specified using the {media} media type, but does not appear to be a {media} image")


def _object(value: object, place: str) -> Json:
    if not isinstance(value, dict):
        raise ShapeError(f"{place}: Input should be a valid dictionary")
    return cast("Json", value)


def _check_type(value: object, allowed: type | tuple[type, ...], place: str) -> None:
    kinds = allowed if isinstance(allowed, tuple) else (allowed,)
    if (isinstance(value, bool) and bool not in kinds) or not isinstance(value, kinds):
        names = {str: "string", dict: "dictionary", list: "list", int: "integer", float: "number", bool: "boolean", _NULL: "null"}
        raise ShapeError(f"{place}: Input should be a valid {names[kinds[0]]}")
