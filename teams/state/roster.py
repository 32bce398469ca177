"""Who is in the team: the fold of `member.*` and `turn.*` records.

Laws: a name is unique after case folding; a member is hosted by one process at a time, and every record that its host writes carries the
incarnation number of that hosting; statuses move by the table of `protocols.lifecycle` alone.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from protocols.errors import IllegalTransition
from protocols.lifecycle import LIFECYCLE, MemberEvent, MemberStatus
from protocols.request import Stage
from teams.errors import HostConflict, InvalidName, MemberStateError, UnknownMember

NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
"""Legal names, at most 64 characters: they become file names on every system."""

RESERVED_NAMES = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10)), "all", "runtime", "team"}
)
"""Device names of Windows, and the words by which the runtime itself signs or addresses."""

KEPT_NOTES = 100
"""How many of a member's newest notes are kept."""

KEPT_REJECTIONS = 20
"""How many of a member's newest rejections of a shutdown are kept."""

REJECTION_LIMIT_CHARS = 500
"""How much is kept of the reason of a rejection; the request itself has it whole."""

_TUPLES = frozenset({"approvers", "capabilities"})
_LATER = frozenset({"approval", "steps_as_tasks"})  # left out of a record where they say nothing
LIVE_STATUSES = frozenset(
    {MemberStatus.spawning, MemberStatus.idle, MemberStatus.working, MemberStatus.awaiting_plan_approval, MemberStatus.draining}
)
_STATUSES = {status.value: status for status in MemberStatus}


def check_name(name: str) -> str:
    """Return the name when it is legal; raise InvalidName otherwise."""
    if not NAME_PATTERN.fullmatch(name):
        raise InvalidName(name, reason="it is empty, too long, or has characters that a file name cannot have everywhere")
    if name.casefold() in RESERVED_NAMES:
        raise InvalidName(name, reason="it is reserved")
    return name


@dataclass(slots=True, frozen=True, kw_only=True)
class MemberSpec:
    """What a member is: fixed when it joins, compared when it is spawned again.

    `approvers` are all who may decide what it asks for; `approval` is the order in which they are asked, where there is one.
    """

    name: str
    role: str = "teammate"
    kind: str = "teammate"  # teammate | lead | person | script
    prompt: str = ""
    model: str | None = None
    plan_required: bool = False
    approvers: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    task_limit: int | None = 1
    auto_claim: bool = True
    max_revisions: int = 5
    approval: tuple[Stage, ...] = ()
    steps_as_tasks: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the fields for a record."""
        fields: dict[str, Any] = asdict(self)
        for key in _TUPLES:
            fields[key] = list(fields[key])
        fields["approval"] = [[list(stage.answerers), stage.quorum, stage.seconds] for stage in self.approval]
        return {key: value for key, value in fields.items() if key not in _LATER or value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "MemberSpec":
        """Rebuild from a record; unknown fields of a newer version are left out."""
        known: dict[str, Any] = {key: value for key, value in data.items() if key in cls.__slots__}
        for key in _TUPLES & known.keys():
            known[key] = tuple(known[key])
        if "approval" in known:
            known["approval"] = tuple(Stage(tuple(names), quorum, seconds) for names, quorum, seconds in known["approval"])
        return cls(**known)


@dataclass(slots=True, frozen=True)
class Member:
    """One member as the log tells it."""

    spec: MemberSpec
    status: MemberStatus
    incarnation: int
    host: str | None
    joined_at: str
    changed_at: str
    reason: str = ""
    plan_request: str | None = None  # the open one: undecided, or rejected and to be revised
    approved_plan: str | None = None
    shutdown_request: str | None = None  # the open one
    handed_back: tuple[int, ...] = ()  # the tasks that it owned when its last life ended

    @property
    def name(self) -> str:
        """The member's name."""
        return self.spec.name

    @property
    def live(self) -> bool:
        """Whether it can take mail and work."""
        return self.status in LIVE_STATUSES


