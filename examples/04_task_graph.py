"""A diamond of tasks, claimed by whoever is free.

You see the steps in which the tasks can run and the longest chain, before; and who did what, with what result, after. Design comes first,
backend and frontend side by side, release last. Nobody hands tasks out: an idle teammate takes what is ready.

    python examples/04_task_graph.py [--live]
"""

import re
import sys
from contextlib import aclosing

import trio

from teams import AnthropicModel, Model, ModelRequest, ScriptedModel, TeamError, open_team
from teams.events import RuntimeNotice, TaskChanged
from teams.models import Reply, call, say

PROMPT = "You are a developer in a game of pretence: for each task that you get, complete it with one invented line. Do nothing else."


def script(request: ModelRequest) -> Reply:
    """Play a developer: complete the task that was assigned."""
    assigned = re.search(r"You have claimed task (\d+): (.+)", request.messages[-1].text)
    if assigned is None:
        return say("I have nothing to do.")
    return call("task_complete", task_id=int(assigned[1]), result=f"the {assigned[2]} is done")


async def main() -> None:
    """Make the graph, let two developers work on it, and tell what came of it."""
    model: Model = AnthropicModel("claude-sonnet-4-5") if "--live" in sys.argv else ScriptedModel(script)
    async with aclosing(model), open_team(None, model=model) as team, team.events() as events:
        design = await team.tasks.create("design")
        backend = await team.tasks.create("backend", blocked_by=[design.id])
        frontend = await team.tasks.create("frontend", blocked_by=[design.id])
        await team.tasks.create("release", blocked_by=[backend.id, frontend.id])
        print(f"steps:         {' then '.join(str(step) for step in team.tasks.graph.generations())}")
        print(f"longest chain: {' -> '.join(str(task) for task in team.tasks.graph.critical_path())}")
        for name in ("ann", "ben"):
            await team.spawn(name, role="developer", prompt=PROMPT)
        outcome = await team.wait_quiescent()
        while events.statistics().current_buffer_used:  # all that happened; a live view would read it as it comes
            event = events.receive_nowait()
            if isinstance(event, TaskChanged) and event.owner is not None:
                print(f"{event.owner} takes {event.id} {event.subject}")
            elif isinstance(event, TaskChanged) and event.status == "completed":
                print(f"    {event.id} {event.subject}: {event.text}")
            elif isinstance(event, RuntimeNotice):
                print(f"{event.level}: {event.text}")
        outcome.raise_for_failures()
        print(f"all done: {outcome.all_done}")


if __name__ == "__main__":
    try:
        trio.run(main)
    except TeamError as error:
        sys.exit(str(error))
