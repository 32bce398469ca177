"""A plan as text for whoever must decide it, and what a revision changed.

Laws: needs no pydantic: it reads the plan's JSON form, as requests hold it; no text of the author's begins a line, where it could pass for
one of the runtime's, and what would move on a screen is written as its code.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

_MOVES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # controls, and what reorders text


def shown_exactly(text: object) -> str:
    """Write a text on one line, every character that does not print as its code: a path, a command."""
    line = str(text)
    return line if line.isprintable() else "".join(char if char.isprintable() else _code(char) for char in line)


def shown_prose(text: object) -> str:
    """Write a text whose lines after the first are indented, so that none passes for a line of whoever quotes it."""
    return "\n    ".join(_MOVES.sub(lambda found: _code(found[0]), line) for line in str(text).splitlines())


def _code(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()


def plan_text(plan: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> str:
    """Write a plan out; with the revision `before` it, what has changed comes first."""
    steps = "\n".join(f"{number}. {shown_prose(step)}" for number, step in enumerate(plan.get("steps", ()), start=1))
    parts = [f"Summary: {shown_prose(plan.get('summary', ''))}", f"Steps:\n{steps}", f"Files:\n{_list(plan.get('files', ()))}"]
    if plan.get("commands"):
        parts.append(f"Commands:\n{_list(plan['commands'])}")
    if plan.get("risk"):
        parts.append(f"Risk: {shown_prose(plan['risk'])}")
    changes = plan_changes(before, plan) if before is not None else ()
    if changes:
        parts.insert(0, "Changed since the revision before:\n" + "\n".join(changes))
    return "\n\n".join(parts)


def plan_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what a revision changed, a line each: `- step: ...` is gone, `+ step: ...` is new; nothing when it is the same plan."""
    lines: list[str] = []
    for name in ("summary", "risk"):
        old, new = shown_prose(before.get(name, "")), shown_prose(after.get(name, ""))
        if old != new:
            lines += [f"- {name}: {old}"] if old else []
            lines += [f"+ {name}: {new}"] if new else []
    for name in ("steps", "files", "commands"):
        lines += _listed_changes(name[:-1], before.get(name, ()), after.get(name, ()))
    return tuple(lines)


def _listed_changes(word: str, before: Sequence[str], after: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for kind, old_from, old_to, new_from, new_to in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            show = shown_prose if word == "step" else shown_exactly
            lines += [f"- {word}: {show(item)}" for item in before[old_from:old_to]]
            lines += [f"+ {word}: {show(item)}" for item in after[new_from:new_to]]
    return lines


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {shown_exactly(item)}" for item in items) or "- none named"
