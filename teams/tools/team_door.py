"""What the coordination tools need of the team above them."""

from typing import Protocol


class TeamDoor(Protocol):
    """What the tools need of the team above them."""

    def want_idle(self, agent: str) -> None:
        """End the agent's turn at the next tool boundary."""
        ...

    def want_compaction(self, agent: str) -> None:
        """Have the agent's context compacted before its next call."""
        ...

    def incarnation(self, agent: str) -> int:
        """Return the incarnation under which this process hosts the agent."""
        ...

    def asked_before(self, agent: str, call_id: str) -> str | None:
        """Return, once, the request that this call had made before its process died."""
        ...

    async def spawn_by_agent(self, agent: str, name: str, role: str, prompt: str, plan_required: bool) -> str:
        """Spawn a teammate for a lead and return its status."""
        ...

    async def shutdown_by_agent(self, agent: str, name: str, reason: str, force: bool) -> str:
        """Ask a member to stop and return how that ended."""
        ...

    async def wait_news(self, agent: str, seconds: float) -> str:
        """Wait for mail of the agent, for at most so long, and say what there is."""
        ...
