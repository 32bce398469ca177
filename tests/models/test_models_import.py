"""What importing the models costs, and what the front shows."""

import subprocess
import sys

import teams.models


def test_import_of_the_models_leaves_heavy_modules_out() -> None:
    """Neither the front nor any of its public names brings the SDK, an HTTP library or pydantic with it."""
    code = """
import sys, teams.models
for name in teams.models.__all__:
    getattr(teams.models, name)
teams.models.AnthropicModel("claude-sonnet-4-5", api_key="k")
heavy = {"anthropic", "httpx2", "httpcore2", "h11", "pydantic", "anyio"} & set(sys.modules)
print(sorted(heavy))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_front_lists_its_names_in_order() -> None:
    """The list of public names is sorted, complete and what `dir` shows."""
    assert teams.models.__all__ == sorted(teams.models.__all__)
    assert dir(teams.models) == teams.models.__all__
    assert all(hasattr(teams.models, name) for name in teams.models.__all__)
