"""The rules of tasks one by one: who may take what, what a failure means for the others, and what is said when something cannot be."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from protocols.lifecycle import MemberEvent
from protocols.task_status import BlockerPolicy, TaskEvent, TaskStatus
from teams.errors import ClaimLost, HostConflict, StaleLease, TaskGraphError, TaskStateError, UnknownMember, UnknownTask, UsageError
from teams.state.decision import Command
from teams.state.task_commands import (
    AddEdge,
    AmendTask,
    CancelTask,
    Claim,
    ClaimTask,
    CreateTask,
    ExpireLeases,
    FinishTask,
    ReleaseTask,
    RenewLeases,
    RetryTask,
)
from tests.state.driving import Desk

FAIL, SKIP, WAIT, RUN = BlockerPolicy.fail, BlockerPolicy.skip, BlockerPolicy.wait, BlockerPolicy.run


@pytest.fixture
def desk() -> Desk:
    """A team of two."""
    desk = Desk()
    desk.join("ann", task_limit=None, capabilities=("dev",))
    desk.join("ben", task_limit=1)
    return desk


def create(desk: Desk, blocked_by: Sequence[tuple[int, BlockerPolicy]] = (), **wishes: Any) -> int:
    """Create a task and return its id."""
    return desk.do(CreateTask(subject="a task", by="ann", blocked_by=blocked_by, **wishes))


def claim(desk: Desk, task_id: int, owner: str = "ann", lease_seconds: float = 10.0) -> Claim:
    """Claim a task that can be claimed."""
    claimed = desk.do(ClaimTask(owner, lease_seconds, task_id))
    assert claimed is not None
    return claimed


def finish(desk: Desk, task_id: int, event: TaskEvent = TaskEvent.complete) -> None:
    """Let ann take a task and end it."""
    desk.do(FinishTask(task_id, event, "as it was", fence=claim(desk, task_id).fence))


def statuses(desk: Desk, *task_ids: int) -> list[str]:
    """Return where the tasks stand."""
    return [desk.task(task_id).status.value for task_id in task_ids]


def mail_of(desk: Desk, member: str) -> list[str]:
    """Return what a member has not read."""
    return [mail.content for mail in desk.state.mail.box(member).values()]


# -- edges -------------------------------------------------------------------------


def test_an_edge_to_an_unknown_task_or_to_itself_is_refused(desk: Desk) -> None:
    """The error names the task that does not exist, and an edge to itself is a cycle of one."""
    task = create(desk)
    with pytest.raises(TaskGraphError, match=r"wait for task 9: no such task; ids run from 1 to 1"):
        desk.do(AddEdge(task, 9))
    with pytest.raises(TaskGraphError, match=r"wait for itself"):
        create(desk, [(2, FAIL)])  # the id that the task itself would get
    with pytest.raises(TaskGraphError, match=r"cannot make task 1 wait for itself") as refused:
        desk.do(AddEdge(task, task))
    assert refused.value.cycle == (1, 1)
    with pytest.raises(UnknownTask, match=r"cannot add an edge to task 7: no such task; ids run from 1 to 1"):
        desk.do(AddEdge(7, task))


def test_the_cycle_is_named_as_it_runs(desk: Desk) -> None:
    """The error lists the tasks of the cycle, each blocking the next, and no task beside it."""
    first = create(desk)
    second = create(desk, [(first, FAIL)])
    create(desk, [(first, FAIL)])  # a dead end
    third = create(desk, [(second, FAIL)])
    with pytest.raises(TaskGraphError, match=r"that closes the cycle 1 -> 2 -> 4 -> 1") as refused:
        desk.do(AddEdge(first, third))
    assert refused.value.cycle == (1, 2, 4, 1)


def test_an_edge_stays_when_its_blocker_is_settled(desk: Desk) -> None:
    """Being blocked is computed: the edge of a completed blocker is still there, and blocks nothing."""
    blocker = create(desk)
    task = create(desk, [(blocker, FAIL)])
    assert desk.state.tasks.blocked_by(task) == (blocker,)
    finish(desk, blocker)
    assert desk.state.tasks.blocked_by(task) == ()
    assert list(desk.state.tasks.blockers[task]) == [blocker]
    assert list(desk.state.tasks.dependents[blocker]) == [task]


def test_blockers_are_listed_by_number(desk: Desk) -> None:
    """Task 10 comes after task 2."""
    ids = [create(desk) for _ in range(11)]
    task = create(desk, [(ids[9], FAIL), (ids[1], FAIL), (ids[10], FAIL)])
    assert desk.state.tasks.blocked_by(task) == (2, 10, 11)


@pytest.mark.parametrize(("policy", "status"), [(FAIL, "failed"), (SKIP, "cancelled"), (WAIT, "pending"), (RUN, "pending")])
@pytest.mark.parametrize("cause", ["fails", "is cancelled"])
def test_each_edge_says_what_a_fallen_blocker_means(desk: Desk, policy: BlockerPolicy, status: str, cause: str) -> None:
    """The dependent fails, is cancelled, goes on waiting or runs all the same, whether its blocker failed or was cancelled."""
    blocker = create(desk)
    task = create(desk, [(blocker, policy)])
    if cause == "fails":
        finish(desk, blocker, TaskEvent.fail)
    else:
        desk.do(CancelTask(blocker))
    assert statuses(desk, task) == [status]
    assert desk.state.tasks.is_ready(desk.task(task)) == (policy is RUN)
    if policy in (FAIL, SKIP):
        assert desk.task(task).because_of == blocker
        assert desk.task(task).reason == f"task {blocker} did not complete"


def test_a_failure_runs_through_a_whole_chain(desk: Desk) -> None:
    """A dependent that falls brings down its own dependents, each by its own edge."""
    first = create(desk)
    second = create(desk, [(first, FAIL)])
    third = create(desk, [(second, SKIP)])
    fourth = create(desk, [(third, FAIL)])
    last = create(desk, [(fourth, RUN)])
    finish(desk, first, TaskEvent.fail)
    assert statuses(desk, second, third, fourth, last) == ["failed", "cancelled", "failed", "pending"]
    assert claim(desk, last).fence == 1


def test_two_failures_in_one_command_bring_a_common_dependent_down_once(desk: Desk) -> None:
    """A task whose two blockers are given up together takes one step, whichever of its edges says which."""
    first, second = create(desk, max_attempts=1), create(desk, max_attempts=1)
    task = create(desk, [(first, SKIP), (second, FAIL)])
    claim(desk, first)
    claim(desk, second)
    desk.now += 10.0
    assert desk.do(ExpireLeases()) == (first, second)
    changes = [record for record in desk.records() if record.kind == "task.changed" and record.fields["id"] == task]
    assert len(changes) == 1
    assert desk.task(task).status in (TaskStatus.failed, TaskStatus.cancelled)


def test_a_softer_policy_frees_a_task_that_waits_for_a_fallen_blocker(desk: Desk) -> None:
    """When the edge to a failed blocker is changed from `wait` to `run`, nothing blocks the task any more, and it can be taken."""
    blocker = create(desk)
    task = create(desk, [(blocker, WAIT)])
    desk.do(CancelTask(blocker))
    desk.do(AddEdge(task, blocker, RUN))
    assert desk.state.tasks.blocked_by(task) == ()
    assert [found.id for found in desk.state.tasks.claimable(frozenset(), "ben")] == [task]
    found = desk.do(ClaimTask("ben", 10.0))
    assert found is not None
    assert found.task.id == task


def test_a_harder_policy_holds_a_task_back_again(desk: Desk) -> None:
    """When the edge to a failed blocker is changed from `run` to `wait`, the task is blocked and nobody is offered it."""
    blocker = create(desk)
    task = create(desk, [(blocker, RUN)])
    finish(desk, blocker, TaskEvent.fail)
    desk.do(AddEdge(task, blocker, WAIT))
    assert desk.state.tasks.blocked_by(task) == (blocker,)
    assert desk.do(ClaimTask("ben", 10.0)) is None


def test_an_edge_that_would_fell_the_task_at_once_is_refused(desk: Desk) -> None:
    """A task cannot be made to wait for one that has fallen, unless its policy says what that means later."""
    blocker = create(desk)
    task = create(desk)
    desk.do(CancelTask(blocker))
    for policy in (FAIL, SKIP):
        with pytest.raises(TaskGraphError, match=r"it is cancelled; retry it first, or use policy run or wait"):
            desk.do(AddEdge(task, blocker, policy))
        with pytest.raises(TaskGraphError, match=r"it is cancelled"):
            create(desk, [(blocker, policy)])


def test_a_task_that_has_begun_takes_no_edge_and_no_other_words(desk: Desk) -> None:
    """Only pending tasks are changed; the error says so."""
    task, other = create(desk), create(desk)
    claim(desk, task)
    with pytest.raises(TaskStateError, match=r"cannot add an edge to task 1: it is in_progress; legal now: pending tasks"):
        desk.do(AddEdge(task, other))
    with pytest.raises(TaskStateError, match=r"cannot amend task 1: it is in_progress"):
        desk.do(AmendTask(task, subject="other"))


# -- retries -----------------------------------------------------------------------


def test_a_retry_brings_back_what_failed_because_of_it_under_the_old_ids(desk: Desk) -> None:
    """The failed chain is pending again and waits for the retried task; what was skipped stays cancelled."""
    first = create(desk)
    second = create(desk, [(first, FAIL)])
    third = create(desk, [(second, FAIL)])
    skipped = create(desk, [(first, SKIP)])
    finish(desk, first, TaskEvent.fail)
    desk.do(RetryTask(first))
    assert statuses(desk, first, second, third, skipped) == ["pending", "pending", "pending", "cancelled"]
    for task in (first, second, third):
        finish(desk, task)
    assert desk.task(first).attempts == 2
    assert statuses(desk, first, second, third) == ["completed"] * 3


def test_a_retry_leaves_what_failed_by_itself(desk: Desk) -> None:
    """A dependent whose own work failed is not revived by a retry of its blocker."""
    first = create(desk)
    second = create(desk, [(first, RUN)])
    finish(desk, first, TaskEvent.fail)
    finish(desk, second, TaskEvent.fail)
    desk.do(RetryTask(first))
    assert statuses(desk, first, second) == ["pending", "failed"]


def test_a_retry_does_not_revive_what_another_failed_blocker_holds_down(desk: Desk) -> None:
    """Of two failed blockers one is retried: the dependent, which would wait for the other for ever, stays failed."""
    first, second = create(desk), create(desk)
    task = create(desk, [(first, FAIL), (second, FAIL)])
    finish(desk, first, TaskEvent.fail)
    finish(desk, second, TaskEvent.fail)
    desk.do(RetryTask(first))
    assert statuses(desk, task) == ["failed"]
    desk.do(RetryTask(second))
    if statuses(desk, task) == ["failed"]:
        desk.do(RetryTask(task))
    for done in (first, second, task):
        finish(desk, done)
    assert statuses(desk, task) == ["completed"]


def test_a_retry_under_a_fallen_blocker_is_refused(desk: Desk) -> None:
    """A task that would fall again at once cannot be retried, under either policy that heeds a fallen blocker."""
    failed, skipped = create(desk), create(desk)
    task = create(desk, [(failed, FAIL), (skipped, SKIP)])
    finish(desk, failed, TaskEvent.fail)
    with pytest.raises(TaskGraphError, match=r"cannot retry task 3: its blocker 1 is failed; retry that one first"):
        desk.do(RetryTask(task))
    desk.do(CancelTask(skipped))
    desk.do(RetryTask(failed))
    with pytest.raises((TaskGraphError, TaskStateError), match=r"cannot retry task 3"):
        desk.do(RetryTask(task))
    assert statuses(desk, task) == ["failed"]


def test_only_failed_tasks_are_retried(desk: Desk) -> None:
    """The error says in which status the task is and what is legal."""
    task = create(desk)
    with pytest.raises(TaskStateError, match=r"cannot retry task 1: it is pending; legal now: blocker_failed, cancel, claim"):
        desk.do(RetryTask(task))


# -- claims ------------------------------------------------------------------------


def test_a_claim_says_why_it_cannot_be(desk: Desk) -> None:
    """Each reason is told: blocked, completed, capability, assignee, exclusive tag, limit, and who has it."""
    blocker = create(desk)
    blocked = create(desk, [(blocker, FAIL)])
    needy = create(desk, needs=frozenset({"ops", "dev"}))
    meant = create(desk, assignee="ann")
    tagged, tagged_too = create(desk, exclusive=frozenset({"db"})), create(desk, exclusive=frozenset({"db", "ui"}))

    def refusal(task_id: int, owner: str) -> str:
        with pytest.raises(ClaimLost) as refused:
            claim(desk, task_id, owner)
        return str(refused.value)

    assert refusal(blocked, "ann") == "'ann' cannot claim task 2: it is blocked by task 1 (pending)"
    assert refusal(needy, "ann") == "'ann' cannot claim task 3: it needs ops, and 'ann' has dev"
    assert refusal(needy, "ben") == "'ben' cannot claim task 3: it needs dev, ops, and 'ben' has no capabilities"
    assert refusal(meant, "ben") == "'ben' cannot claim task 4: it is meant for 'ann'"
    claim(desk, tagged)
    assert refusal(tagged_too, "ben") == "'ben' cannot claim task 6: its exclusive tag 'db' is in use by task 5"
    assert refusal(tagged, "ben") == "'ben' cannot claim task 5: 'ann' has it"
    claim(desk, blocker, "ben")
    desk.do(FinishTask(tagged, TaskEvent.complete, fence=1))
    assert refusal(tagged_too, "ben") == "'ben' cannot claim task 6: 'ben' already has task 1 and may have 1 at a time"
    assert refusal(tagged, "ann") == "'ann' cannot claim task 5: it is completed; only pending tasks can be claimed"
    desk.leave("ann")
    assert refusal(meant, "ann") == "'ann' cannot claim task 4: 'ann' is stopped"


def test_a_second_claim_by_the_owner_is_the_first_one(desk: Desk) -> None:
    """Claiming what one has changes nothing and gives the same fence."""
    task = create(desk)
    first = claim(desk, task)
    seq = desk.state.seq
    assert claim(desk, task).fence == first.fence
    assert desk.state.seq == seq
    assert desk.task(task).attempts == 1


def test_a_member_at_its_limit_is_given_nothing(desk: Desk) -> None:
    """`claim next` of a member that may have one task at a time finds none while it has one."""
    create(desk)
    create(desk)
    assert desk.do(ClaimTask("ben", 10.0)) is not None
    assert desk.do(ClaimTask("ben", 10.0)) is None


def test_tags_are_free_again_however_a_task_ends(desk: Desk) -> None:
    """Completion, failure, release, cancellation, expiry and the owner's end all give the exclusive tag back."""
    ends: list[Callable[[Claim], Command[None]]] = [
        lambda claimed: FinishTask(claimed.task.id, TaskEvent.complete, fence=claimed.fence),
        lambda claimed: FinishTask(claimed.task.id, TaskEvent.fail, "no", fence=claimed.fence),
        lambda claimed: ReleaseTask(claimed.task.id, "later", fence=claimed.fence),
        lambda claimed: CancelTask(claimed.task.id),
    ]
    for end in ends:
        desk.do(end(claim(desk, create(desk, exclusive=frozenset({"db"})))))
    claim(desk, create(desk, exclusive=frozenset({"db"})))
    desk.now += 10.0
    assert len(desk.do(ExpireLeases())) == 1
    claim(desk, create(desk, exclusive=frozenset({"db"})))
    assert len(desk.leave("ann")) == 1
    claim(desk, create(desk, exclusive=frozenset({"db"})), "ben")


