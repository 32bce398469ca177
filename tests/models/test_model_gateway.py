"""The gateway: one limiter for the whole team, on a virtual clock."""

import contextlib
import random
from collections.abc import Callable
from itertools import pairwise
from typing import ClassVar

import pytest
import trio
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from compaction.transcript import ModelMessage
from teams.errors import ContextOverflow, InvalidRequest, ModelConnectionError, ModelError, Overloaded, QuotaExhausted, RateLimited
from teams.models import (
    Gateway,
    GatewayNotice,
    GatewayOptions,
    ModelReply,
    ModelRequest,
    Priority,
    Reply,
    ScriptedModel,
    Usage,
    blocked,
    delayed,
    fail,
    say,
)
from teams.models.base import OnText

HELLO = (ModelMessage("user", "hello"),)
STEADY = GatewayOptions(backoff_jitter=0.0)


def request(agent: str = "ann") -> ModelRequest:
    """A request of one agent."""
    return ModelRequest(agent=agent, messages=HELLO, max_tokens=100)


class Log:
    """A model function that records who was sent when, and lets a plan decide the replies."""

    def __init__(self, plan: Callable[[int, str], Reply]) -> None:
        self.sent: list[tuple[float, str]] = []
        self.running = 0
        self.peak = 0
        self._plan = plan

    async def __call__(self, asked: ModelRequest) -> Reply:
        """Note the call, then act by the plan."""
        self.sent.append((trio.current_time(), asked.agent))
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            reply = self._plan(len(self.sent), asked.agent)
            for hold in reply.holds:
                await hold()
        finally:
            self.running -= 1
        return Reply(reply.blocks, error=reply.error)


async def test_calls_under_way_never_exceed_the_limit(autojump_clock: MockClock) -> None:
    """Twenty agents at once: three run, the others wait, all are answered."""
    log = Log(lambda _number, _agent: delayed(1) + say("ok"))
    gateway = Gateway(ScriptedModel(log), GatewayOptions(max_concurrent_calls=3))
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(gateway.call, request(str(number)))
    assert log.peak == 3
    assert len(log.sent) == 20
    assert gateway.statistics()[:2] == (0, 0)


