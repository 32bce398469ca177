"""A teammate that may write only under an approved plan.

It tries to write at once and is refused by the runtime, whatever its prompt says; so it submits a plan. You see the plan come in, rejected
with feedback, come in again, approved, and what was written then.

    python examples/03_plan_approval.py          a policy in Python decides
    python examples/03_plan_approval.py --ask    you decide, at the terminal
    add --live for the real model
"""

import sys
import tempfile
from contextlib import aclosing
from pathlib import Path

import trio

from teams import AnthropicModel, Model, ModelRequest, PlanOptions, PlanRequest, ScriptedModel, TeamError, TeamOptions, open_team
from teams.models import Reply, call, say
from teams.models.script import spoken

PROMPT = "Write the file docs/hello.md with a greeting in it, and mention it in README.md if you may. Then end your turn."


def script(request: ModelRequest) -> Reply:
    """Play the teammate: what comes next depends on what it was told."""
    told = spoken(request.messages[-1])
    if 'type="plan_approval_response"' in told:
        if 'approve="true"' in told:
            return call("write_file", path="docs/hello.md", content="Hello!\n")
        return call("submit_plan", summary="Greet", steps=["Write the greeting"], files=["docs/hello.md"])
    if "cannot run write_file" in told:
        files = ["docs/hello.md", "README.md"]
        return call("submit_plan", summary="Greet", steps=["Write the greeting", "Mention it"], files=files)
    return call("write_file", path="docs/hello.md", content="Hello!\n") if PROMPT in told else say("Done.")


async def by_policy(request: PlanRequest) -> None:
    """Decide by a rule."""
    if request.plan.touches_only("docs/"):
        await request.approve()
        print("policy: approved")
    else:
        await request.reject("stay inside docs/")
        print("policy: rejected, stay inside docs/")


async def by_person(request: PlanRequest) -> None:
    """Decide as the person at the terminal says; the team goes on meanwhile."""
    try:
        answer = await trio.to_thread.run_sync(input, "approve? Enter for yes, or say what must change: ", abandon_on_cancel=True)
    except EOFError:
        answer = "nobody is at the terminal to decide"
    await (request.reject(answer) if answer.strip() else request.approve())


async def main() -> None:
    """Open a team over a new folder, and decide the plans of its one member."""
    model: Model = AnthropicModel("claude-sonnet-4-5") if "--live" in sys.argv else ScriptedModel(script)
    decide = by_person if "--ask" in sys.argv else by_policy
    with tempfile.TemporaryDirectory() as folder:
        options = TeamOptions(plans=PlanOptions(outside="refuse"))  # 08 shows what else can become of a write beside the plan
        async with aclosing(model), open_team(None, model=model, workdir=folder, options=options) as team:
            await team.spawn("ann", role="writer", prompt=PROMPT, plan="required")
            async for request in team.plan_requests():
                print(f"{request.author}, revision {request.revision}: {request.plan.summary}; files: {', '.join(request.plan.files)}")
                await decide(request)
            (await team.wait_quiescent()).raise_for_failures()
            print(f"ann is {team.member('ann').status} in the end")
        print(f"written: {', '.join(sorted(str(path.relative_to(folder)) for path in Path(folder).rglob('*.md'))) or 'nothing'}")


if __name__ == "__main__":
    try:
        trio.run(main)
    except TeamError as error:
        sys.exit(str(error))
