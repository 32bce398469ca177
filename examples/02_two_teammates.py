"""Two teammates that write to each other.

You see the mail of the team: ann asks ben, ben answers her (his answer names her question), and ann reports to you. Nobody polls: a
teammate sleeps until there is mail for it.

    python examples/02_two_teammates.py [--live]
"""

import re
import sys
from contextlib import aclosing

import trio

from teams import AnthropicModel, Model, ModelRequest, ScriptedModel, TeamError, open_team
from teams.events import MailStored, RuntimeNotice
from teams.models import Reply, call, say


def ann(request: ModelRequest) -> Reply:
    """Ask ben, and pass on what he says."""
    text = request.messages[-1].text
    if 'from="lead"' in text:
        return call("send_message", to="ben", content="Which day is the release?")
    if 'from="ben"' in text:
        return call("send_message", to="lead", content=f"Ben says: {text.splitlines()[1]}")
    return say("I wait.")


def ben(request: ModelRequest) -> Reply:
    """Answer ann by the id of her message."""
    question = re.search(r'<message id="(\w+)" from="ann"', request.messages[-1].text)
    if question is None:
        return say("I wait.")
    return call("send_message", to="ann", content="On Thursday.", request_id=question[1])


async def main() -> None:
    """Spawn both and watch their mail until the answer has come."""
    live = "--live" in sys.argv
    model: Model = AnthropicModel("claude-sonnet-4-5") if live else ScriptedModel({"ann": ann, "ben": ben})
    async with aclosing(model), open_team(None, model=model) as team, team.events() as events:
        await team.spawn("ben", prompt="The release is on Thursday. Answer who asks; until then, end your turn.")
        await team.spawn("ann", prompt="Ask ben on which day the release is, and tell lead, by send_message.")
        with trio.move_on_after(300):
            async for event in events:
                if isinstance(event, MailStored) and event.type == "message":
                    answers = f" (answers {event.request_id})" if event.request_id else ""
                    print(f"{event.id}  {event.sender} -> {', '.join(event.recipients)}{answers}: {event.content}")
                    if event.recipients == ("lead",):
                        break
                elif isinstance(event, RuntimeNotice):
                    print(f"{event.level}: {event.text}")
                    if event.level == "error":
                        break
        (await team.wait_quiescent()).raise_for_failures()


if __name__ == "__main__":
    try:
        trio.run(main)
    except TeamError as error:
        sys.exit(str(error))
