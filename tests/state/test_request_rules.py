"""The rules of plans and shutdowns one by one: who decides, until when, and what opens the gate."""

import pytest

from protocols.errors import AlreadyDecided, NotTheAnswerer, UnknownRequest
from protocols.lifecycle import MemberEvent, MemberStatus
from protocols.names import RUNTIME
from protocols.request import Request
from protocols.requests import KEEP_CLOSED
from teams.errors import HostConflict, UnknownMember, UsageError
from teams.state.plan_commands import SubmitPlan
from teams.state.request_commands import AnswerRequest, ExpireRequests, RequestShutdown
from teams.state.roster import KEPT_REJECTIONS, REJECTION_LIMIT_CHARS
from teams.state.roster_commands import StartTurn
from teams.state.task_commands import ClaimTask, CreateTask
from tests.state.driving import Desk


@pytest.fixture
def desk() -> Desk:
    """A lead, a person, and a teammate that needs plans."""
    desk = Desk()
    desk.join("boss", kind="lead")
    desk.join("user", kind="person")
    come(desk)
    return desk


def come(desk: Desk, **spec: object) -> None:
    """Let ann join."""
    desk.join("ann", **{"plan_required": True, "approvers": ("boss", "user"), "max_revisions": 2, **spec})


def submit(desk: Desk, *, default: bool | None = None, seconds: float = 100.0) -> Request:
    """Let ann submit a plan."""
    return desk.do(SubmitPlan("ann", desk.incarnation("ann"), {"summary": "s", "steps": ["a"]}, seconds, default))


def gate(desk: Desk) -> str | None:
    """Return under which approval ann may write."""
    return desk.state.roster.members["ann"].approved_plan


def status(desk: Desk) -> MemberStatus:
    """Return what ann is doing."""
    return desk.state.roster.members["ann"].status


def shut_down(desk: Desk, name: str = "ann", *, by: str = "boss", force: bool = False) -> Request:
    """Ask a member that runs to stop."""
    request = desk.do(RequestShutdown(name, by, 5.0, "enough", force))
    assert request is not None
    return request


# -- plans -------------------------------------------------------------------------


def test_a_plan_is_rejected_revised_and_approved(desk: Desk) -> None:
    """The gate opens with the approval of the second revision, under the id of the first, and the teammate works at once."""
    request = submit(desk)
    assert status(desk) is MemberStatus.awaiting_plan_approval
    desk.do(AnswerRequest(request.id, "boss", approved=False, feedback="smaller"))
    assert gate(desk) is None
    assert status(desk) is MemberStatus.working
    assert submit(desk).revision == 2
    desk.do(AnswerRequest(request.id, "user", approved=True))
    assert gate(desk) == request.id
    assert [mail.extra for mail in desk.state.mail.box("ann").values()] == [
        {"approve": False, "feedback": "smaller"},
        {"approve": True, "feedback": ""},
    ]
    assert [(mail.type, mail.request_id) for mail in desk.state.mail.box("boss").values()] == [("plan_approval_request", request.id)] * 2


def test_an_answer_to_an_older_revision_does_not_count_for_the_newer_one(desk: Desk) -> None:
    """Who read revision 1 and approves it after revision 2 came is told that 1 was rejected; the gate stays shut."""
    request = submit(desk)
    desk.do(AnswerRequest(request.id, "boss", approved=False))
    submit(desk)
    with pytest.raises(AlreadyDecided, match=r"cannot approve request 'r1': it was rejected by 'boss'"):
        desk.do(AnswerRequest(request.id, "user", approved=True, revision=1))
    assert gate(desk) is None
    with pytest.raises(ValueError, match=r"no revision 3"):
        desk.do(AnswerRequest(request.id, "user", approved=True, revision=3))


