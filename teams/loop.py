"""The agent loop: one agent, its context, its model and its tools.

Laws:
- A turn ends: rounds are bounded, and the last one is asked for a summary.
- Every call of the model is answered by exactly one result, also when the turn is cancelled: interrupted ones say so.
- A reply is durable before a tool that writes runs, and what a turn has appended before the turn ends (where there is a log). What has
  not been synced yet is written: it survives the process, and before a tool that only reads that is enough.
- The view only grows; what may shrink it is the compactor alone.
- Mail enters at tool boundaries and at the turn's begin, and nowhere else.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from compaction.compactor import Compactor, tools_text_tokens
from compaction.fill import Fill, fill
from compaction.models import ModelFacts, model_facts
from compaction.options import CompactionOptions
from compaction.transcript import Block, ModelMessage, interrupted_results, notice
from compaction.triggers import Cause
from compaction.view import View
from teams.errors import ContextOverflow, UsageError
from teams.events import (
    NO_WATCHERS,
    ContextCompacted,
    ContextStuck,
    EventHub,
    ModelCalled,
    RuntimeNotice,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from teams.models.base import Model, ModelReply, ModelRequest, ToolDefinition, Usage
from teams.models.gateway import Gateway
from teams.options import AgentOptions
from teams.surroundings import Surroundings, TranscriptLog
from teams.tools.base import ToolCall, ToolContext, ToolResult
from teams.tools.batch import ToolBatch
from teams.tools.dispatcher import Gate, ToolDispatcher

if TYPE_CHECKING:
    from compaction.summarizer import SummaryReply, SummaryRequest

NO_USAGE = Usage()
SAID_NOTHING = "(ended the turn without a word)"
REFUSED = "(refused to answer)"
INTERRUPTED = "(interrupted before an answer)"
STOPPED = "(ended the turn)"
DIED = "the process ended while the tool ran; whether it finished is not known"
GO_ON = notice("Go on.")
CUT_OFF = notice("Your reply was cut off at its token limit. Go on from where it stopped, in smaller steps.")
MAX_CUT_OFF = 3
"""How often a turn goes on after a reply that was cut off even at its larger limit; a model that never ends would pay for all rounds."""
LAST_ROUND = notice("You have used up the rounds of this turn. Call no tool now: say what is done, what is not, and what comes next.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """What makes an agent: its model, its words of introduction, its name and limits."""

    model: Model
    system_prompt: str = ""
    name: str = "agent"
    options: AgentOptions = field(default_factory=AgentOptions)
    compaction: CompactionOptions = field(default_factory=CompactionOptions)


@dataclass(frozen=True, slots=True)
class AgentResponse:
    """What a turn came to. `stop_reason` is the provider's, or `max_rounds` or `stopped`; `usage` is the sum over the turn's calls."""

    text: str
    stop_reason: str
    tool_results: tuple[ToolResult, ...] = ()
    usage: Usage = NO_USAGE
    rounds: int = 0
    raw: ModelReply | None = None


class Activity(NamedTuple):
    """What an agent does at this moment, in words that no model wrote, and since when by trio's clock."""

    what: str
    since: float

    def __str__(self) -> str:
        return f"{self.what}, {trio.current_time() - self.since:.0f} s"


