"""Commands about permissions of single calls, questions, and rules.

Laws: a permission is bound to one call of one member with one input; it is used once, and durably so before the call begins; no agent
makes a rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocols.contract import Rule, rule_for
from protocols.names import RequestId
from protocols.permission import PermissionEvent
from protocols.request import Request, RequestKind
from teams.errors import UsageError
from teams.state.asking import Wish, ask_approvers, open_asking, reach_of, step_request
from teams.state.decision import AGENT_KINDS, Draft
from teams.state.request_commands import AnswerRequest


@dataclass(slots=True)
class AskPermission:
    """Ask whether a call may run; the answer is the request.

    `body` holds `tool`, `input`, `what` and `why` in words, `paths` and `command` as the call names them, and `digest` of the whole input.
    """

    name: str
    incarnation: int
    call_id: str
    body: Mapping[str, Any]
    deadline_seconds: float
    default_approved: bool | None = None

    def decide(self, draft: Draft) -> Request:
        """Refuse for a member that nobody is named to decide for."""
        member = draft.state.roster.check_incarnation(self.name, self.incarnation)
        wish = Wish(RequestKind.permission, self.call_id, self.body, self.deadline_seconds, self.default_approved)
        return ask_approvers(draft, member, wish)


@dataclass(slots=True)
class UsePermission:
    """Say that the call which a permission allows begins now; once it has, nobody can begin it again."""

    request_id: str
    name: str
    incarnation: int
    digest: str

    def decide(self, draft: Draft) -> Request:
        """Refuse another member, another input than the one that was approved, and what the table forbids, above all a second use."""
        draft.state.roster.check_incarnation(self.name, self.incarnation)
        request = draft.state.requests.get(self.request_id)
        if request.kind is not RequestKind.permission or request.asker != self.name:
            raise UsageError(f"cannot use {self.request_id}: it is no permission of {self.name!r}")
        if request.body.get("digest") != self.digest:
            raise UsageError(f"cannot use permission {request.id}: it was given for another input")
        return step_request(draft, request, PermissionEvent.use, by=self.name)


@dataclass(slots=True)
class AnswerPermission:
    """Decide a permission, and with it others like it; the answer is every request that was decided, the named one first.

    alike: also every open one for the same call with the same input, whoever asks.
    always: adds the rule that allows this member this very call, and decides what else it covers; only with a yes.
    """

    request_id: str
    by: str
    approved: bool
    feedback: str = ""
    alike: bool = False
    always: bool = False
    incarnation: int | None = None

    def decide(self, draft: Draft) -> tuple[Request, ...]:
        """Refuse what `AnswerRequest` refuses, a request that is no permission, and a rule for a no."""
        state = draft.state
        request = state.requests.get(self.request_id)
        if request.kind is not RequestKind.permission:
            raise UsageError(f"cannot decide {request.id} together with others: it is a {request.kind.value}, and no permission")
        if self.always and not self.approved:
            raise UsageError("a rejection cannot be made a rule here; add a rule that denies instead")
        reach = reach_of(request)
        try:
            rule = rule_for(reach, request.asker) if self.always else None
        except ValueError as error:
            raise UsageError(f"cannot always allow what {request.id} asks for: {error}") from None
        decided = [self._answer(draft, request)]
        decision = decided[0].decision
        if rule is not None and decision is not None and decision.approved:
            AddRule(rule, self.by).decide(draft)
        for other in state.requests.open(kind=RequestKind.permission, answerer=self.by):
            if other.id == request.id:
                continue
            covered = rule is not None and rule.member == other.asker and rule.fits(reach_of(other))
            if covered or (self.alike and other.body.get("digest") == request.body.get("digest")):
                decided.append(self._answer(draft, other))
        return tuple(decided)

    def _answer(self, draft: Draft, request: Request) -> Request:
        return AnswerRequest(request.id, self.by, self.approved, self.feedback, incarnation=self.incarnation).decide(draft)


@dataclass(slots=True)
class AddRule:
    """Add a rule that counts from now on; the answer is its id."""

    rule: Rule
    by: str

    def decide(self, draft: Draft) -> str:
        """Refuse an agent: rules are for people and scripts to make."""
        _check_ruler(draft, self.by)
        rule_id = f"u{draft.state.rules.count + 1}"
        draft.add("rule.added", {"id": rule_id, "rule": self.rule.to_json(), "by": self.by})
        return rule_id


@dataclass(slots=True)
class RemoveRule:
    """Remove a rule that was added; the answer is the rule."""

    rule_id: str
    by: str

    def decide(self, draft: Draft) -> Rule:
        """Refuse an agent, and a rule that there is not."""
        _check_ruler(draft, self.by)
        rule = draft.state.rules.by_id.get(self.rule_id)
        if rule is None:
            raise UsageError(f"there is no rule {self.rule_id!r}; there are: {', '.join(draft.state.rules.by_id) or 'none'}")
        draft.add("rule.removed", {"id": self.rule_id, "by": self.by})
        return rule


def _check_ruler(draft: Draft, name: str) -> None:
    member = draft.state.roster.get(name, operation="change the rules as")
    if member.spec.kind in AGENT_KINDS:
        raise UsageError(f"cannot change the rules as {name!r}: it is an agent, and rules are made by people and scripts")


@dataclass(slots=True)
class AskQuestion:
    """Put a question to somebody and have it answered by a request; the answer is the request.

    `call_id` is the call that waits for it.
    """

    name: str
    incarnation: int
    call_id: str
    to: str
    question: str
    deadline_seconds: float

    def decide(self, draft: Draft) -> Request:
        """Refuse an unknown or stopped member, and a question to oneself."""
        draft.state.roster.check_incarnation(self.name, self.incarnation)
        asked = draft.state.roster.get(self.to, operation="ask")
        if self.to == self.name:
            raise UsageError("cannot ask yourself; ask another member")
        if not asked.live and asked.spec.kind != "person":
            raise UsageError(f"cannot ask {self.to!r}: it is {asked.status.value}, and nobody would answer")
        opened = Request(
            id=RequestId(draft.next_request_id()),
            kind=RequestKind.question,
            asker=self.name,
            answerers=(self.to,),
            subject=self.call_id,
            body={"question": self.question},
            opened_at=draft.now,
            deadline=draft.now + self.deadline_seconds,
        )
        return open_asking(draft, opened)