def test_only_who_was_asked_decides(desk: Desk) -> None:
    """Neither the teammate itself nor a member that was not named, nor somebody unknown, can approve."""
    request = submit(desk)
    desk.join("eve")
    for name in ("ann", "eve"):
        with pytest.raises(NotTheAnswerer, match=rf"'{name}' cannot answer request 'r1': it was put to 'boss', 'user'"):
            desk.do(AnswerRequest(request.id, name, approved=True))
    for name in ("mallory", RUNTIME):
        with pytest.raises(UnknownMember):
            desk.do(AnswerRequest(request.id, name, approved=True))
    with pytest.raises(UnknownRequest, match=r"'r9'"):
        desk.do(AnswerRequest("r9", "boss", approved=True))
    assert gate(desk) is None


def test_a_member_cannot_be_its_own_approver(desk: Desk) -> None:
    """A plan whose approvers include its owner is refused, and so is one without approvers."""
    desk.join("eve", approvers=("eve", "boss"))
    with pytest.raises(ValueError, match=r"'eve' cannot be asked to decide its own plan"):
        desk.do(SubmitPlan("eve", 1, {}, 9.0))
    desk.join("dan")
    with pytest.raises(UsageError, match=r"nobody is named to decide what 'dan' asks for"):
        desk.do(SubmitPlan("dan", 1, {}, 9.0))


def test_one_plan_waits_at_a_time_and_revisions_are_counted(desk: Desk) -> None:
    """A second plan is refused while one waits, and a third revision where two are allowed; the errors say for whom and how many."""
    request = submit(desk)
    with pytest.raises(UsageError, match=r"plan r1 \(revision 1\) still waits for boss or user"):
        submit(desk)
    for _ in range(2):
        desk.do(AnswerRequest(request.id, "boss", approved=False))
        if desk.state.requests.get(request.id).revision < 2:
            submit(desk)
    with pytest.raises(UsageError, match=r"plan r1 was rejected in 2 revisions, and 2 are allowed"):
        submit(desk)


@pytest.mark.parametrize(("default", "opens"), [(None, False), (False, False), (True, True)])
def test_at_the_deadline_the_owners_default_counts(desk: Desk, default: bool | None, opens: bool) -> None:
    """Nobody answered: the gate opens only if the owner chose that, a later answer is refused, and the teammate goes on."""
    request = submit(desk, default=default, seconds=10.0)
    desk.now += 9.9
    assert desk.do(ExpireRequests()) == ()
    desk.now += 0.1
    assert [after.state for after in desk.do(ExpireRequests())] == ["expired"]
    assert (gate(desk) is not None) == opens
    assert status(desk) is MemberStatus.working
    with pytest.raises(AlreadyDecided, match=r"it was expired"):
        desk.do(AnswerRequest(request.id, "boss", approved=True))


def test_a_rejected_plan_that_is_not_revised_in_time_is_withdrawn(desk: Desk) -> None:
    """A rejection gives as long for the revision as the answer could have taken; then the request ends, and a new plan is a new request."""
    request = submit(desk, seconds=100.0)
    desk.now += 50.0
    desk.do(AnswerRequest(request.id, "boss", approved=False))
    desk.now += 99.0
    assert desk.do(ExpireRequests()) == ()
    desk.now += 1.0
    assert [after.state for after in desk.do(ExpireRequests())] == ["withdrawn"]
    assert submit(desk).id != request.id


def test_a_new_plan_closes_the_gate_until_it_is_decided(desk: Desk) -> None:
    """With another plan submitted the approval of the one before does not hold any more."""
    desk.do(AnswerRequest(submit(desk).id, "boss", approved=True))
    assert gate(desk) is not None
    desk.do(AnswerRequest(submit(desk).id, "boss", approved=False))
    assert gate(desk) is None


def test_an_approval_outlives_a_crash_of_its_member(desk: Desk) -> None:
    """The same member that comes back after its process died goes on under the approved plan; an open plan ended with it."""
    request = submit(desk)
    desk.do(AnswerRequest(request.id, "boss", approved=True))
    desk.leave("ann", MemberEvent.lost)
    come(desk)
    assert gate(desk) == request.id


