"""Law 3, of plans, permissions and questions: each is decided once, by who is asked then, is used at most once, and can always end.

Random walks drive the commands of the runtime beside a model that is written from the prose and shares no code with it. At random moments
the state goes through a snapshot; a second replica reads the log, and must agree.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, note

from protocols.errors import ProtocolError
from protocols.lifecycle import MemberEvent
from protocols.request import Request, Stage
from teams.errors import TeamError
from teams.state.decision import Command
from teams.state.permission_commands import AnswerPermission, AskPermission, AskQuestion, UsePermission
from teams.state.plan_commands import SubmitPlan
from teams.state.request_commands import AdvanceRequest, AnswerRequest, ExpireRequests, PassOn
from teams.state.team_state import TeamState
from tests.state.driving import Choices, Desk, shown, walk_settings, walks

KINDS = {"boss": "lead", "kim": "script", "lee": "script", "max": "teammate", "user": "person", "ann": "teammate", "ben": "teammate"}
CHAINS: dict[str, tuple[Stage, ...]] = {
    "ann": (Stage(("boss",), 1, 10.0), Stage(("kim", "lee", "max"), 2, 20.0), Stage(("user",), 1, 30.0)),
    "ben": (Stage(("kim", "boss", "user"), 2, 15.0),),
}
DEFAULTS = {"ann": None, "ben": True}
SECONDS, REVISIONS = 40.0, 3
MOSTLY, OFTEN = [True, True, True, False], [True, True, False]
OVER = {"used", "withdrawn", "expired", "answered"}


@dataclass
class Asked:
    """What the prose says of one request."""

    kind: str
    asker: str
    stages: tuple[Stage, ...]
    default: bool | None
    deadline: float
    stage: int = 0
    votes: dict[str, tuple[bool, str]] = field(default_factory=dict[str, tuple[bool, str]])
    state: str = "open"
    revision: int = 1
    decided: int = 0
    uses: int = 0

    @property
    def here(self) -> Stage:
        return self.stages[self.stage]

    @property
    def is_over(self) -> bool:
        plain = {"plan": {"approved"}, "permission": {"rejected"}, "question": {"rejected"}}[self.kind]
        return self.state in OVER or self.state in plain


class Walk:
    """The runtime, the model, and a second replica."""

    def __init__(self, data: bytes) -> None:
        self.choices, self.desk, self.replica = Choices(data), Desk(watched=False), TeamState()
        self.live: dict[str, bool] = {}
        self.asked: dict[str, Asked] = {}
        self.plans: dict[str, str] = {}  # the newest of each member
        self.in_force: dict[str, str | None] = {"ann": None, "ben": None}
        self.digests: dict[str, str] = {}
        for name in KINDS:
            self.come(name)

    def run(self) -> None:
        steps: list[Callable[[], None]] = [
            *(self.ask, self.ask, self.plan, self.plan, self.question, self.answer, self.answer, self.answer, self.answer, self.answer),
            *(self.pass_on, self.use, self.use, self.withdraw, self.pass_time, self.end_or_return, self.reload),
        ]
        while self.choices.left:
            step = self.choices.pick(steps)
            note(f"{step.__name__} ({self.desk.state.seq} records)")
            step()
            self.check()
        self.finish()

    def come(self, name: str) -> None:
        chain = CHAINS.get(name, ())
        everybody = tuple(dict.fromkeys(answerer for stage in chain for answerer in stage.answerers))
        self.desk.join(name, kind=KINDS[name], approvers=everybody, approval=chain, plan_required=bool(chain), max_revisions=REVISIONS)
        self.live[name] = True

    def there(self, stage: Stage) -> bool:
        return sum(self.live[name] or KINDS[name] == "person" for name in stage.answerers) >= stage.quorum

    def tried(self, command: Command[Any], *, legal: bool) -> Any:
        """Carry out a command, or hold that it is refused and writes nothing."""
        seq = self.desk.state.seq
        if legal:
            return self.desk.do(command)
        with pytest.raises((ProtocolError, TeamError)):
            self.desk.do(command)
        assert self.desk.state.seq == seq
        return None

    def opened(self, request: Request, kind: str, asker: str, stages: tuple[Stage, ...]) -> None:
        """Note what was asked: of the first stage that is there, or of the last one."""
        assert request.id not in self.asked
        at = next((at for at, stage in enumerate(stages) if self.there(stage)), len(stages) - 1)
        default = None if kind == "question" else DEFAULTS[asker]
        self.asked[request.id] = Asked(kind, asker, stages, default, self.desk.now + (stages[at].seconds or SECONDS), at)

    def hand_over(self, asked: Asked) -> None:
        while True:
            asked.stage += 1
            if asked.stage == len(asked.stages) - 1 or self.there(asked.here):
                break
        asked.deadline = self.desk.now + (asked.here.seconds or SECONDS)
        asked.votes = {}

    def settle(self, asked: Asked, state: str) -> None:
        """Note the one decision on this revision."""
        assert asked.state == "open"
        asked.state, asked.votes = state, {}
        asked.decided += 1

    # -- asking ------------------------------------------------------------------

    def ask(self) -> None:
        name = self.choices.pick(["ann", "ben"])
        if not self.live[name]:
            return
        digest = f"d{self.choices.pick(range(3))}"
        body = {"tool": "run", "command": "make", "digest": digest}
        request = self.desk.do(AskPermission(name, self.desk.incarnation(name), "toolu_x", body, SECONDS, DEFAULTS[name]))
        self.opened(request, "permission", name, CHAINS[name])
        self.digests[request.id] = digest

    def plan(self) -> None:
        name = self.choices.pick(["ann", "ben"])
        asked = self.asked.get(self.plans.get(name, ""))
        waits = asked is not None and asked.state == "open"
        spent = asked is not None and asked.state == "rejected" and asked.revision == REVISIONS
        if not self.live[name]:
            return
        command = SubmitPlan(name, self.desk.incarnation(name), {"summary": "s", "steps": ["a"]}, SECONDS, DEFAULTS[name])
        request = self.tried(command, legal=not waits and not spent)
        if request is None:
            return
        self.in_force[name] = None
        if asked is not None and asked.state == "rejected":
            asked.state, asked.revision, asked.stage = "open", asked.revision + 1, 0
            asked.deadline = self.desk.now + (asked.here.seconds or SECONDS)
            if not self.there(asked.here) and len(asked.stages) > 1:
                self.hand_over(asked)
        else:
            self.opened(request, "plan", name, CHAINS[name])
            self.plans[name] = request.id

    def question(self) -> None:
        name, to = self.choices.pick(["ann", "ben"]), self.choices.pick(list(KINDS))
        if not self.live[name]:
            return
        legal = to != name and (self.live[to] or KINDS[to] == "person")
        request = self.tried(AskQuestion(name, self.desk.incarnation(name), "toolu_x", to, "why?", SECONDS), legal=legal)
        if request is not None:
            self.opened(request, "question", name, (Stage((to,)),))

    # -- deciding ----------------------------------------------------------------

    def some(self) -> str | None:
        """Choose a request, mostly one that waits."""
        ids = list(self.asked)[-8:]
        waiting = [request_id for request_id in ids if self.asked[request_id].state == "open"]
        only_waiting = bool(waiting) and self.choices.pick(MOSTLY)
        chosen = waiting if only_waiting else ids
        return self.choices.pick(chosen) if chosen else None

    def answer(self) -> None:
        request_id = self.some()
        if request_id is None:
            return
        asked = self.asked[request_id]
        by = self.choices.pick([*asked.here.answerers, *asked.here.answerers, *KINDS])
        approved, said = self.choices.pick(OFTEN), self.choices.pick(["", "why"])
        revision = self.choices.pick([None, asked.revision, max(1, asked.revision - 1)])
        voted = asked.votes.get(by)
        may = by in asked.here.answerers and (self.live[by] or KINDS[by] not in ("lead", "teammate"))
        if may and (asked.state != "open" or revision not in (None, asked.revision)):
            self.answer_late(AnswerRequest(request_id, by, approved, said, revision))
            return
        legal = may and (voted is None or voted == (approved, said))
        is_permission = asked.kind == "permission" and self.choices.pick([True, False])
        command = (
            AnswerPermission(request_id, by, approved, said) if is_permission else AnswerRequest(request_id, by, approved, said, revision)
        )
        self.tried(command, legal=legal)
        if not legal:
            return
        asked.votes[by] = approved, said
        yes = sum(one for one, _ in asked.votes.values())
        if yes >= asked.here.quorum:
            self.settle(asked, "answered" if asked.kind == "question" else "approved")
            self.in_force |= {asked.asker: request_id} if asked.kind == "plan" else {}
        elif len(asked.votes) - yes > len(asked.here.answerers) - asked.here.quorum:
            self.settle(asked, "rejected")
            asked.deadline = self.desk.state.requests.get(request_id).deadline or 0.0

    def answer_late(self, command: AnswerRequest) -> None:
        """What is decided stays as it is, whether the answer is the old one again or another one."""
        before, seq = self.desk.state.requests.get(command.request_id), self.desk.state.seq
        with suppress(ProtocolError):
            assert self.desk.do(command) == before
        assert self.desk.state.seq == seq

    def pass_on(self) -> None:
        request_id = self.some()
        if request_id is None:
            return
        asked = self.asked[request_id]
        by = self.choices.pick([*asked.here.answerers, *KINDS])
        self.tried(PassOn(request_id, by), legal=by in asked.here.answerers)
        alone = by in asked.here.answerers and len(asked.here.answerers) - 1 < asked.here.quorum
        if alone and asked.state == "open" and asked.stage + 1 < len(asked.stages):
            self.hand_over(asked)

    def use(self) -> None:
        approved = [request_id for request_id, asked in self.asked.items() if asked.kind == "permission" and asked.state == "approved"]
        is_ready = bool(approved) and self.choices.pick(OFTEN)
        request_id = self.choices.pick(approved) if is_ready else self.some()
        if request_id is None:
            return
        asked, name = self.asked[request_id], self.choices.pick(["ann", "ben"])
        digest = self.choices.pick([self.digests.get(request_id, "d0"), "d1"])
        if not self.live[name]:
            return
        legal = request_id in approved and name == asked.asker and digest == self.digests[request_id]
        self.tried(UsePermission(request_id, name, self.desk.incarnation(name), digest), legal=legal)
        if legal:
            asked.state, asked.uses = "used", asked.uses + 1

    def withdraw(self) -> None:
        request_id = self.some()
        if request_id is None:
            return
        asked = self.asked[request_id]
        self.tried(AdvanceRequest(request_id, "withdraw", asked.asker), legal=not asked.is_over)
        self.take_back(asked)

    def take_back(self, asked: Asked) -> None:
        if not asked.is_over:
            asked.decided += asked.state == "open"
            asked.state, asked.votes = "withdrawn", {}

    # -- time and people -----------------------------------------------------------

    def pass_time(self) -> None:
        self.desk.now += self.choices.pick([1.0, 11.0, 25.0, 61.0])
        self.desk.do(ExpireRequests())
        for request_id, asked in self.asked.items():
            if asked.deadline > self.desk.now or asked.is_over:
                continue
            if asked.state == "open" and asked.stage + 1 < len(asked.stages):
                self.hand_over(asked)
            elif asked.state == "open":
                allowed = bool(asked.default) and asked.kind != "question"
                self.settle(asked, "approved" if allowed and asked.kind == "permission" else "expired")
                self.in_force |= {asked.asker: request_id} if allowed and asked.kind == "plan" else {}
            elif asked.state == "rejected":
                asked.state = "withdrawn"

    def end_or_return(self) -> None:
        name = self.choices.pick([name for name in KINDS if name != "user"])
        if not self.live[name]:
            self.come(name)
            return
        self.desk.leave(name, self.choices.pick([MemberEvent.exited, MemberEvent.crashed, MemberEvent.lost]))
        for asked in self.asked.values():
            if asked.asker == name:
                self.take_back(asked)
        self.live[name] = False
        for asked in self.asked.values():
            if asked.state != "open" or name not in asked.here.answerers or self.there(asked.here):
                continue
            if asked.stage + 1 < len(asked.stages):
                self.hand_over(asked)
            elif asked.kind == "question":
                self.settle(asked, "expired")

    def reload(self) -> None:
        """Go on from a snapshot, or let the replica do so."""
        if self.choices.pick([True, False]):
            self.desk.state = self.desk.reloaded()
        else:
            self.replica = TeamState.from_json(json.loads(json.dumps(self.replica.to_json())))

    # -- what always holds -----------------------------------------------------------

    def check(self) -> None:
        state = self.desk.state
        for request_id, asked in self.asked.items():
            request = state.requests.get(request_id)
            expected = {"open": {"plan": "submitted"}.get(asked.kind, "asked")}.get(asked.state, asked.state)
            assert (str(request.state), request.revision, request.stage) == (expected, asked.revision, asked.stage), request_id
            assert request.answerers == asked.here.answerers
            assert {vote.by: (vote.approved, vote.feedback) for vote in request.votes if vote.stage == request.stage} == asked.votes
            assert request.is_closed is asked.is_over
            assert len(request.earlier) + (request.decision is not None) == asked.decided
            assert asked.uses <= 1
            if asked.state == "open":
                assert (request.deadline, request.is_undecided) == (asked.deadline, True)
                assert request.deadline_event is not None
        for name, plan in self.in_force.items():
            assert state.roster.members[name].approved_plan == plan
        if self.choices.pick([True, False, False, False]):
            assert shown(self.desk.replayed(after=self.replica)) == shown(state)

    def finish(self) -> None:
        """Let time alone end what waits: nobody need say anything more."""
        for _ in range(8):
            self.desk.now += 100.0
            self.desk.do(ExpireRequests())
        assert not any(request.is_undecided for request in self.desk.state.requests.open())
        assert shown(self.desk.replayed(after=self.replica)) == shown(self.desk.state)
        self.desk.check_folds()


@pytest.mark.slow
@walk_settings(max_examples=50)
@given(walks)
def test_request_is_decided_once_and_used_once_by_whom_the_prose_says(data: bytes) -> None:
    """Whatever the order of votes, hand-overs, deadlines, uses and ends: the runtime, the model and the replica agree after every step."""
    Walk(data).run()