def test_a_claim_is_announced_in_the_same_transaction(desk: Desk) -> None:
    """With `announce` the owner's mail about the task stands in the records of the claim itself."""
    create(desk)
    claimed = desk.do(ClaimTask("ben", 10.0, announce=True))
    assert claimed is not None
    changed, told = desk.records()[-2:]
    assert (changed.kind, changed.more, told.kind, told.more) == ("task.changed", 1, "mail.sent", 0)
    assert (told.fields["type"], told.fields["to"], told.fields["extra"]) == ("task_assignment", ["ben"], {"task_id": claimed.task.id})


# -- leases and fences -----------------------------------------------------------------


def test_a_stale_owner_can_change_nothing(desk: Desk) -> None:
    """After its lease ended and another took the task, the first owner's complete, fail and release are refused and say who has it."""
    task = create(desk)
    old = claim(desk, task)
    desk.now += 10.0
    assert desk.do(ExpireLeases()) == (task,)
    claim(desk, task, "ben")
    for command in (
        FinishTask(task, TaskEvent.complete, "mine", fence=old.fence),
        FinishTask(task, TaskEvent.fail, "no", by="ann"),
        ReleaseTask(task, "no", fence=old.fence),
    ):
        with pytest.raises(StaleLease, match=r"it is owned by 'ben' now"):
            desk.do(command)
    with pytest.raises(UsageError, match=r"show the fence of your claim, or say by whom"):
        desk.do(FinishTask(task, TaskEvent.complete))


