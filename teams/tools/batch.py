"""The tool calls of one reply, run together where that is safe, with exactly one result each whatever happens.

Order: neighbouring calls of tools marked `reads` run together; a call of any other tool waits until everything before it has ended, and
everything after it waits for it. So a read sees what the writes before it did, and nothing of those after it. A cancelled batch starts
nothing more.
"""

from collections.abc import Callable, Iterator, Sequence

import trio

from teams.tools.base import ToolCall, ToolContext, ToolResult
from teams.tools.dispatcher import Gate, ToolDispatcher

STARTED = "interrupted: the call was stopped while it ran; what it had done by then stays done, and nobody knows how far it came"
NOT_STARTED = "interrupted: the call was never started"

OnStart = Callable[[ToolCall], None]
OnEnd = Callable[[ToolCall, ToolResult], None]


class ToolBatch:
    """The calls of one reply.

    Args:
        context_factory: makes the context of each call, when it starts.
        gate: asked for each call when it starts, so that an approval in between counts for the next call.
        on_start, on_end: told of each call that started; `on_end` also when it was interrupted.
    """

    def __init__(
        self,
        dispatcher: ToolDispatcher,
        calls: Sequence[ToolCall],
        context_factory: Callable[[ToolCall], ToolContext],
        gate: Gate | None = None,
        *,
        on_start: OnStart | None = None,
        on_end: OnEnd | None = None,
    ) -> None:
        self._dispatcher, self._context_factory, self._gate = dispatcher, context_factory, gate
        self._calls = tuple(calls)
        self._on_start, self._on_end = on_start, on_end
        self._results: list[ToolResult | None] = [None] * len(self._calls)
        self._scope = trio.CancelScope()
        self._ran = False

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls, in the model's order."""
        return self._calls

    @property
    def scope(self) -> trio.CancelScope:
        """What the calls run in; to cancel it is to `cancel` the batch."""
        return self._scope

    def cancel(self) -> None:
        """Stop what runs and start nothing more; `run` then returns, and what is unfinished is interrupted. May be called at any time."""
        self._scope.cancel()

    def results(self) -> tuple[ToolResult, ...]:
        """Return one result per call, in the order of the calls; at any time, with interrupted results for what has not ended."""
        pairs = zip(self._calls, self._results, strict=True)
        return tuple(result or ToolResult(call.id, NOT_STARTED, is_error=True, interrupted=True) for call, result in pairs)

    async def run(self) -> tuple[ToolResult, ...]:
        """Run all calls and return their results.

        Checkpoints: as the handlers do; when Cancelled, `results` still has one result for every call.

        Raises:
            RuntimeError: it ran before.
        """
        if self._ran:
            raise RuntimeError("a batch runs once; make another one")
        self._ran = True
        with self._scope:
            for first, end in self._stretches():
                if self._scope.cancel_called:
                    break
                if end - first == 1:  # a nursery costs more than the rest of a short call
                    await self._run_one(first)
                    continue
                async with trio.open_nursery() as nursery:
                    for index in range(first, end):
                        nursery.start_soon(self._run_one, index)
        return self.results()

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """Cut the calls into stretches that run one after the other: neighbouring reads together, each other call alone."""
        first = 0
        while first < len(self._calls):
            end = first + 1
            if self._reads(first):
                while end < len(self._calls) and self._reads(end):
                    end += 1
            yield first, end
            first = end

    def _reads(self, index: int) -> bool:
        tool = self._dispatcher.get(self._calls[index].name)
        return tool is not None and tool.effect == "reads"

    async def _run_one(self, index: int) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()  # a handler without a checkpoint would else do all its work after the cancellation
        call = self._calls[index]
        result: ToolResult | None = None
        if self._on_start is not None:
            self._on_start(call)
        try:
            result = await self._dispatcher.call(call, self._context_factory(call), gate=self._gate)
        finally:
            if result is None:
                result = ToolResult(call.id, STARTED, is_error=True, interrupted=True)
            self._results[index] = result
            if self._on_end is not None:
                self._on_end(call, result)
