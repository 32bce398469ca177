"""What a teammate means to do: a plan that somebody can read, judge and hold it to.

Laws: a plan never changes, a revision is another plan; nothing in it is blank; it is bounded, so that a request stays small.
"""

import re
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

SUMMARY_LIMIT_CHARS: Final = 4000
STEP_LIMIT_CHARS: Final = 2000
STEPS_LIMIT: Final = 100
FILE_LIMIT_CHARS: Final = 1024
FILES_LIMIT: Final = 500

_Summary = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=SUMMARY_LIMIT_CHARS)]
_Step = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=STEP_LIMIT_CHARS)]
_File = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=FILE_LIMIT_CHARS)]

_NOT_RELATIVE: Final = re.compile(r"[/~]|[A-Za-z]:|.*[\\\x00-\x1f]", re.DOTALL)


class Plan(BaseModel, frozen=True):
    """A summary, the steps in order, and the files that it means to touch, relative to the work directory."""

    model_config = ConfigDict(extra="forbid")

    summary: _Summary
    steps: Annotated[tuple[_Step, ...], Field(min_length=1, max_length=STEPS_LIMIT)]
    files: Annotated[tuple[_File, ...], Field(max_length=FILES_LIMIT)] = ()

    def touches_only(self, *prefixes: str) -> bool:
        """Tell whether every file of the plan lies under one of the prefixes.

        Paths are compared component by component: `src/` holds `src/a.py` and `./src//b.py`, but not `src2/a.py`. A file that is absolute,
        climbs with `..`, or cannot be read the same way on every system (backslash, drive, `~`, control characters) lies nowhere.
        A plan that names no file promises nothing, so the answer is False.

        Raises:
            ValueError: a prefix is empty or is itself no plain relative path.
        """
        allowed = [_components(prefix) for prefix in prefixes]
        for prefix, parts in zip(prefixes, allowed, strict=True):
            if parts is None or not prefix:
                raise ValueError(
                    f"{prefix!r} cannot be a prefix: it must be a relative path without '..', such as 'src/', or '.' for everything"
                )
        return bool(self.files) and all(_inside(_components(file), allowed) for file in self.files)

    def render(self) -> str:
        """Write the plan as text for whoever must decide it."""
        steps = "\n".join(f"{number}. {step}" for number, step in enumerate(self.steps, start=1))
        files = "\n".join(f"- {file}" for file in self.files) or "- none named"
        return f"{self.summary}\n\nSteps:\n{steps}\n\nFiles:\n{files}"


def _components(path: str) -> tuple[str, ...] | None:
    """Split a relative path; None when it is not plainly relative."""
    if _NOT_RELATIVE.match(path):
        return None
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    return None if ".." in parts else parts


def _inside(parts: tuple[str, ...] | None, allowed: list[tuple[str, ...] | None]) -> bool:
    return parts is not None and any(prefix is not None and parts[: len(prefix)] == prefix for prefix in allowed)