def test_an_older_life_of_the_owner_can_change_nothing(desk: Desk) -> None:
    """What a member's earlier incarnation writes by name is refused once the member lives again."""
    task = create(desk)
    before = desk.incarnation("ann")
    desk.leave("ann", MemberEvent.lost)
    assert desk.join("ann", task_limit=None, capabilities=("dev",)) == before + 1
    claim(desk, task)
    with pytest.raises(HostConflict, match=r"incarnation 2"):
        desk.do(FinishTask(task, TaskEvent.complete, by="ann", incarnation=before))
    with pytest.raises(HostConflict, match=r"incarnation 2"):
        desk.do(ClaimTask("ann", 10.0, incarnation=before))


def test_a_lease_lasts_to_its_end_and_is_renewed_for_all_that_a_member_owns(desk: Desk) -> None:
    """A lease is over at its last moment and not before; renewing moves the end of every lease of the member, and the fences stay."""
    first, second = create(desk), create(desk)
    fences = [claim(desk, first).fence, claim(desk, second).fence]
    desk.now += 9.0
    assert desk.do(RenewLeases(("ann", "ben"), 10.0)) == 2
    desk.now += 9.999
    assert desk.do(ExpireLeases()) == ()
    desk.now += 0.001
    assert [desk.task(task).fence for task in (first, second)] == fences
    assert desk.do(ExpireLeases()) == (first, second)
    assert desk.do(RenewLeases(("ann",), 10.0)) == 0


