"""Steering a teammate that works: three priorities, and what each waits behind.

A teammate runs a long tool. You see what each receipt says when the mail is sent and when the mail was seen: `tool` comes with the result
of the tool that runs, `now` at once, since it cuts the tool short, and `turn` when the teammate would idle.

    python examples/10_steering.py          offline: a script plays the model
    python examples/10_steering.py --live   on the real model; needs ANTHROPIC_API_KEY
"""

import re
import sys
from contextlib import aclosing

import trio

from teams import AnthropicModel, Model, ModelCalled, ModelRequest, Receipt, RuntimeNotice, ScriptedModel, Team, TeamError, open_team, tool
from teams.models import Reply, call, say

PROMPT = "Call measure for the sample that you are told, and then for each further one. Always do first what the newest message says."
LAST = "Thank you."


class Bench:
    """Where the teammate measures; its clock begins with the example."""

    def __init__(self) -> None:
        self.opened = trio.current_time()
        self.started = trio.Event()

    def print(self, text: str) -> None:
        """Print a line with its time."""
        print(f"{trio.current_time() - self.opened:4.1f} s  {text}", flush=True)

    async def measure(self, sample: str) -> str:
        """Measure a sample; this takes a while."""
        self.print(f"measure {sample} starts")
        self.started.set()
        end = "is cut short"
        try:
            await trio.sleep(1.5)
            end = "ends"
        finally:
            self.print(f"measure {sample} {end}")
        return f"Sample {sample} weighs 3 g."

    async def wait_start(self) -> None:
        """Wait until a measurement has begun, and for a moment more."""
        await self.started.wait()
        self.started = trio.Event()
        await trio.sleep(1)


def ann(request: ModelRequest) -> Reply:
    """Measure the sample that the newest message names."""
    samples = re.findall(r"^Measure (\w+)", request.messages[-1].text, re.MULTILINE)
    return call("measure", sample=samples[-1]) if samples else say("Done.")


async def steer(team: Team, bench: Bench, sent: dict[Receipt, str]) -> None:
    """Send a message of each priority while the tool runs."""

    async def send(priority: str, words: str) -> None:
        receipt = await team.send("ann", words, priority=priority)
        sent[receipt] = words
        bench.print(f"{priority:4}  {words!r} is {receipt.state}; waits behind: {receipt.waits_behind or 'nothing'}")

    await send("tool", "Measure A.")
    await bench.wait_start()
    await send("turn", LAST)
    await send("tool", "Measure B.")
    await bench.wait_start()
    await send("now", "Stop: B is broken.")


async def main() -> None:
    """Steer, and look after each call of the model which messages it has seen."""
    model: Model = AnthropicModel("claude-haiku-4-5") if "--live" in sys.argv else ScriptedModel(ann)
    async with aclosing(model), open_team(None, model=model) as team, team.events() as events:
        bench, sent = Bench(), dict[Receipt, str]()
        await team.spawn("ann", role="technician", tools=[tool(effect="reads")(bench.measure)], prompt=PROMPT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(steer, team, bench, sent)
            with trio.move_on_after(120):
                async for event in events:
                    for receipt in [*sent] if isinstance(event, ModelCalled) else []:
                        if team.bus.receipt(receipt.id, "ann").state != "stored":
                            bench.print(f"seen  {(words := sent.pop(receipt))!r}")
                            if words == LAST:
                                nursery.cancel_scope.cancel()
                    if isinstance(event, RuntimeNotice) and event.level == "error":
                        nursery.cancel_scope.cancel()
        (await team.wait_quiescent()).raise_for_failures()


if __name__ == "__main__":
    try:
        trio.run(main)
    except TeamError as error:
        sys.exit(str(error))
