"""An agent's transcript on disk: JSON Lines that are only ever appended to.

Laws: a line is a header, a message, a compaction checkpoint or a rewind; nothing written is changed. What an agent sees after loading is
what the newest complete checkpoint holds, and every message after it. A line that was cut while it was written counts as not written, so
a crash inside a checkpoint leaves the view before it. A rewind takes the view back to what it was before a checkpoint, in an epoch of its
own; what came since stays in the file. A damaged line in the middle is reported and left out; mail once injected stays known.

Encoding, decoding and loading are pure. `compaction.sessionfile` does the input and output.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from compaction.carried import NOTHING_CARRIED, Carried, MemoryKind
from compaction.compactor import Checkpoint
from compaction.encoding import dumps
from compaction.errors import NotASession
from compaction.repair import drop_thinking
from compaction.transcript import ModelMessage, message_from_wire
from compaction.triggers import Cause
from compaction.view import View

FORMAT_VERSION = 1
_quoted = json.encoder.encode_basestring


class Header(NamedTuple):
    """The first line: whose transcript it is, since when (UTC, ISO 8601), and from which one it was forked.

    A fork of a view alone names the file that holds the rest, relative to its own directory, and how many bytes of it are older.
    """

    agent: str
    created_at: str
    version: int = FORMAT_VERSION
    forked_from: str = ""
    source: str = ""
    source_bytes: int = 0


class Entry(NamedTuple):
    """A message as the session keeps it.

    `mail` are the ids of the team's messages that this line injects; usage, stop reason and model belong to a reply.
    """

    message: ModelMessage
    at: str
    epoch: int = 0
    mail: tuple[str, ...] = ()
    usage: Mapping[str, int] | None = None
    stop_reason: str | None = None
    model: str | None = None


class StoredCheckpoint(NamedTuple):
    """A compaction as it was read back; `replaces`, `facts` and the tokens are for people."""

    epoch: int
    trigger: str
    layers: tuple[str, ...]
    tokens_before: int
    tokens_after: int
    replaces: int
    messages: tuple[ModelMessage, ...]
    carried: Carried
    at: str
    facts: Mapping[str, Any] = {}
    damage: str = ""


class Rewind(NamedTuple):
    """The view goes back to what it was before the checkpoint of this epoch; from here on it is of epoch `to_epoch`."""

    before_epoch: int
    to_epoch: int
    at: str


Line = Header | Entry | StoredCheckpoint | Rewind


class LoadedSession(NamedTuple):
    """What a session holds.

    `mail_ids` are all ids ever injected, also by messages that a compaction removed; `last_usage` is that of the newest reply since the
    newest checkpoint; `damaged` names lines (from 1) that were left out; `torn` tells that the last line was cut. `transcript` is every
    message that ever was said, also those that the view does not show any more; `checkpoints` are all compactions, the oldest first;
    `model` is the one that answered last.
    """

    header: Header
    view: View
    mail_ids: frozenset[str]
    last_usage: Mapping[str, int] | None
    damaged: tuple[tuple[int, str], ...]
    torn: bool
    transcript: tuple[ModelMessage, ...] = ()
    checkpoints: tuple[StoredCheckpoint, ...] = ()
    model: str = ""

    @property
    def messages(self) -> Sequence[ModelMessage]:
        """The messages that a model would be sent."""
        return self.view.messages

    @property
    def epoch(self) -> int:
        """How many edits were made."""
        return self.view.epoch


def encode_header(header: Header) -> bytes:
    """Return the first line of a session."""
    fields: dict[str, Any] = {"type": "session", "version": header.version, "agent": header.agent, "created_at": header.created_at}
    if header.forked_from:
        fields["forked_from"] = header.forked_from
    if header.source:
        fields |= {"source": header.source, "source_bytes": header.source_bytes}
    return _line(fields)


def encode_message(entry: Entry) -> bytes:
    """Return a message as a line; the message's own JSON is used as it is."""
    # Written out, because every message of every agent comes through here.
    rest = f'"at":{_quoted(entry.at)},"epoch":{entry.epoch}'
    if entry.mail:
        rest += f',"mail":{dumps(list(entry.mail))}'
    if entry.usage is not None:
        rest += f',"usage":{{{",".join([f"{_quoted(key)}:{count}" for key, count in entry.usage.items()])}}}'
    if entry.stop_reason is not None:
        rest += f',"stop_reason":{_quoted(entry.stop_reason)}'
    if entry.model is not None:
        rest += f',"model":{_quoted(entry.model)}'
    return f'{{"type":"message",{entry.message.json[1:-1]},{rest}}}\n'.encode()


