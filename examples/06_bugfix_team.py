"""Three agents mend a broken project.

You see the tools that they call, as they call them, and then a report: the project's tests before and after, the plan that was rejected and
the one that was approved, the reviews by mail, the tasks, the shutdowns. `teams demo` shows the same with a live view.

    python examples/06_bugfix_team.py [--live]
"""

import sys
from functools import partial

import trio

from teams import AnthropicModel, Team, TeamError
from teams.cli.bugfix import run_bugfix
from teams.events import ToolStarted


async def watch(team: Team) -> None:
    """Print a line for each tool call."""
    async with team.events() as events:
        async for event in events:
            if isinstance(event, ToolStarted):
                told = " ".join(str(value) for value in event.input.values()).partition("\n")[0]
                print(f"  {event.name:5} {event.tool:14} {told[:90]}")


async def main(*, live: bool) -> int:
    """Run the team, and return 0 when the project's tests pass."""
    if not live:
        return await run_bugfix(directory=None, live_model=None, on_team=watch)
    model = AnthropicModel("claude-sonnet-4-5")
    try:
        return await run_bugfix(directory=None, live_model=model, on_team=watch)
    finally:
        await model.aclose()


if __name__ == "__main__":
    try:
        sys.exit(trio.run(partial(main, live="--live" in sys.argv)))
    except TeamError as error:
        sys.exit(str(error))
