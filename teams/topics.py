"""What a record changes, so that only those wake who wait for it."""

from collections.abc import Iterable

from teams.journal.records import Record
from teams.state.team_state import TeamState

Topic = tuple[str, str | int]
"""What can change: ("member", name), ("task", id), ("request", id), ("any", "")."""

ANYTHING: Topic = ("any", "")


def topics_of(record: Record, state: TeamState) -> Iterable[Topic]:
    """Return the topics of one record that is already applied to the state."""
    kind, fields = record.kind, record.fields
    if kind == "mail.sent":
        return [("member", name) for name in fields["to"]]
    if kind == "mail.committed":
        return (("member", fields["member"]),)
    if kind == "member.status":
        return (("member", fields["name"]),)
    if kind == "member.joined":
        return (("member", fields["spec"]["name"]),)
    if kind.startswith("task."):
        return [("task", task_id) for task_id in fields.get("ids", None) or (fields["id"],)]
    if kind.startswith("request."):
        if fields["id"] not in state.requests:  # more of them closed at once than are remembered
            return (("request", fields["id"]),)
        request = state.requests.get(fields["id"])
        people = {request.asker, request.subject, *request.answerers}
        return [("request", request.id), *(("member", name) for name in people)]
    return ()
