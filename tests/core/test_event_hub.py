"""Events for whoever watches: in order, after the fact is on disk, and never in anybody's way."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from teams.events import Event, EventHub, EventsLost, MailCommitted, MailStored, MemberChanged, RequestChanged, RuntimeNotice, TaskChanged
from teams.listeners import tell_watchers
from teams.state.request_commands import AnswerRequest, RequestShutdown
from tests.core.rig import HeldJournal, open_rig


def notice(number: int) -> RuntimeNotice:
    """Return one of many events."""
    return RuntimeNotice("info", str(number))


async def test_every_watcher_gets_every_event_in_order(autojump_clock: MockClock) -> None:
    """Two watchers hear the same from when each began to watch; nobody is told anything while nobody watches."""
    hub = EventHub(100)
    hub.emit(notice(0))
    async with hub.watch() as first:
        hub.emit(notice(1))
        async with hub.watch() as second:
            hub.emit(notice(2))
            hub.close()
            assert [event async for event in first] == [notice(1), notice(2)]
            assert [event async for event in second] == [notice(2)]
    assert not hub.watched


async def test_a_slow_watcher_is_told_how_much_it_lost_and_holds_up_nobody(autojump_clock: MockClock) -> None:
    """Over its buffer events are lost and counted; the others get all; what is received and what was lost add up."""
    hub = EventHub(10)
    async with hub.watch(4) as slow, hub.watch(1_000) as quick:
        for number in range(50):
            hub.emit(notice(number))
        got: list[Event] = [slow.receive_nowait() for _ in range(4)]
        for number in range(50, 53):
            hub.emit(notice(number))
        got += [slow.receive_nowait() for _ in range(4)]
        assert got == [notice(0), notice(1), notice(2), notice(3), EventsLost(46), notice(50), notice(51), notice(52)]
        hub.close()
        assert [event async for event in quick] == [notice(number) for number in range(53)]


async def test_a_watcher_that_has_gone_is_forgotten(autojump_clock: MockClock) -> None:
    """After its block, also when it was cancelled or closed its end, a watcher costs nothing, and emitting goes on."""
    hub = EventHub(10)
    with trio.CancelScope() as scope:
        async with hub.watch():
            scope.cancel()
            await trio.sleep_forever()
    async with hub.watch() as stream:
        await stream.aclose()
        hub.emit(notice(1))
        async with hub.watch() as other:
            hub.emit(notice(2))
            assert other.receive_nowait() == notice(2)
    assert not hub.watched
    hub.close()


async def test_an_event_comes_after_its_record_is_durable(autojump_clock: MockClock) -> None:
    """While the append runs the watcher hears nothing of it."""
    journal, hub = HeldJournal(), EventHub(100)
    async with open_rig(journal) as rig, trio.open_nursery() as nursery:
        rig.engine.listen(lambda records: tell_watchers(records, hub, rig.engine.state))
        async with hub.watch() as stream:
            journal.held = True
            nursery.start_soon(rig.bus.send, "ann", "ben", "hello")
            await wait_all_tasks_blocked()
            with pytest.raises(trio.WouldBlock):
                stream.receive_nowait()
            journal.let_go()
            await wait_all_tasks_blocked()
            assert stream.receive_nowait() == MailStored("m1", "message", "ann", ("ben",), "hello")


async def test_what_happens_to_members_mail_tasks_and_requests_is_told(autojump_clock: MockClock) -> None:
    """Each kind of record that somebody watches for makes one event with its figures, and other records make none."""
    hub = EventHub(100)
    async with open_rig() as rig:
        rig.engine.listen(lambda records: tell_watchers(records, hub, rig.engine.state))
        async with hub.watch() as stream:
            await rig.bus.send("ann", "ben", "hello", request_id="m0")
            await rig.bus.acknowledge("ben", "m1")
            task = await rig.tasks.create("x")
            claim = await rig.tasks.claim(task.id, "ben")
            await rig.tasks.renew("ben")
            await rig.tasks.complete(task.id, "done", fence=claim.fence)
            request = await rig.engine.submit(RequestShutdown("cat", "ann", 9.0))
            assert request is not None
            await rig.engine.submit(AnswerRequest(request.id, "cat", approved=False, feedback="busy"))
            await rig.leave("cat")
            hub.close()
            events = [event async for event in stream]
    assert events == [
        MailStored("m1", "message", "ann", ("ben",), "hello", "m0"),
        MailCommitted("ben", ("m1",)),
        TaskChanged(1, "x", "pending"),
        TaskChanged(1, "x", "in_progress", "ben"),
        TaskChanged(1, "x", "completed", None, "done"),
        RequestChanged("r1", "shutdown", "cat", "requested", "ann"),
        RequestChanged("r1", "shutdown", "cat", "rejected", "cat", 1, "busy"),
        MemberChanged("cat", "stopped"),
    ]
