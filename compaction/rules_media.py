"""Rules about thinking (V41 to V46), cache marks (V48 to V52) and images (V60 to V63)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from compaction.images import MANY_IMAGES, MAX_BASE64_CHARS, MAX_SIDE_MANY_PX, MAX_SIDE_PX, read_head, source_of
from compaction.request import Finding, Request, blocks
from compaction.transcript import THINKING_TYPES, Block, as_block, is_real_user

MAX_CACHE_MARKS = 4
_SECONDS = {"5m": 300, "1h": 3_600}


def thinking_signed(request: Request) -> Iterator[Finding]:
    """V41, as far as a body shows it: the proof is there, whether it is right only the provider knows."""
    for index, block in blocks(request):
        if block.get("type") == "thinking" and "signature" not in block:
            yield Finding(index, "a thinking block without its signature")
        if block.get("type") == "redacted_thinking" and not block.get("data"):
            yield Finding(index, "a redacted thinking block without its data")


def thinking_filled(request: Request) -> Iterator[Finding]:
    """V42."""
    for index, block in blocks(request):
        if block.get("type") == "thinking" and not block.get("thinking") and not block.get("signature"):
            yield Finding(index, "a thinking block with neither thinking nor signature")


def thinking_sides(request: Request) -> Iterator[Finding]:
    """V41 as well: only the model thinks."""
    for index, message in enumerate(request.messages):
        if message.role != "assistant" and message.thinks:
            yield Finding(index, f"thinking in a message of the role {message.role}")


def turn_starts_thinking(request: Request) -> Iterator[Finding]:
    """V43; only where thinking is switched on by hand."""
    if request.thinking_type != "enabled":
        return
    start = next((i for i in range(len(request.messages) - 1, -1, -1) if is_real_user(request.messages[i])), -1)
    for index in range(start + 1, len(request.messages)):
        message = request.messages[index]
        if message.role == "assistant":
            if message.tool_calls and message.content[0].get("type") not in THINKING_TYPES:
                yield Finding(index, "the final assistant turn must start with a thinking block")
            return


def clear_thinking_first(request: Request) -> Iterator[Finding]:
    """V46."""
    management = request.params.get("context_management")
    edits = cast("Mapping[str, Any]", management).get("edits") if isinstance(management, Mapping) else None
    for at, edit in enumerate(cast("Sequence[object]", edits) if isinstance(edits, list | tuple) else ()):
        if str(as_block(edit).get("type")).startswith("clear_thinking"):
            if at:
                yield Finding(-1, "clear_thinking must be the first edit")
            if request.thinking_type not in {"enabled", "adaptive"}:
                yield Finding(-1, "clear_thinking needs thinking to be enabled or adaptive")


def _marked(request: Request) -> Iterator[tuple[int, Block]]:
    """Yield every block with a cache mark, in the order of the prefix: tools, system, messages."""
    for tool in request.tools:
        if tool.get("cache_control"):
            yield -1, tool
    for block in request.system if not isinstance(request.system, str) else ():
        if block.get("cache_control"):
            yield -1, block
    for index, block in blocks(request):
        if block.get("cache_control"):
            yield index, block


def _life_seconds(mark: object) -> int:
    ttl = cast("Mapping[str, Any]", mark).get("ttl", "5m") if isinstance(mark, Mapping) else "5m"
    return _SECONDS.get(str(ttl), 300)


def few_marks(request: Request) -> Iterator[Finding]:
    """V50; automatic caching takes one."""
    count = sum(1 for _ in _marked(request)) + int(bool(request.params.get("cache_control")))
    if count > MAX_CACHE_MARKS:
        yield Finding(-1, f"{count} cache marks; the most is {MAX_CACHE_MARKS}")


def marks_placed(request: Request) -> Iterator[Finding]:
    """V51 and V48."""
    for index, block in _marked(request):
        kind = block.get("type")
        if kind in THINKING_TYPES:
            yield Finding(index, "a cache mark on thinking")
        elif kind == "text" and not str(block.get("text", "")):
            yield Finding(index, "a cache mark on an empty text")
    for index, block in blocks(request):
        for citation in cast("Sequence[object]", block.get("citations")) if isinstance(block.get("citations"), list | tuple) else ():
            if as_block(citation).get("cache_control"):
                yield Finding(index, "a cache mark on a citation")


def long_marks_first(request: Request) -> Iterator[Finding]:
    """V52; an automatic mark stands on the last block and has to agree with a mark there."""
    shortest = max(_SECONDS.values())
    last: tuple[int, Block] | None = None
    for index, block in _marked(request):
        seconds = _life_seconds(block.get("cache_control"))
        if seconds > shortest:
            yield Finding(index, "a cache mark of a longer life after one of a shorter")
        shortest = min(shortest, seconds)
        last = index, block
    automatic = request.params.get("cache_control")
    final = request.messages[-1].content[-1:] if request.messages else ()
    if (
        automatic
        and last is not None
        and final
        and last[1] is final[0]
        and _life_seconds(automatic) != _life_seconds(final[0].get("cache_control"))
    ):
        yield Finding(last[0], "the automatic cache mark and the one on the last block differ in life")


def _images(request: Request) -> Iterator[tuple[int, Block]]:
    return ((index, block) for index, block in blocks(request) if block.get("type") == "image")


def few_images(request: Request) -> Iterator[Finding]:
    """V60: how many, and how large each."""
    count = 0
    for index, block in _images(request):
        count += 1
        data = source_of(block).get("data")
        if not isinstance(data, str):
            continue
        if len(data) > MAX_BASE64_CHARS:
            yield Finding(index, f"an image of {len(data)} base64 characters; the most is {MAX_BASE64_CHARS}")
        facts = read_head(data)
        if max(facts.width, facts.height) > MAX_SIDE_PX:
            yield Finding(index, f"an image of {facts.width} x {facts.height} pixels; the most is {MAX_SIDE_PX} per side")
    if count > request.facts.max_images:
        yield Finding(-1, f"{count} images; the most is {request.facts.max_images}")


def many_images_small(request: Request) -> Iterator[Finding]:
    """V61."""
    found = list(_images(request))
    if len(found) <= MANY_IMAGES:
        return
    for index, block in found:
        data = source_of(block).get("data")
        facts = read_head(data) if isinstance(data, str) else None
        if facts is not None and max(facts.width, facts.height) > MAX_SIDE_MANY_PX:
            yield Finding(index, f"an image of {facts.width} x {facts.height} pixels among {len(found)}; the most is {MAX_SIDE_MANY_PX}")


def images_readable(request: Request) -> Iterator[Finding]:
    """V63."""
    for index, block in _images(request):
        source = source_of(block)
        data = source.get("data")
        if isinstance(data, str):
            facts = read_head(data)
            if facts.media_type is None or not facts.width:
                yield Finding(index, "an image that is none of jpeg, png, gif, webp")
            elif facts.media_type != source.get("media_type"):
                yield Finding(index, f"an image is {facts.media_type} and says {source.get('media_type')}")