@dataclass(slots=True, frozen=True)
class Spending:
    """Tokens and calls that one member has used; units: tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    calls: int = 0
    turns: int = 0

    @property
    def total_tokens(self) -> int:
        """All tokens, in and out."""
        return self.input_tokens + self.output_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens


@dataclass(slots=True)
class Roster:
    """All members by name, and the ledger of what each has spent."""

    members: dict[str, Member] = field(default_factory=dict[str, Member])
    spending: dict[str, Spending] = field(default_factory=dict[str, Spending])
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    compactions: dict[str, str] = field(default_factory=dict[str, str])  # whose context shall be compacted, and who asked
    rejections: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])  # of shutdowns since it last stopped: why
    version: int = 0
    _folded: dict[str, str] = field(default_factory=dict[str, str])

    def get(self, name: str, *, operation: str) -> Member:
        """Return the member, or raise UnknownMember with near names."""
        member = self.members.get(name)
        if member is None:
            raise UnknownMember(name, operation=operation, near=self.near(name), members=list(self.members))
        return member

    def near(self, name: str) -> list[str]:
        """Return up to three members whose names are close to this one."""
        from difflib import get_close_matches  # only for an error: 10 ms at import

        folded = get_close_matches(name.casefold(), list(self._folded), n=3, cutoff=0.6)
        return [self._folded[item] for item in folded]

    def taken(self, name: str) -> str | None:
        """Return the member whose name is the same after case folding."""
        return self._folded.get(name.casefold())

    def live(self) -> Iterable[Member]:
        """Iterate over the members that can take mail."""
        return (member for member in self.members.values() if member.live)

    def check_incarnation(self, name: str, incarnation: int | None) -> Member:
        """Refuse what a host writes for a member that another host has taken over."""
        member = self.get(name, operation="act as")
        if incarnation is not None and incarnation != member.incarnation:
            raise HostConflict(name, host=member.host or "nobody", incarnation=member.incarnation)
        return member

    def apply_joined(self, at: str, fields: Mapping[str, Any]) -> None:
        """Add a member, or take a stopped one back under a new incarnation."""
        spec = MemberSpec.from_json(fields["spec"])
        before = self.members.get(spec.name)
        self.members[spec.name] = Member(
            spec,
            _STATUSES[fields["status"]],
            fields["incarnation"],
            fields.get("host"),
            before.joined_at if before else at,
            at,
            plan_request=before.plan_request if before else None,
            approved_plan=before.approved_plan if before and before.spec == spec else None,  # it was given for that job
            shutdown_request=before.shutdown_request if before else None,
        )
        self._folded[spec.name.casefold()] = spec.name
        self.version += 1

    def apply_status(self, at: str, fields: Mapping[str, Any]) -> None:
        """Move a member to another status."""
        member = self.members[fields["name"]]
        status = _STATUSES[fields["status"]]
        host = member.host if status in LIVE_STATUSES else None
        self.members[member.name] = Member(
            member.spec,
            status,
            member.incarnation,
            host,
            member.joined_at,
            at,
            fields.get("reason", ""),
            member.plan_request,
            member.approved_plan,
            member.shutdown_request,
            tuple(fields.get("handed_back", ())),
        )
        self.version += 1
        usage = fields.get("usage")
        if usage is not None:
            self.add_usage(member.name, usage)

    def add_usage(self, name: str, usage: Collection[int]) -> None:
        """Add one turn's figures: input, output, cache writes, cache reads (tokens), calls."""
        before = self.spending.get(name) or Spending()
        fresh, written, created, read, calls = usage
        self.spending[name] = Spending(
            before.input_tokens + fresh,
            before.output_tokens + written,
            before.cache_creation_input_tokens + created,
            before.cache_read_input_tokens + read,
            before.calls + calls,
            before.turns + 1,
        )

    def set_plan(self, name: str, *, request: str | None, approved: str | None) -> None:
        """Remember the member's open plan request, and open or close its plan gate."""
        self.members[name] = replace(self.members[name], plan_request=request, approved_plan=approved)

    def set_shutdown(self, name: str, request_id: str | None) -> None:
        """Remember the member's open shutdown request."""
        self.members[name] = replace(self.members[name], shutdown_request=request_id)

    def note_shutdown_end(self, name: str, *, rejection: str | None) -> None:
        """Remember why a member rejected to stop; None: it has stopped, and its next life begins without a past."""
        if rejection is None:
            self.rejections.pop(name, None)
        else:
            kept = self.rejections.get(name, ())
            self.rejections[name] = (*kept[-(KEPT_REJECTIONS - 1) :], rejection[:REJECTION_LIMIT_CHARS])

    def apply_note(self, _at: str, fields: Mapping[str, Any]) -> None:
        """Keep what a member pinned; the oldest goes when there are too many."""
        kept = self.notes.get(fields["member"], ())
        self.notes[fields["member"]] = (*kept[-(KEPT_NOTES - 1) :], fields["text"])

    def apply_compaction(self, _at: str, fields: Mapping[str, Any]) -> None:
        """Remember that a member's context shall be compacted, or that it was."""
        if fields.get("by"):
            self.compactions[fields["member"]] = fields["by"]
        else:
            self.compactions.pop(fields["member"], None)

    def copy(self) -> "Roster":
        """Return an independent fold that shares the immutable members."""
        notes, asked, rejections = dict(self.notes), dict(self.compactions), dict(self.rejections)
        return Roster(dict(self.members), dict(self.spending), notes, asked, rejections, self.version, dict(self._folded))

    def to_json(self) -> dict[str, Any]:
        """Return the fold for a snapshot."""
        members = [
            {**{slot: getattr(member, slot) for slot in Member.__slots__ if slot != "spec"}, "spec": member.spec.to_json()}
            for member in self.members.values()
        ]
        spending = {name: asdict(spent) for name, spent in self.spending.items()}
        notes = {name: list(kept) for name, kept in self.notes.items()}
        rejections = {name: list(kept) for name, kept in self.rejections.items()}
        facts = {"notes": notes, "compactions": self.compactions, "rejections": rejections}
        return {"version": self.version, "members": members, "spending": spending, **facts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Roster":
        """Rebuild the fold from a snapshot."""
        roster = cls(version=data["version"])
        for fields in data["members"]:
            spec = MemberSpec.from_json(fields["spec"])
            rest = {key: value for key, value in fields.items() if key not in {"spec", "status", "handed_back"}}
            back = tuple(fields["handed_back"])
            roster.members[spec.name] = Member(spec=spec, status=_STATUSES[fields["status"]], handed_back=back, **rest)
            roster._folded[spec.name.casefold()] = spec.name
        roster.spending = {name: Spending(**spent) for name, spent in data["spending"].items()}
        roster.notes = {name: tuple(kept) for name, kept in data["notes"].items()}
        roster.compactions = dict(data.get("compactions", {}))
        roster.rejections = {name: tuple(kept) for name, kept in data["rejections"].items()}
        return roster


def step_member(member: Member, event: MemberEvent) -> MemberStatus:
    """Return the status after the event; raise MemberStateError when the lifecycle forbids it."""
    try:
        return LIFECYCLE.step(member.status, event)
    except IllegalTransition:
        legal = [item.value for item in LIFECYCLE.legal(member.status)]
        raise MemberStateError(member.name, status=member.status.value, operation=f"apply {event.value} to", legal=legal) from None
