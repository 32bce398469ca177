"""The messages of a model's context, and the units in which they may be cut.

Laws: a ModelMessage never changes after it was built, and nothing that it was built from may be changed either (blocks are
treated as frozen, so that messages can be shared between views, requests and threads without a copy). What is derived from
a message (JSON, text, calls, results, sizes) is computed once, on first use. Every function here is linear and pure.

Units: a *round* is an assistant message and the results that answer it; a *turn* runs from a real user message (one that
holds more than tool results) to the next.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from compaction.encoding import dumps

Role: TypeAlias = Literal["user", "assistant", "system"]
Block: TypeAlias = Mapping[str, Any]

_NOTICE_OPEN, _NOTICE_CLOSE = "<runtime-notice>", "</runtime-notice>"
ROLES = frozenset({"user", "assistant", "system"})
THINKING_TYPES = frozenset({"thinking", "redacted_thinking"})
SERVER_CALL_TYPES = frozenset({"server_tool_use", "mcp_tool_use"})
MAPPINGS = (dict, Mapping)
"""What a mapping is, for `isinstance`: the class that most of them are first, since asking an abstract one takes longer."""
_CLIENT_TYPES = frozenset({"text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"})
_SERVER_RESULT = re.compile(r"\A(?!tool_result\Z)[a-z_]+_tool_result\Z")


class ModelMessage:
    """One message of the Messages API, immutable.

    A string as content becomes one text block; an empty string becomes no block at all.

    Raises:
        ValueError: the role is none of user, assistant, system.
        TypeError: a block is not a mapping.
    """

    __slots__ = (
        "_calls",
        "_content",
        "_json",
        "_results",
        "_role",
        "_server",
        "_size_bytes",
        "_text",
        "_thinks",
        "_well_formed",
        "cleaned",
        "result_ids",
        "shape",
        "weight",
    )

    def __init__(self, role: Role, content: str | Iterable[Block]) -> None:
        if role not in ROLES:
            raise ValueError(f"a message cannot have the role {role!r}; legal: assistant, system, user")
        blocks = text_blocks(content) if isinstance(content, str) else tuple(content)
        for block in blocks:
            if not isinstance(block, MAPPINGS):  # pyright: ignore[reportUnnecessaryIsInstance]  # the JSON edge
                raise TypeError(f"a block of a message must be a mapping, not {block!r:.80}")
        self._role: Role = role
        self._content: tuple[Block, ...] = blocks
        self._json: str | None = None
        self._text: str | None = None
        self._calls: tuple[Block, ...] | None = None
        self._results: tuple[Block, ...] | None = None
        self._size_bytes = -1
        self._well_formed = True
        self._server = self._thinks = False
        self.weight: tuple[Any, ...] | None = None
        """Kept here for `compaction.tokens`, which measures a message once."""
        self.shape: Any = None
        """Kept here for `compaction.view`: what of the message matters to its neighbours."""
        self.result_ids: tuple[str, ...] | None = None
        """Kept here for `compaction.recall`: under which ids the contents of the results are found again."""
        self.cleaned: ModelMessage | Literal[True] | None = None
        """Kept here for `compaction.cleaning`; True when the message is clean: a reference to itself would keep it from being freed."""

    @property
    def role(self) -> Role:
        """Who speaks: user, assistant or system."""
        return self._role

    @property
    def content(self) -> tuple[Block, ...]:
        """The blocks, in order; treat them as frozen."""
        return self._content

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        if self._text is None:
            self._text = "\n".join(str(block.get("text", "")) for block in self._content if block.get("type") == "text")
        return self._text

    @property
    def tool_calls(self) -> tuple[Block, ...]:
        """The tool_use blocks, in order."""
        if self._calls is None:
            self._scan()
        return self._calls  # type: ignore[return-value]  # the scan has set it

    @property
    def tool_results(self) -> tuple[Block, ...]:
        """The tool_result blocks, in order."""
        if self._results is None:
            self._scan()
        return self._results  # type: ignore[return-value]  # as above

    @property
    def thinks(self) -> bool:
        """Whether it holds thinking."""
        if self._calls is None:
            self._scan()
        return self._thinks

    @property
    def uses_server_tools(self) -> bool:
        """Whether it holds calls or results of the provider's own tools."""
        if self._calls is None:
            self._scan()
        return self._server

    def _scan(self) -> None:
        calls: list[Block] = []
        results: list[Block] = []
        for block in self._content:
            kind = block.get("type")
            if kind == "text":
                continue
            if kind == "tool_use":
                calls.append(block)
            elif kind == "tool_result":
                results.append(block)
            elif isinstance(kind, str):  # the JSON edge
                self._thinks = self._thinks or kind in THINKING_TYPES
                self._server = self._server or kind in SERVER_CALL_TYPES or is_server_result(block)
        self._calls, self._results = tuple(calls), tuple(results)

    @property
    def json(self) -> str:
        """Compact JSON of role and content, in the order of the keys as they came; always encodable as UTF-8."""
        if self._json is None:
            text = dumps({"role": self._role, "content": self._content})
            try:
                self._size_bytes = len(text) if text.isascii() else len(text.encode())
            except UnicodeEncodeError:  # a lone surrogate, from a tool that cut text at a bad place
                text = json.dumps({"role": self._role, "content": self._content}, separators=(",", ":"))
                self._size_bytes = len(text)
                self._well_formed = False
            self._json = text
        return self._json

    @property
    def size_bytes(self) -> int:
        """Length of the JSON in UTF-8."""
        if self._size_bytes < 0:
            _ = self.json
        return self._size_bytes

    @property
    def well_formed(self) -> bool:
        """Whether every text is Unicode; a lone surrogate is not, and the provider refuses it."""
        _ = self.json
        return self._well_formed

    def wire(self) -> dict[str, Any]:
        """Return a new dict for a request body; its blocks are the message's own."""
        return {"role": self._role, "content": list(self._content)}

    def with_content(self, content: Iterable[Block]) -> "ModelMessage":
        """Return a message of the same role with other blocks."""
        return ModelMessage(self._role, content)

    def reworded(self, content: Iterable[Block]) -> "ModelMessage":
        """Return the message with other words in the same blocks, by kind, order and ids; they are clean where this one's are.

        What is known of kind, order and ids then stays known, and nothing is looked at again.
        """
        message = ModelMessage(self._role, content)
        if self.cleaned is True:
            message.cleaned, message.shape = True, self.shape
        return message

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ModelMessage):
            return NotImplemented
        return self._role == other._role and self._content == other._content

    def __hash__(self) -> int:
        return hash((self._role, len(self._content), self.text))

    def __repr__(self) -> str:
        kinds = ", ".join(str(block.get("type")) for block in self._content[:6])
        more = ", ..." if len(self._content) > 6 else ""  # a repr is one line
        return f"<ModelMessage {self._role}: {kinds}{more}>"


