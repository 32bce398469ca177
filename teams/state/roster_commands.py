"""Commands about members: join, change status, end a turn."""

from collections.abc import Sequence
from dataclasses import dataclass

from protocols.lifecycle import LIFECYCLE, MemberEvent, MemberStatus
from protocols.names import RUNTIME
from protocols.task_status import TaskEvent
from teams.errors import SPAWN_AGAIN, HostConflict, InvalidName, MemberExists, MemberStateError, UsageError
from teams.state.asking import approver_ended
from teams.state.decision import AGENT_KINDS, Draft
from teams.state.mailboxes import OutgoingMail
from teams.state.request_commands import close_shutdown, withdraw_asked, withdraw_plan
from teams.state.roster import Member, MemberSpec, check_name, step_member
from teams.state.task_commands import release

NOTE_LIMIT_CHARS = 2_000
_ENDS = frozenset({MemberEvent.exited, MemberEvent.crashed, MemberEvent.lost})


@dataclass(slots=True)
class Join:
    """Put a member on the roster, hosted by `host`; the answer is the member's incarnation.

    The same spec again is the same member: when it is live and hosted here, nothing changes. A stopped member comes back under a new
    incarnation, also with another spec. A prompt that it was not given before is mail from `by`.
    `dead_hosts` are those whose process is known to be gone.
    """

    spec: MemberSpec
    host: str
    by: str = RUNTIME
    dead_hosts: frozenset[str] = frozenset()

    def decide(self, draft: Draft) -> tuple[int, bool]:
        """Refuse an illegal or taken name, an agent by the name of a person or a script, a live member with another spec or host."""
        roster, spec = draft.state.roster, self.spec
        check_name(spec.name)
        taken = roster.taken(spec.name)
        if taken is not None and taken != spec.name:
            raise InvalidName(spec.name, reason=f"{taken!r} has the same letters, and file names do not tell them apart")
        before = roster.members.get(spec.name)
        if before is not None and before.spec.kind not in AGENT_KINDS and spec.kind in AGENT_KINDS:
            raise InvalidName(spec.name, reason=f"it is the name of a {before.spec.kind}, in whose name no agent may speak")
        if before is not None and before.live:
            orphaned = before.host is None or before.host in self.dead_hosts
            if not orphaned and before.host != self.host:
                raise HostConflict(spec.name, host=before.host or "nobody", incarnation=before.incarnation)
            if not orphaned:
                if before.spec != spec:
                    raise MemberExists(spec.name, status=before.status.value, difference=_difference(before.spec, spec))
                return before.incarnation, False
        return self._enter(draft, before), True

    def _enter(self, draft: Draft, before: Member | None) -> int:
        incarnation = before.incarnation + 1 if before is not None else 1
        status = MemberStatus.spawning
        if before is not None:
            crashed = before.status
            if before.live:  # its process is gone, and with it the life that somebody may have asked to end
                crashed = LIFECYCLE.step(before.status, MemberEvent.lost)
                close_shutdown(draft, before)
                if before.spec != self.spec:  # what it asked for was for another job
                    withdraw_plan(draft, before)
                    withdraw_asked(draft, before)
            status = LIFECYCLE.step(crashed, MemberEvent.respawned)
        fields = {"spec": self.spec.to_json(), "status": status, "incarnation": incarnation, "host": self.host}
        draft.add("member.joined", fields)
        if self.spec.prompt and (before is None or before.spec.prompt != self.spec.prompt):
            draft.mail(
                OutgoingMail(type="message", sender=self.by, recipients=(self.spec.name,), content=self.spec.prompt, priority="turn")
            )
        return incarnation


@dataclass(slots=True)
class PinNote:
    """Keep a line for a member beside its context."""

    member: str
    text: str
    incarnation: int | None = None

    def decide(self, draft: Draft) -> None:
        """Refuse a stale incarnation, and a note that is blank or longer than 2,000 characters."""
        draft.state.roster.check_incarnation(self.member, self.incarnation)
        if not self.text.strip() or len(self.text) > NOTE_LIMIT_CHARS:
            raise UsageError(f"cannot pin a note of {len(self.text)} characters; legal: 1 to {NOTE_LIMIT_CHARS}, not blank")
        draft.add("member.noted", {"member": self.member, "text": self.text})


