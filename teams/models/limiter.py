"""Who may send now: the gateway's decisions, without a wait in them.

Laws: synchronous, so a decision and its effect are one step; time comes in as an argument; a slot is held from `try_enter`
or a grant until `leave`; a waiter that was granted a slot and is abandoned gives it back.
"""

from heapq import heapify, heappop, heappush

import trio

Ticket = tuple[int, int]


class Waiter:
    """One call that waits; `granted` is set together with the slot, `scope` ends its wait when a pause ends."""

    __slots__ = ("event", "granted", "scope", "ticket")

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.event = trio.Event()
        self.granted = False
        self.scope = trio.CancelScope()

    def __lt__(self, other: "Waiter") -> bool:
        return self.ticket < other.ticket


class Limiter:
    """Slots, a queue for them, a common time before which nobody goes, and a slow start after it.

    `admitted` is how many may run at once now: `limit`, or fewer after pressure, when it begins at one and grows
    by one with every success: it doubles with every round of calls.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.admitted = limit
        self.running = 0
        self.not_before = 0.0
        self._queue: list[Waiter] = []
        self._tickets = 0
        self._streak = 0
        self._last_pressure = float("-inf")

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._queue)

    def ticket(self, priority: int) -> Ticket:
        """Return a new place: by priority, the smaller first, then by age."""
        self._tickets += 1
        return (priority, self._tickets)

    def try_enter(self) -> bool:
        """Take a slot if one is free, nobody waits and no pause is on."""
        if self._queue or self.running >= self.admitted or (self.not_before and self.not_before > trio.current_time()):
            return False
        self.running += 1
        return True

    def wait(self, ticket: Ticket) -> Waiter:
        """Queue up."""
        waiter = Waiter(ticket)
        heappush(self._queue, waiter)
        return waiter

    def admit(self, now: float) -> None:
        """Give the free slots to those who wait, in order, unless a pause is on."""
        if now < self.not_before:
            return
        while self._queue and self.running < self.admitted:
            waiter = heappop(self._queue)
            self.running += 1
            waiter.granted = True
            waiter.event.set()

    def abandon(self, waiter: Waiter, now: float) -> None:
        """Take a cancelled waiter out, or its slot back."""
        if waiter.granted:
            self.leave(now)
            return
        self._queue.remove(waiter)
        heapify(self._queue)

    def leave(self, now: float) -> None:
        """Free a slot."""
        self.running -= 1
        if self._queue:
            self.admit(now)

    def succeeded(self, started: float) -> None:
        """Learn that a call was answered which had started then: if that was after the last refusal, more may go."""
        if started <= self._last_pressure:
            return
        self._streak = 0
        if self.admitted < self.limit:
            self.admitted += 1

    def pressed(self, started: float, now: float) -> int:
        """Learn that the provider refused a call which had started then; return the number of refusals in a row.

        Calls that were under way together when the first of them was refused count once.
        """
        if started > self._last_pressure:
            self._streak += 1
            self._last_pressure = now
        self.admitted = 1
        return max(1, self._streak)

    def pause(self, until: float) -> None:
        """Let nobody go before a time; a later time that was set stays."""
        if until <= self.not_before:
            return
        self.not_before = until
        # Those who wait already must look again then: it may be that no running call is left to wake them.
        for waiter in self._queue:
            waiter.scope.deadline = until
