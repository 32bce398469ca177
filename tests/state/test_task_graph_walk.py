"""Random commands on the task graph, against an oracle that computes everything from scratch."""

from collections.abc import Callable

import pytest
from hypothesis import given, note

from protocols.lifecycle import MemberEvent
from protocols.task_status import BlockerPolicy, TaskEvent, TaskStatus
from teams.errors import ClaimLost, StaleLease, TaskGraphError, TaskStateError
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
from tests.state.driving import Choices, Desk, walk_settings, walks
from tests.state.graph_oracle import CANCELLED, DONE, FAILED, FALLS, PENDING, RUNNING, GraphOracle, Node, Worker

LEASE_SECONDS = 10.0
WORKERS = {"ann": ({"dev"}, 1), "ben": ({"dev", "ops"}, 2), "cat": (set[str](), None)}
NAMES = sorted(WORKERS)
NONE = frozenset[str]()
# Most tasks want nothing of their owner, so that commands meet.
NEEDS = [NONE, NONE, NONE, frozenset({"dev"}), frozenset({"ops"})]
EXCLUSIVE = [NONE, NONE, NONE, frozenset({"db"}), frozenset({"db", "ui"})]
ASSIGNEES = [None, None, None, None, "ann", "cat"]
POLICIES = [BlockerPolicy.fail, *BlockerPolicy]
FINISHES = [TaskEvent.complete, TaskEvent.fail, TaskEvent.release]
ENDS = [MemberEvent.exited, MemberEvent.crashed, MemberEvent.lost]


