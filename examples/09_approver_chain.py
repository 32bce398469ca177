"""Who approves: rules first, then two of three reviewers, then a person.

Three teammates submit plans. What the rules cover is approved by them, what they forbid is rejected, both at once. The rest goes to the
reviewers, of whom two must agree; what they leave undecided for a minute goes to the person, here a function that stands in for one.

    python examples/09_approver_chain.py
    add --live for the real model
"""

import sys
from contextlib import aclosing
from functools import partial

import trio

from protocols import Rule, RuleAction, Stage
from teams import AnthropicModel, MemberOptions, Model, ModelRequest, ScriptedModel, TeamError, open_team, rule_list
from teams.approvals import AnyRequest, PlanRequest
from teams.models import Reply, call, say
from teams.models.script import spoken

RULES = (
    Rule(RuleAction.allow, path="docs"),
    Rule(RuleAction.deny, path="secrets"),
    Rule(RuleAction.allow, command="make *"),
)
REVIEWERS = ("vera", "victor", "violet")
PLANS = {
    "ann": ["docs/guide.md"],
    "ben": ["secrets/key.pem"],
    "cora": ["src/app.py"],
}


def script(request: ModelRequest) -> Reply:
    """Play every teammate: submit the plan that the prompt names, and end the turn."""
    newest = spoken(request.messages[-1])
    if "Submit a plan" not in newest or request.messages[-1].tool_results:
        return say("Waiting.")
    return call("submit_plan", summary=f"Change {PLANS[request.agent][0]}", steps=["Change it"], files=PLANS[request.agent])


async def review(name: str, request: AnyRequest) -> None:
    """Decide as a reviewer: violet is against changes of src, the others are not."""
    if not isinstance(request, PlanRequest):
        return  # to whoever comes next
    if name == "violet" and not request.plan.touches_only("docs"):
        await request.reject("let us talk about it first")
    else:
        await request.approve("looks right")


async def main() -> None:
    """Open a team with a chain of approvers, and show who decided what."""
    model: Model = AnthropicModel("claude-sonnet-4-5") if "--live" in sys.argv else ScriptedModel(script)
    async with aclosing(model), open_team(None, model=model) as team:
        await team.add_approver("policy", rule_list(*RULES))
        for name in REVIEWERS:
            await team.add_approver(name, partial(review, name))
        chain = MemberOptions(approval=("policy", Stage(REVIEWERS, quorum=2, seconds=60), "user"), auto_claim=False)
        for name, files in PLANS.items():
            prompt = f"Submit a plan with one step that changes {files[0]}, then end your turn. Change nothing."
            await team.spawn(name, role="writer", prompt=prompt, plan="required", options=chain)
        (await team.wait_quiescent()).raise_for_failures()
        for request in sorted(team.state.requests.closed(), key=lambda request: request.asker):
            if request.decision is None:
                continue
            said = f": {request.decision.feedback}".replace("\n", "; ") if request.decision.feedback else ""
            print(f"plan of {request.asker} is {request.state} by {request.decision.by}{said}")
            for vote in request.decision.votes:
                print(f"  {vote.by} {'approved' if vote.approved else 'rejected'}{f': {vote.feedback}' if vote.feedback else ''}")
        for request in team.state.requests.open():
            decision = request.decision
            print(f"plan of {request.asker} is {request.state}{f' by {decision.by}: {decision.feedback}' if decision else ''}")


if __name__ == "__main__":
    try:
        trio.run(main)
    except TeamError as error:
        sys.exit(str(error))