class AgentLoop:
    """One agent. Use `run` for each thing that you say to it; the context grows from turn to turn.

    Args:
        dispatcher: its tools; frozen by the first turn.
        gateway: where its calls go; one of its own when None.
        view: what it remembers at the start.
        log: where the transcript is kept; nowhere when None.
    """

    def __init__(
        self,
        config: AgentConfig,
        dispatcher: ToolDispatcher | None = None,
        *,
        gateway: Gateway | None = None,
        view: View | None = None,
        log: TranscriptLog | None = None,
        surroundings: Surroundings | None = None,
        events: EventHub = NO_WATCHERS,
    ) -> None:
        if isinstance(config.model, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # as other systems have it
            raise TypeError(
                f"the model of {config.name!r} is the string {config.model!r}; pass a model, such as AnthropicModel({config.model!r})"
            )
        self.config = config
        self.dispatcher = dispatcher or ToolDispatcher()
        self.view = view if view is not None else View()
        self._gateway = gateway or Gateway(config.model)
        self._log, self._events = log, events
        self._surroundings = surroundings or Surroundings()
        self._compactor: Compactor | None = None
        self._definitions: tuple[ToolDefinition, ...] | None = None
        self._interruptible: trio.CancelScope | None = None
        self._gate: Gate = self._surroundings.gate
        self._asked: Cause | None = None
        self._resumed: frozenset[str] = frozenset()
        self._running: dict[str, Activity] = {}  # by the id of the tool call; in the order in which they began

    # -- the outside ---------------------------------------------------------

    async def run(self, messages: str | Sequence[Block] | Sequence[ModelMessage] = (), *, mail: Sequence[str] = ()) -> AgentResponse:
        """Say something to the agent and let it work until it ends its turn.

        Args:
            messages: text, content blocks of one user message, or whole messages; nothing at all lets it go on where it was stopped.
            mail: ids of the messages that the blocks present, for the log.

        Raises: ModelError when the model cannot be reached or refuses the request; ContextOverflow when nothing more can be removed.
        Checkpoints: always. When Cancelled, the context is valid: open calls are answered as interrupted.
        """
        if not self._resumed:
            self._say(messages, mail)
        try:
            return await self._turn()
        except BaseException:
            self._answer_open_calls("the turn was cancelled")
            raise

    def interrupt(self) -> None:
        """Cut short the running model call or tools, so that mail can be seen at once; nothing happens between two of them."""
        if self._interruptible is not None:
            self._interruptible.cancel()

    def activity(self) -> Activity | None:
        """Tell what runs now, the oldest of several tool calls; None between two steps and between turns."""
        return next(iter(self._running.values()), None)

    def ask_compaction(self, cause: Cause = Cause.ASKED) -> None:
        """Have the context compacted before the next call of the model."""
        self._asked = cause

    def fill(self) -> Fill:
        """Measure what fills the window now, by kind."""
        if self._compactor is None:
            self._compactor = self._make_compactor()
        return fill(self.view, self._compactor.meter, self._compactor.budget)

    def open_calls(self) -> tuple[ToolCall, ...]:
        """Return the calls at the end of the transcript that have no result: a process has died while they ran."""
        last = self.view.last
        if last is None or last.role != "assistant":
            return ()
        return tuple(ToolCall(block["id"], block["name"], block["input"]) for block in last.tool_calls)

    def repair_after_crash(self, resumable: Collection[str] = ()) -> bool:
        """Answer calls that a dead process left open; return whether the agent still owes an answer.

        Calls whose ids are `resumable` had not begun: the next turn runs them, and says of the others that they were interrupted.
        """
        self._resumed = frozenset(resumable).intersection(call.id for call in self.open_calls())
        if self._resumed:
            return True
        self._answer_open_calls(DIED)
        messages = self.view.messages
        return bool(messages) and messages[-1].role == "user"

    # -- one turn --------------------------------------------------------------

    async def _turn(self) -> AgentResponse:
        options, surroundings = self.config.options, self._surroundings
        usage, results = Usage(), list[ToolResult]()
        pauses = rounds = cut_off = 0
        if self._resumed:
            results += await self._take_up_calls()
            if surroundings.must_stop():
                return await self._stopped("", results, usage)
        while True:
            rounds += 1
            last_round = rounds >= options.max_rounds
            reply = await self._ask(last_round)
            if reply is None:  # interrupted, for mail
                self._append(ModelMessage("assistant", INTERRUPTED))
                self._append_boundary([], GO_ON)
                continue
            usage = usage + reply.usage
            if reply.tool_calls and not last_round and reply.stop_reason != "refusal":
                results += await self._run_tools(reply, LAST_ROUND if rounds + 1 == options.max_rounds else "")
                if surroundings.must_stop():
                    return replace(await self._stopped(reply.text, results, usage), rounds=rounds, raw=reply)
                continue
            self._append(self._last_words(reply), reply=reply)
            if reply.stop_reason == "pause_turn" and pauses < options.max_pauses:
                pauses += 1
                continue
            if reply.stop_reason == "max_tokens" and cut_off < MAX_CUT_OFF and rounds + 1 < options.max_rounds:
                cut_off += 1
                self._append_text(CUT_OFF)
                continue
            await self._sync()
            return AgentResponse(reply.text, "max_rounds" if last_round else reply.stop_reason, tuple(results), usage, rounds, reply)

    async def _stopped(self, text: str, results: Sequence[ToolResult], usage: Usage) -> AgentResponse:
        self._append(ModelMessage("assistant", STOPPED))  # so that nothing is owed, also in the eyes of a next life
        await self._sync()
        return AgentResponse(text, "stopped", tuple(results), usage)

    async def _ask(self, last_round: bool) -> ModelReply | None:
        """Make one call, with a larger reply when it was cut off, and a smaller context when it did not fit; None when interrupted."""
        options = self.config.options
        max_tokens = min(options.max_reply_tokens, self.config.model.max_output_tokens)
        compacted = False
        await self._compact(self._surroundings.take_compaction() or self._take_asked())
        while True:
            request = self._request(max_tokens, last_round)
            try:
                reply = await self._call(request)
                overflowed = reply is not None and reply.stop_reason == "model_context_window_exceeded"
            except ContextOverflow:
                if compacted:
                    raise
                reply, overflowed = None, True
            if overflowed and not compacted:
                compacted = True
                await self._compact(Cause.OVERFLOW)
                continue
            if reply is None:
                return None
            larger = min(options.retry_reply_tokens, self.config.model.max_output_tokens)
            if reply.stop_reason == "max_tokens" and max_tokens < larger:
                max_tokens = larger
                continue
            if self._compactor is not None:
                self._compactor.replied(self.view, input_tokens=reply.usage.total_input)
            return reply

    async def _call(self, request: ModelRequest) -> ModelReply | None:
        events, name = self._events, self.config.name
        on_text = partial(self._tell_text, name) if events.watched else None
        replies: list[ModelReply] = []  # still empty when the scope was cut short
        self._running[""] = Activity("a model call", trio.current_time())
        try:
            with self._let_be_interrupted(trio.CancelScope()):
                replies.append(await self._gateway.call(request, model=self.config.model, on_text=on_text))
        finally:
            del self._running[""]
        if not replies:
            return None
        reply = replies[0]
        if events.watched:
            used = reply.usage
            events.emit(
                ModelCalled(name, reply.stop_reason, reply.text, used.total_input, used.output_tokens, used.cache_read_input_tokens)
            )
        return reply

    def _request(self, max_tokens: int, last_round: bool) -> ModelRequest:
        if self._definitions is None:
            self._definitions = self.dispatcher.memo(_offered)
        return ModelRequest(
            agent=self.config.name,
            system=self.config.system_prompt,
            messages=self.view.messages,
            tools=self._definitions,
            max_tokens=max_tokens,
            tool_choice={"type": "none"} if last_round and self._definitions else None,
        )

    async def _run_tools(self, reply: ModelReply, remark: str) -> tuple[ToolResult, ...]:
        self._append(reply.message, reply=reply)
        if self._log is not None and any(self.dispatcher.writes(block["name"]) for block in reply.tool_calls):
            await self._log.sync()
        return await self._run_calls([ToolCall(block["id"], block["name"], block["input"]) for block in reply.tool_calls], remark)

    async def _take_up_calls(self) -> tuple[ToolResult, ...]:
        """Run the calls that an earlier life left open and had not begun; what else was open is answered as interrupted."""
        resumed, self._resumed = self._resumed, frozenset()
        calls = self.open_calls()
        lost = [ToolResult(call.id, f"interrupted: {DIED}", is_error=True, interrupted=True) for call in calls if call.id not in resumed]
        return await self._run_calls([call for call in calls if call.id in resumed], "", lost)

    async def _run_calls(self, calls: Sequence[ToolCall], remark: str, known: Sequence[ToolResult] = ()) -> tuple[ToolResult, ...]:
        """Run calls and append their results, behind those that are known already."""
        batch = ToolBatch(self.dispatcher, calls, self._context, self._gate, on_start=self._tell_start, on_end=self._tell_end)
        try:
            self._let_be_interrupted(batch.scope)
            await batch.run()
        finally:
            results = (*known, *batch.results())
            self._append_boundary([result.block() for result in results], remark)
        return results

    def _let_be_interrupted(self, scope: trio.CancelScope) -> trio.CancelScope:
        """Let `interrupt` cut short what runs in a scope; what called for that just before counts as well."""
        self._interruptible = scope
        if self._surroundings.is_called():
            scope.cancel()
        return scope

    def _context(self, call: ToolCall) -> ToolContext:
        return ToolContext(self.config.name, self.dispatcher.workdir, call.id)

    def _last_words(self, reply: ModelReply) -> ModelMessage:
        if reply.stop_reason == "refusal":
            return ModelMessage("assistant", REFUSED)
        content = [block for block in reply.content if block["type"] != "tool_use"]
        spoken = any(block["type"] != "text" or str(block["text"]).strip() for block in content)
        return ModelMessage("assistant", content) if spoken else ModelMessage("assistant", SAID_NOTHING)

    # -- the context -----------------------------------------------------------

    def _say(self, messages: str | Sequence[Block] | Sequence[ModelMessage], mail: Sequence[str]) -> None:
        if isinstance(messages, str):
            if not messages.strip():
                raise UsageError(f"cannot run {self.config.name!r} with a blank message; say something")
            self._append_text(messages)
            return
        blocks: list[Block] = []
        for item in messages:
            if isinstance(item, ModelMessage):
                self._append(item)
            elif item.get("role"):
                self._append(ModelMessage(item["role"], item["content"]))
            else:
                blocks.append(item)
        if blocks:
            self._append(ModelMessage("user", blocks), mail=mail)
        if not self.view.messages or self.view.messages[-1].role == "assistant":
            raise UsageError(f"cannot run {self.config.name!r}: nothing was said to it, and it owes no answer; pass a message")

    def _append_text(self, text: str) -> None:
        self._append(ModelMessage("user", text))

    def _append_boundary(self, blocks: list[Block], remark: str) -> None:
        said, ids = self._surroundings.take_mail()
        if remark and (blocks or not said):
            said = [*said, {"type": "text", "text": remark}]
        self._append(ModelMessage("user", [*blocks, *said]), mail=ids)

    def _append(self, message: ModelMessage, *, mail: Sequence[str] = (), reply: ModelReply | None = None) -> None:
        last = self.view.last
        if last is not None and last.role == "user" and message.role == "user":
            # Two user messages in a row would be merged by the provider; an answer between them keeps the view append-only.
            self._append(ModelMessage("assistant", INTERRUPTED))
        self.view.append(message)
        if self._log is not None:
            self._log.add(message, mail=mail, reply=reply, epoch=self.view.epoch)

    def _answer_open_calls(self, reason: str) -> None:
        messages = self.view.messages
        if messages and messages[-1].role == "assistant" and messages[-1].tool_calls:
            self._append(interrupted_results(messages[-1], f"interrupted: {reason}"))

    async def _compact(self, cause: Cause | None) -> None:
        if self._compactor is None:
            self._compactor = self._make_compactor()
        prepared = await self._compactor.prepare(self.view, cause=cause)
        checkpoint, name = prepared.checkpoint, self.config.name
        self.view = prepared.view
        if prepared.stuck and self._events.watched:
            found = self.fill()
            self._events.emit(ContextStuck(name, found.used, found.window_tokens, dict(found.messages), prepared.over_bytes))
        if checkpoint is None:
            return
        if self._log is not None:
            self._log.compacted(checkpoint)
        figures = checkpoint.tokens_before, checkpoint.tokens_after, checkpoint.layers, checkpoint.epoch, checkpoint.cost.payback_calls
        self._events.emit(ContextCompacted(name, str(checkpoint.trigger), *figures))
        if checkpoint.summary_failure:
            text = f"no summary for {name}: {checkpoint.summary_failure}; an extract took its place"
            self._events.emit(RuntimeNotice("warning", text, name))

    def _make_compactor(self) -> Compactor:
        config, model = self.config, self.config.model
        facts = _facts(model.name, model.context_window_tokens)
        reply_tokens = min(config.options.max_reply_tokens, model.max_output_tokens)
        tools = self.dispatcher.memo(tools_text_tokens)
        around = self._surroundings.around()
        wanted = config.options.summarize
        if wanted or (wanted is None and getattr(model, "summarizes", False)):
            from compaction.summarizer import DEFAULT_OPTIONS, Summarizer  # what a team without summaries does not need

            around = replace(around, summarizer=Summarizer(self._ask_for_summary, config.options.summaries or DEFAULT_OPTIONS))
        return Compactor(config.compaction, facts=facts, reply_tokens=reply_tokens, system=config.system_prompt, tools=tools, around=around)

    async def _ask_for_summary(self, request: "SummaryRequest") -> "SummaryReply":
        from teams.compacting import ask_for_summary  # as above

        config = self.config
        self._running[""] = Activity("a summary of its context", trio.current_time())
        try:
            return await ask_for_summary(
                request,
                gateway=self._gateway,
                model=config.model,
                agent=config.name,
                system=config.system_prompt,
                tools=self._definitions or self.dispatcher.memo(_offered),
            )
        finally:
            del self._running[""]

    def _take_asked(self) -> Cause | None:
        cause, self._asked = self._asked, None
        return cause

    async def _sync(self) -> None:
        if self._log is not None:
            await self._log.sync()

    # -- events ------------------------------------------------------------------

    def _tell_text(self, name: str, text: str) -> None:
        self._events.emit(TextDelta(name, text))

    def _tell_start(self, call: ToolCall) -> None:
        tool = self.dispatcher.get(call.name)
        self._running[call.id] = Activity("a tool" if tool is None else tool.name, trio.current_time())
        if self._events.watched:
            self._events.emit(ToolStarted(self.config.name, str(call.name), call.id, call.input))

    def _tell_end(self, call: ToolCall, result: ToolResult) -> None:
        self._running.pop(call.id, None)
        if not self._events.watched:
            return
        name = self.config.name
        self._events.emit(ToolEnded(name, str(call.name), call.id, result.is_error, result.interrupted, result.text[:500]))


@lru_cache(maxsize=64)
def _facts(name: str, window_tokens: int) -> ModelFacts:
    return replace(model_facts(name), window_tokens=window_tokens)


def _offered(definitions: Sequence[Mapping[str, Any]]) -> tuple[ToolDefinition, ...]:
    return tuple(ToolDefinition(**definition) for definition in definitions)


async def chat(
    system_prompt: str,
    user_message: str,
    model: Model,
    tools: Mapping[str, Any] | None = None,
) -> AgentResponse:
    """Run one turn of a throw-away agent and return its answer; `tools` maps names to functions.

    Raises: ModelError, by kind.
    Checkpoints: always.
    """
    dispatcher = ToolDispatcher()
    if tools:
        dispatcher.register_many(tools)
    return await AgentLoop(AgentConfig(model=model, system_prompt=system_prompt), dispatcher).run(user_message)
