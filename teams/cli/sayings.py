"""Records in words: one readable line for each.

Law: a line is made of the record and of what the state knows of the tasks and requests that it names; a kind that this version does not
know is shown with its fields.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from protocols.contract import Rule
from protocols.errors import UnknownRequest
from protocols.request import Request, RequestKind
from teams.cli.output import amount, clean, names
from teams.journal.records import Record
from teams.state.team_state import TeamState

MANY = 4
"""More recipients than these are counted, not named."""


class Saying(NamedTuple):
    """Who did it (to whom), what it is about, what happened, and in which style that is shown."""

    who: str
    about: str
    what: str
    style: str = ""


def arrow(sender: str, recipients: Sequence[str]) -> str:
    """Return `ann -> ben`."""
    to = ", ".join(map(clean, recipients)) if len(recipients) <= MANY else f"{len(recipients)} members"
    return f"{clean(sender)} -> {to}"


class Narrator:
    """Puts records into words; remembers who held a task, since the record that ends a claim does not say it."""

    def __init__(self, state: TeamState) -> None:
        self._state = state
        self._owners: dict[int, str] = {}
        self._live: set[str] = set()

    def say(self, record: Record) -> Saying:
        """Return the line of one record."""
        teller = _TELLERS.get(record.kind)
        if teller is not None:
            try:
                return teller(self, record.fields)
            except (KeyError, TypeError, UnknownRequest):
                pass  # a newer version writes other fields, or the request was closed long ago: the fields speak for themselves
        return Saying("", record.kind, clean(json.dumps(record.fields, ensure_ascii=False)), "dim")

    # -- mail and members ---------------------------------------------------------

    def mail_sent(self, fields: Mapping[str, Any]) -> Saying:
        """Say who wrote what to whom."""
        kind, request_id = fields["type"], fields.get("request_id")
        label = "" if kind in ("message", "broadcast") else f"[{kind.replace('_', ' ')}] "
        if fields.get("priority") == "now":
            label = f"[now] {label}"
        answers = f"(to {request_id}) " if request_id and not label else ""
        style = "dim" if fields["from"].startswith("(") else "bold"
        return Saying(arrow(fields["from"], fields["to"]), fields["id"], f"{label}{answers}{clean(fields['content'])}", style)

    def mail_committed(self, fields: Mapping[str, Any]) -> Saying:
        """Say who has read what."""
        ids = fields["ids"]
        return Saying(clean(fields["member"]), ids[0] if ids else "", f"has read {names(ids)}", "dim")

    def member_joined(self, fields: Mapping[str, Any]) -> Saying:
        """Say who joined, as what."""
        again = f", for the {_ordinal(fields['incarnation'])} time" if fields["incarnation"] > 1 else ""
        name = fields["spec"]["name"]
        if again and name in self._live:
            again += "; the process that had hosted it ended without a word"
        self._live.add(name)
        return Saying(clean(fields["spec"]["name"]), "", f"joined as {clean(fields['spec']['role'])}{again}", "cyan")

    def member_status(self, fields: Mapping[str, Any]) -> Saying:
        """Say what a member is doing now, and what its turn used."""
        status, reason = fields["status"], fields.get("reason")
        if status in ("stopped", "failed"):
            self._live.discard(fields["name"])
        words = f"is {status.replace('_', ' ')}{f': {clean(reason)}' if reason else ''}"
        if usage := fields.get("usage"):
            calls = usage[4]
            words += f"; its turn used {amount(sum(usage[:4]))} tokens in {calls} call{'' if calls == 1 else 's'}"
        return Saying(clean(fields["name"]), "", words, "red" if status == "failed" else "dim")

    def member_noted(self, fields: Mapping[str, Any]) -> Saying:
        """Say what a member pinned."""
        return Saying(clean(fields["member"]), "", f"notes: {clean(fields['text'])}")

    def member_compaction(self, fields: Mapping[str, Any]) -> Saying:
        """Say that somebody wants a member's context compacted, or that it was."""
        by = fields.get("by")
        words = f"{clean(by)} asks for its context to be compacted" if by else "has compacted its context, as it was asked"
        return Saying(clean(fields["member"]), "", words, "dim")

    # -- tasks ---------------------------------------------------------------------

    def task_created(self, fields: Mapping[str, Any]) -> Saying:
        """Say which task was added, and what it waits for."""
        blockers = [f"task {blocker}" for blocker, _ in fields.get("blocked_by", ())]
        after = f", after {names(blockers)}" if blockers else ""
        return Saying(clean(fields["by"]), f"task {fields['id']}", f"created: {clean(fields['subject'])}{after}")

    def task_edge(self, fields: Mapping[str, Any]) -> Saying:
        """Say that a task waits for another one."""
        return Saying("", f"task {fields['id']}", f"now waits for task {fields['blocker']}")

    def task_changed(self, fields: Mapping[str, Any]) -> Saying:
        """Say who took, finished or lost a task."""
        task_id, status, owner = fields["id"], fields["status"], fields.get("owner")
        who = owner or self._owners.pop(task_id, "")
        if owner:
            self._owners[task_id] = owner
        said = fields.get("result") or fields.get("reason") or ""
        verb = {"in_progress": "claimed", "pending": "handed back"}.get(status, status)
        style = {"completed": "green", "failed": "red", "cancelled": "yellow"}.get(status, "")
        known = self._state.tasks.by_id.get(task_id)
        subject = f": {clean(known.subject)}" if known is not None else ""
        return Saying(clean(who), f"task {task_id}", f"{verb}{subject}{f' ({clean(said)})' if said else ''}", style)

    def task_renewed(self, fields: Mapping[str, Any]) -> Saying:
        """Say whose leases were renewed."""
        ids = fields["ids"]
        return Saying("", f"task {ids[0]}", f"the lease of task {names(map(str, ids))} was renewed", "dim")

    def task_amended(self, fields: Mapping[str, Any]) -> Saying:
        """Say which words of a task changed."""
        words = ", ".join(f"{key}: {clean(str(value))}" for key, value in fields.items() if key != "id")
        return Saying("", f"task {fields['id']}", f"changed: {words}")

    # -- plans and rules -------------------------------------------------------------

    def plan_step(self, fields: Mapping[str, Any]) -> Saying:
        """Say how far a step of a plan is."""
        verb, style = {"start": ("begins", ""), "finish": ("has done", "green"), "fail": ("has failed at", "red")}[fields["event"]]
        said = str(fields.get("note") or fields.get("output") or "")
        plan = self._state.plans.get(fields["plan"], fields["member"])
        text = f": {clean(plan.steps[int(fields['step']) - 1].text)}" if plan is not None else ""
        words = f"{verb} step {fields['step']}{text}{f' ({clean(said)})' if said else ''}"
        return Saying(clean(fields["member"]), fields["plan"], words, style)

    def plan_tasks(self, fields: Mapping[str, Any]) -> Saying:
        """Say which tasks the steps of a plan have become."""
        return Saying(clean(fields["member"]), fields["plan"], f"its steps are task {names(map(str, fields['tasks']))}")

    def rule_added(self, fields: Mapping[str, Any]) -> Saying:
        """Say who made which rule."""
        return Saying(clean(fields["by"]), fields["id"], f"adds the rule: {clean(str(Rule.from_json(fields['rule'])))}", "yellow")

    def rule_removed(self, fields: Mapping[str, Any]) -> Saying:
        """Say who removed a rule."""
        return Saying(clean(fields["by"]), fields["id"], "removes the rule", "yellow")

    # -- requests --------------------------------------------------------------------

    def request_opened(self, fields: Mapping[str, Any]) -> Saying:
        """Say who asks whom for what."""
        body: Mapping[str, Any] = fields.get("body", {})
        who = arrow(fields["asker"], fields["answerers"])
        if fields["request_kind"] == "plan_approval":
            return Saying(who, fields["id"], f"asks for the approval of a plan: {clean(str(body.get('summary', '')))}", "yellow")
        if fields["request_kind"] == "shutdown":
            reason = f": {clean(str(body['reason']))}" if body.get("reason") else ""
            again = "again " if body.get("rejected_before") else ""
            return Saying(who, fields["id"], f"asks {clean(fields['subject'])} {again}to shut down{reason}", "yellow")
        if fields["request_kind"] == "permission":
            return Saying(who, fields["id"], f"asks to run {clean(str(body['what']))}, {clean(str(body['why']))}", "yellow")
        return Saying(who, fields["id"], f"asks: {clean(str(body['question']))}", "yellow")

    def request_advanced(self, fields: Mapping[str, Any]) -> Saying:
        """Say what was answered, or what else happened to a request."""
        state = fields["state"].replace("_", " ")
        feedback = fields.get("feedback")
        if fields.get("event") == "revise":
            body: Mapping[str, Any] = fields.get("body", {})
            words = f"revised the plan: {clean(str(body.get('summary', '')))}"
        elif fields.get("event") == "hand_over":
            words = f"hands over {_matter(self._state.requests.get(fields['id']))} to the next of the chain"
        elif "approved" in fields and state in _UNDECIDED:
            words = f"votes {'yes' if fields['approved'] else 'no'} on {_matter(self._state.requests.get(fields['id']))}"
        else:
            words = f"{state}: {_matter(self._state.requests.get(fields['id']))}{f' ({clean(feedback)})' if feedback else ''}"
        style = {"approved": "green", "rejected": "red", "stopped forced": "red", "expired": "red"}.get(state, "")
        return Saying(clean(fields["by"]), fields["id"], words, style)


