"""What the owner of a team may choose: frozen, checked when built, read once. None means no limit, never 0."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from compaction.options import CompactionOptions
from protocols.contract import Rule
from protocols.request import Stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from compaction.compactor import Checkpoint, Plan
    from compaction.summarizer import SummaryOptions
    from teams.models.base import Model
    from teams.models.gateway import GatewayOptions


def _check_positive(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and value <= 0:
            raise ValueError(f"{name} must be positive, or None for no limit where that is allowed; it is {value!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class BusOptions:
    """Limits of mail."""

    unread_quota: int | None = 10_000
    body_limit_chars: int = 50_000  # over it, the body goes to an artifact; the seed systems cut tool output at the same size
    preview_chars: int = 2_000
    reply_seconds: float | None = 3_600.0  # how long a question of a script waits for its answer

    def __post_init__(self) -> None:
        _check_positive(unread_quota=self.unread_quota, body_limit_chars=self.body_limit_chars, preview_chars=self.preview_chars)
        _check_positive(reply_seconds=self.reply_seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskOptions:
    """Leases of tasks."""

    lease_seconds: float = 300.0
    renewals_per_lease: int = 3

    def __post_init__(self) -> None:
        _check_positive(lease_seconds=self.lease_seconds, renewals_per_lease=self.renewals_per_lease)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShutdownOptions:
    """The stages of a shutdown, each with its own time; together they are the grace.

    ask: the member answers, or the deadline answers for it. drain: one that agreed finishes its tool. cancel: what it still does is
    cancelled, and its processes get SIGTERM. kill: those that ignore that get SIGKILL.
    Cancel and kill count wherever a process of the default tools is ended, also at a time limit.
    """

    answer_seconds: float = 30.0
    drain_seconds: float = 20.0
    cancel_seconds: float = 5.0
    kill_seconds: float = 5.0

    def __post_init__(self) -> None:
        _check_positive(answer_seconds=self.answer_seconds, drain_seconds=self.drain_seconds)
        _check_positive(cancel_seconds=self.cancel_seconds, kill_seconds=self.kill_seconds)

    @property
    def grace_seconds(self) -> float:
        """The longest that a shutdown can take."""
        return self.answer_seconds + self.drain_seconds + self.end_seconds

    @property
    def end_seconds(self) -> float:
        """The longest that it can take once nothing is waited for any more."""
        return self.cancel_seconds + self.kill_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """How long a plan waits for its decision, what counts when nobody decides (None: not approved), and what a plan is worth.

    outside: what happens with a call that writes and is not what the approved plan names: `ask` the approvers for a permission, `refuse`
        it, or `allow` it (then an approval lets its owner write anything).
    steps_as_tasks: whether the steps of an approved plan become tasks of its owner, each behind the one before it.
    """

    deadline_seconds: float = 3_600.0
    default_approved: bool | None = None
    max_revisions: int = 5
    outside: Literal["ask", "refuse", "allow"] = "ask"
    steps_as_tasks: bool = False

    def __post_init__(self) -> None:
        _check_positive(deadline_seconds=self.deadline_seconds, max_revisions=self.max_revisions)
        if self.outside not in ("ask", "refuse", "allow"):
            raise ValueError(f"outside must be 'ask', 'refuse' or 'allow', not {self.outside!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PermissionOptions:
    """How long a single call waits for its permission, what counts when nobody decides (None: refused), and the rules that come first.

    Rules that people add while the team runs stand before these; of all, a denial counts first, else the first that fits.
    """

    deadline_seconds: float = 3_600.0
    default_approved: bool | None = None
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        _check_positive(deadline_seconds=self.deadline_seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionOptions:
    """How long an agent that asks somebody waits for the answer."""

    deadline_seconds: float = 3_600.0

    def __post_init__(self) -> None:
        _check_positive(deadline_seconds=self.deadline_seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentOptions:
    """Limits of one agent."""

    max_rounds: int = 200  # model calls in one turn; the last one is asked for a summary, without tools
    max_reply_tokens: int = 8_192
    retry_reply_tokens: int = 64_000  # when a reply was cut off at max_reply_tokens
    max_pauses: int = 20
    summaries: "SummaryOptions | None" = None  # how summaries are asked for; the defaults of compaction.SummaryOptions when None
    summarize: bool | None = None  # whether a model is asked for summaries at all; None: where the model says that it can (`summarizes`)

    def __post_init__(self) -> None:
        _check_positive(max_rounds=self.max_rounds, max_reply_tokens=self.max_reply_tokens, retry_reply_tokens=self.retry_reply_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberOptions:
    """What one member may do besides its tools.

    capabilities: which tasks it can take; its role is always one of them.
    approvers: who may decide its plans and permissions, any of them; the script's member and the person when None.
    approval: a chain instead: each stage is a name, or a `Stage` of several with a quorum and a time of its own. Who does not decide in
        time, or has ended, hands over to the next.
    task_limit: tasks that it may have in progress at a time.
    auto_claim: whether it takes ready tasks by itself when it idles; a lead never does.
    model: its own model; the team's when None.
    """

    capabilities: tuple[str, ...] = ()
    approvers: tuple[str, ...] | None = None
    approval: "tuple[str | Stage, ...]" = ()
    task_limit: int | None = 1
    auto_claim: bool = True
    model: "Model | None" = None

    def __post_init__(self) -> None:
        _check_positive(task_limit=self.task_limit)
        if self.approvers is not None and self.approval:
            raise ValueError("give approvers or approval, not both: a chain says who approves")

    def stages(self, default: tuple[str, ...], member: str) -> tuple[Stage, ...]:
        """Return the chain of a member, who is never asked itself; `default` are the approvers where none were chosen."""
        chain = self.approval or (Stage(default if self.approvers is None else self.approvers),)
        stages = [Stage((stage,)) if isinstance(stage, str) else stage for stage in chain]
        return tuple(stage._replace(answerers=tuple(name for name in dict.fromkeys(stage.answerers) if name != member)) for stage in stages)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionHooks:
    """What is told of compactions: a callable gets the plan or the checkpoint, a command line gets JSON on its standard input."""

    pre_compact: "str | Callable[[Plan], Awaitable[None] | None] | None" = None
    post_compact: "str | Callable[[Checkpoint], Awaitable[None] | None] | None" = None
    deadline_seconds: float = 30.0  # of a command

    def __post_init__(self) -> None:
        _check_positive(deadline_seconds=self.deadline_seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class TeamOptions:
    """All options of a team."""

    bus: BusOptions = field(default_factory=BusOptions)
    tasks: TaskOptions = field(default_factory=TaskOptions)
    shutdown: ShutdownOptions = field(default_factory=ShutdownOptions)
    plans: PlanOptions = field(default_factory=PlanOptions)
    permissions: PermissionOptions = field(default_factory=PermissionOptions)
    questions: QuestionOptions = field(default_factory=QuestionOptions)
    agents: AgentOptions = field(default_factory=AgentOptions)
    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    compaction_hooks: CompactionHooks = field(default_factory=CompactionHooks)
    gateway: "GatewayOptions | None" = None
    system_prompt: str = ""  # words that come first in every member's system prompt
    lead: str = "lead"
    person: str = "user"  # who decides at a terminal; named as an approver of every plan
    views: bool = True
    view_interval_seconds: float = 0.5
    event_buffer: int = 10_000

    def __post_init__(self) -> None:
        _check_positive(view_interval_seconds=self.view_interval_seconds, event_buffer=self.event_buffer)
