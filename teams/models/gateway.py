"""The one way from a team to its models: shared limits, retries, booking.

Laws
- At most `max_concurrent_calls` are under way; the waiting go by priority, then in the order in which they came; a retry
  keeps its place.
- After a 429 or 529 of any agent nobody sends until the time it named (or a back-off) is over; then one call goes alone and
  every success admits more, so that a team does not return all at once.
- A cancelled wait leaves no slot taken and no one waiting for it.
- Every reservation is settled exactly once, also when the call fails or is cancelled.
- Errors that a retry cannot cure pass through at once: the overflow of a context is the loop's to mend.

All decisions are synchronous (`limiter.Limiter`); this module waits for them.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple, TypeAlias

import trio

from teams.errors import ModelError, Overloaded, QuotaExhausted, RateLimited
from teams.models.base import Model, ModelReply, ModelRequest, OnText, Usage
from teams.models.limiter import Limiter

Reserve: TypeAlias = Callable[[str, int], object]
Settle: TypeAlias = Callable[[str, Usage], object]


class Priority(IntEnum):
    """Who goes first when calls must wait; any integer will do, the smaller goes first."""

    APPROVAL = -20
    LEAD = -10
    NORMAL = 0
    BACKGROUND = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """How a team shares its models. None means no limit.

    `max_attempts` counts the attempts of one call, its first included, but not its waits for quota.
    """

    max_concurrent_calls: int = 8
    max_attempts: int | None = 10
    backoff_seconds: float = 0.5  # doubles with every failure in a row
    backoff_max_seconds: float = 60.0
    backoff_jitter: float = 0.25  # adds up to this share, so that two teams on one key part
    retry_after_max_seconds: float = 600.0  # a provider may name hours; then this is the time until a call tries again
    quota_probe_seconds: float = 300.0  # the pause when no reset time is known
    quota_max_wait_seconds: float | None = 6 * 3600.0  # of one call; then its QuotaExhausted is raised

    def __post_init__(self) -> None:
        if self.max_concurrent_calls < 1:
            raise ValueError(f"max_concurrent_calls must be at least 1, not {self.max_concurrent_calls}")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1 or None, not {self.max_attempts}")
        if not 0 <= self.backoff_jitter <= 1:
            raise ValueError(f"backoff_jitter is a share between 0 and 1, not {self.backoff_jitter}")
        if min(self.backoff_seconds, self.backoff_max_seconds, self.retry_after_max_seconds, self.quota_probe_seconds) <= 0:
            raise ValueError("the times of a gateway must be greater than 0 seconds")


class GatewayNotice(NamedTuple):
    """Something that a person who watches the team should see."""

    kind: Literal["retry", "paused", "quota_exhausted"]
    agent: str
    message: str
    wait_seconds: float  # how long the team (retry: this call) sends nothing
    attempt: int  # the one that failed
    max_attempts: int | None = None  # None: tried without end


class GatewayStatistics(NamedTuple):
    """What the gateway is doing now."""

    running: int
    waiting: int
    admitted: int  # how many may run at once now; less than the option after a 429
    paused_seconds: float  # until anybody may send again
    calls: int
    retries: int


class Gateway:
    """Takes every model call of a team.

    Args:
        model: the model of calls that name none.
        options: limits and retries.
        rng: the source of jitter; pass a seeded one for runs that repeat.
        reserve: called with (agent, estimated tokens) before a call; what it raises refuses the call.
        settle: called with (agent, usage) after a call that was reserved; a call without an answer settles zero tokens.
        on_notice: called when the team waits and why.
    """

    def __init__(
        self,
        model: Model,
        options: GatewayOptions | None = None,
        *,
        rng: random.Random | None = None,
        reserve: Reserve | None = None,
        settle: Settle | None = None,
        on_notice: Callable[[GatewayNotice], object] | None = None,
    ) -> None:
        self.model = model
        self.options = options or GatewayOptions()
        self._rng = rng or random.Random()
        self._reserve = reserve
        self._settle = settle
        self._on_notice = on_notice
        self._limiter = Limiter(self.options.max_concurrent_calls)
        self._calls = 0
        self._retries = 0

    def statistics(self) -> GatewayStatistics:
        """Return what the gateway is doing now."""
        limiter = self._limiter
        paused = max(0.0, limiter.not_before - trio.current_time())
        return GatewayStatistics(limiter.running, limiter.waiting, limiter.admitted, paused, self._calls, self._retries)

    async def call(
        self,
        request: ModelRequest,
        *,
        model: Model | None = None,
        on_text: OnText | None = None,
        priority: int = Priority.NORMAL,
        estimate_tokens: int | None = None,
    ) -> ModelReply:
        """Ask a model, waiting and retrying as the options say.

        Args:
            priority: the smaller goes first.
            estimate_tokens: what to reserve; None reserves the request's `max_tokens`.

        Raises:
            ModelError: by kind, when a retry cannot cure it or the attempts are used up.
            Whatever `reserve` raises.

        Checkpoints: always. When Cancelled, no slot is taken and the reservation is settled.
        """
        if self._reserve is not None:
            self._reserve(request.agent, request.max_tokens if estimate_tokens is None else estimate_tokens)
        usage = Usage()
        try:
            reply = await self._attempts(model or self.model, request, on_text, priority)
            usage = reply.usage
        finally:
            if self._settle is not None:
                self._settle(request.agent, usage)
        return reply

    async def _attempts(self, model: Model, request: ModelRequest, on_text: OnText | None, priority: int) -> ModelReply:
        limiter = self._limiter
        ticket = limiter.ticket(priority)
        attempt = 1
        quota_waited = 0.0
        while True:
            await self._enter(ticket)
            started = trio.current_time()
            self._calls += 1
            try:
                reply = await model.complete(request, on_text=on_text)
            except QuotaExhausted as exc:
                quota_waited += self._pause_for_quota(exc, request.agent, attempt)
                if self.options.quota_max_wait_seconds is not None and quota_waited > self.options.quota_max_wait_seconds:
                    raise
                continue
            except ModelError as exc:
                if not exc.retryable or (self.options.max_attempts is not None and attempt >= self.options.max_attempts):
                    self._note_pressure(exc, started, attempt)
                    raise
                alone = self._back_off(exc, request.agent, started, attempt)
            else:
                limiter.succeeded(started)
                return reply
            finally:
                limiter.leave(trio.current_time())
            attempt += 1
            self._retries += 1
            if alone:
                await trio.sleep(alone)

    async def _enter(self, ticket: tuple[int, int]) -> None:
        """Take a slot, waiting until it is given, or the pause ends and slots are given anew."""
        limiter = self._limiter
        if limiter.try_enter():
            return
        waiter = limiter.wait(ticket)
        try:
            while True:
                now = trio.current_time()
                limiter.admit(now)
                if waiter.granted:
                    if now >= limiter.not_before:
                        break
                    # The pause began after the grant and before this task ran: back to the old place in the queue.
                    limiter.leave(now)
                    waiter = limiter.wait(ticket)
                with trio.CancelScope(deadline=limiter.not_before if limiter.not_before > now else float("inf")) as waiter.scope:
                    await waiter.event.wait()
        except BaseException:
            limiter.abandon(waiter, trio.current_time())
            raise

    def _back_off(self, exc: ModelError, agent: str, started: float, attempt: int) -> float:
        """Pause the team for what the provider said; return what this call must wait by itself."""
        if isinstance(exc, RateLimited | Overloaded):
            wait = self._note_pressure(exc, started, attempt)
            self._notify(GatewayNotice("paused", agent, str(exc), wait, attempt, self.options.max_attempts))
            return 0.0
        wait = self._jittered(self._doubled(attempt))
        self._notify(GatewayNotice("retry", agent, str(exc), wait, attempt, self.options.max_attempts))
        return wait

    def _note_pressure(self, exc: ModelError, started: float, attempt: int) -> float:
        """Let everybody wait when the provider is under pressure; return for how long."""
        if not isinstance(exc, RateLimited | Overloaded):
            return 0.0
        now = trio.current_time()
        streak = self._limiter.pressed(started, now)
        said = exc.retry_after_seconds if isinstance(exc, RateLimited) else None
        wait = self._doubled(max(attempt, streak)) if said is None else min(said, self.options.retry_after_max_seconds)
        self._limiter.pause(now + self._jittered(wait))
        return self._limiter.not_before - now

    def _pause_for_quota(self, exc: QuotaExhausted, agent: str, attempt: int) -> float:
        now = trio.current_time()
        self._limiter.pressed(now, now)
        wait = self._jittered(self.options.quota_probe_seconds if exc.resets_in_seconds is None else max(1.0, exc.resets_in_seconds))
        limit = self.options.quota_max_wait_seconds
        if limit is None or wait <= limit:
            self._limiter.pause(now + wait)
        self._notify(GatewayNotice("quota_exhausted", agent, str(exc), wait, attempt))
        return wait

    def _doubled(self, failures: int) -> float:
        return min(self.options.backoff_seconds * 2.0 ** min(failures - 1, 60), self.options.backoff_max_seconds)

    def _jittered(self, seconds: float) -> float:
        # Only ever longer: nobody may send before the time that the provider named.
        return seconds * (1 + self.options.backoff_jitter * self._rng.random())

    def _notify(self, notice: GatewayNotice) -> None:
        if self._on_notice is not None:
            self._on_notice(notice)
