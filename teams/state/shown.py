"""The state in the keys that other tools know; pure, so that a view on disk and a command that prints it cannot differ."""

from typing import Any

from teams.state.tasks import Task
from teams.state.team_state import TeamState


def config_view(state: TeamState, team_name: str) -> dict[str, Any]:
    """Return the team's members in the keys that other tools know."""
    members = [{"name": member.name, "role": member.spec.role, "status": member.status.value} for member in state.roster.members.values()]
    return {"team_name": team_name, "members": members}


def task_view(state: TeamState, task: Task) -> dict[str, Any]:
    """Return a task in the keys that other tools know; `blockedBy` holds the blockers that still block."""
    return {
        "id": task.id,
        "subject": task.subject,
        "description": task.description,
        "status": task.status.value,
        "owner": task.owner or "",
        "worktree": task.worktree or "",
        "blockedBy": list(state.tasks.blocked_by(task.id)),
        "blocks": sorted(state.tasks.dependents.get(task.id, ())),
        "created_at": task.created_at,
        "updated_at": task.updated_at,
    }
