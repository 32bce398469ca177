"""The front of teams.tools: what it lists, and that looking at it costs nothing."""

import subprocess
import sys

import teams.tools


def test_front_lists_what_it_gives() -> None:
    """Every public name is there, the list is sorted, and an unknown name is an AttributeError."""
    assert list(teams.tools.__all__) == sorted(teams.tools.__all__)
    assert all(getattr(teams.tools, name) is not None for name in teams.tools.__all__)
    assert dir(teams.tools) == list(teams.tools.__all__)
    assert not hasattr(teams.tools, "nothing")


def test_import_is_silent_and_light() -> None:
    """Making tools and a dispatcher imports no pydantic before the first schema is built, and prints nothing."""
    program = (
        "import sys, teams.tools\n"
        "assert 'trio' not in sys.modules\n"
        "from teams.tools import ToolDispatcher, make_default_dispatcher, tool, ToolBatch, Workspace\n"
        "make_default_dispatcher('.')\n"
        "assert not {'pydantic', 'networkx', 'anthropic', 'rich', 'httpx2'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
