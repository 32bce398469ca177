"""The tool by which an agent finds again what its context does not show any more.

Laws: it looks into the caller's own transcript alone, and into bodies whose id the caller was shown; it changes nothing; what it shows is
escaped and bounded like every result.
"""

import re
from collections.abc import Awaitable, Callable, Sequence

import trio

from compaction.recall import Archive, Recalled, Search
from protocols.envelope import escape_text
from teams.artifacts import ArtifactStore
from teams.errors import InvalidName
from teams.tools.base import Tool, ToolContext, ToolError, tool

SHOWN_CHARS = 40_000
_RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d+))?")
_ARTIFACT = re.compile(r"[0-9a-f]{16}")


def recall_tool(archive_of: Callable[[str], Awaitable[Archive]], artifacts: ArtifactStore) -> Tool:
    """Return the tool.

    Args:
        archive_of: gives the transcript of an agent.
        artifacts: where bodies are that were cut as they arrived.
    """

    @tool(effect="reads")
    async def recall(context: ToolContext, query: str, lines: str = "") -> str:
        """Show again what this conversation no longer shows.

        Args:
            query: a recall id such as r0123456789ab, a message number such as m17, an artifact's id, or any exact words.
            lines: show only these lines of what is found by its id, such as 10-40.
        """
        span = parse_lines(lines)
        archive = await archive_of(context.agent)
        found = archive.get(query.strip(), span)
        if found is not None:
            return show_recalled(found)
        if _ARTIFACT.fullmatch(query.strip()) and (text := await _artifact(artifacts, query.strip())) is not None:
            kept = text.split("\n")[span[0] - 1 : span[1]] if span is not None else [text]
            return _bounded("\n".join(kept))
        if not query:
            raise ToolError("cannot recall nothing: give an id, or words to search for")
        # A search of a long transcript is work for a thread; looking changes nothing, and this agent waits for it.
        search = await trio.to_thread.run_sync(archive.find, query)
        if not search.found:
            raise ToolError(
                f"nothing in your {len(archive)} messages is {escape_text(query[:200])!r}: an id is r and 12 hex digits, "
                "a message number is m and digits, and words must be exact, upper and lower case as well"
            )
        return show_search(search)

    return recall


async def _artifact(artifacts: ArtifactStore, artifact_id: str) -> str | None:
    try:
        return await artifacts.find(artifact_id)
    except InvalidName:
        return None


def parse_lines(text: str) -> tuple[int, int] | None:
    """Read `10-40` or `10`; None for no text.

    Raises: ToolError.
    """
    if not text.strip():
        return None
    match = _RANGE.fullmatch(text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise ToolError(f"cannot show the lines {text!r}: give them as 10-40, counted from 1")
    return first, last


def show_recalled(found: Recalled) -> str:
    """Return a body for a model."""
    media = f"\n({len(found.media)} images or documents are not shown)" if found.media else ""
    return _bounded(f"{found.name}, message m{found.message}:\n{found.text}{media}")


def show_search(search: Search) -> str:
    """Return the hits of a search for a model, a line each."""
    hits: Sequence[str] = [f"m{hit.message} {hit.name} ({hit.recall_id}): {hit.snippet}" for hit in search.found]
    more = [f"and {search.more} more; search for more words"] if search.more else []
    return _bounded("\n".join([*hits, *more]))


def _bounded(text: str) -> str:
    if len(text) > SHOWN_CHARS:
        text = f"{text[:SHOWN_CHARS]}\n[{len(text) - SHOWN_CHARS:,} characters more; ask for lines]"
    return escape_text(text)
