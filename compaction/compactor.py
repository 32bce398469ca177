"""The one door through which every edit of a context passes.

Laws: a view is never changed: an edit makes a new one, of the next epoch, without any thinking of an older one, valid, and stored by
the caller exactly as it is (the checkpoint). Whoever has nothing to edit pays nothing: no message is touched. An edit that would free
nothing is none, and is not tried again until the context has grown; nor is one tried soon after another, so no window slides.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from compaction.budget import ContextBudget
from compaction.cleaning import clean
from compaction.errors import InvalidEdit
from compaction.images import MANY_IMAGES
from compaction.layers.trim import Limits, trim
from compaction.models import ModelFacts
from compaction.options import CompactionOptions
from compaction.repair import CONTINUE, drop_thinking, repair
from compaction.request import Request
from compaction.tokens import TokenMeter, count_text, dumps, weigh_all
from compaction.transcript import Block, ModelMessage
from compaction.triggers import LAYERS, Cause, Situation, due
from compaction.validity import problems
from compaction.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One edit, as the session stores it: why, by what, what it replaces and what stands there now.

    Tokens are those of the messages alone. `over_tokens` is by how much the context is still too large; 0 when it fits.
    """

    epoch: int
    trigger: Cause
    layers: tuple[str, ...]
    tokens_before: int
    tokens_after: int
    replaces: int
    messages: tuple[ModelMessage, ...]
    task_blocks: int | None
    removed_messages: int
    over_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An edit that is about to be tried."""

    trigger: Cause
    layers: tuple[str, ...]
    tokens_before: int
    budget_tokens: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """What may be sent, and the edit that led to it, if there was one.

    `over_tokens` is by how much the view is estimated not to fit; sending it would most likely be refused.
    """

    view: View
    checkpoint: Checkpoint | None = None
    over_tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Edited:
    view: View
    layers: tuple[str, ...]
    over_tokens: int


PreCompact = Callable[[Plan], Awaitable[None] | None]
PostCompact = Callable[[Checkpoint], Awaitable[None] | None]


class Compactor:
    """Keep one agent's context valid and within its window.

    Args:
        options: when and how far.
        facts: the model.
        reply_tokens: what is kept free for the answer (the request's max_tokens).
        system: the system text.
        tools: the tools' definitions, as they are sent, or what `tools_text_tokens` said of them.
        meter: a meter that has learned already; a new one when None.
        pre_compact, post_compact: called around an edit, may be async; an error of theirs is the caller's.

    Raises:
        NoRoomForMessages: reply, system and tools fill the window.
    """

    def __init__(
        self,
        options: CompactionOptions,
        *,
        facts: ModelFacts,
        reply_tokens: int,
        system: str = "",
        tools: Sequence[Block] | int = (),
        meter: TokenMeter | None = None,
        hooks: tuple[PreCompact | None, PostCompact | None] = (None, None),
    ) -> None:
        self.options = options
        self.facts = facts
        self.meter = TokenMeter(facts) if meter is None else meter
        self._reply_tokens = reply_tokens
        self._system_text_tokens = count_text(system)
        self._tools_text_tokens = tools if isinstance(tools, int) else tools_text_tokens(tools)
        self.meter.fixed_text_tokens = self._system_text_tokens + self._tools_text_tokens
        self._pre_compact, self._post_compact = hooks
        self._retry_above_tokens = 0
        self._retry_above_bytes = options.limit_bytes
        _ = self.budget  # whoever has no room for messages learns it now

    @property
    def budget(self) -> ContextBudget:
        """The tokens left for messages, by what is known of the tokenizer so far."""
        system = int(self._system_text_tokens * self.meter.factor)
        return ContextBudget(
            window_tokens=self.facts.window_tokens,
            reply_tokens=self._reply_tokens,
            system_tokens=system,
            tools_tokens=self.meter.fixed_tokens - system,
        )

    def used_tokens(self, view: View) -> int:
        """Return what the messages of a view take, as reported and estimated."""
        return self.meter.used(view.weight, epoch=view.epoch)

    async def prepare(self, view: View, *, cause: Cause | None = None) -> Prepared:
        """Return what may be sent: the same view, or an edited one with its checkpoint.

        Args:
            view: what would be sent; it is not changed.
            cause: why an edit is asked for; None lets the triggers decide.

        Checkpoints: only in hooks that are async.
        """
        if cause is Cause.OVERFLOW:
            self.meter.overflowed()
        situation = self._situation(view)
        trigger = due(situation, self.options) if cause is None else cause
        limit = self._limits(situation, trigger).limit_tokens
        if trigger is None or (cause is None and self._waits(situation)):
            return Prepared(view, None, max(0, situation.used_tokens - limit))
        layers = LAYERS.get(trigger, LAYERS[Cause.ASKED])
        plan = Plan(trigger=trigger, layers=layers, tokens_before=situation.used_tokens, budget_tokens=situation.budget_tokens)
        if self._pre_compact is not None:
            await _finish(self._pre_compact(plan))
        edited = self._edit(view, plan, self._limits(situation, trigger), sendable=situation.sendable)
        checkpoint = self._checkpoint(view, edited, plan, sendable=situation.sendable)
        if checkpoint is None:
            self._retry_above_tokens = int(situation.used_tokens + self.options.backoff_share * situation.budget_tokens)
            self._retry_above_bytes = int(situation.size_bytes + self.options.backoff_share * self.options.limit_bytes)
            return Prepared(view, None, edited.over_tokens)
        grown = checkpoint.tokens_after + int(self.options.backoff_share * situation.budget_tokens)
        self._retry_above_tokens = min(grown, self._limits(situation, None).limit_tokens)
        self._retry_above_bytes = self.options.limit_bytes
        if self._post_compact is not None:
            await _finish(self._post_compact(checkpoint))
        return Prepared(edited.view, checkpoint, edited.over_tokens)

    def _situation(self, view: View) -> Situation:
        takes_system = self.facts.system_messages or not view.system_messages
        weight = view.weight
        takes_images = weight.images <= self.facts.max_images and not (weight.images > MANY_IMAGES and weight.big_images)  # V60, V61
        return Situation(
            used_tokens=self.used_tokens(view),
            budget_tokens=self.budget.message_tokens,
            size_bytes=view.size_bytes,
            sendable=view.sendable and takes_system and takes_images,
        )

    def _waits(self, situation: Situation) -> bool:
        """Tell whether the last attempt or edit is too recent for another one; what cannot be sent does not wait."""
        small = situation.used_tokens <= self._retry_above_tokens and situation.size_bytes <= self._retry_above_bytes
        return small and situation.sendable

    def _limits(self, situation: Situation, trigger: Cause | None) -> Limits:
        target = int(situation.budget_tokens * self.options.target_share)
        limit = int(situation.budget_tokens * (1 - self.options.margin_share))
        if trigger in {Cause.ASKED, Cause.OVERFLOW}:
            target = min(target, situation.used_tokens // 2)
        if trigger is Cause.OVERFLOW:  # what was thought to fit did not
            limit = min(limit, situation.used_tokens * 3 // 4)
        return Limits(target, max(1, limit), self.options.limit_bytes)

    def _edit(self, view: View, plan: Plan, limits: Limits, *, sendable: bool) -> _Edited:
        """Apply the layers; repair is the last step of every edit."""
        first = view.messages[0] if len(view) else None
        task_blocks = view.task_blocks
        if task_blocks is None and first is not None and first.role == "user":
            # Counted before neighbours are joined, so that the task does not grow by what follows it.
            task_blocks = sum(1 for block in clean(first).content if block.get("type") != "tool_result") or None
        messages = repair(drop_thinking(view.messages), self.facts)
        applied = [] if sendable else ["repair"]
        removed = 0
        tokens = self.meter.tokens(weigh_all(messages))
        if "trim" in plan.layers or tokens > limits.limit_tokens:
            if messages[-1] is CONTINUE:  # not the user's words: the newest of those stay; repair puts it there again
                del messages[-1]
            result = trim(messages, limits, self.meter.tokens, task_blocks=task_blocks, removed_before=view.removed_messages)
            if result.removed or result.shortened:
                applied.append("trim")
                task_blocks, removed = result.task_blocks, result.removed_messages
            messages = repair(result.messages, self.facts)
            tokens = self.meter.tokens(weigh_all(messages))
        edited = view.replace(messages, task_blocks=task_blocks, removed_messages=removed)
        if not edited.sendable:
            raise InvalidEdit(problems(Request(messages=edited.messages, tools=({"name": "any"},), facts=self.facts)))
        return _Edited(edited, tuple(applied), max(0, tokens - limits.limit_tokens))

    def _checkpoint(self, view: View, edited: _Edited, plan: Plan, *, sendable: bool) -> Checkpoint | None:
        """Return the edit as a checkpoint; None when it freed nothing and nothing was broken."""
        after = self.meter.tokens(edited.view.weight)
        before = self.meter.tokens(view.weight)
        if not edited.layers:
            return None
        if sendable and after >= before and edited.view.size_bytes >= view.size_bytes:
            return None
        return Checkpoint(
            epoch=edited.view.epoch,
            trigger=plan.trigger,
            layers=edited.layers,
            tokens_before=plan.tokens_before,
            tokens_after=after,
            replaces=len(view),
            messages=tuple(edited.view.messages),
            task_blocks=edited.view.task_blocks,
            removed_messages=edited.view.removed_messages,
            over_tokens=edited.over_tokens,
        )


def tools_text_tokens(tools: Sequence[Block]) -> int:
    """Measure tool definitions, for `Compactor`; agents with the same tools measure them once."""
    return sum(count_text(dumps(tool)) for tool in tools)


async def _finish(result: Awaitable[None] | None) -> None:
    if result is not None:
        await result
