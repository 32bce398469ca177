"""Who may be woken for a ready task: idle members that claim by themselves, by capability, first idle first woken.

Law: a member goes to sleep only after it looked for a task; whenever a task is ready that a sleeping member could take, one is woken.
"""

from collections.abc import Sequence

from teams.engine import Engine
from teams.journal.records import Record


class Claimers:
    """The sleeping claimers of this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sleeping: dict[frozenset[str], dict[str, None]] = {}
        self._capabilities: dict[str, frozenset[str]] = {}
        engine.listen(self._wake)

    def add(self, name: str, capabilities: frozenset[str]) -> None:
        """Put a member at the end of the queue; it must have found nothing to claim just now."""
        self._capabilities[name] = capabilities
        self._sleeping.setdefault(capabilities, {})[name] = None

    def discard(self, name: str) -> None:
        """Take a member out of the queue, if it is in it."""
        capabilities = self._capabilities.pop(name, None)
        if capabilities is not None:
            names = self._sleeping[capabilities]
            del names[name]
            if not names:
                del self._sleeping[capabilities]

    def _wake(self, _records: Sequence[Record]) -> None:
        tasks = self._engine.state.tasks
        if not tasks.ready or not self._capabilities:
            return
        woken: list[str] = []
        for (needs, exclusive, assignee), bucket in tasks.ready.items():
            if any(tag in tasks.tags_in_use for tag in exclusive):
                continue
            wanted = 1 if exclusive else len(bucket)
            woken.extend(self._pick(needs, assignee, wanted))
        for name in woken:
            self.discard(name)
        self._engine.notify([("member", name) for name in woken])

    def _pick(self, needs: frozenset[str], assignee: str | None, wanted: int) -> list[str]:
        if assignee is not None:
            fits = assignee in self._capabilities and needs <= self._capabilities[assignee] and not self._has_full_hands(assignee)
            return [assignee] if fits else []
        picked: list[str] = []
        for capabilities, names in self._sleeping.items():
            if needs <= capabilities:
                for name in names:
                    if len(picked) == wanted:
                        return picked
                    if not self._has_full_hands(name):
                        picked.append(name)
        return picked

    def _has_full_hands(self, name: str) -> bool:
        state = self._engine.state
        limit = state.roster.members[name].spec.task_limit
        return limit is not None and len(state.tasks.owned.get(name, ())) >= limit
