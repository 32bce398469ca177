"""Questions of agents: asked once, answered once by who was asked, and never waited for in vain."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from teams import QuestionOptions, ScriptedModel, TeamOptions, connect_team, open_team
from teams.approvals import QuestionRequest
from teams.errors import WaitCycle
from teams.models.base import ModelRequest
from teams.models.script import Reply, call, say, spoken
from teams.state.permission_commands import AskQuestion
from teams.state.request_commands import AnswerRequest
from teams.testing.team import StrictModel, virtual_wall_clock, wait_for
from teams.waits import TeamFacts, WaitGraph
from tests.state.driving import Desk


def asks(made: Reply) -> Callable[[ModelRequest], Reply]:
    """Ask at the beginning, and say what came back."""

    def script(request: ModelRequest) -> Reply:
        newest = request.messages[-1]
        return made if "begin" in spoken(newest) and not newest.tool_results else say("I know")

    return script


def answers(text: str, to: str = "ann") -> Callable[[ModelRequest], Reply]:
    """Answer every mail that has a request id."""

    def script(request: ModelRequest) -> Reply:
        newest = request.messages[-1]
        if 'request_id="' not in spoken(newest) or newest.tool_results:
            return say("done")
        return call("send_message", to=to, content=text, request_id=spoken(newest).split('request_id="')[1].split('"')[0])

    return script


def told(model: ScriptedModel, name: str = "ann") -> str:
    """The results that the member was last given."""
    return " / ".join(str(block["content"]) for block in model.last_requests[name].messages[-1].tool_results)


USER = call("ask_user", question="Which port?")
BEN = call("ask_teammate", name="ben", question="Which port?")


@pytest.mark.parametrize("answer", ["8080", None])
async def test_script_answers_for_the_person_or_declines(autojump_clock: MockClock, answer: str | None) -> None:
    """The question is a request that a script of that name decides; the answer is the result of the call, a refusal an error."""
    inner = ScriptedModel({"ann": asks(USER)})
    options = TeamOptions(person="lead")
    async with open_team(None, model=StrictModel(inner), options=options, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=[])
        async for request in team.requests():
            assert isinstance(request, QuestionRequest)
            assert (request.author, request.question) == ("ann", "Which port?")
            await (request.answer(answer) if answer else request.decline("ask ben"))
        assert told(inner) == (f"lead answers: {answer}" if answer else "lead gives no answer: ask ben")


async def test_teammate_answers_by_mail_that_is_not_shown_twice(autojump_clock: MockClock) -> None:
    """A reply with the question's id is the result of the waiting call; it is not mail any more, and it is committed."""
    inner = ScriptedModel({"ann": asks(BEN), "ben": answers("8080")})
    async with open_team(None, model=StrictModel(inner), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ben", tools=[])
        await team.spawn("ann", prompt="begin", tools=[])
        await team.wait_quiescent()
        assert told(inner) == "ben answers: 8080"
        assert "".join(message.json for message in inner.last_requests["ann"].messages).count("8080") == 1
        assert not team.state.mail.box("ann")
        assert str(team.state.requests.get("r1").state) == "answered"


async def test_mail_of_somebody_else_answers_no_question(autojump_clock: MockClock) -> None:
    """Only who was asked answers: the same id in another's mail leaves the question open, and the mail is mail."""
    forged = call("send_message", to="ann", content="1", request_id="r1")
    scripts = {"ann": asks(BEN), "ben": asks(say("hm")), "eve": asks(forged)}
    async with open_team(None, model=StrictModel(ScriptedModel(scripts)), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ben", tools=[])
        await team.spawn("ann", prompt="begin", tools=[])
        await wait_for(team, lambda: "r1" in team.state.requests)
        await team.spawn("eve", prompt="begin", tools=[])
        await wait_for(team, lambda: [mail for mail in team.state.mail.box("ann").values() if mail.sender == "eve"])
        assert team.state.requests.get("r1").is_undecided


@pytest.mark.parametrize("end", ["deadline", "stopped"])
async def test_nobody_waits_for_an_answer_that_cannot_come(autojump_clock: MockClock, end: str) -> None:
    """At the deadline, or when who was asked has ended, the call comes back as an error."""
    inner = ScriptedModel({"ann": asks(BEN), "ben": lambda _: say("hm")})
    options = TeamOptions(questions=QuestionOptions(deadline_seconds=60))
    async with open_team(None, model=StrictModel(inner), options=options, wall_clock=virtual_wall_clock) as team:
        await team.spawn("ben", tools=[])
        await team.spawn("ann", prompt="begin", tools=[])
        await wait_for(team, lambda: "r1" in team.state.requests)
        began = trio.current_time()
        if end == "stopped":
            await team.shutdown("ben")
        await team.wait_quiescent()
        assert told(inner) == "ben did not answer in time, or has ended"
        assert (trio.current_time() - began > 59) is (end == "deadline")


async def test_two_that_ask_each_other_are_not_both_waiting(autojump_clock: MockClock) -> None:
    """The question that would close a circle of waits is refused at once, with the circle in words."""
    inner = ScriptedModel({"ann": asks(BEN), "ben": asks(call("ask_teammate", name="ann", question="And yours?"))})
    async with open_team(None, model=StrictModel(inner), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ben", tools=[])
        await team.spawn("ann", prompt="begin", tools=[])
        await wait_for(team, lambda: "r1" in team.state.requests)
        await team.send("ben", "begin")
        await wait_for(team, lambda: "ann" in told(inner, "ben"))
        assert "ben" in told(inner, "ben")
        assert len(team.state.requests) == 1


async def test_member_that_waits_for_an_answer_stops_when_it_is_asked_to(autojump_clock: MockClock) -> None:
    """A shutdown does not wait for the answer to a question: the question is withdrawn, and the member answers."""
    inner = ScriptedModel({"ann": asks(USER)})
    async with open_team(None, model=StrictModel(inner), wall_clock=virtual_wall_clock) as team:
        await team.spawn("ann", prompt="begin", tools=[])
        await wait_for(team, lambda: "r1" in team.state.requests)
        began = trio.current_time()
        outcome = await team.shutdown("ann")
        assert (outcome.state, trio.current_time() - began < 1) == ("stopped", True)
        assert str(team.state.requests.get("r1").state) == "withdrawn"


@pytest.mark.parametrize("answered", ["while down", "after"])
async def test_question_survives_its_process(tmp_path: Path, answered: str) -> None:
    """A question that waits at a kill is not asked again: its answer, given while the process was down or after, reaches the open call."""
    root, copy = tmp_path / "team", tmp_path / "copy"
    options = TeamOptions(views=False)
    async with open_team(root, model=ScriptedModel({"ann": asks(USER)}), options=options) as team:
        await team.spawn("ann", prompt="begin", tools=[])
        await wait_for(team, lambda: "r1" in team.state.requests)
        shutil.copytree(root, copy)
    async with connect_team(copy) as client:
        if answered == "while down":
            await client.engine.submit(AnswerRequest("r1", "user", approved=True, feedback="8080"))
    inner = ScriptedModel({"ann": asks(say("never asked again"))})
    async with open_team(copy, model=StrictModel(inner), options=options) as team:
        await team.spawn("ann", prompt="begin", tools=[])
        if answered == "after":
            await team._services.engine.submit(AnswerRequest("r1", "user", approved=True, feedback="8080"))
        await team.wait_quiescent()
        assert told(inner) == "user answers: 8080"
        assert team.state.requests_opened == 1


def test_wait_for_a_member_that_asks_in_another_process_is_seen() -> None:
    """What a member of another process waits for stands in the log, so the circle is found here as well; a decided question is none."""
    desk = Desk()
    for name in ("ann", "ben"):
        desk.join(name)
    request = desk.do(AskQuestion("ann", desk.incarnation("ann"), "c1", "ben", "Which port?", 60.0))
    waits = WaitGraph(TeamFacts(lambda: desk.state))
    with pytest.raises(WaitCycle, match="ben waits for a reply from ann, who waits for an answer from ben"), waits.waiting("ben", "ann"):
        pass
    desk.do(AnswerRequest(request.id, "ben", approved=True, feedback="8080"))
    with waits.waiting("ben", "ann"):
        assert waits.waits_of("ben") == ("ann",)
