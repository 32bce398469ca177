"""A prompt cache as the provider has it: what of a request is read, what is written, what is fresh.

Laws: a prefix is equal or it is not (block by block, in the order tools, system, messages, marks aside); entries exist only
where a request had a mark; from a mark the cache looks back 20 blocks and no further; an entry lives five minutes from its
last use, by trio's clock.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import trio

from teams.models.base import Usage
from teams.testing.wire_rules import blocks_of

LOOKBACK_BLOCKS = 20
LIFETIME_SECONDS = {"5m": 300.0, "1h": 3600.0}
_BYTES_PER_TOKEN = 4


class _Place(NamedTuple):
    digest: bytes  # of everything up to and with this block
    tokens: int  # the same, counted
    ttl: str | None  # of the mark that stands here


class PromptCache:
    """The entries of one account."""

    def __init__(self) -> None:
        self._entries: dict[bytes, tuple[float, str]] = {}

    def account(self, body: Mapping[str, Any]) -> Usage:
        """Read what is cached of a request, write what its marks ask for; return its input usage."""
        now = trio.current_time()
        places = list(_places(body))
        marked = [index for index, place in enumerate(places) if place.ttl is not None]
        total = places[-1].tokens
        if not marked:
            return Usage(total)
        hit = max((index for mark in marked if (index := self._look_back(places, mark, now)) is not None), default=None)
        for index in marked:
            ttl = places[index].ttl or "5m"
            self._entries[places[index].digest] = (now + LIFETIME_SECONDS[ttl], ttl)
        read = places[hit].tokens if hit is not None else 0
        upto = places[marked[-1]].tokens
        return Usage(total - max(upto, read), 0, max(0, upto - read), read)

    def _look_back(self, places: list[_Place], mark: int, now: float) -> int | None:
        for index in range(mark, max(-1, mark - LOOKBACK_BLOCKS), -1):
            expires, ttl = self._entries.get(places[index].digest, (0.0, ""))
            if expires > now:
                self._entries[places[index].digest] = (now + LIFETIME_SECONDS[ttl], ttl)
                return index
        return None


def count_tokens(body: Mapping[str, Any]) -> int:
    """Return how many tokens a request has for this endpoint."""
    return list(_places(body))[-1].tokens


def without_mark(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block as the model sees it."""
    return {name: value for name, value in block.items() if name != "cache_control"}


def canonical(value: object) -> bytes:
    """Return bytes that are equal only for equal JSON, the order of keys included."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def _places(body: Mapping[str, Any]) -> Iterator[_Place]:
    digest, tokens = hashlib.sha256(str(body["model"]).encode()), 0
    for section, block in _sections(body):
        data = canonical([section, without_mark(block)])
        digest.update(data)
        tokens += len(data) // _BYTES_PER_TOKEN
        mark = block.get("cache_control")
        yield _Place(digest.digest(), tokens, mark.get("ttl", "5m") if mark else None)


def _sections(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for tool in body.get("tools") or ():
        yield "tool", tool
    system: str | list[dict[str, Any]] = body.get("system") or []
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        yield "system", block
    # Changing one of these leaves the cache of tools and system alone, not that of the messages.
    yield "settings", {name: body.get(name) for name in ("tool_choice", "thinking")}
    for message in body["messages"]:
        for block in blocks_of(message):
            yield message["role"], block
