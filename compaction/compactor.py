"""The one door through which every edit of a context passes.

Laws: a view is never changed: an edit makes a new one, of the next epoch, without any thinking of an older one, valid, and stored by
the caller exactly as it is (the checkpoint). Whoever has nothing to edit pays nothing: no message is touched. An edit that would free
nothing is none, and is not tried again until the context has grown; one that is made only to save must earn back what it costs. A
summarizer that fails stops nobody.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from compaction.budget import ContextBudget
from compaction.carried import NOTHING_CARRIED, Carried
from compaction.cleaning import clean
from compaction.costs import FREE, EditCost, edit_cost, unchanged
from compaction.encoding import dumps
from compaction.errors import InvalidEdit
from compaction.models import ModelFacts
from compaction.options import CompactionOptions
from compaction.repair import fits_model
from compaction.request import Request
from compaction.tokens import TokenMeter, count_text, weigh_all
from compaction.transcript import Block, ModelMessage
from compaction.triggers import RULES, Cause, Rule, Situation, due, rule_of
from compaction.validity import problems
from compaction.view import View

if TYPE_CHECKING:  # what only an edit needs is imported by the first one: it brings pydantic
    from compaction.assembly import Assembled
    from compaction.draft import Draft, Frame, Moved
    from compaction.layers.split import Cut
    from compaction.record import CompressedHistory
    from compaction.state import StateDigest
    from compaction.summarizer import Summarizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One edit, as the session stores it: why, by what, what it replaces and what stands there now.

    Tokens are those of the messages alone. `over_tokens` is by how much the context is still too large; 0 when it fits. `moved` is the
    account of what went out of sight; `summary_failure` says why a summary was replaced by an extract.
    """

    epoch: int
    trigger: Cause
    layers: tuple[str, ...]
    tokens_before: int
    tokens_after: int
    replaces: int
    messages: tuple[ModelMessage, ...]
    carried: Carried = NOTHING_CARRIED
    over_tokens: int = 0
    moved: "tuple[Moved, ...]" = ()
    cost: EditCost = FREE
    summary_usage: Mapping[str, int] = field(default_factory=dict[str, int])
    summary_failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An edit that is about to be made."""

    trigger: Cause
    layers: tuple[str, ...]
    tokens_before: int
    budget_tokens: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """What may be sent, and the edit that led to it, if there was one.

    `over_tokens` and `over_bytes` are by how much the view is estimated not to fit; sending it would most likely be refused. `stuck` tells
    that an edit was due and nothing could be gained, or not enough.
    """

    view: View
    checkpoint: Checkpoint | None = None
    over_tokens: int = 0
    stuck: bool = False
    over_bytes: int = 0


PreCompact = Callable[[Plan], Awaitable[None] | None]
PostCompact = Callable[[Checkpoint], Awaitable[None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a compactor is given of the world around it; nothing of it is needed.

    Args:
        summarizer: makes summaries; a digest takes their place when None.
        state: says what the surroundings know of the agent, at each edit.
        clock: seconds, of any origin; without it no time triggers anything.
        pre_compact, post_compact: called around an edit, may be async; an error of theirs is the caller's.
        rules: the table of triggers.
        user_speaks: whether texts of user messages are the user's own words; in a team they are mail from whoever sent it.
    """

    summarizer: "Summarizer | None" = None
    state: "Callable[[], StateDigest] | None" = None
    clock: Callable[[], float] | None = None
    pre_compact: PreCompact | None = None
    post_compact: PostCompact | None = None
    rules: Sequence[Rule] = RULES
    user_speaks: bool = True


class _Change(NamedTuple):
    """An edit without its summary: the draft after the layers that need no model, and where a summary would cut it."""

    draft: "Draft"
    layers: tuple[str, ...]
    summary_cut: "Cut | None" = None


class _Edited(NamedTuple):
    view: View
    layers: tuple[str, ...]
    over_tokens: int
    draft: "Draft"
    usage: Mapping[str, int]
    failure: str = ""


