"""What a member may run: the gate before every call of a tool, and the permissions that open it.

Laws:
- Nothing that writes runs before the member's plan is approved, whatever a rule says.
- A permission lets one call with one input pass, once; it is used durably before the call begins, so a crash never runs it twice.
- Whoever waits for a permission is cancelled like any other call: the request is then withdrawn, so that nobody decides in vain.
- A decision that came while the process was down is taken up by the call that a transcript shows to be open.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from protocols.contract import Reach, Rule, RuleAction, judge, outside
from protocols.envelope import escape_text
from protocols.errors import ProtocolError
from protocols.permission import PermissionState
from protocols.question import QuestionState
from protocols.request import Request, RequestKind
from teams.approvals import ASKED_TO_STOP, wait_decision, withdraw
from teams.errors import TeamError
from teams.services import Services
from teams.state.asking import reach_of
from teams.state.permission_commands import AskPermission, UsePermission
from teams.state.roster import MemberSpec
from teams.tools.base import Tool, ToolCall
from teams.tools.coordination import COORDINATION
from teams.tools.dispatcher import Verdict

SHOWN_INPUT_CHARS = 2_000
"""How much of one argument stands in a request; the whole input of a longer one is an artifact."""


class CallGate:
    """The gate of one hosted member."""

    def __init__(self, services: Services, spec: MemberSpec, incarnation: int) -> None:
        self._services, self._spec, self._incarnation = services, spec, incarnation
        self._asked: dict[str, str] = {}  # by the id of the call: the request, also of an earlier life
        self._granted: dict[str, tuple[str, Reach]] = {}  # calls whose permission is used, and which have not begun yet: what was allowed
        self._refused: dict[str, str] = {}

    def __call__(self, tool: Tool, call: ToolCall) -> Verdict:
        """Let a call pass (None), refuse it (a text), or say for what must be waited first."""
        rules = self._rules()
        if tool.name in COORDINATION or not (rules or tool.touches.asks or (self._spec.plan_required and tool.effect != "reads")):
            return None
        reach = tool.reach(call.input)
        rule = judge(rules, reach, self._spec.name)
        if rule is not None and rule.action is RuleAction.deny:
            self._granted.pop(call.id, None)
            return f"cannot run {call.name}: the rule `{rule}` forbids it"
        granted = self._granted.pop(call.id, None)
        if granted == (digest_of(call), reach):  # what it names may lead elsewhere by now, and another call may have its id
            return None
        if call.id in self._refused:
            return self._refused.pop(call.id)
        return self._judge(tool, call, reach, rule)

    def _judge(self, tool: Tool, call: ToolCall, reach: Reach, rule: Rule | None) -> Verdict:
        plan_options = self._services.options.plans
        bound = self._spec.plan_required and tool.effect != "reads"
        body = self._plan_in_force() if bound else None
        if bound and body is None:
            return self._no_plan(call)
        if rule is not None:
            return None if rule.action is RuleAction.allow else self._ask(call, reach, f"the rule `{rule}`")
        if tool.touches.asks:
            return self._ask(call, reach, f"every call of {tool.name} needs a permission")
        if body is None or plan_options.outside == "allow":
            return None
        differences = outside(reach, body)
        if not differences:
            return None
        why = f"outside of the approved plan: {'; '.join(differences)}"
        if plan_options.outside == "refuse":
            return f"cannot run {call.name}: it is {why}. Stay inside the plan, or submit another one."
        return self._ask(call, reach, why)

    def _rules(self) -> Sequence[Rule]:
        added = self._services.engine.state.rules
        return (
            (*added.newest_first(), *self._services.options.permissions.rules) if added.by_id else self._services.options.permissions.rules
        )

    def _plan_in_force(self) -> Any:
        state = self._services.engine.state
        approved = state.roster.members[self._spec.name].approved_plan
        plan = None if approved is None else state.plans.get(approved, self._spec.name)
        return None if plan is None else plan.body

    def _no_plan(self, call: ToolCall) -> str:
        member = self._services.engine.state.roster.members[self._spec.name]
        state = "waits for its decision" if member.plan_request is not None else "was not submitted, or not approved"
        return (
            f"cannot run {call.name}: it writes, and your plan {state}. You may read. "
            "Call submit_plan, end your turn, and write after the approval has come."
        )

    # -- permissions -------------------------------------------------------------------

    def _ask(self, call: ToolCall, reach: Reach, why: str) -> Verdict:
        return partial(self._wait_permission, call, reach, why)

    async def _wait_permission(self, call: ToolCall, reach: Reach, why: str) -> None:
        """Ask, wait for the decision, and use a permission; the gate is then asked again.

        Checkpoints: always; when Cancelled, the request is withdrawn.
        """
        engine, spec = self._services.engine, self._spec
        request_id = self._asked.pop(call.id, None)
        try:
            with self._services.waits.waiting(spec.name, *spec.approvers, kind="permission"):
                if request_id is None:
                    await self._services.sessions.sync(spec.name)  # the next life must find the call that it was asked for
                    request_id = await self._open(call, reach, why)
                request = await wait_decision(engine, request_id, spec.name)
            decision = request.decision
            if decision is None:
                self._refused[call.id] = f"cannot run {call.name}: it waited for a permission, and {ASKED_TO_STOP}"
                return
            if request.state == PermissionState.approved:
                await engine.submit(UsePermission(request_id, spec.name, self._incarnation, digest_of(call)))
                self._granted[call.id] = digest_of(call), reach_of(request)
            else:
                said = escape_text(f": {decision.feedback}") if decision.feedback else ""
                self._refused[call.id] = f"cannot run {call.name}: permission {request_id} is {request.state}, by {decision.by}{said}"
            request_id = None
        except (TeamError, ProtocolError) as error:  # nobody to ask, a cycle of waits, or withdrawn by others in the meantime
            self._refused[call.id] = f"cannot run {call.name}: it needs a permission ({why}), and {error}"
        finally:
            if request_id is not None:
                withdraw(engine, request_id)

    async def _open(self, call: ToolCall, reach: Reach, why: str) -> str:
        services, options = self._services, self._services.options.permissions
        shown = {name: _shown(value) for name, value in call.input.items()}
        body: dict[str, Any] = {"tool": call.name, "input": shown, "what": reach.describe(), "why": why, "digest": digest_of(call)}
        if reach.paths:
            body["paths"] = [None if parts is None else list(parts) for parts in reach.paths]
        if reach.command is not None:
            body["command"] = reach.command
        if any(len(str(value)) > SHOWN_INPUT_CHARS for value in call.input.values()):
            body["artifact"] = await services.artifacts.save(self._spec.name, _canonical(call))
        command = AskPermission(self._spec.name, self._incarnation, call.id, body, options.deadline_seconds, options.default_approved)
        return (await services.engine.submit(command)).id

    # -- an earlier life ---------------------------------------------------------------

    def take_up(self, calls: Sequence[ToolCall]) -> frozenset[str]:
        """Find, for the calls that a transcript shows to be open, what they had asked; return the ids of the calls that can go on.

        What was asked for other calls is withdrawn: nobody waits for it any more.
        """
        state, name = self._services.engine.state, self._spec.name
        by_id = {call.id: call for call in calls}
        for request in (*state.requests.open(asker=name), *(state.requests.closed() if calls else ())):
            call = by_id.get(request.subject)
            if call is not None and request.asker == name and _asked_by(request, call, self._services.options.person):
                self._asked.setdefault(call.id, request.id)
            elif not request.is_closed and request.kind in _OF_CALLS:
                withdraw(self._services.engine, request.id)
        return frozenset(self._asked)

    def asked_before(self, call_id: str) -> str | None:
        """Return, once, the request that this call of an earlier life had made."""
        return self._asked.pop(call_id, None)


_OF_CALLS = frozenset({RequestKind.permission, RequestKind.question})
_OVER = frozenset({PermissionState.used, PermissionState.withdrawn, QuestionState.withdrawn})


def _asked_by(request: Request, call: ToolCall, person: str) -> bool:
    """Tell whether a request is what an open call waits for, or has its answer."""
    if request.state in _OVER:
        return False
    if request.kind is RequestKind.permission:
        return bool(request.body.get("digest") == digest_of(call))
    asked = call.input.get("name") if call.name == "ask_teammate" else person
    same = request.body.get("question") == call.input.get("question") and request.answerers == (asked,)
    return request.kind is RequestKind.question and same


def digest_of(call: ToolCall) -> str:
    """Return what binds a permission to the input of its call: SHA-256 over tool and input, as hexadecimal digits."""
    return hashlib.sha256(_canonical(call).encode("utf-8", "surrogatepass")).hexdigest()


def _canonical(call: ToolCall) -> str:
    return json.dumps({"tool": call.name, "input": dict(call.input)}, sort_keys=True, ensure_ascii=False, default=str)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_INPUT_CHARS else f"{text[:SHOWN_INPUT_CHARS]}... [{len(text)} characters]"
