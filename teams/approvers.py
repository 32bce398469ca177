"""Approvers that are code: a callable that decides what its name is asked, a rule list, a person at the terminal.

Laws: an approver decides by the methods of the request that it is given; what it leaves undecided goes to the next of the chain; one that
raises is told to the watchers, and has not decided.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from protocols.contract import Rule, RuleAction, judge, judge_plan
from protocols.errors import ProtocolError
from protocols.plan_text import shown_exactly, shown_prose
from protocols.request import Request, RequestKind
from teams.approvals import AnyRequest, PlanRequest, QuestionRequest, request_for
from teams.engine import Engine
from teams.events import EventHub, RuntimeNotice
from teams.state.request_commands import PassOn

Approver = Callable[[AnyRequest], Awaitable[None] | None]


async def serve_approver(name: str, approver: Approver, engine: Engine, events: EventHub) -> None:
    """Put every request that waits for `name` to an approver, each revision once, until cancelled."""
    seen: set[tuple[str, int]] = set()

    def next_request() -> Request | None:
        waiting = engine.state.requests.open(answerer=name)
        return next((one for one in waiting if (one.id, one.revision) not in seen and one.kind is not RequestKind.shutdown), None)

    while True:
        found: Request = await engine.wait_until(("member", name), next_request)
        seen.add((found.id, found.revision))
        request = request_for(engine, found, name)
        try:
            made = approver(request)
            if inspect.isawaitable(made):
                await made
        except Exception as error:  # noqa: BLE001  # the boundary of a callback of the user's: it has not decided
            events.emit(RuntimeNotice("error", f"approver {name} failed on {request.id}: {type(error).__name__}: {error}", name))
        stored = engine.state.requests
        now = stored.get(request.id) if request.id in stored else None
        if now is not None and now.is_undecided and now.revision == found.revision and name in now.answerers:
            try:
                await engine.submit(PassOn(request.id, name))
            except ProtocolError as error:  # it was handed over in the same moment
                events.emit(RuntimeNotice("info", f"approver {name} had nothing to pass on: {error}", name))


def rule_list(*rules: Rule) -> Approver:
    """Return an approver that decides by rules what they speak about, and leaves the rest to the next of the chain."""

    async def decide(request: AnyRequest) -> None:
        if isinstance(request, QuestionRequest):
            return
        if isinstance(request, PlanRequest):
            action = judge_plan(rules, request.plan.model_dump(mode="json"), request.author)
            feedback = "the rules forbid a part of it"
        else:
            rule = judge(rules, request.reach, request.author)
            action = None if rule is None else rule.action
            feedback = f"the rule `{rule}` forbids it"
        if action is RuleAction.allow:
            await request.approve("by the rules")
        elif action is RuleAction.deny:
            await request.reject(feedback)

    return decide


async def at_terminal(request: AnyRequest) -> None:
    """Ask the person at the terminal of this process: an empty line or `y` approves, `p` passes on, other words reject with them."""
    if isinstance(request, QuestionRequest):
        said = await _ask(f"{request.author} asks: {shown_prose(request.question)}\nYour answer (empty: none): ")
        await (request.answer(said) if said else request.decline())
        return
    if isinstance(request, PlanRequest):
        changes = "".join(f"\n  {line}" for line in request.changes)
        text = f"Plan {request.id} of {request.author}, revision {request.revision}{changes}\n{request.plan.render()}"
    else:
        text = f"{request.author} asks to run {shown_exactly(request.what)}\n  {shown_exactly(request.why)}"
    said = await _ask(f"{text}\nApprove? [Y, p to pass on, or what must change]: ")
    if said.lower() in ("", "y", "yes"):
        await request.approve()
    elif said.lower() != "p":
        await request.reject(said)


async def _ask(prompt: str) -> str:
    return (await trio.to_thread.run_sync(partial(input, prompt), abandon_on_cancel=True)).strip()