def test_an_approval_is_not_for_another_member_of_the_same_name(desk: Desk) -> None:
    """A stopped member's name is given to one with another task: what was approved for the first does not let the second write."""
    desk.do(AnswerRequest(submit(desk).id, "boss", approved=True))
    desk.leave("ann")
    come(desk, role="another", prompt="do something else")
    assert gate(desk) is None


def test_an_older_life_cannot_submit(desk: Desk) -> None:
    """A plan of an earlier incarnation is refused."""
    desk.leave("ann", MemberEvent.lost)
    come(desk)
    with pytest.raises(HostConflict, match=r"incarnation 2"):
        desk.do(SubmitPlan("ann", 1, {}, 9.0))


def test_what_is_submitted_cannot_be_changed_afterwards(desk: Desk) -> None:
    """The approver decides what was submitted: the caller's own dictionary is not what the state holds."""
    plan = {"summary": "read"}
    request = desk.do(SubmitPlan("ann", 1, plan, 9.0))
    plan["summary"] = "write"
    assert desk.state.requests.get(request.id).body == {"summary": "read"}


def test_long_feedback_is_cut_the_same_way_each_time(desk: Desk) -> None:
    """Feedback over the limit is cut, and repeating the same long answer is still the same answer."""
    request = submit(desk)
    command = AnswerRequest(request.id, "boss", approved=False, feedback="x" * 50, body_limit=10)
    first, seq = desk.do(command), desk.state.seq
    assert first.decision is not None
    assert first.decision.feedback == "x" * 10
    assert desk.do(command) == first
    assert desk.state.seq == seq


# -- shutdowns -----------------------------------------------------------------------


def test_asking_twice_is_one_request(desk: Desk) -> None:
    """An open shutdown is returned again; after a rejection a new one can be asked for."""
    first = shut_down(desk)
    assert shut_down(desk, by="user").id == first.id
    desk.do(AnswerRequest(first.id, "ann", approved=False, feedback="busy"))
    assert [mail.extra for mail in desk.state.mail.box("boss").values()] == [{"approve": False, "reason": "busy"}]
    assert shut_down(desk).id != first.id


def test_a_rejection_is_shown_to_who_asks_again_until_the_member_has_stopped(desk: Desk) -> None:
    """The next request carries the reasons in its body and its mail, also from a replay; a life that was stopped takes them with it."""
    desk.do(StartTurn("ann", 1))
    said = ["busy", "", "x" * (REJECTION_LIMIT_CHARS + 1)]
    for number, reason in enumerate(said):
        request = shut_down(desk)
        assert request.body.get("rejected_before", []) == said[:number]
        desk.do(AnswerRequest(request.id, "ann", approved=False, feedback=reason))
    mails = [mail for mail in desk.state.mail.box("ann").values() if mail.type == "shutdown_request"]
    assert [mail.content for mail in mails] == ["boss asks you to shut down.", *["boss asks you again to shut down."] * 2]
    assert [(mail.extra or {}).get("rejected_before") for mail in mails] == [
        None,
        "once because: busy",
        "2 times, the last time because: no reason was given",
    ]
    for state in (desk.replayed(), desk.reloaded(), desk.state.copy()):
        assert state.roster.rejections == {"ann": ("busy", "", "x" * REJECTION_LIMIT_CHARS)}
    forced = shut_down(desk, force=True)
    assert len(forced.body["rejected_before"]) == 3
    desk.leave("ann")
    desk.join("ann")
    assert "rejected_before" not in shut_down(desk).body


def test_a_host_that_died_does_not_take_a_rejection_with_it(desk: Desk) -> None:
    """A member that is lost, and comes back, still has rejected: nobody stopped it."""
    desk.do(AnswerRequest(shut_down(desk).id, "ann", approved=False, feedback="busy"))
    desk.leave("ann", MemberEvent.lost)
    desk.join("ann")
    assert shut_down(desk).body["rejected_before"] == ["busy"]


