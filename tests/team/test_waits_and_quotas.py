"""Asking and waiting: replies find their question, a circle of waits is refused by name, and a full mailbox takes nothing more."""

import pytest
import trio
from trio.testing import MockClock

from teams import BusOptions, ScriptedModel, Team, TeamOptions, open_team
from teams.errors import MailboxFull, MemberStateError, UnknownMember, UsageError, WaitCycle
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, say, spoken
from teams.testing.team import StrictModel, virtual_wall_clock, wait_for

EMPTY = ScriptedModel([])


async def test_ask_gets_the_reply_to_its_own_question(autojump_clock: MockClock) -> None:
    """A reply counts only with the question's id and from who was asked; other mail stays in the inbox."""

    def ben(request: ModelRequest) -> Reply:
        text = spoken(request.messages[-1])
        if request.messages[-1].tool_results:
            return say("answered")
        asked = text.partition('id="')[2].partition('"')[0]
        return call("send_message", to="lead", content="by the way") + call("send_message", to="lead", content="42", request_id=asked)

    async with open_team(None, model=StrictModel(ScriptedModel(ben)), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ben")
        await team.add_member("eve")
        replies: list[str] = []

        async def ask() -> None:
            replies.append((await team.bus.ask("lead", "ben", "how many?")).content)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await wait_for(team, lambda: team.state.mail.sent)
            await team.bus.send("eve", "lead", "13", request_id="m1")
        assert replies == ["42"]
        assert [message.content for message in await team.bus.read_inbox("lead")] == ["13", "by the way"]


async def _ring(team: Team, *names: str) -> None:
    for name in names:
        await team.add_member(name)


async def test_circle_of_two_asks_is_refused(autojump_clock: MockClock) -> None:
    """Who asks somebody that waits for him gets the circle by name, and his question is not sent."""
    async with open_team(None, model=EMPTY, wall_clock=virtual_wall_clock) as team, trio.open_nursery() as nursery:
        await _ring(team, "a", "b")
        nursery.start_soon(team.bus.ask, "a", "b", "?")
        await trio.testing.wait_all_tasks_blocked()
        sent = team.state.mail.sent
        with pytest.raises(WaitCycle) as refused:
            await team.bus.ask("b", "a", "?")
        assert set(refused.value.cycle) == {"a", "b"}
        assert team.state.mail.sent == sent
        nursery.cancel_scope.cancel()


async def test_circle_of_ask_join_and_task_is_refused(autojump_clock: MockClock) -> None:
    """A asks b, b waits for a task of c, c joins a: the last of these is refused, and names all three."""
    async with open_team(None, model=EMPTY, wall_clock=virtual_wall_clock) as team, trio.open_nursery() as nursery:
        await _ring(team, "a", "b", "c")
        task = await team.tasks.create("work")
        await team.tasks.claim(task.id, "c")
        nursery.start_soon(team.bus.ask, "a", "b", "?")
        nursery.start_soon(lambda: team.tasks.wait(task.id, waiter="b"))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(WaitCycle) as refused:
            await team.manager.join("a", waiter="c")
        assert set(refused.value.cycle) == {"a", "b", "c", f"task {task.id}"}
        nursery.cancel_scope.cancel()


async def test_wait_on_a_blocked_task_follows_its_blockers(autojump_clock: MockClock) -> None:
    """A task that waits for one that I own waits for me: I cannot wait for it."""
    async with open_team(None, model=EMPTY, wall_clock=virtual_wall_clock) as team:
        await _ring(team, "a")
        first = await team.tasks.create("first")
        second = await team.tasks.create("second", blocked_by=[first.id])
        await team.tasks.claim(first.id, "a")
        with pytest.raises(WaitCycle, match=f"task {second.id}"):
            await team.tasks.wait(second.id, waiter="a")


async def test_wait_that_ended_closes_no_circle(autojump_clock: MockClock) -> None:
    """After an answer, or a cancelled wait, the other direction is free."""
    async with open_team(None, model=EMPTY, wall_clock=virtual_wall_clock) as team:
        await _ring(team, "a", "b")
        with trio.move_on_after(1):
            await team.bus.ask("a", "b", "?")
        with trio.move_on_after(1):
            await team.bus.ask("b", "a", "?")
        assert not team._services.waits.waits_of("a")
        assert not team._services.waits.waits_of("b")


async def test_lead_cannot_wait_for_its_own_shutdown(autojump_clock: MockClock) -> None:
    """An agent that asks for its own shutdown is told why it would wait for ever."""
    inner = ScriptedModel(lambda request: say("oh") if request.messages[-1].tool_results else call("request_shutdown", name="boss"))
    async with open_team(None, model=StrictModel(inner), wall_clock=virtual_wall_clock) as team:
        await team.spawn("boss", prompt="begin", lead=True)
        await team.wait_quiescent()
        assert "boss waits for the shutdown of boss" in spoken(inner.last_requests["boss"].messages[-1])
        assert not team.state.requests.open()


async def test_full_mailbox_takes_nothing_more_until_it_is_read(autojump_clock: MockClock) -> None:
    """Over the quota a send is refused and nothing stored, a broadcast is refused whole; reading makes room."""
    options = TeamOptions(bus=BusOptions(unread_quota=3))
    async with open_team(None, model=EMPTY, options=options, wall_clock=virtual_wall_clock) as team:
        await _ring(team, "bot", "other")
        for number in range(3):
            await team.send("bot", f"{number}")
        with pytest.raises(MailboxFull) as full:
            await team.send("bot", "3")
        assert (full.value.recipient, full.value.unread, full.value.quota) == ("bot", 3, 3)
        with pytest.raises(MailboxFull):
            await team.broadcast("to all")
        assert not team.state.mail.box("other")
        assert len(await team.bus.read_inbox("bot")) == 3
        await team.send("bot", "3")


async def test_mail_to_nobody_creates_nothing(autojump_clock: MockClock) -> None:
    """An unknown name, oneself, a stopped member, a blank body: each is refused by its own error, and nothing is stored."""
    async with open_team(None, model=EMPTY, wall_clock=virtual_wall_clock) as team:
        await team.spawn("anna")
        await team.shutdown("anna")
        sent = team.state.mail.sent
        with pytest.raises(UnknownMember, match="did you mean anna"):
            await team.send("ana", "hi")
        with pytest.raises(UsageError, match="itself"):
            await team.send("lead", "hi")
        with pytest.raises(MemberStateError, match="stopped"):
            await team.send("anna", "hi")
        with pytest.raises(UsageError, match="blank"):
            await team.send("user", " ")
        assert team.state.mail.sent == sent