def as_block(value: object) -> Block:
    """Return a value as a block: itself when it is a mapping, else a text block of it (the JSON edge)."""
    return cast("Block", value) if isinstance(value, Mapping) else {"type": "text", "text": str(value)}


def parts_of(block: Block) -> tuple[Block, ...]:
    """Return the content of a tool_result or the like as blocks, whatever its form."""
    content = block.get("content")
    if isinstance(content, str):
        return text_blocks(content)
    return tuple(as_block(part) for part in cast("Sequence[object]", content)) if isinstance(content, list | tuple) else ()


def text_blocks(text: str) -> tuple[Block, ...]:
    """Return text as content: one text block, or none for an empty string."""
    return ({"type": "text", "text": text},) if text else ()


def message_from_wire(body: Mapping[str, Any]) -> ModelMessage:
    """Build a message from a request body's form.

    Raises:
        ValueError, TypeError: it has no such form.
    """
    content = body.get("content")
    if not isinstance(content, str | list | tuple):
        raise TypeError(f"the content of a message must be a string or a list of blocks, not {type(content).__name__}")
    return ModelMessage(cast("Role", body.get("role")), cast("str | list[Block]", content))


def is_server_result(block: Block) -> bool:
    """Tell whether a block is the result of a tool that the provider runs."""
    kind = block.get("type")
    return kind not in _CLIENT_TYPES and _SERVER_RESULT.match(str(kind)) is not None


def is_paused(message: ModelMessage) -> bool:
    """Tell whether an assistant message holds work of the provider's own tools, so that the next one may carry it on."""
    return message.role == "assistant" and message.uses_server_tools


def is_real_user(message: ModelMessage) -> bool:
    """Tell whether a message starts a turn: from the user, and more than tool results."""
    return message.role == "user" and len(message.tool_results) < len(message.content)


def notice(text: str) -> str:
    """Return a remark of the runtime as it stands on the user's side, so that nobody takes it for words of the user."""
    return f"{_NOTICE_OPEN}{text}{_NOTICE_CLOSE}"