def test_a_task_that_was_given_up_too_often_fails_and_says_how_often(desk: Desk) -> None:
    """After as many expired leases as it has attempts a task fails, and what waits for it follows its edge."""
    task = create(desk, max_attempts=2)
    behind = create(desk, [(task, FAIL)])
    for _ in range(2):
        claim(desk, task)
        desk.now += 10.0
        desk.do(ExpireLeases())
    assert statuses(desk, task, behind) == ["failed", "failed"]
    assert desk.task(task).reason == "given up after 2 attempts: the lease of 'ann' ended"


@pytest.mark.parametrize("event", [MemberEvent.crashed, MemberEvent.lost])
def test_a_task_whose_owners_die_of_it_fails_in_the_end(desk: Desk, event: MemberEvent) -> None:
    """Each owner that dies uses up an attempt, so a task that kills whoever takes it does not go round for ever."""
    task = create(desk, max_attempts=2)
    for _ in range(2):
        claim(desk, task, "ben")
        desk.leave("ben", event)
        desk.join("ben")
    assert statuses(desk, task) == ["failed"]


def test_a_task_that_is_handed_back_does_not_fail_of_it(desk: Desk) -> None:
    """Members that shut down in order hand their tasks back as often as they like, and so do those that release them."""
    task = create(desk, max_attempts=1)
    for _ in range(3):
        claim(desk, task, "ben")
        desk.leave("ben")
        desk.join("ben")
        desk.do(ReleaseTask(task, "not now", fence=claim(desk, task).fence))
    assert statuses(desk, task) == ["pending"]


