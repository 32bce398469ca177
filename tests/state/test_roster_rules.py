"""Who is in the team: names, lives and hosts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.lifecycle import LIFECYCLE, MemberEvent, MemberStatus
from teams.errors import HostConflict, InvalidName, MemberExists, MemberStateError, UnknownMember, UsageError
from teams.state.decision import Command
from teams.state.mail_commands import SendMail
from teams.state.mailboxes import OutgoingMail
from teams.state.roster import KEPT_NOTES, LIVE_STATUSES, MemberSpec, check_name
from teams.state.roster_commands import ChangeStatus, EndTurn, Join, PinNote, StartTurn
from teams.state.task_commands import ClaimTask, CreateTask
from tests.state.driving import HOST, Desk

NO_USAGE = (0, 0, 0, 0, 0)
THERE = "there_2_00000000"


@pytest.fixture
def desk() -> Desk:
    """An empty team."""
    return Desk()


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\\b", "-a", "a b", "a\n", "é", "\uff41nn", "x" * 65, "a.json", "\x00"])
def test_a_name_that_is_no_file_name_everywhere_is_refused(desk: Desk, name: str) -> None:
    """Names are letters, digits, underscore and hyphen; the error says so."""
    with pytest.raises(InvalidName, match=r"legal: letters, digits"):
        desk.join(name)
    assert desk.state.roster.members == {}


@pytest.mark.parametrize("name", ["con", "CON", "Nul", "lpt1", "COM9", "all", "Runtime", "team"])
def test_a_reserved_name_is_refused_in_any_case(desk: Desk, name: str) -> None:
    """Device names of other systems and the runtime's own words are nobody's name."""
    with pytest.raises(InvalidName, match=r"it is reserved"):
        desk.join(name)


@given(st.text(max_size=66))
def test_no_legal_name_leaves_its_folder(name: str) -> None:
    """Whatever passes the check is one plain component of a path."""
    try:
        check_name(name)
    except InvalidName:
        return
    assert name.isascii()
    assert 0 < len(name) <= 64
    assert not set(name) & set("/\\.:\x00 \n~")


def test_names_differ_by_more_than_case(desk: Desk) -> None:
    """`Ann` cannot join beside `ann`, also once `ann` has stopped; `ann` itself can come back."""
    desk.join("ann")
    for _ in range(2):
        with pytest.raises(InvalidName, match=r"'ann' has the same letters"):
            desk.join("ANN")
        if desk.state.roster.members["ann"].live:
            desk.leave("ann")
    desk.join("ann")
    assert desk.reloaded().roster.taken("aNN") == "ann"


def test_the_same_spec_is_the_same_member(desk: Desk) -> None:
    """Joining again with the same spec on the same host changes nothing; with another spec it is refused and says what differs."""
    spec = MemberSpec(name="ann", prompt="work", task_limit=2)
    assert desk.do(Join(spec, HOST)) == (1, True)
    seq = desk.state.seq
    assert desk.do(Join(spec, HOST)) == (1, False)
    assert desk.state.seq == seq
    with pytest.raises(MemberExists, match=r"a member of that name is spawning with another prompt and task_limit"):
        desk.do(Join(MemberSpec(name="ann", prompt="rest"), HOST))


def test_a_member_has_one_host_until_that_host_is_known_to_be_dead(desk: Desk) -> None:
    """Another host is refused and told who hosts it; once the first one is dead it takes over under the next incarnation."""
    spec = MemberSpec(name="ann")
    desk.do(Join(spec, HOST))
    with pytest.raises(HostConflict, match=r"cannot host 'ann': it is hosted by here_1_00000000 \(incarnation 1\)") as refused:
        desk.do(Join(spec, THERE))
    assert (refused.value.host, refused.value.incarnation) == (HOST, 1)
    assert desk.do(Join(spec, THERE, dead_hosts=frozenset({HOST}))) == (2, True)
    member = desk.state.roster.members["ann"]
    assert (member.host, member.status) == (THERE, MemberStatus.spawning)


def test_what_a_host_writes_for_a_life_that_has_ended_is_refused(desk: Desk) -> None:
    """Every command that carries an incarnation is refused with an older one."""
    desk.join("ann")
    desk.leave("ann", MemberEvent.lost)
    desk.join("ann")
    commands: list[Command[object]] = [
        ChangeStatus("ann", MemberEvent.work_started, 1),
        StartTurn("ann", 1),
        EndTurn("ann", 1, NO_USAGE),
        PinNote("ann", "note", 1),
    ]
    for command in commands:
        with pytest.raises(HostConflict, match=r"incarnation 2"):
            desk.do(command)


def test_the_first_prompt_is_mail_and_comes_once(desk: Desk) -> None:
    """The prompt is stored with the joining, not again for the same words, and again for other words in a later life."""
    desk.do(Join(MemberSpec(name="boss", kind="lead"), HOST))
    spec = MemberSpec(name="ann", prompt="work")
    desk.do(Join(spec, HOST, by="boss"))
    joined, told = desk.records()[-2:]
    assert (joined.kind, joined.more, told.kind, told.more) == ("member.joined", 1, "mail.sent", 0)
    assert (told.fields["from"], told.fields["content"]) == ("boss", "work")
    desk.leave("ann")
    desk.do(Join(spec, HOST, by="boss"))
    assert desk.state.mail.sent == 1
    desk.leave("ann")
    desk.do(Join(MemberSpec(name="ann", prompt="other work"), HOST, by="boss"))
    assert desk.state.mail.sent == 2


@pytest.mark.parametrize("status", list(MemberStatus))
@pytest.mark.parametrize("event", [event for event in MemberEvent if event is not MemberEvent.respawned])
def test_a_member_moves_along_its_table_and_nowhere_else(desk: Desk, status: MemberStatus, event: MemberEvent) -> None:
    """Each event moves a member where the table says, and is refused with what is legal where the table has nothing."""
    incarnation, _ = desk.do(Join(MemberSpec(name="ann"), HOST))
    paths = {
        MemberStatus.spawning: [],
        MemberStatus.idle: ["ready"],
        MemberStatus.working: ["ready", "work_started"],
        MemberStatus.awaiting_plan_approval: ["ready", "plan_submitted"],
        MemberStatus.draining: ["drain_started"],
        MemberStatus.stopped: ["exited"],
        MemberStatus.failed: ["crashed"],
    }
    for step in paths[status]:
        desk.do(ChangeStatus("ann", MemberEvent(step), incarnation))
    assert desk.state.roster.members["ann"].status is status
    if event in LIFECYCLE.legal(status):
        desk.do(ChangeStatus("ann", event, incarnation, "because"))
        member = desk.state.roster.members["ann"]
        assert (member.status, member.reason) == (LIFECYCLE.step(status, event), "because")
        assert (member.host is not None) == (member.status in LIVE_STATUSES)
    else:
        with pytest.raises(MemberStateError, match=rf"cannot apply {event.value} to 'ann': it is {status.value}"):
            desk.do(ChangeStatus("ann", event, incarnation))


def test_the_end_of_a_turn_commits_books_and_rests_in_one_transaction(desk: Desk) -> None:
    """The mail of the turn, its tokens and the idle status stand or fall together; a status change is not a turn."""
    desk.join("ann")
    desk.join("ben")
    message_id = desk.do(SendMail(OutgoingMail(type="message", sender="ben", recipients=("ann",), content="x"), None))
    desk.do(StartTurn("ann", 1))
    desk.do(StartTurn("ann", 1))  # already at work: nothing to say
    desk.do(EndTurn("ann", 1, (1, 2, 3, 4, 5), (message_id, "m9")))
    committed, rested = desk.records()[-2:]
    assert (committed.kind, committed.fields["ids"], committed.more) == ("mail.committed", [message_id], 1)
    assert (rested.kind, rested.fields["status"], rested.more) == ("member.status", "idle", 0)
    desk.do(EndTurn("ann", 1, (1, 0, 0, 0, 1)))
    spent = desk.state.roster.spending["ann"]
    assert (spent.input_tokens, spent.output_tokens, spent.calls, spent.turns, spent.total_tokens) == (2, 2, 6, 2, 11)
    assert desk.reloaded().roster.spending["ann"] == spent


def test_the_end_of_a_member_hands_back_its_tasks_and_says_why(desk: Desk) -> None:
    """What a member had in progress is pending again when it ends in any way, under a new fence, with the reason."""
    for number, event in enumerate((MemberEvent.exited, MemberEvent.crashed, MemberEvent.lost), 1):
        desk.join("ann")
        task_id = desk.do(CreateTask(subject="x", by="ann"))
        claim = desk.do(ClaimTask("ann", 10.0, task_id))
        assert claim is not None
        assert desk.leave("ann", event) == (task_id,)
        task = desk.task(task_id)
        assert (task.status.value, task.owner, task.reason, task.attempts) == ("pending", None, f"'ann' ended: {event.value}", 1)
        assert task.fence > claim.fence
        assert number == task_id
        desk.join("ben", task_limit=None)
        desk.do(ClaimTask("ben", 10.0, task_id))


def test_notes_are_kept_in_order_and_bounded(desk: Desk) -> None:
    """The newest notes of a member survive a snapshot; a blank or a long one is refused."""
    desk.join("ann")
    for number in range(KEPT_NOTES + 5):
        desk.do(PinNote("ann", str(number)))
    kept = tuple(str(number) for number in range(5, KEPT_NOTES + 5))
    assert desk.state.roster.notes["ann"] == desk.reloaded().roster.notes["ann"] == kept
    for text in (" \n", "x" * 2_001):
        with pytest.raises(UsageError, match=r"legal: 1 to 2000, not blank"):
            desk.do(PinNote("ann", text))


def test_near_names_are_found_whatever_their_case(desk: Desk) -> None:
    """The error for a mistyped name lists up to three members with close names."""
    for name in ("Reviewer1", "Reviewer2", "Reviewer3", "Reviewer4", "ann"):
        desk.join(name)
    with pytest.raises(UnknownMember) as refused:
        desk.state.roster.get("reviewer", operation="find")
    assert len(refused.value.near) == 3
    assert all(name.startswith("Reviewer") for name in refused.value.near)