class Compactor:
    """Keep one agent's context valid and within its window.

    Args:
        options: when and how far.
        facts: the model.
        reply_tokens: what is kept free for the answer (the request's max_tokens).
        system: the system text.
        tools: the tools' definitions, as they are sent, or what `tools_text_tokens` said of them.
        meter: a meter that has learned already; a new one when None.
        around: summarizer, state, clock, hooks, triggers.

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
        around: Around | None = None,
    ) -> None:
        self.options = options
        self.facts = facts
        self.meter = TokenMeter(facts) if meter is None else meter
        self.around = Around() if around is None else around
        self._reply_tokens = reply_tokens
        self._system_text_tokens = count_text(system)
        self._tools_text_tokens = tools if isinstance(tools, int) else tools_text_tokens(tools)
        self.meter.fixed_text_tokens = self._system_text_tokens + self._tools_text_tokens
        self._budget: ContextBudget | None = None
        self._budget_factor = 0.0
        self._settled_tokens = 0
        self._failed: dict[Cause, tuple[int, int]] = {}
        self._since = self._now()
        self._called_at: float | None = None
        _ = self.budget  # whoever has no room for messages learns it now

    @property
    def budget(self) -> ContextBudget:
        """The tokens left for messages, by what is known of the tokenizer so far."""
        factor = self.meter.factor
        if self._budget is None or self._budget_factor != factor:
            system = int(self._system_text_tokens * factor)
            self._budget_factor = factor
            self._budget = ContextBudget(
                window_tokens=self.facts.window_tokens,
                reply_tokens=self._reply_tokens,
                system_tokens=system,
                tools_tokens=self.meter.fixed_tokens - system,
            )
        return self._budget

    def used_tokens(self, view: View) -> int:
        """Return what the messages of a view take, as reported and estimated."""
        return self.meter.used(view.weight, epoch=view.epoch)

    def replied(self, view: View, *, input_tokens: int) -> None:
        """Take in that the model has answered a request of this view, and what was reported of its size."""
        self._called_at = self._now()
        self.meter.observe(view.weight, epoch=view.epoch, input_tokens=input_tokens)

    async def prepare(self, view: View, *, cause: Cause | None = None) -> Prepared:
        """Return what may be sent: the same view, or an edited one with its checkpoint.

        Args:
            view: what would be sent; it is not changed.
            cause: why an edit is asked for; None lets the triggers decide.

        Checkpoints: in hooks that are async, and while a summary is made. When Cancelled there, nothing has changed.
        """
        if cause is Cause.OVERFLOW:
            self.meter.overflowed()
        situation = self._situation(view)
        if cause is not None:
            rule = rule_of(cause, self.around.rules)
            if self.options.enabled or not rule.saves:
                prepared = await self._compact(view, rule, situation)
                if prepared.checkpoint is not None or not rule.saves:
                    return prepared
        due_rule = next((rule for rule in due(situation, self.options, self.around.rules) if not self._waits(situation, rule)), None)
        if due_rule is None:
            limit = int(situation.budget_tokens * (1 - self.options.margin_share))
            return Prepared(view, None, max(0, situation.used_tokens - limit), over_bytes=self._over_bytes(view))
        return await self._compact(view, due_rule, situation)

    # -- when --------------------------------------------------------------------

    def _now(self) -> float:
        return self.around.clock() if self.around.clock is not None else 0.0

    def _situation(self, view: View) -> Situation:
        now = self._now()
        return Situation(
            used_tokens=self.used_tokens(view),
            budget_tokens=self.budget.message_tokens,
            size_bytes=view.size_bytes,
            sendable=view.sendable and fits_model(view, self.facts),
            messages=len(view),
            calls_in_turn=view.calls_in_turn,
            tool_run=view.tool_run,
            elapsed_seconds=now - self._since,
            idle_seconds=self._idle_seconds(view, now),
        )

    def _idle_seconds(self, view: View, now: float) -> float:
        if self._called_at is not None:
            return now - self._called_at
        resumed = self.around.clock is not None and len(view) > 1  # nobody knows what the provider remembers of an earlier life
        return math.inf if resumed else 0.0

    def _waits(self, situation: Situation, rule: Rule) -> bool:
        """Tell whether the last edit, or the last attempt for this cause, is too recent for another; what cannot be sent does not wait."""
        if rule.saves and situation.used_tokens < self.options.gain_share * situation.budget_tokens:
            return True  # so little that not even all of it were enough
        tokens, size = self._failed.get(rule.cause, (0, self.options.limit_bytes))
        small = situation.used_tokens <= max(tokens, self._settled_tokens) and situation.size_bytes <= size
        return small and situation.sendable

    def _back_off(self, situation: Situation, cause: Cause) -> None:
        share = self.options.backoff_share
        tokens = int(situation.used_tokens + share * situation.budget_tokens)
        self._failed[cause] = tokens, int(situation.size_bytes + share * self.options.limit_bytes)

    # -- one edit ------------------------------------------------------------------

    async def _compact(self, view: View, rule: Rule, situation: Situation) -> Prepared:
        frame = self._frame(situation, rule.cause)
        change = self._change(view, rule, frame, situation)
        over = max(0, situation.used_tokens - frame.limit_tokens)
        needed = not situation.sendable or over or "trim" in rule.layers or situation.size_bytes > self.options.limit_bytes
        gains = bool(change.layers or change.summary_cut)
        if not gains and (rule.saves or not needed):
            self._back_off(situation, rule.cause)
            return Prepared(view, None, over, not rule.saves, self._over_bytes(view))
        # Without a summary the edit is made first, since it is free: a hook must not act for an edit that then frees nothing.
        edited = await self._edit(view, change, rule, frame) if change.summary_cut is None else None
        if rule.saves and not self._worth(view, self._shorter(view, change, frame) if edited is None else edited.view, situation):
            self._back_off(situation, rule.cause)
            return Prepared(view, None, over, over_bytes=self._over_bytes(view))
        checkpoint = None if edited is None else self._checkpoint(view, edited, rule, situation)
        if edited is None or checkpoint is not None:
            plan = Plan(trigger=rule.cause, layers=rule.layers, tokens_before=situation.used_tokens, budget_tokens=situation.budget_tokens)
            if self.around.pre_compact is not None:
                await _finish(self.around.pre_compact(plan))
        if edited is None:
            edited = await self._edit(view, change, rule, frame)
            checkpoint = self._checkpoint(view, edited, rule, situation)
        if checkpoint is None:
            self._back_off(situation, rule.cause)
            return Prepared(view, None, max(over, edited.over_tokens), stuck=True, over_bytes=self._over_bytes(view))
        grown = checkpoint.tokens_after + int(self.options.backoff_share * situation.budget_tokens)
        self._settled_tokens = min(grown, int(situation.budget_tokens * (1 - self.options.margin_share)))
        self._failed.clear()
        self._since = self._now()
        if self.around.post_compact is not None:
            await _finish(self.around.post_compact(checkpoint))
        over_bytes = self._over_bytes(edited.view)
        return Prepared(edited.view, checkpoint, edited.over_tokens, edited.over_tokens > 0 or over_bytes > 0, over_bytes)

    def _over_bytes(self, view: View) -> int:
        return max(0, view.size_bytes - self.options.limit_bytes)

    def _frame(self, situation: Situation, cause: Cause) -> "Frame":
        from compaction.draft import Frame

        options, used = self.options, situation.used_tokens
        target = int(situation.budget_tokens * options.target_share)
        limit = int(situation.budget_tokens * (1 - options.margin_share))
        if cause in {Cause.ASKED, Cause.OVERFLOW}:
            target = min(target, used // 2)
        if cause is Cause.OVERFLOW:  # what was thought to fit did not
            limit = min(limit, used * 3 // 4)
        return Frame(
            options=options,
            facts=self.facts,
            budget_tokens=situation.budget_tokens,
            target_tokens=target,
            limit_tokens=max(1, limit),
            tokens=self.meter.tokens,
        )

    def _change(self, view: View, rule: Rule, frame: "Frame", situation: Situation) -> _Change:
        """Apply the layers that need no model."""
        from compaction.assembly import take_apart
        from compaction.layers.digest import digest
        from compaction.layers.elide import elide
        from compaction.layers.record import record
        from compaction.layers.split import split

        state = self.around.state() if self.around.state is not None else None
        draft = take_apart(view, self.facts, self._facts_of(view, state), state)
        applied = () if situation.sendable else ("repair",)
        elided = elide(draft, frame) if "elide" in rule.layers else draft
        shorter = elided.moved != draft.moved
        fits = self._tokens(elided) <= frame.target_tokens
        form = next((layer for layer in ("summary", "digest", "record") if layer in rule.layers), None)
        small_enough = shorter and fits and not rule.saves and rule.cause is not Cause.ASKED
        # A cut takes the draft as it was: what it keeps stays word for word, and what it drops is summed up whole.
        cut = None if form is None or small_enough else split(draft, frame, keep_turns=self.options.keep_turns, keep_tokens=_keep(frame))
        if cut is None:
            return _Change(elided, (*applied, "elide") if shorter else applied)
        if form == "summary" and self.around.summarizer is not None:
            return _Change(draft, applied, cut)
        if form == "record":
            return _Change(record(draft, frame, cut), (*applied, "record"))
        return _Change(digest(draft, frame, cut, draft.state), (*applied, "digest"))

    def _facts_of(self, view: View, state: "StateDigest | None") -> "CompressedHistory":
        """Fold what is new in a view into the record; the task is pinned and needs none."""
        from compaction.assembly import without_written
        from compaction.record import EMPTY_RECORD
        from compaction.state import NO_STATE
        from compaction.tracking import fold

        carried = view.carried
        fresh = without_written(view, carried.recorded)
        if not carried.recorded and fresh:
            task = fresh[0].content[: carried.task_blocks or len(fresh[0].content)]
            fresh[0] = ModelMessage(fresh[0].role, fresh[0].content[len(task) :])
        if not view.sound:  # as it was sent: a lone surrogate, for one, can be neither sent nor stored
            fresh = [clean(message) for message in fresh]
        return fold(carried.record or EMPTY_RECORD, fresh, state=NO_STATE if state is None else state, user_speaks=self.around.user_speaks)

    def _worth(self, view: View, edited: View, situation: Situation) -> bool:
        """Tell whether an edit that is made only to save does save."""
        cost = self._cost(view, edited, situation)
        enough = cost.freed_tokens >= self.options.gain_share * situation.budget_tokens
        return enough and cost.payback_calls is not None and cost.payback_calls <= self.options.payback_calls

    def _shorter(self, view: View, change: _Change, frame: "Frame") -> View:
        """Return what a summary would leave, before it is paid for: the view without what it sums up."""
        from compaction.layers.split import draft_cut

        assert change.summary_cut is not None
        return self._assemble(draft_cut(change.draft, change.summary_cut, frame), frame, epoch=view.epoch + 1, must_trim=False).view

    def _cost(self, view: View, edited: View, situation: Situation, usage: Mapping[str, int] | None = None) -> EditCost:
        same = unchanged(view.messages, edited.messages)
        return edit_cost(
            freed_tokens=situation.used_tokens - self.meter.tokens(edited.weight),
            rewritten_tokens=self.meter.tokens(edited.weight.minus(weigh_all(edited.messages[:same]))),
            cold=situation.idle_seconds > self.options.cache_seconds,
            facts=self.facts,
            summary_usage=usage,
        )

    async def _edit(self, view: View, change: _Change, rule: Rule, frame: "Frame") -> _Edited:
        """Make the summary where one is due, put everything together, and prove that it may be sent."""
        draft, layers, usage, failure = change.draft, change.layers, dict[str, int](), ""
        if change.summary_cut is not None:
            draft, usage, failure = await self._summarize(view, change, frame, overflowed=rule.cause is Cause.OVERFLOW)
            layers = (*layers, "summary")
        assembled = self._assemble(draft, frame, epoch=view.epoch + 1, must_trim="trim" in rule.layers)
        if assembled.trimmed:
            layers = (*layers, "trim")
        edited = assembled.view
        if not edited.sendable:
            raise InvalidEdit(problems(Request(messages=edited.messages, tools=({"name": "any"},), facts=self.facts)))
        return _Edited(edited, layers, assembled.over_tokens, draft, usage, failure)

    def _assemble(self, draft: "Draft", frame: "Frame", *, epoch: int, must_trim: bool) -> "Assembled":
        """Put a draft together; where room is scarce the memory gives way before the context does."""
        from compaction.assembly import assemble

        share = self.options.memory_share
        for part in (share, share / 4):
            assembled = assemble(draft, frame, epoch=epoch, memory_tokens=int(part * frame.limit_tokens), must_trim=must_trim)
            if not assembled.over_tokens:
                return assembled
        return assemble(draft, frame, epoch=epoch, memory_tokens=0, must_trim=must_trim)

    async def _summarize(self, view: View, change: _Change, frame: "Frame", *, overflowed: bool) -> "tuple[Draft, dict[str, int], str]":
        """Return the draft with a summary of what its cut takes away; with an extract where the summarizer fails."""
        from compaction.layers.summary import apply
        from compaction.summarizer import SummaryFailed, SummarySource, extract

        cut, draft, summarizer = change.summary_cut, change.draft, self.around.summarizer
        assert cut is not None
        assert summarizer is not None
        old = draft.body[: cut.at]
        usage, failure = dict[str, int](), ""
        try:
            made = await summarizer.summarize(
                SummarySource(view=view.messages, task=draft.task, old=old, previous=draft.summary, overflowed=overflowed)
            )
            text, usage = made.text, dict(made.usage)
        except SummaryFailed as error:
            text, usage, failure = extract(old, draft.summary, _memory_base(frame)), dict(error.usage), error.reason
        return apply(draft, frame, cut, text), usage, failure

    def _tokens(self, draft: "Draft") -> int:
        return self.meter.tokens(weigh_all([ModelMessage("user", draft.task), *draft.body]))

    def _checkpoint(self, view: View, edited: _Edited, rule: Rule, situation: Situation) -> Checkpoint | None:
        """Return the edit as a checkpoint; None when it freed nothing and nothing was broken."""
        after = self.meter.tokens(edited.view.weight)
        before = self.meter.tokens(view.weight)
        if not edited.layers:
            return None
        if situation.sendable and after >= before and edited.view.size_bytes >= view.size_bytes:
            return None
        return Checkpoint(
            epoch=edited.view.epoch,
            trigger=rule.cause,
            layers=edited.layers,
            tokens_before=situation.used_tokens,
            tokens_after=after,
            replaces=len(view),
            messages=tuple(edited.view.messages),
            carried=edited.view.carried,
            over_tokens=edited.over_tokens,
            moved=edited.draft.moved,
            cost=self._cost(view, edited.view, situation, edited.usage),
            summary_usage=edited.usage,
            summary_failure=edited.failure,
        )


def tools_text_tokens(tools: Sequence[Block]) -> int:
    """Measure tool definitions, for `Compactor`; agents with the same tools measure them once."""
    return sum(count_text(dumps(tool)) for tool in tools)


def _keep(frame: "Frame") -> int:
    """Return how much may stay word for word: a share of the budget, less where less is wanted than the budget allows."""
    return int(frame.options.keep_share * min(frame.budget_tokens, frame.target_tokens / frame.options.target_share))


def _memory_base(frame: "Frame") -> int:
    return max(1, int(frame.options.memory_share * frame.limit_tokens / 2))


async def _finish(result: Awaitable[None] | None) -> None:
    if result is not None:
        await result
