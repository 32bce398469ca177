"""A plan as text for whoever must decide it, and what a revision changed.

Law: needs no pydantic: it reads the plan's JSON form, as requests hold it.
"""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any


def plan_text(plan: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> str:
    """Write a plan out; with the revision `before` it, what has changed comes first."""
    steps = "\n".join(f"{number}. {step}" for number, step in enumerate(plan.get("steps", ()), start=1))
    parts = [str(plan.get("summary", "")), f"Steps:\n{steps}", f"Files:\n{_list(plan.get('files', ()))}"]
    if plan.get("commands"):
        parts.append(f"Commands:\n{_list(plan['commands'])}")
    if plan.get("risk"):
        parts.append(f"Risk: {plan['risk']}")
    changes = plan_changes(before, plan) if before is not None else ()
    if changes:
        parts.insert(0, "Changed since the revision before:\n" + "\n".join(changes))
    return "\n\n".join(parts)


def plan_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what a revision changed, a line each: `- step: ...` is gone, `+ step: ...` is new; nothing when it is the same plan."""
    lines: list[str] = []
    for name in ("summary", "risk"):
        old, new = str(before.get(name, "")), str(after.get(name, ""))
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
            lines += [f"- {word}: {item}" for item in before[old_from:old_to]]
            lines += [f"+ {word}: {item}" for item in after[new_from:new_to]]
    return lines


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items) or "- none named"