def test_only_the_newest_rejections_are_kept(desk: Desk) -> None:
    """What is kept of a member that always says no has a limit."""
    for number in range(KEPT_REJECTIONS + 2):
        desk.do(AnswerRequest(shut_down(desk).id, "ann", approved=False, feedback=str(number)))
    assert shut_down(desk).body["rejected_before"] == [str(number) for number in range(2, KEPT_REJECTIONS + 2)]


def test_only_a_member_that_has_something_to_lose_is_asked_by_mail(desk: Desk) -> None:
    """An idle member without a task gets no mail; one that works or owns a task is told who asks and why."""
    shut_down(desk)
    assert not desk.state.mail.box("ann")
    desk.join("ben")
    desk.do(ClaimTask("ben", 9.0, desk.do(CreateTask(subject="x", by="boss"))))
    desk.join("cat")
    desk.do(StartTurn("cat", 1))
    for name in ("ben", "cat"):
        request = shut_down(desk, name)
        (mail,) = desk.state.mail.box(name).values()
        assert (mail.type, mail.request_id, mail.extra) == ("shutdown_request", request.id, {"reason": "enough", "force": False})


def test_silence_leads_to_cancelling_at_the_deadline(desk: Desk) -> None:
    """Nobody answers: at the deadline the request goes straight on to cancelling, and ends as forced when the member exits."""
    request = shut_down(desk)
    desk.now += 5.0
    assert [after.state for after in desk.do(ExpireRequests())] == ["cancelling"]
    assert desk.do(ExpireRequests()) == ()
    desk.leave("ann")
    assert desk.state.requests.get(request.id).state == "stopped_forced"


def test_draining_has_its_own_deadline(desk: Desk) -> None:
    """An approved shutdown that does not end within its grace is cancelled, whether it said that it has drained or not."""
    request = shut_down(desk)
    desk.do(AnswerRequest(request.id, "ann", approved=True, grace_seconds=20.0))
    desk.now += 19.0
    assert desk.do(ExpireRequests()) == ()
    desk.now += 1.0
    assert [after.state for after in desk.do(ExpireRequests())] == ["cancelling"]


def test_force_needs_no_answer(desk: Desk) -> None:
    """Force cancels at once, also what was approved and drains; and forcing twice changes nothing more."""
    request = shut_down(desk)
    desk.do(AnswerRequest(request.id, "ann", approved=True, grace_seconds=20.0))
    assert shut_down(desk, force=True).state == "cancelling"
    seq = desk.state.seq
    assert shut_down(desk, force=True).state == "cancelling"
    assert desk.state.seq == seq
    desk.join("ben")
    assert shut_down(desk, "ben", force=True).state == "cancelling"


def test_a_member_that_has_ended_is_not_asked(desk: Desk) -> None:
    """For a stopped member there is nothing to ask; for an unknown one, or by one, there is an error."""
    desk.leave("ann")
    assert desk.do(RequestShutdown("ann", "boss", 5.0)) is None
    with pytest.raises(UnknownMember, match=r"cannot shut down 'amm'"):
        desk.do(RequestShutdown("amm", "boss", 5.0))
    with pytest.raises(UnknownMember, match=r"cannot ask for a shutdown as 'bos'.*did you mean boss"):
        desk.do(RequestShutdown("user", "bos", 5.0))


def test_old_requests_are_forgotten_the_same_way_everywhere() -> None:
    """Of closed requests the newest are kept: a fold from the log, a snapshot and a copy know the same ones, and ids go on."""
    desk = Desk(watched=False)
    desk.join("boss", kind="script")
    desk.join("ann", kind="script")
    for _ in range(KEEP_CLOSED + 3):
        desk.do(AnswerRequest(shut_down(desk).id, "ann", approved=False))
    known = [number for number in range(1, KEEP_CLOSED + 4) if f"r{number}" in desk.state.requests]
    assert len(known) >= KEEP_CLOSED
    assert known == list(range(KEEP_CLOSED + 4 - len(known), KEEP_CLOSED + 4)), "the newest are kept"
    desk.check_folds()
    assert desk.reloaded().requests_opened == KEEP_CLOSED + 3