_UNDECIDED = frozenset({"asked", "submitted"})


def _matter(request: Request) -> str:
    if request.kind is RequestKind.plan_approval:
        return f"the plan of {clean(request.subject)}"
    if request.kind is RequestKind.permission:
        return f"{clean(str(request.body['what']))} of {clean(request.asker)}"
    if request.kind is RequestKind.question:
        return f"the question of {clean(request.asker)}"
    return f"the {request.kind.value.replace('_', ' ')} of {clean(request.subject)}"


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


_TELLERS: Mapping[str, Callable[[Narrator, Mapping[str, Any]], Saying]] = {
    "mail.sent": Narrator.mail_sent,
    "mail.committed": Narrator.mail_committed,
    "member.joined": Narrator.member_joined,
    "member.status": Narrator.member_status,
    "member.noted": Narrator.member_noted,
    "member.compaction": Narrator.member_compaction,
    "task.created": Narrator.task_created,
    "task.edge": Narrator.task_edge,
    "task.changed": Narrator.task_changed,
    "task.renewed": Narrator.task_renewed,
    "task.amended": Narrator.task_amended,
    "plan.step": Narrator.plan_step,
    "plan.tasks": Narrator.plan_tasks,
    "rule.added": Narrator.rule_added,
    "rule.removed": Narrator.rule_removed,
    "request.opened": Narrator.request_opened,
    "request.advanced": Narrator.request_advanced,
}

KINDS = tuple(_TELLERS)
"""The kinds of records that this version knows."""