async def test_waiting_calls_go_by_priority_then_by_age(autojump_clock: MockClock) -> None:
    """The lead and approvals overtake; among equals the first come is the first served."""
    gate = trio.Event()
    log = Log(lambda _number, agent: blocked(gate) if agent == "first" else delayed(1))
    gateway = Gateway(ScriptedModel(log), GatewayOptions(max_concurrent_calls=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gateway.call, request("first"))
        await trio.sleep(1)
        for agent, priority in [("a", 0), ("b", 0), ("late", 10), ("lead", Priority.LEAD), ("c", 0), ("approval", Priority.APPROVAL)]:

            async def one(agent: str = agent, priority: int = priority) -> None:
                await gateway.call(request(agent), priority=priority)

            nursery.start_soon(one)
            await trio.sleep(0.1)
        assert gateway.statistics().waiting == 6
        gate.set()
    assert [agent for _, agent in log.sent] == ["first", "approval", "lead", "a", "b", "c", "late"]


async def test_nobody_sends_before_the_time_that_a_429_named(autojump_clock: MockClock) -> None:
    """After one agent's 429 the whole team is silent until it is over; then one goes alone and success admits more."""
    start = trio.current_time()
    log = Log(lambda number, _agent: fail(RateLimited("slow down", retry_after_seconds=30)) if number == 1 else delayed(1) + say("ok"))
    gateway = Gateway(ScriptedModel(log), STEADY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gateway.call, request("unlucky"))
        await trio.sleep(2)
        assert gateway.statistics().paused_seconds == pytest.approx(28)
        for number in range(11):
            nursery.start_soon(gateway.call, request(str(number)))
            await trio.sleep(1)
    times = [time - start for time, _ in log.sent]
    assert times[1] == pytest.approx(30)
    assert [round(time) for time in times[1:]] == [30] + [31] * 2 + [32] * 4 + [33] * 5
    assert log.sent[1][1] == "unlucky"


async def test_team_is_not_stuck_when_the_last_call_under_pressure_gives_up(autojump_clock: MockClock) -> None:
    """A call that fails for good after a 429 leaves nobody waiting for ever."""
    log = Log(lambda number, _agent: (delayed(1) + fail(RateLimited("no", retry_after_seconds=5))) if number == 1 else say("ok"))
    gateway = Gateway(ScriptedModel(log), GatewayOptions(max_concurrent_calls=1, max_attempts=1, backoff_jitter=0.0))

    async def unlucky() -> None:
        with pytest.raises(RateLimited):
            await gateway.call(request("unlucky"))

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(unlucky)
        await trio.sleep(0.5)
        nursery.start_soon(gateway.call, request("patient"))
    assert log.sent[1][1] == "patient"
    assert log.sent[1][0] - start == pytest.approx(6)


async def test_retry_after_is_capped_and_jitter_only_adds(autojump_clock: MockClock) -> None:
    """A provider that names days does not stop a team for days; nobody is early."""
    for seed in range(20):
        start = trio.current_time()
        model = ScriptedModel([fail(RateLimited("slow", retry_after_seconds=86_400)), say("ok")])
        await Gateway(model, GatewayOptions(retry_after_max_seconds=60), rng=random.Random(seed)).call(request())
        assert 60 <= trio.current_time() - start <= 75


async def test_backoff_doubles_while_the_provider_is_overloaded(autojump_clock: MockClock) -> None:
    """Without a named time the pauses double up to their cap."""
    steps = [fail(Overloaded("busy")) for _ in range(6)]
    log: list[float] = []

    def step(asked: ModelRequest) -> Reply:
        log.append(trio.current_time())
        return steps.pop() if steps else say("ok")

    gateway = Gateway(ScriptedModel(step), GatewayOptions(backoff_seconds=1, backoff_max_seconds=10, backoff_jitter=0))
    await gateway.call(request())
    assert [round(after - before) for before, after in pairwise(log)] == [1, 2, 4, 8, 10, 10]
    assert gateway.statistics().retries == 6


async def test_failures_of_one_moment_count_once(autojump_clock: MockClock) -> None:
    """Eight calls refused together pause the team as one refusal does."""
    start = trio.current_time()
    log = Log(lambda number, _agent: (delayed(1) + fail(Overloaded("busy"))) if number <= 8 else say("ok"))
    gateway = Gateway(ScriptedModel(log), GatewayOptions(backoff_seconds=1, backoff_jitter=0))
    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(gateway.call, request(str(number)))
    assert log.sent[8][0] - start == pytest.approx(2)


async def test_lost_connection_delays_its_own_call_only(autojump_clock: MockClock) -> None:
    """A cut connection is retried after a back-off that the others do not see."""
    start = trio.current_time()
    log = Log(lambda _number, agent: fail(ModelConnectionError("cut")) if agent == "ann" and len(log.sent) == 1 else say("ok"))
    gateway = Gateway(ScriptedModel(log), GatewayOptions(max_concurrent_calls=1, backoff_seconds=8, backoff_jitter=0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gateway.call, request("ann"))
        await trio.sleep(1)
        nursery.start_soon(gateway.call, request("ben"))
    assert [(round(time - start, 3), agent) for time, agent in log.sent] == [(0, "ann"), (1, "ben"), (8, "ann")]


@pytest.mark.parametrize("error", [ContextOverflow("too long"), InvalidRequest("bad")])
async def test_errors_that_no_retry_cures_pass_through(error: ModelError, autojump_clock: MockClock) -> None:
    """Overflow and invalid requests are raised at once, and the slot is free again."""
    gateway = Gateway(ScriptedModel([fail(error)]))
    with pytest.raises(type(error), match=str(error)):
        await gateway.call(request())
    assert gateway.statistics().running == 0


async def test_attempts_are_bounded(autojump_clock: MockClock) -> None:
    """After the last attempt the provider's error is raised."""
    model = ScriptedModel(lambda _asked: fail(Overloaded("busy")))
    with pytest.raises(Overloaded, match="busy"):
        await Gateway(model, GatewayOptions(max_attempts=3)).call(request())
    assert model.calls == {"ann": 3}


async def test_exhausted_quota_pauses_the_team_and_says_so(autojump_clock: MockClock) -> None:
    """Until the reset nobody sends, a notice tells why, and then the work goes on."""
    notices: list[GatewayNotice] = []
    start = trio.current_time()
    log = Log(lambda number, _agent: fail(QuotaExhausted("no credit", resets_in_seconds=3600)) if number == 1 else say("ok"))
    gateway = Gateway(ScriptedModel(log), STEADY, on_notice=notices.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gateway.call, request("ann"))
        await trio.sleep(1)
        nursery.start_soon(gateway.call, request("ben"))
    assert [time - start for time, _ in log.sent] == [0, 3600, 3600]
    assert notices == [GatewayNotice("quota_exhausted", "ann", "no credit", 3600, 1)]


async def test_quota_that_stays_exhausted_is_raised_in_the_end(autojump_clock: MockClock) -> None:
    """Without a reset time the gateway probes, until the longest wait is over."""
    model = ScriptedModel(lambda _asked: fail(QuotaExhausted("no credit")))
    options = GatewayOptions(quota_probe_seconds=100, quota_max_wait_seconds=350, backoff_jitter=0)
    with pytest.raises(QuotaExhausted):
        await Gateway(model, options).call(request())
    assert model.calls == {"ann": 4}


async def test_cancelled_wait_leaves_its_slot(autojump_clock: MockClock) -> None:
    """A waiter that is cancelled, also just when it was granted its slot, blocks nobody."""
    gate = trio.Event()
    log = Log(lambda _number, agent: blocked(gate) if agent == "first" else say("ok"))
    gateway = Gateway(ScriptedModel(log), GatewayOptions(max_concurrent_calls=1))
    scope = trio.CancelScope()

    async def doomed() -> None:
        with scope:
            await gateway.call(request("doomed"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(gateway.call, request("first"))
        await trio.sleep(1)
        nursery.start_soon(doomed)
        await trio.sleep(1)
        nursery.start_soon(gateway.call, request("last"))
        await trio.sleep(1)
        gate.set()
        scope.cancel()
    assert [agent for _, agent in log.sent][-1] == "last"
    assert gateway.statistics()[:2] == (0, 0)


async def test_slot_given_to_a_waiter_that_was_just_cancelled_comes_back(autojump_clock: MockClock) -> None:
    """The cancellation is on its way when the slot is given: the slot goes to the next one."""
    gate, doomed = trio.Event(), trio.CancelScope()
    gateway = Gateway(ScriptedModel({"first": [blocked(gate) + say("x")], "*": [say("ok")]}), GatewayOptions(max_concurrent_calls=1))

    async def first() -> None:
        # The last thing that the call does before it gives its slot to the waiter.
        await gateway.call(request("first"), on_text=lambda _piece: doomed.cancel())

    async def second() -> None:
        with doomed:
            await gateway.call(request("second"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await trio.sleep(1)
        nursery.start_soon(second)
        await trio.sleep(1)
        gate.set()
    assert doomed.cancelled_caught
    assert gateway.statistics()[:2] == (0, 0)
    assert (await gateway.call(request("third"))).text == "ok"


async def test_every_reservation_is_settled_once(autojump_clock: MockClock) -> None:
    """Also when the call fails, is refused or is cancelled."""
    booked: list[tuple[str, int]] = []
    settled: list[tuple[str, Usage]] = []

    def reserve(agent: str, tokens: int) -> None:
        if agent == "broke":
            raise InvalidRequest("over budget")
        booked.append((agent, tokens))

    script = {
        "ann": [say("ok").costing(Usage(5, 6))],
        "ben": [fail(InvalidRequest("bad"))],
        "cal": [blocked(trio.Event())],
    }
    gateway = Gateway(ScriptedModel(script), reserve=reserve, settle=lambda agent, usage: settled.append((agent, usage)))
    await gateway.call(request("ann"), estimate_tokens=7)
    with pytest.raises(InvalidRequest, match="bad"):
        await gateway.call(request("ben"))
    with trio.move_on_after(1):
        await gateway.call(request("cal"))
    with pytest.raises(InvalidRequest, match="over budget"):
        await gateway.call(request("broke"))
    assert booked == [("ann", 7), ("ben", 100), ("cal", 100)]
    assert settled == [("ann", Usage(5, 6)), ("ben", Usage()), ("cal", Usage())]
    assert gateway.statistics()[:2] == (0, 0)


@pytest.mark.parametrize("bad", [{"max_concurrent_calls": 0}, {"max_attempts": 0}, {"backoff_jitter": 2}, {"backoff_seconds": 0}])
def test_options_are_checked_when_built(bad: dict[str, int]) -> None:
    """An option that makes no sense is refused."""
    with pytest.raises(ValueError, match=r"must be|is a share"):
        GatewayOptions(**bad)  # pyright: ignore[reportArgumentType]  # built from a table


CALL = st.tuples(
    st.integers(0, 20),  # starts at
    st.integers(-2, 2),  # priority
    st.one_of(st.none(), st.integers(0, 20)),  # is cancelled after
    st.lists(st.sampled_from(["429", "529", "cut", "wrong"]), max_size=3),  # fails like this, then succeeds
    st.integers(0, 4),  # takes
)


class Unsteady:
    """A model that fails as its plan says, and watches that the gateway keeps its laws."""

    name, context_window_tokens, max_output_tokens = "unsteady", 1000, 100
    errors: ClassVar[dict[str, ModelError]] = {
        "429": RateLimited("slow", retry_after_seconds=7),
        "529": Overloaded("busy"),
        "cut": ModelConnectionError("cut"),
        "wrong": InvalidRequest("bad"),
    }

    def __init__(self, failures: dict[str, list[str]], seconds: dict[str, int], limit: int) -> None:
        self.failures, self.seconds, self.limit = failures, seconds, limit
        self.running = 0
        self.silent_until = 0.0

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Take some time, then fail or answer; nothing happens between the failure and its being raised."""
        assert trio.current_time() >= self.silent_until
        self.running += 1
        assert self.running <= self.limit
        try:
            await trio.sleep(self.seconds[request.agent])
        finally:
            self.running -= 1
        if not self.failures[request.agent]:
            return ModelReply(({"type": "text", "text": "ok"},), "end_turn")
        kind = self.failures[request.agent].pop()
        if kind == "429":
            self.silent_until = max(self.silent_until, trio.current_time() + 7)
        raise self.errors[kind]

    async def count_tokens(self, request: ModelRequest) -> int:
        """Not needed here."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Not needed here."""
        raise NotImplementedError


@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink])  # explaining a failure takes minutes here
@given(calls=st.lists(CALL, min_size=1, max_size=12), limit=st.integers(1, 3), seed=st.integers(0, 99))
async def test_any_schedule_keeps_the_laws(
    calls: list[tuple[int, int, int | None, list[str], int]], limit: int, seed: int, autojump_clock: MockClock
) -> None:
    """Whatever fails and is cancelled: the limit holds, no one sends in a pause, no slot is lost, everybody ends."""
    failures = {str(number): list(one[3]) for number, one in enumerate(calls)}
    model = Unsteady(failures, {str(number): one[4] for number, one in enumerate(calls)}, limit)
    gateway = Gateway(model, GatewayOptions(max_concurrent_calls=limit), rng=random.Random(seed))

    async def one(number: int, start: int, priority: int, patience: int | None) -> None:
        await trio.sleep(start)
        with trio.move_on_after(float("inf") if patience is None else patience), contextlib.suppress(InvalidRequest):
            await gateway.call(request(str(number)), priority=priority)

    async with trio.open_nursery() as nursery:
        for number, (start, priority, patience, _, _) in enumerate(calls):
            nursery.start_soon(one, number, start, priority, patience)
    assert gateway.statistics()[:2] == (0, 0)
