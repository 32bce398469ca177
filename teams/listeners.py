"""From records to events: what watchers are told once a record is durable."""

from collections.abc import Sequence

from protocols.request import RequestKind
from teams.events import EventHub, MailCommitted, MailStored, MemberChanged, RequestChanged, TaskChanged
from teams.journal.records import Record
from teams.state.team_state import TeamState


def tell_watchers(records: Sequence[Record], events: EventHub, state: TeamState) -> None:
    """Emit the events of a batch of records that is applied to the state; nothing while nobody watches."""
    if not events.watched:
        return
    for record in records:
        kind, fields = record.kind, record.fields
        if kind == "mail.sent":
            recipients, request_id = tuple(fields["to"]), fields.get("request_id")
            events.emit(MailStored(fields["id"], fields["type"], fields["from"], recipients, fields["content"], request_id))
        elif kind == "mail.committed":
            events.emit(MailCommitted(fields["member"], tuple(fields["ids"])))
        elif kind == "member.joined":
            events.emit(MemberChanged(fields["spec"]["name"], str(fields["status"])))
        elif kind == "member.status":
            events.emit(MemberChanged(fields["name"], str(fields["status"]), fields.get("reason", "")))
        elif kind in ("task.created", "task.changed"):
            task = state.tasks.by_id[fields["id"]]
            text = fields.get("result") or fields.get("reason") or ""
            events.emit(TaskChanged(task.id, task.subject, str(fields.get("status", "pending")), fields.get("owner"), text))
        elif kind in ("request.opened", "request.advanced") and fields["id"] in state.requests:
            request = state.requests.get(fields["id"])
            feedback = str(fields.get("feedback", ""))
            by = str(fields.get("by", request.asker))
            shown = str(fields.get("state", "requested"))
            subject = request.asker if request.kind in (RequestKind.permission, RequestKind.question) else request.subject
            events.emit(RequestChanged(request.id, request.kind.value, subject, shown, by, request.revision, feedback))