def encode_checkpoint(checkpoint: Checkpoint, at: str) -> bytes:
    """Return a compaction as a line that holds the whole new view."""
    carried = checkpoint.carried
    fields: dict[str, Any] = {
        "type": "compaction",
        "epoch": checkpoint.epoch,
        "trigger": checkpoint.trigger.value,
        "layers": list(checkpoint.layers),
        "tokens_before": checkpoint.tokens_before,
        "tokens_after": checkpoint.tokens_after,
        "replaces": checkpoint.replaces,
        **{key: value for key, value in carried._asdict().items() if key != "record" and value != NOTHING_CARRIED._asdict()[key]},
        "cost": checkpoint.cost._asdict(),
        "moved": [list(moved) for moved in checkpoint.moved],
        "at": at,
    }
    if checkpoint.summary_usage:
        fields["summary_usage"] = dict(checkpoint.summary_usage)
    if checkpoint.summary_failure:
        fields["summary_failure"] = checkpoint.summary_failure
    record = "" if carried.record is None else f',"record":{dumps(carried.record.model_dump(exclude_defaults=True))}'
    line = f'{dumps(fields)[:-1]}{record},"messages":[{",".join(message.json for message in checkpoint.messages)}]}}\n'
    return line.encode("utf-8", "replace")  # a summary may hold what no message may


def encode_view(view: View, at: str) -> bytes:
    """Return a view as the checkpoint with which a forked session begins; it stands in the same epoch."""
    return encode_checkpoint(
        Checkpoint(
            epoch=view.epoch,
            trigger=Cause.ASKED,
            layers=("fork",),
            tokens_before=0,
            tokens_after=0,
            replaces=0,
            messages=tuple(view.messages),
            carried=view.carried,
        ),
        at,
    )


def encode_rewind(rewind: Rewind) -> bytes:
    """Return a rewind as a line."""
    return _line({"type": "rewind", "before_epoch": rewind.before_epoch, "to_epoch": rewind.to_epoch, "at": rewind.at})


def decode(line: bytes) -> Line:
    """Read one line back.

    Raises:
        ValueError: it is no line of a session; the message says why.
    """
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise TypeError("not an object")
        return _read(cast("dict[str, Any]", fields))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"not a session line: {type(error).__name__}: {error}") from error


def load(lines: Iterable[bytes]) -> LoadedSession:
    """Read a session, lines in the order of the file with their line ends; the last one may lack its own.

    Raises:
        NotASession: the first line is no header, or of a newer format.
    """
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise NotASession("it is empty")
    header = _header(numbered[0][1])
    state = _Loading()
    for position, (number, line) in enumerate(numbered[1:], 2):
        try:
            state.take(number, decode(line))
        except ValueError as error:
            state.reject(number, str(error), torn=position == len(numbered) and not line.endswith(b"\n"))
    view = state.finish()
    return LoadedSession(
        header,
        view,
        frozenset(state.mail_ids),
        state.last_usage,
        tuple(state.damaged),
        state.torn,
        tuple(state.transcript),
        tuple(state.checkpoints),
        state.model,
    )


class _Before(NamedTuple):
    """A view as it was when a checkpoint replaced it."""

    messages: tuple[ModelMessage, ...]
    carried: Carried


class _Loading:
    """What has been read so far."""

    def __init__(self) -> None:
        self.mail_ids: set[str] = set()
        self.last_usage: Mapping[str, int] | None = None
        self.damaged: list[tuple[int, str]] = []
        self.torn = False
        self.transcript: list[ModelMessage] = []
        self.checkpoints: list[StoredCheckpoint] = []
        self.model = ""
        self._before: dict[int, _Before] = {}
        self._carried = NOTHING_CARRIED
        self._messages: list[ModelMessage] = []
        self._epoch = 0
        self._trusted = True

    def take(self, number: int, line: Line) -> None:
        """Add a line."""
        match line:
            case Header():
                self.reject(number, "a second header", torn=False)
            case StoredCheckpoint():
                self._take_checkpoint(number, line)
            case Rewind():
                self._take_rewind(number, line)
            case Entry():
                self._take_entry(line)

    def _take_checkpoint(self, number: int, line: StoredCheckpoint) -> None:
        self._before[line.epoch] = _Before(tuple(self._messages), self._carried)
        self._messages, self._carried = list(line.messages), line.carried
        self._epoch, self._trusted, self.last_usage = line.epoch, True, None
        self.checkpoints.append(line)
        if line.damage:
            self.damaged.append((number, line.damage))

    def _take_rewind(self, number: int, line: Rewind) -> None:
        before = self._before.get(line.before_epoch)
        if before is None:
            self.reject(number, f"a rewind to before epoch {line.before_epoch}, which has no checkpoint", torn=False)
            return
        self._messages, self._carried = list(drop_thinking(before.messages)), before.carried
        self._epoch, self._trusted, self.last_usage = line.to_epoch, True, None

    def _take_entry(self, line: Entry) -> None:
        self.mail_ids.update(line.mail)
        self._messages.append(line.message)
        self.transcript.append(line.message)
        if line.usage is not None:
            self.last_usage = line.usage
        self.model = line.model or self.model
        if line.epoch != self._epoch:  # its checkpoint is lost: thinking in it is bound to a list that is not there
            self._trusted = False
            self._epoch = max(self._epoch, line.epoch)

    def reject(self, number: int, reason: str, *, torn: bool) -> None:
        """Leave a line out; one that was cut at the end of the file was never written."""
        if torn:
            self.torn = True
        else:
            self.damaged.append((number, reason))
            self._trusted = False

    def finish(self) -> View:
        """Return the view; one that cannot be trusted is repaired when it is next prepared."""
        view = View(self._messages, epoch=self._epoch, carried=self._carried)
        if not self._trusted:
            view.distrust()
        return view