class TaskWalk:
    """Every command of tasks, and workers that come and go."""

    def __init__(self, data: bytes) -> None:
        self.choices = Choices(data)
        self.desk = Desk()
        self.oracle = GraphOracle([Worker(name, frozenset(held), limit) for name, (held, limit) in WORKERS.items()])
        self.claims: list[Claim] = []
        self.fences: dict[int, int] = {}
        for name, (held, limit) in WORKERS.items():
            self.desk.join(name, capabilities=tuple(sorted(held)), task_limit=limit)
        for _ in range(3):
            self.create()

    def run(self) -> None:
        """Take every step, and look at the laws after each."""
        steps: list[Callable[[], None]] = [
            *(self.create, self.create, self.add_edge, self.add_edge, self.give_to_another, self.claim, self.claim_next),
            *(self.work, self.work, self.work, self.write_with_fence, self.write_by_name, self.cancel, self.retry, self.retry),
            *(self.pass_time, self.leave_or_return),
        ]
        while self.choices.left:
            step = self.choices.pick(steps)
            note(f"{step.__name__} ({self.desk.state.seq} records)")
            step()
            self.check()
        self.desk.check_folds()

    def seen(self) -> dict[int, TaskStatus]:
        return {task.id: task.status for task in self.desk.state.tasks.by_id.values()}

    def some_task(self, *statuses: TaskStatus) -> Node:
        """Choose a task, of one of the statuses where there is one."""
        fitting = [node.id for node in self.oracle.nodes.values() if node.status in statuses]
        return self.oracle.nodes[self.choices.pick(fitting or sorted(self.oracle.nodes))]

    # -- the graph -----------------------------------------------------------

    def create(self) -> None:
        known, pick = sorted(self.oracle.nodes), self.choices.pick
        edges = {blocker: pick(POLICIES) for blocker in self.choices.some(known, 3)}
        if pick(range(16)) == 15:
            edges[99] = pick(POLICIES)  # no such task
        node = Node(len(known) + 1, pick([1, 2, 3]), pick(NEEDS), pick(EXCLUSIVE), pick(ASSIGNEES), edges)
        command = CreateTask(
            subject=f"task {node.id}",
            by="ann",
            blocked_by=list(edges.items()),
            needs=node.needs,
            exclusive=node.exclusive,
            assignee=node.assignee,
            max_attempts=node.max_attempts,
        )
        if all(self.oracle.may_have_edge(node.id, blocker, policy) for blocker, policy in edges.items()):
            assert self.desk.do(command) == node.id
            self.oracle.nodes[node.id] = node
        else:
            with pytest.raises(TaskGraphError):
                self.desk.do(command)

    def add_edge(self) -> None:
        node, policy = self.some_task(PENDING), self.choices.pick(POLICIES)
        blocker = self.choices.pick([*node.blockers, *sorted(self.oracle.nodes), 99])
        command = AddEdge(node.id, blocker, policy)
        if node.status is not PENDING:
            with pytest.raises(TaskStateError):
                self.desk.do(command)
        elif not self.oracle.may_have_edge(node.id, blocker, policy):
            with pytest.raises(TaskGraphError):
                self.desk.do(command)
        elif self.oracle.waits_for(blocker, node.id):
            with pytest.raises(TaskGraphError) as refused:
                self.desk.do(command)
            assert self.oracle.is_true_cycle(refused.value.cycle, node.id, blocker)
            assert " -> ".join(map(str, refused.value.cycle)) in str(refused.value)
        else:
            self.desk.do(command)
            node.blockers[blocker] = policy

    def give_to_another(self) -> None:
        node = self.some_task(PENDING)
        assignee = self.choices.pick([name for name in NAMES if name != node.assignee])
        if node.status is PENDING:
            self.desk.do(AmendTask(node.id, assignee=assignee))
            node.assignee, node.ready_since = assignee, 0
        else:
            with pytest.raises(TaskStateError):
                self.desk.do(AmendTask(node.id, assignee=assignee))

    # -- work ------------------------------------------------------------------

    def claim(self) -> None:
        node, name = self.some_task(), self.choices.pick(NAMES)
        claimable = self.oracle.claimable(name)
        command = ClaimTask(name, LEASE_SECONDS, node.id)
        if node.owner == name:
            again = self.desk.do(command)
            assert again is not None
            assert again.fence == self.desk.task(node.id).fence
        elif node.id in claimable:
            self.taken(self.desk.do(command), name, {node.id})
        else:
            with pytest.raises(ClaimLost) as refused:
                self.desk.do(command)
            assert refused.value.owner == node.owner
            assert node.owner is None or repr(node.owner) in str(refused.value)

    def claim_next(self) -> None:
        name = self.choices.pick(NAMES)
        claimable = self.oracle.claimable(name)
        claim = self.desk.do(ClaimTask(name, LEASE_SECONDS))
        assert (claim is None) == (not claimable), f"{name} could take {claimable} and was given {claim}"
        if claim is not None:
            older = self.oracle.ready_longer(claim.task.id, claimable)
            assert not older, f"task {claim.task.id} was given out before {older}"
            self.taken(claim, name, claimable)

    def work(self) -> None:
        """Let cat, who has no limit, take a task and end it."""
        claimable = self.oracle.claimable("cat")
        if claimable:
            node = self.oracle.nodes[self.choices.pick(sorted(claimable))]
            self.taken(self.desk.do(ClaimTask("cat", LEASE_SECONDS, node.id)), "cat", claimable)
            self.finish(node, self.choices.pick([TaskEvent.fail, *FINISHES]), is_current=True, by="cat")

    def taken(self, claim: Claim | None, name: str, claimable: set[int]) -> None:
        assert claim is not None
        assert claim.task.id in claimable
        task, node = self.desk.task(claim.task.id), self.oracle.nodes[claim.task.id]
        assert claim.fence > self.fences.get(task.id, 0)
        assert (claim.fence, claim.lease_until) == (task.fence, task.lease_until) == (task.fence, self.desk.now + LEASE_SECONDS)
        node.status, node.owner, node.attempts, node.lease_until = RUNNING, name, node.attempts + 1, claim.lease_until
        node.ready_since = 0
        assert (claim.task.owner, claim.task.status, claim.task.attempts) == (name, RUNNING, node.attempts)
        self.claims.append(claim)

    def write_with_fence(self) -> None:
        """Let whoever once had a claim write, be it stale or not."""
        if self.claims:
            claim = self.choices.pick(self.claims[-8:])
            node = self.oracle.nodes[claim.task.id]
            is_current = node.status is RUNNING and self.desk.task(node.id).fence == claim.fence
            self.finish(node, self.choices.pick(FINISHES), is_current=is_current, fence=claim.fence)

    def write_by_name(self) -> None:
        node, name = self.some_task(RUNNING), self.choices.pick(NAMES)
        self.finish(node, self.choices.pick(FINISHES), is_current=node.owner == name, by=name)

    def finish(self, node: Node, event: TaskEvent, *, is_current: bool, by: str | None = None, fence: int | None = None) -> None:
        release = event is TaskEvent.release
        command = ReleaseTask(node.id, "why", by, fence) if release else FinishTask(node.id, event, "text", by, fence)
        if not is_current:
            with pytest.raises((StaleLease, TaskStateError)) as refused:
                self.desk.do(command)
            if node.owner is not None:
                assert isinstance(refused.value, StaleLease)
                assert refused.value.owner == node.owner
            return
        self.desk.do(command)
        if release:
            self.oracle.free(node.id)
        else:
            self.oracle.end(node.id, DONE if event is TaskEvent.complete else FAILED)
            self.oracle.fall([node.id] if event is TaskEvent.fail else [], self.seen())

    def cancel(self) -> None:
        node = self.some_task()
        if node.status in (DONE, CANCELLED):
            with pytest.raises(TaskStateError):
                self.desk.do(CancelTask(node.id))
        else:
            self.desk.do(CancelTask(node.id, "no use"))
            self.oracle.end(node.id, CANCELLED)
            self.oracle.fall([node.id], self.seen())

    def retry(self) -> None:
        node = self.some_task(FAILED)
        if self.oracle.can_retry(node.id):
            self.desk.do(RetryTask(node.id))
            self.oracle.retry(node.id, self.seen())
        else:
            with pytest.raises((TaskStateError, TaskGraphError)):
                self.desk.do(RetryTask(node.id))

    # -- time and people -----------------------------------------------------------

    def pass_time(self) -> None:
        self.desk.now += self.choices.pick([1.0, 6.0, 11.0])
        renewed = self.choices.some(NAMES, 2)
        held = [self.oracle.nodes[task_id] for name in renewed for task_id in self.oracle.owned(name)]
        assert self.desk.do(RenewLeases(tuple(renewed), LEASE_SECONDS)) == len(held)
        for node in held:
            node.lease_until = self.desk.now + LEASE_SECONDS
        due = [node for node in self.oracle.nodes.values() if node.status is RUNNING and node.lease_until <= self.desk.now]
        assert sorted(self.desk.do(ExpireLeases())) == sorted(node.id for node in due)
        for node in due:
            self.oracle.free(node.id)
        self.give_up([node.id for node in due if node.attempts >= node.max_attempts])

    def give_up(self, task_ids: list[int]) -> None:
        for task_id in task_ids:
            assert self.oracle.nodes[task_id].attempts >= self.oracle.nodes[task_id].max_attempts
            self.oracle.end(task_id, FAILED)
        self.oracle.fall(task_ids, self.seen())

    def leave_or_return(self) -> None:
        worker = self.oracle.workers[self.choices.pick(NAMES)]
        if worker.live:
            held, event = self.oracle.owned(worker.name), self.choices.pick(ENDS)
            assert sorted(self.desk.leave(worker.name, event)) == held
            for task_id in held:
                self.oracle.free(task_id)
            if event is not MemberEvent.exited:  # an owner that dies may use up the attempts of its task
                self.give_up([task_id for task_id in held if self.seen()[task_id] is FAILED])
        else:
            self.desk.join(worker.name, capabilities=tuple(sorted(worker.capabilities)), task_limit=worker.limit)
        worker.live = not worker.live

    # -- what always holds -------------------------------------------------------------

    def check(self) -> None:
        self.oracle.tick()
        self.check_tasks()
        self.check_workers()
        nodes = self.oracle.nodes.values()
        tags = [tag for node in nodes if node.status is RUNNING for tag in node.exclusive]
        assert sorted(tags) == sorted(set(tags)), "two tasks in progress hold one tag"
        for node in nodes:
            if node.status is PENDING:
                fallen = [blocker for blocker, policy in node.blockers.items() if self.oracle.is_over(blocker) and policy in FALLS]
                assert not fallen, f"task {node.id} waits for {fallen}, which fell"

    def check_tasks(self) -> None:
        tasks, nodes = self.desk.state.tasks, self.oracle.nodes
        assert sorted(tasks.by_id) == sorted(nodes) == list(range(1, len(nodes) + 1)), "ids are given out once, in order"
        for task in tasks.by_id.values():
            node = nodes[task.id]
            assert (task.status, task.owner, task.attempts) == (node.status, node.owner, node.attempts)
            assert list(tasks.blocked_by(task.id)) == self.oracle.blocked_by(task.id)
            assert task.fence >= self.fences.get(task.id, 0), "a fence only grows"
            self.fences[task.id] = task.fence
            assert task.status is not RUNNING or task.lease_until == node.lease_until
        assert sorted(task.id for task in tasks.by_id.values() if tasks.is_ready(task)) == self.oracle.ready()
        assert tasks.unfinished == sum(node.status in (PENDING, RUNNING) for node in nodes.values())

    def check_workers(self) -> None:
        tasks = self.desk.state.tasks
        for name, worker in self.oracle.workers.items():
            if self.oracle.has_room(name):
                offered = {task.id for task in tasks.claimable(worker.capabilities, name)}
                assert offered == self.oracle.claimable(name), f"{name} is offered {offered}"
            assert sorted(tasks.owned.get(name, ())) == self.oracle.owned(name)
            assert worker.limit is None or len(tasks.owned.get(name, ())) <= worker.limit


@walk_settings(max_examples=60)
@given(walks)
def test_every_command_comes_to_what_the_prose_says(data: bytes) -> None:
    """Whatever the order of commands: status, owner, readiness, limits, tags, failures and retries are those of the oracle."""
    TaskWalk(data).run()
