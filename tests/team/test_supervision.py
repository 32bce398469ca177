"""Members fail alone, come back by their name, and belong to one process at a time."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from protocols.lifecycle import MemberStatus
from teams import GatewayOptions, MemberOptions, ModelRetry, ScriptedModel, TeamOptions, connect_team, open_team
from teams.engine import load_state
from teams.errors import HostConflict, MemberExists, MemberStateError, ModelConnectionError, TeamError
from teams.hosts import read_retries
from teams.journal.memory import MemoryJournal, MemoryLog
from teams.models.base import ModelRequest
from teams.models.script import Reply, blocked, call, fail, say, spoken
from teams.testing.team import StrictModel, cancel_at_step, run_seeded, virtual_wall_clock
from tests.laws.crashes import injected, sent_to

PLAIN = TeamOptions(views=False)


def _breaks(request: ModelRequest) -> Reply:
    return fail(RuntimeError("broken"))


async def test_failing_model_fails_its_member_alone_and_the_leads_are_told(autojump_clock: MockClock) -> None:
    """Its task is free at once, a mate goes on with its turn, and every lead agent gets one notice with the reason."""
    release = trio.Event()
    inner = ScriptedModel({"bad": _breaks, "slow": [blocked(release) + say("done")], "boss": ["noted"]})
    async with open_team(None, model=StrictModel(inner), wall_clock=virtual_wall_clock) as team:
        await team.spawn("boss", lead=True)
        await team.spawn("slow", prompt="begin", options=MemberOptions(auto_claim=False))
        await team.spawn("bad")
        await team.tasks.create("work")
        member = await team.manager.join("bad")
        assert (member.status, member.reason) == (MemberStatus.failed, "RuntimeError: broken")
        assert team.tasks.get(1).owner is None
        assert team.member("slow").status is MemberStatus.working
        release.set()
        await team.wait_quiescent()
        assert inner.calls == {"bad": 1, "slow": 1, "boss": 1}
        told = spoken(inner.last_requests["boss"].messages[-1])
        assert "bad has failed (RuntimeError: broken)" in told
        assert 'from="(runtime)"' in told


async def test_failed_member_comes_back_by_a_spawn(autojump_clock: MockClock) -> None:
    """The same spawn again is a new life of the same member, which answers what the last one left unanswered."""
    inner = ScriptedModel({"ann": [fail(RuntimeError("broken")), say("better")]})
    model = StrictModel(inner)
    async with open_team(None, model=model, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin")
        await team.manager.join("ann")
        await team.spawn("ann", prompt="begin")
        await team.wait_quiescent()
        member = team.state.roster.members["ann"]
        assert (member.status, member.incarnation) == (MemberStatus.idle, 2)
        assert not team.state.mail.box("ann")
    inner.verify()
    assert not model.refused


async def test_life_that_ended_before_its_first_sync_is_remembered(tmp_path: Path) -> None:
    """What a member was told before it failed in its very first call is in its transcript once, and the next life answers it."""
    inner = ScriptedModel({"ann": [fail(RuntimeError("broken")), say("better")]})
    async with open_team(tmp_path / "team", model=StrictModel(inner), options=PLAIN) as team:
        await team.spawn("ann", prompt="begin")
        await team.manager.join("ann")
        await team.spawn("ann", prompt="begin")
        await team.wait_quiescent()
        assert not team.state.mail.box("ann")
    assert injected(tmp_path / "team", "ann") == dict.fromkeys(sent_to(tmp_path / "team", "ann"), 1)
    assert len(inner.last_requests["ann"].messages) == 1


async def test_mail_that_a_failing_disk_kept_from_the_transcript_comes_again(tmp_path: Path) -> None:
    """Mail that was taken and could not be written is unread for the next life in the same process, and enters the transcript once."""
    obstacle = tmp_path / "team" / "sessions" / "ann.jsonl"
    async with open_team(tmp_path / "team", model=StrictModel(ScriptedModel(lambda _: "done")), options=PLAIN) as team:
        await team.spawn("ann")
        obstacle.mkdir()
        await team.send("ann", "hello")
        assert (await team.manager.join("ann")).status is MemberStatus.failed
        obstacle.rmdir()
        await team.spawn("ann")
        await team.wait_quiescent()
        assert not team.state.mail.box("ann")
    assert injected(tmp_path / "team", "ann") == dict.fromkeys(sent_to(tmp_path / "team", "ann"), 1)


async def test_member_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    """A spawn whose member fails before it is ready raises with the reason, for everybody who waits for it."""
    refusals: list[str] = []
    async with open_team(tmp_path / "team", model=ScriptedModel([]), options=PLAIN) as team:
        (tmp_path / "team" / "sessions" / "ann.jsonl").write_text("no session\n")

        async def spawn() -> None:
            with pytest.raises(MemberStateError, match="NotASession") as refused:
                await team.spawn("ann")
            refusals.append(refused.value.name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(spawn)
            nursery.start_soon(spawn)
    assert refusals == ["ann", "ann"]


async def test_spawn_is_idempotent_also_at_the_same_time(autojump_clock: MockClock) -> None:
    """Spawned by five at once and once more later, a member has one life, one prompt, and is ready for each of them."""
    inner = ScriptedModel(lambda _: "done")
    async with open_team(None, model=inner, wall_clock=virtual_wall_clock) as team:

        async def spawn() -> None:
            await team.spawn("ann", role="dev", prompt="begin")
            assert next(iter(team.manager.hosted())).ready.is_set()

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(spawn)
        await spawn()
        await team.wait_quiescent()
        assert team.state.roster.members["ann"].incarnation == 1
        assert inner.calls == {"ann": 1}


async def test_live_member_with_another_spec_is_not_replaced(autojump_clock: MockClock) -> None:
    """A taken name is refused, and the error says in what the two differ; once stopped, the name is free."""
    async with open_team(None, model=ScriptedModel(lambda _: "done"), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", role="dev")
        with pytest.raises(MemberExists, match="role"):
            await team.spawn("ann", role="tester")
        await team.shutdown("ann")
        await team.spawn("ann", role="tester")
        assert team.state.roster.members["ann"].spec.role == "tester"


async def test_directory_has_one_lead_at_a_time(tmp_path: Path) -> None:
    """A second process that would host the lead is refused and told by whom, and may look in; afterwards it can take over."""
    async with open_team(tmp_path / "team", model=ScriptedModel([]), options=PLAIN) as team:
        host = str(team.state.roster.members["lead"].host)
        with trio.fail_after(10), pytest.raises(HostConflict, match=host):  # the block must not be reached
            async with open_team(tmp_path / "team", model=ScriptedModel([]), options=PLAIN):
                raise AssertionError("two hosts of one lead")
        async with connect_team(tmp_path / "team") as client:
            assert client.state.roster.members["lead"].live
    async with open_team(tmp_path / "team", model=ScriptedModel([]), options=PLAIN) as team:
        assert team.state.roster.members["lead"].incarnation == 2


async def test_members_have_each_their_own_model(autojump_clock: MockClock) -> None:
    """Two models of the same name serve those for whom they were given, however late their first turn comes."""
    answers: dict[str, str] = {}

    def named(word: str) -> Callable[[ModelRequest], Reply]:
        def script(request: ModelRequest) -> Reply:
            answers[request.agent] = word
            return say(word)

        return script

    async with open_team(None, model=ScriptedModel(named("default")), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", options=MemberOptions(model=ScriptedModel(named("first"))))
        await team.spawn("ben", options=MemberOptions(model=ScriptedModel(named("second"))))
        await team.spawn("cat")
        await team.broadcast("go")
        await team.wait_quiescent()
    assert answers == {"ann": "first", "ben": "second", "cat": "default"}


async def _spawn_by_agent(log: MemoryLog) -> None:
    def script(request: ModelRequest) -> Reply:
        return say("ok") if request.messages[-1].tool_results else call("spawn_teammate", name="new", role="helper", prompt="work")

    async with open_team(None, model=ScriptedModel(script), journal=MemoryJournal(log), wall_clock=virtual_wall_clock) as team:
        await team.spawn("boss", prompt="begin", lead=True)
        await team.wait_quiescent()


async def _cancel_at(step: int | None) -> int:
    log = MemoryLog()
    with cancel_at_step(step) as counter:
        await _spawn_by_agent(log)
    state = await load_state(MemoryJournal(log))
    alive = {member.name: member.status.value for member in state.roster.members.values() if member.live}
    assert set(alive) <= {"user", "lead"}, f"cancelled before step {step}: {alive}"
    return counter.steps


@pytest.mark.parametrize("seed", range(2))
def test_every_end_is_written_wherever_the_team_is_cancelled(seed: int) -> None:
    """Cancelled before any of its steps, a team leaves no agent alive in its journal, also none that was just being spawned."""
    for step in range(1, run_seeded(_cancel_at, None, seed=seed)):
        run_seeded(_cancel_at, step, seed=seed)


async def test_call_that_is_made_again_is_told_to_watchers_and_to_other_processes(tmp_path: Path) -> None:
    """Which attempt comes, of how many, when and why: as an event, and in a file that ends with its time and with the host."""
    options = TeamOptions(views=False, gateway=GatewayOptions(max_attempts=5, backoff_seconds=0.2, backoff_jitter=0.0))
    model = ScriptedModel({"ann": [fail(ModelConnectionError("no route")), say("better")]})
    root = tmp_path / "team"
    async with open_team(root, model=model, options=options) as team, team.events() as events:
        await team.spawn("ann", prompt="begin", tools=[])
        event: object = None
        while not isinstance(event, ModelRetry):
            event = await events.receive()
        assert (event.name, event.attempt, event.max_attempts, event.wait_seconds) == ("ann", 2, 5, 0.2)
        assert str(event) == "tries the model again in 0 s, attempt 2 of 5: no route"
        hosts = [member.host for member in team.state.roster.live() if member.host is not None]
        now = time.time()
        assert read_retries(root / "hosts", hosts, now) == {"ann": str(event)}
        assert read_retries(root / "hosts", hosts, now + 1) == {}
        await team.wait_quiescent()
    assert not list((root / "hosts").iterdir())


async def test_member_that_fails_is_never_called_idle_by_its_last_turn(autojump_clock: MockClock) -> None:
    """The figures of a turn that broke are booked, and the next that is said of its member is that it has failed."""

    async def broken(request: ModelRequest) -> Reply:
        await trio.lowlevel.checkpoint()
        if request.messages[-1].tool_results:
            raise RuntimeError("broken")
        return call("note", text="n")

    journal = MemoryJournal()
    async with open_team(None, model=ScriptedModel({"ann": broken}), journal=journal, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=[])
        outcome = await team.wait_quiescent()
        assert outcome.failures == {"ann": "RuntimeError: broken"}
        with pytest.raises(TeamError, match="ann has failed: RuntimeError: broken"):
            outcome.raise_for_failures()
        assert team.spending["ann"].calls == 2  # also the one that broke
    said = [
        record.fields["status"] for record in await journal.read(0) if record.kind == "member.status" and record.fields["name"] == "ann"
    ]
    assert said == ["idle", "working", "working", "failed"]
