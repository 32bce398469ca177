"""The front of the package lists what is public, loads it on first use, and costs nothing before."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import protocols

FRONT = Path(protocols.__file__)


def imported_for_type_checkers() -> dict[str, str]:
    """Read the names under `if TYPE_CHECKING:` with the module that each comes from."""
    [block] = [node for node in ast.parse(FRONT.read_text(encoding="utf-8")).body if isinstance(node, ast.If)]
    return {
        alias.asname or alias.name: node.module.removeprefix("protocols.")
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def run(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def test_front_says_the_same_three_times() -> None:
    """The table, `__all__` and what type checkers see agree, and the list is sorted."""
    assert list(protocols.__all__) == sorted(protocols.__all__)
    assert imported_for_type_checkers() == protocols._HOMES
    assert sorted(protocols._HOMES) == list(protocols.__all__)


def test_every_public_name_is_there() -> None:
    """Each name resolves to what its module holds, and shows in `dir`."""
    for name, home in protocols._HOMES.items():
        module = __import__(f"protocols.{home}", fromlist=[name])
        assert getattr(protocols, name) is getattr(module, name)
        assert name in dir(protocols)
    with pytest.raises(AttributeError, match="'protocols' has no attribute 'nonsense'"):
        getattr(protocols, "nonsense")  # noqa: B009 -- type checkers would refuse the plain attribute


def test_import_is_silent_and_loads_nothing() -> None:
    """Importing the package prints nothing and loads neither its own modules nor those of others."""
    code = "import sys; before = set(sys.modules); import protocols; print(sorted(set(sys.modules) - before))"
    assert run(f"import importlib; {code}") == "['protocols']"


def test_tables_and_requests_do_not_load_pydantic() -> None:
    """Machines, requests and errors can be used without pydantic, and nothing here ever loads trio, networkx or a client."""
    code = "import sys; from protocols import LIFECYCLE, RequestLedger, answer, AlreadyDecided, Priority; print('pydantic' in sys.modules)"
    assert run(code) == "False"
    everything = (
        "import sys; from protocols import *; print(sorted({'trio', 'networkx', 'anthropic', 'rich', 'httpx2'} & set(sys.modules)))"
    )
    assert run(everything) == "[]"


def test_import_takes_under_ten_milliseconds() -> None:
    """The best of five fresh imports takes less than 10 ms of the processor, so that the front may stand anywhere."""
    code = "import importlib, time; begin = time.process_time(); import protocols; print(time.process_time() - begin)"
    assert min(float(run(code)) for _ in range(5)) < 0.010
