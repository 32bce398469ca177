"""The tables as Mermaid drawings, so that no drawing can disagree with the code.

`python -m protocols.diagrams < docs/protocols.md` prints the page with every drawing made anew.
"""

import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from protocols.lifecycle import LIFECYCLE
from protocols.machine import Machine
from protocols.permission import PERMISSION
from protocols.plan_approval import PLAN_APPROVAL
from protocols.plan_step import PLAN_STEP
from protocols.question import QUESTION
from protocols.shutdown import SHUTDOWN
from protocols.task_status import TASK_STATUS

ALL_MACHINES: Final[Mapping[str, Machine[Any, Any]]] = MappingProxyType(
    {machine.name: machine for machine in (LIFECYCLE, SHUTDOWN, PLAN_APPROVAL, PLAN_STEP, PERMISSION, QUESTION, TASK_STATUS)}
)

_BLOCK: Final = re.compile(r"(?P<begin><!-- machine: (?P<name>\S+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def mermaid(machine: Machine[Any, Any]) -> str:
    """Draw a machine as a Mermaid state diagram; events that lead the same way share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for state, event, target in machine.transitions():
        arrows.setdefault((state.value, target.value), []).append(event.value)
    lines = ["stateDiagram-v2", f"    [*] --> {machine.initial.value}"]
    lines += [f"    {state} --> {target}: {', '.join(events)}" for (state, target), events in arrows.items()]
    lines += [f"    {state.value} --> [*]" for state in machine.states if machine.is_final(state)]
    return "\n".join(lines) + "\n"


def update(markdown: str) -> str:
    """Replace what stands between `<!-- machine: NAME -->` and `<!-- end -->` by the drawing of that machine.

    Raises:
        ValueError: there is no machine of that name.
    """
    return _BLOCK.sub(_redraw, markdown)


def _redraw(block: re.Match[str]) -> str:
    machine = ALL_MACHINES.get(block["name"])
    if machine is None:
        raise ValueError(f"there is no machine {block['name']!r} to draw; there are {', '.join(sorted(ALL_MACHINES))}")
    return f"{block['begin']}```mermaid\n{mermaid(machine)}```\n{block['end']}"


if __name__ == "__main__":
    sys.stdout.write(update(sys.stdin.read()))
