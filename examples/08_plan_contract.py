"""A plan is a contract: what it names runs, what it does not name is asked for, and its steps are kept.

A teammate plans to write docs/. The plan is approved; writing inside docs/ then needs nobody. A command that the plan does not name becomes
a request that says the difference: here one is refused, and one that is harmless is allowed.

    python examples/08_plan_contract.py
    add --live for the real model
"""

import sys
import tempfile
from contextlib import aclosing
from pathlib import Path

import trio

from teams import AnthropicModel, Model, ModelRequest, PermissionRequest, PlanRequest, ScriptedModel, TeamError, open_team
from teams.models import Reply, call, say
from teams.models.script import spoken

PROMPT = (
    "Write docs/guide.md with two lines in it. Submit a plan that names docs/** alone. When it is approved: begin step 1 with plan_step, "
    "write the file, say that the step is done, then try `rm -rf docs`, then `ls docs`, and end your turn."
)
PLAN = call("submit_plan", summary="Write the guide", steps=["Write it", "Look at it"], files=["docs/**"], risk="none: the folder is new")
WORK = [
    call("plan_step", step=1, status="in_progress"),
    call("write_file", path="docs/guide.md", content="Read this.\nThen begin.\n"),
    call("plan_step", step=1, status="done", output="docs/guide.md has two lines"),
    call("bash", command="rm -rf docs"),
    call("bash", command="ls docs"),
    call("plan_step", step=2, status="in_progress") + call("plan_step", step=2, status="done"),
]


def script(request: ModelRequest) -> Reply:
    """Play the teammate: plan, then do one thing after the other."""
    newest = request.messages[-1]
    if PROMPT in spoken(newest):
        return PLAN
    done = sum(len(message.tool_calls) > 0 for message in request.messages) - 1
    if not newest.tool_results and 'approve="true"' not in spoken(newest):
        return say("Waiting.")
    return WORK[done] if done < len(WORK) else say("Done.")


async def decide(request: PermissionRequest) -> None:
    """Allow what only looks; refuse the rest with a reason that the agent reads."""
    harmless = request.reach.command is not None and request.reach.command.startswith("ls ")
    print(f"{request.author} asks to run {request.what}\n  {request.why}\n  -> {'allowed' if harmless else 'refused'}")
    await (request.approve() if harmless else request.reject("nothing is deleted here"))


async def main() -> None:
    """Open a team over a new folder, and decide what its one member asks."""
    model: Model = AnthropicModel("claude-sonnet-4-5") if "--live" in sys.argv else ScriptedModel(script)
    with tempfile.TemporaryDirectory() as folder:
        async with aclosing(model), open_team(None, model=model, workdir=folder) as team:
            await team.spawn("ann", role="writer", prompt=PROMPT, plan="required")
            async for request in team.requests():
                if isinstance(request, PlanRequest):
                    plan = request.plan
                    print(f"plan of {request.author}: files {', '.join(plan.files)}; commands {', '.join(plan.commands) or 'none'}")
                    await request.approve()
                elif isinstance(request, PermissionRequest):
                    await decide(request)
                else:
                    await request.decline("decide it yourself")
            outcome = await team.wait_quiescent()
            outcome.raise_for_failures()
            for number, (step, status) in enumerate(team.state.plan_steps("ann"), 1):
                print(f"step {number} {status}: {step.text}{f' ({step.output})' if step.output else ''}")
            print(f"ann is {outcome.members['ann']} in the end")
        written = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.md"))
        print(f"written: {', '.join(written) or 'nothing'}")


if __name__ == "__main__":
    try:
        trio.run(main)
    except TeamError as error:
        sys.exit(str(error))
