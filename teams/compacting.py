"""What an agent's runtime gives to compaction: the call that makes a summary, and hooks that are shell commands.

Laws: a summary is asked for in the agent's own name, through the team's gateway, so that it is limited, retried and booked like every call;
a hook that fails, hangs or floods is a notice and never stops an agent, and nothing of it is left running.
"""

import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from compaction.compactor import Checkpoint, Plan
from compaction.summarizer import SummaryReply, SummaryRequest
from teams.events import EventHub, RuntimeNotice
from teams.models.base import Model, ModelRequest, ToolDefinition
from teams.models.gateway import Gateway
from teams.options import CompactionHooks
from teams.tools.processes import HeadTail, run_process

OUTPUT_LIMIT_BYTES = 4_000


async def ask_for_summary(
    request: SummaryRequest, *, gateway: Gateway, model: Model, agent: str, system: str, tools: Sequence[ToolDefinition]
) -> SummaryReply:
    """Make one call for a summary; with the same prefix it carries the agent's own system text and tools, so that the cache is read.

    Raises: ModelError, by kind.
    """
    own = getattr(model, "summarizer", None)  # the provider's own compaction, where the owner of the model chose it
    asked: Model = (own() if own is not None and request.same_prefix else None) or model
    reply = await gateway.call(
        ModelRequest(
            agent=agent,
            system=system if request.same_prefix else request.system,
            messages=request.messages,
            tools=tools if request.same_prefix else (),
            max_tokens=min(request.max_tokens, model.max_output_tokens),
        ),
        model=asked,
    )
    return SummaryReply(reply.text, reply.stop_reason, bool(reply.tool_calls), reply.usage._asdict())


class Hooks:
    """The hooks of one agent: a callable is called, a command line is run with the payload as JSON on its standard input."""

    def __init__(self, options: CompactionHooks, agent: str, events: EventHub, workdir: Path | None = None) -> None:
        self._options, self._agent, self._events = options, agent, events
        self._workdir = workdir or Path.cwd()

    async def before(self, plan: Plan) -> None:
        """Tell that a context is about to be compacted."""
        payload = {"trigger": plan.trigger.value, "layers": list(plan.layers), "tokens_before": plan.tokens_before}
        await self._run("pre_compact", self._options.pre_compact, plan, payload)

    async def after(self, checkpoint: Checkpoint) -> None:
        """Tell that a context was compacted."""
        payload = {
            "trigger": checkpoint.trigger.value,
            "layers": list(checkpoint.layers),
            "epoch": checkpoint.epoch,
            "tokens_before": checkpoint.tokens_before,
            "tokens_after": checkpoint.tokens_after,
            "removed_messages": checkpoint.carried.removed_messages,
        }
        await self._run("post_compact", self._options.post_compact, checkpoint, payload)

    async def _run(
        self, name: str, hook: str | Callable[..., Awaitable[None] | None] | None, value: object, payload: Mapping[str, object]
    ) -> None:
        if hook is None:
            return
        try:
            if isinstance(hook, str):
                await self._run_command(name, hook, {"hook": name, "agent": self._agent, **payload})
            else:
                result = hook(value)
                if result is not None:
                    await result
        except Exception as error:  # noqa: BLE001  # the boundary of a user's code: a hook never stops an agent
            self._tell(f"the {name} hook failed: {type(error).__name__}: {error}")

    async def _run_command(self, name: str, command: str, payload: Mapping[str, object]) -> None:
        output = HeadTail(OUTPUT_LIMIT_BYTES)
        code, late = await run_process(
            ["/bin/sh", "-c", command] if os.name == "posix" else ["cmd", "/c", command],
            cwd=self._workdir,
            environment=os.environ,
            time_seconds=self._options.deadline_seconds,
            output=output,
            stdin=json.dumps(payload).encode(),
        )
        if late or code:
            head, tail, _ = output.parts()
            said = (head + tail).decode(errors="replace").strip()
            how = f"was ended after {self._options.deadline_seconds:g} s" if late else f"ended with exit code {code}"
            self._tell(f"the {name} hook {how}{': ' + said[-300:] if said else ''}")

    def _tell(self, text: str) -> None:
        self._events.emit(RuntimeNotice("warning", text, self._agent))