# -- words -------------------------------------------------------------------------


def test_those_who_must_know_are_told_once_and_the_owner_is_not(desk: Desk) -> None:
    """The end of a task makes one message for each member named at its creation but the one that did it."""
    desk.join("cat")
    task = create(desk, notify=("ann", "cat"))
    finish(desk, task)
    assert mail_of(desk, "cat") == ["Task 1 (a task) is completed, done by ann. as it was"]
    assert mail_of(desk, "ann") == mail_of(desk, "ben") == []


def test_the_owner_of_a_cancelled_task_is_told(desk: Desk) -> None:
    """Who works on a task that is taken out of the plan gets mail with the reason, and what it writes then is refused."""
    task = create(desk)
    fence = claim(desk, task, "ben").fence
    desk.do(CancelTask(task, "no use"))
    assert mail_of(desk, "ben") == ["Task 1 (a task) was cancelled. no use"]
    with pytest.raises(StaleLease, match=r"nobody owns it now"):
        desk.do(FinishTask(task, TaskEvent.complete, fence=fence))


@pytest.mark.parametrize("subject", ["", " \n\t", "x" * 501])
def test_a_subject_must_say_something_and_be_short(desk: Desk, subject: str) -> None:
    """A blank subject and one over the limit are refused; the id is not used up."""
    with pytest.raises(UsageError, match=r"the subject must have 1 to 500 characters"):
        desk.do(CreateTask(subject=subject, by="ann"))
    assert create(desk) == 1


def test_tasks_name_members_only(desk: Desk) -> None:
    """An assignee or somebody to notify who is no member is refused, with the near name."""
    with pytest.raises(UnknownMember, match=r"'anm': no member of the team has that name; did you mean ann"):
        create(desk, assignee="anm")
    with pytest.raises(UnknownMember, match=r"'bem'"):
        create(desk, notify=("bem",))
    with pytest.raises(UnknownMember, match=r"'bem'"):
        desk.do(AmendTask(create(desk), assignee="bem"))