def is_notice(block: Block) -> bool:
    """Tell whether a block is a remark of the runtime and nothing else."""
    text = str(block.get("text", "")) if block.get("type") == "text" else ""
    return text.startswith(_NOTICE_OPEN) and text.find(_NOTICE_CLOSE) == len(text) - len(_NOTICE_CLOSE)


def spoken(message: ModelMessage) -> tuple[Block, ...]:
    """Return what a message of the user says itself: no results, and no remarks of the runtime."""
    if not is_real_user(message):
        return ()
    return tuple(block for block in message.content if block.get("type") != "tool_result" and not is_notice(block))


def last_assistant(messages: Sequence[ModelMessage]) -> int:
    """Return the index of the last assistant message, -1 when there is none."""
    return next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "assistant"), -1)


def open_calls(messages: Sequence[ModelMessage]) -> tuple[Block, ...]:
    """Return the calls of the last assistant message that no later message answers, in order."""
    at = last_assistant(messages)
    if at < 0:
        return ()
    answered = {result.get("tool_use_id") for message in messages[at + 1 :] for result in message.tool_results}
    return tuple(call for call in messages[at].tool_calls if call.get("id") not in answered)


def interrupted_results(message: ModelMessage, reason: str) -> ModelMessage:
    """Return the user message that answers every call of an assistant message with an error that gives the reason.

    Raises:
        ValueError: the message has no calls.
    """
    if not message.tool_calls:
        raise ValueError("cannot answer the calls of a message that has none")
    return ModelMessage("user", [error_result(str(call.get("id")), reason) for call in message.tool_calls])


def error_result(call_id: str, reason: str) -> Block:
    """Return an error result for one call."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": reason or "interrupted", "is_error": True}


def open_server_calls(messages: Iterable[ModelMessage]) -> Iterator[frozenset[str]]:
    """Yield, after each message, the ids of the provider's own calls that are still without a result."""
    pending: frozenset[str] = frozenset()
    for message in messages:
        if message.uses_server_tools:
            waiting = set(pending)
            for block in message.content:
                if block.get("type") in SERVER_CALL_TYPES:
                    waiting.add(str(block.get("id")))
                elif is_server_result(block):
                    waiting.discard(str(block.get("tool_use_id")))
            pending = frozenset(waiting)
        yield pending


def safe_cuts(messages: Sequence[ModelMessage]) -> list[int]:
    """Return every index i, in order, at which messages[i:] may be kept and messages[:i] dropped.

    A cut separates no call from its result, neither a client's nor the provider's. Index 0 is always one, and the length of the
    list is one unless calls are open. Where the kept part begins with an assistant message, a user message must be put before it.
    """
    cuts = [0] if messages else []
    calls_before = False
    server_open: frozenset[str] = frozenset()
    servers = open_server_calls(messages)
    for index, message in enumerate(messages):
        if index and not calls_before and not server_open and not message.tool_results and message.role != "system":
            cuts.append(index)
        server_open = next(servers)
        if message.role == "assistant":
            calls_before = bool(message.tool_calls)
        elif message.tool_results:
            calls_before = False
    if messages and not calls_before and not server_open:
        cuts.append(len(messages))
    return cuts


def turns(messages: Sequence[ModelMessage]) -> list[range]:
    """Return the turns in order; what stands before the first real user message belongs to the first one."""
    starts = [i for i, message in enumerate(messages) if is_real_user(message) and not message.tool_results]
    if messages and (not starts or starts[0] != 0):
        starts = [0, *starts[1:]] if starts else [0]
    return [range(start, stop) for start, stop in zip(starts, [*starts[1:], len(messages)], strict=True)]


def rounds(messages: Sequence[ModelMessage]) -> list[range]:
    """Return the rounds in order: spans that begin with an assistant message and end with what answers it.

    Assistant messages in a row, and those that share a call of the provider's own tools, are one round. Real user messages
    without results belong to none.
    """
    spans: list[range] = []
    start, before = -1, ""
    server_open: frozenset[str] = frozenset()
    for index, (message, pending) in enumerate(zip(messages, open_server_calls(messages), strict=True)):
        role = message.role
        if role == "assistant":
            if start < 0 or not (server_open or before == "assistant"):
                if start >= 0:
                    spans.append(range(start, index))
                start = index
        elif start >= 0 and role == "user" and not message.tool_results:
            spans.append(range(start, index))
            start = -1
        server_open, before = pending, role
    if start >= 0:
        spans.append(range(start, len(messages)))
    return spans
