"""One agent, one tool.

You see the agent call the tool, read its result, answer, and remember in its second turn what was said in the first.

    python examples/01_hello_agent.py          offline: a script plays the model
    python examples/01_hello_agent.py --live   on the real model; needs ANTHROPIC_API_KEY
"""

import sys
from contextlib import aclosing

import trio

from teams import AgentConfig, AgentLoop, AnthropicModel, Model, ModelRequest, ScriptedModel, TeamError, ToolDispatcher, tool
from teams.models import Reply, call, say

POEM = "The fog comes on little cat feet."


@tool(effect="reads")
def count_words(text: str) -> int:
    """Count the words of a text.

    Args:
        text: any text
    """
    return len(text.split())


def script(request: ModelRequest) -> Reply:
    """Play the model: it sees what a model sees, and decides by it."""
    newest = request.messages[-1]
    if newest.tool_results:
        return say(f"It has {newest.tool_results[0]['content']} words.")
    if "poem" in newest.text:
        return say("Let me count.") + call("count_words", text=POEM)
    return say(f"You asked {sum(message.role == 'user' and not message.tool_results for message in request.messages)} things.")


async def main() -> None:
    """Build the agent and talk to it twice."""
    model: Model = AnthropicModel("claude-sonnet-4-5") if "--live" in sys.argv else ScriptedModel(script)
    async with aclosing(model):
        agent = AgentLoop(AgentConfig(model=model, system_prompt="Be brief."), ToolDispatcher([count_words]))
        for question in (f"How many words has this poem? {POEM}", "How many things did I ask you so far?"):
            print(f"you    {question}")
            response = await agent.run(question)
            for result in response.tool_results:
                print(f"tool   {result.text}")
            print(f"agent  {response.text}  ({response.rounds} model calls, {response.usage.output_tokens} tokens out)")


if __name__ == "__main__":
    try:
        trio.run(main)
    except TeamError as error:
        sys.exit(str(error))
