"""A team whose lead is an agent.

You see the lead spawn a teammate, reject its first plan and approve the second, ask it to shut down, and report to the waiting script.

    python examples/05_lead_agent.py [--live]
"""

import json
import re
import sys
import tempfile
from contextlib import aclosing

import trio

from teams import AnthropicModel, Model, ModelRequest, ScriptedModel, TeamError, open_team
from teams.events import MailStored, RuntimeNotice, ToolStarted
from teams.models import Reply, call, say
from teams.models.script import spoken

TASK = "Write hello.txt with a greeting. Submit a plan first, and tell boss when the file is written."
PROMPT = f"""\
Spawn dev, a writer, with plan_required and this prompt: {TASK!r} A plan must name hello.txt and nothing else. When dev has written it, \
ask dev to shut down, then report to lead with send_message in one line."""


def boss(request: ModelRequest) -> Reply:
    """Play the lead by the newest thing that it was told, mail or tool result."""
    told = spoken(request.messages[-1])
    if plan := re.search(r'type="plan_approval_request" request_id="(\w+)"', told):
        fine = re.findall(r"^- (\S+)$", told, re.MULTILINE) == ["hello.txt"]
        return call("review_plan", request_id=plan[1], approve=fine, feedback="" if fine else "hello.txt alone")
    if "hello.txt is written" in told:
        return call("request_shutdown", name="dev")
    if "dev: stopped" in told:
        return call("send_message", to="lead", content="It is written, dev has stopped.")
    if "Spawn dev" in told:
        return call("spawn_teammate", name="dev", role="writer", prompt=TASK, plan_required=True)
    return say("I wait for news.")


def dev(request: ModelRequest) -> Reply:
    """Play the teammate in the same way."""
    told = spoken(request.messages[-1])
    if asked := re.search(r'type="shutdown_request" request_id="(\w+)"', told):
        return call("shutdown_response", request_id=asked[1], approve=True)
    if "created hello.txt" in told:
        return call("send_message", to="boss", content="hello.txt is written.")
    if "is approved" in told:
        return call("write_file", path="hello.txt", content="Hello!\n")
    if TASK in told or "hello.txt alone" in told:
        files = ["hello.txt", "notes.txt"] if TASK in told else ["hello.txt"]
        return call("submit_plan", summary="Greet", steps=["Write it"], files=files)
    return say("I wait for news.")


async def main() -> None:
    """Spawn the lead, show which tools are called, and wait for its report."""
    model: Model = AnthropicModel("claude-sonnet-4-5") if "--live" in sys.argv else ScriptedModel({"boss": boss, "dev": dev})
    with tempfile.TemporaryDirectory() as folder, trio.move_on_after(300):
        async with aclosing(model), open_team(None, model=model, workdir=folder) as team, team.events() as events:
            await team.spawn("boss", role="lead", prompt=PROMPT, lead=True)
            async for event in events:
                if isinstance(event, ToolStarted):
                    print(f"{event.name:5} {event.tool} {json.dumps(event.input)[:100]}")
                elif isinstance(event, MailStored) and event.recipients == ("lead",):
                    print(f"boss says: {event.content}")
                    break
                elif isinstance(event, RuntimeNotice) and event.level == "error":
                    break
            (await team.wait_quiescent()).raise_for_failures()


if __name__ == "__main__":
    try:
        trio.run(main)
    except TeamError as error:
        sys.exit(str(error))