def _header(line: bytes) -> Header:
    try:
        header = decode(line)
    except ValueError as error:
        raise NotASession(f"its first line is damaged: {error}") from error
    if not isinstance(header, Header):
        raise NotASession("its first line is not a header")
    if header.version > FORMAT_VERSION:
        raise NotASession(f"its format is version {header.version}; this version reads up to {FORMAT_VERSION}")
    return header


def _read(fields: dict[str, Any]) -> Line:
    match fields.get("type"):
        case "session":
            return Header(
                str(fields["agent"]),
                str(fields["created_at"]),
                int(fields["version"]),
                str(fields.get("forked_from", "")),
                str(fields.get("source", "")),
                int(fields.get("source_bytes", 0)),
            )
        case "message":
            return _read_message(fields)
        case "compaction":
            return _read_checkpoint(fields)
        case "rewind":
            return Rewind(int(fields["before_epoch"]), int(fields["to_epoch"]), str(fields.get("at", "")))
        case other:
            raise ValueError(f"unknown type {other!r}")


def _read_message(fields: dict[str, Any]) -> Entry:
    usage = fields.get("usage")
    return Entry(
        message_from_wire(fields),
        str(fields.get("at", "")),
        int(fields.get("epoch", 0)),
        tuple(str(mail_id) for mail_id in fields.get("mail", ())),
        {str(key): int(count) for key, count in cast("dict[str, Any]", usage).items()} if isinstance(usage, dict) else None,
        fields.get("stop_reason"),
        fields.get("model"),
    )


def _read_checkpoint(fields: dict[str, Any]) -> StoredCheckpoint:
    messages = tuple(message_from_wire(message) for message in fields["messages"])
    carried, damage = _read_carried(fields)
    if not _fits(carried, messages):
        carried, damage = NOTHING_CARRIED, f"what the view of epoch {fields['epoch']} carries was left out: it does not fit its messages"
    return StoredCheckpoint(
        int(fields["epoch"]),
        str(fields.get("trigger", "")),
        tuple(str(layer) for layer in fields.get("layers", ())),
        int(fields.get("tokens_before", 0)),
        int(fields.get("tokens_after", 0)),
        int(fields.get("replaces", 0)),
        messages,
        carried,
        str(fields.get("at", "")),
        {key: fields[key] for key in ("cost", "moved", "summary_usage", "summary_failure") if key in fields},
        damage,
    )


def _read_carried(fields: Mapping[str, Any]) -> tuple[Carried, str]:
    """Return what a view carries, and what was wrong with its record, if it could not be read."""
    kind = str(fields.get("memory_kind", ""))
    state: list[int] | None = fields.get("state_block")
    task_blocks = fields.get("task_blocks")
    record, damage = None, ""
    if fields.get("record") is not None:
        from compaction.record import CompressedHistory  # brings pydantic, 0.1 s, which a session without compactions does not need

        try:
            record = CompressedHistory.model_validate(fields["record"])
        except ValueError as error:
            damage = f"the record of epoch {fields.get('epoch')} was left out: {str(error).splitlines()[0]}"
    carried = Carried(
        task_blocks=None if task_blocks is None else int(task_blocks),
        memory_blocks=int(fields.get("memory_blocks", 0)),
        memory_kind=cast("MemoryKind", kind) if kind in _KINDS else "",
        state_block=None if state is None else (int(state[0]), int(state[1])),
        recorded=int(fields.get("recorded", 0)),
        record=record,
        summary=str(fields.get("summary", "")),
        removed_messages=int(fields.get("removed_messages", 0)),
    )
    return carried, damage


def _fits(carried: Carried, messages: Sequence[ModelMessage]) -> bool:
    """Tell whether every place that a view carries is one in its messages."""
    first = len(messages[0].content) if messages else 0
    task = first if carried.task_blocks is None else carried.task_blocks
    at, place = carried.state_block or (0, 0)
    stands = carried.state_block is None or (0 <= at < len(messages) and 0 <= place < len(messages[at].content))
    return stands and 0 <= task <= first and 0 <= carried.memory_blocks <= first and 0 <= carried.recorded <= len(messages)


_KINDS = frozenset({"summary", "digest", "record"})


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