@dataclass(slots=True)
class AskCompaction:
    """Ask for a member's context to be compacted before its next call; asking again changes nothing."""

    member: str
    by: str

    def decide(self, draft: Draft) -> None:
        """Refuse for who is unknown, has no context, or does not run."""
        member = draft.state.roster.get(self.member, operation="compact")
        if member.spec.kind not in AGENT_KINDS:
            raise UsageError(f"cannot compact {self.member!r}: it is a {member.spec.kind}, which has no context")
        if not member.live:
            raise MemberStateError(
                self.member,
                status=member.status.value,
                operation="compact",
                legal=[SPAWN_AGAIN],
            )
        if self.member not in draft.state.roster.compactions:
            draft.add("member.compaction", {"member": self.member, "by": self.by})


@dataclass(slots=True)
class Compacted:
    """Say that what was asked for is done, or that nothing could be gained."""

    member: str
    incarnation: int

    def decide(self, draft: Draft) -> None:
        """Refuse a stale incarnation."""
        draft.state.roster.check_incarnation(self.member, self.incarnation)
        if self.member in draft.state.roster.compactions:
            draft.add("member.compaction", {"member": self.member})


@dataclass(slots=True)
class ChangeStatus:
    """Move a member along its lifecycle. One that ends hands its tasks back, and its shutdown and plan requests end with it.

    The answer is the ids of the tasks that it handed back.
    """

    name: str
    event: MemberEvent
    incarnation: int | None
    reason: str = ""

    def decide(self, draft: Draft) -> tuple[int, ...]:
        """Refuse a stale incarnation and what the lifecycle forbids."""
        member = draft.state.roster.check_incarnation(self.name, self.incarnation)
        fields: dict[str, object] = {"name": self.name, "status": step_member(member, self.event), "incarnation": member.incarnation}
        if self.reason:
            fields["reason"] = self.reason
        if self.event in _ENDS and (held := draft.state.tasks.owned.get(self.name)):
            fields["handed_back"] = list(held)
        draft.add("member.status", fields)
        if self.event not in _ENDS:
            return ()
        withdraw_plan(draft, member)
        withdraw_asked(draft, member)
        close_shutdown(draft, member)
        approver_ended(draft, self.name)
        # A task may be what its owner died of: then the attempt counts, and too many are enough.
        event = TaskEvent.release if self.event is MemberEvent.exited else TaskEvent.lease_expired
        return hand_back(draft, self.name, self.reason or self.event.value, event)


@dataclass(slots=True)
class StartTurn:
    """Say that a member works; one that was told to work by a plan decision does already."""

    name: str
    incarnation: int

    def decide(self, draft: Draft) -> None:
        """Refuse a stale incarnation and a member that may not work."""
        member = draft.state.roster.check_incarnation(self.name, self.incarnation)
        if member.status is not MemberStatus.working:
            _move(draft, member, MemberEvent.work_started)


@dataclass(slots=True)
class EndTurn:
    """Commit the mail of a turn, book what it used, and let the member rest: idle, or waiting for the decision on its plan.

    `rests` is False for a turn that did not come to its end: the member ends with it, and only the figures are booked.
    """

    name: str
    incarnation: int
    usage: tuple[int, int, int, int, int]  # input, output, cache writes, cache reads (tokens), calls
    mail: Sequence[str] = ()
    rests: bool = True

    def decide(self, draft: Draft) -> None:
        """Refuse a stale incarnation and what the lifecycle forbids."""
        member = draft.state.roster.check_incarnation(self.name, self.incarnation)
        box = draft.state.mail.box(self.name)
        ids = [message_id for message_id in self.mail if message_id in box]
        if ids:
            draft.add("mail.committed", {"member": self.name, "ids": ids})
        status = member.status
        if status is MemberStatus.working and self.rests:
            waits = member.plan_request is not None and draft.state.requests.get(member.plan_request).is_undecided
            status = step_member(member, MemberEvent.plan_submitted if waits else MemberEvent.went_idle)
        draft.add("member.status", {"name": self.name, "status": status, "incarnation": member.incarnation, "usage": list(self.usage)})


def _move(draft: Draft, member: Member, event: MemberEvent) -> None:
    draft.add("member.status", {"name": member.name, "status": step_member(member, event), "incarnation": member.incarnation})


def hand_back(draft: Draft, name: str, reason: str, event: TaskEvent) -> tuple[int, ...]:
    """Release every task that the member owns."""
    tasks = draft.state.tasks
    held = tuple(tasks.owned.get(name, ()))
    for task_id in held:
        release(draft, tasks.by_id[task_id], f"{name!r} ended: {reason}", event)
    return held


def _difference(before: MemberSpec, after: MemberSpec) -> str:
    return " and ".join(key for key in MemberSpec.__slots__ if getattr(before, key) != getattr(after, key))
