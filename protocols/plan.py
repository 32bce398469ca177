"""What a teammate means to do: a plan that somebody can read, judge and hold it to.

Laws: a plan never changes, a revision is another plan; nothing in it is blank; it is bounded, so that a request stays small.
"""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from protocols.patterns import Parts, fixed_parts, path_parts
from protocols.plan_text import plan_text

SUMMARY_LIMIT_CHARS: Final = 4000
STEP_LIMIT_CHARS: Final = 2000
STEPS_LIMIT: Final = 100
FILE_LIMIT_CHARS: Final = 1024
FILES_LIMIT: Final = 500
COMMAND_LIMIT_CHARS: Final = 1024
COMMANDS_LIMIT: Final = 100
RISK_LIMIT_CHARS: Final = 2000

_Summary = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=SUMMARY_LIMIT_CHARS)]
_Step = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=STEP_LIMIT_CHARS)]
_File = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=FILE_LIMIT_CHARS)]

_Command = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=COMMAND_LIMIT_CHARS)]
_Risk = Annotated[str, StringConstraints(strip_whitespace=True, max_length=RISK_LIMIT_CHARS)]


class Plan(BaseModel, frozen=True):
    """A summary, the steps in order, what it means to touch and to run, and what could go wrong, in its author's words.

    `files` are paths or patterns relative to the work directory, `commands` are command lines or patterns, as `protocols.patterns` reads
    them; a tool that names neither a path nor a command stands among the commands by its name. Together they are the contract.
    """

    model_config = ConfigDict(extra="forbid")

    summary: _Summary
    steps: Annotated[tuple[_Step, ...], Field(min_length=1, max_length=STEPS_LIMIT)]
    files: Annotated[tuple[_File, ...], Field(max_length=FILES_LIMIT)] = ()
    commands: Annotated[tuple[_Command, ...], Field(max_length=COMMANDS_LIMIT)] = ()
    risk: _Risk = ""

    def touches_only(self, *prefixes: str) -> bool:
        """Tell whether every file of the plan, and all that its patterns can match, lies under one of the prefixes.

        Paths are compared component by component: `src/` holds `src/a.py` and `./src//b.py`, but not `src2/a.py`. A file that is absolute,
        climbs with `..`, or cannot be read the same way on every system (backslash, drive, `~`, control characters) lies nowhere.
        A plan that names no file promises nothing, so the answer is False.

        Raises:
            ValueError: a prefix is empty or is itself no plain relative path.
        """
        allowed = [path_parts(prefix) for prefix in prefixes]
        for prefix, parts in zip(prefixes, allowed, strict=True):
            if parts is None or not prefix:
                raise ValueError(
                    f"{prefix!r} cannot be a prefix: it must be a relative path without '..', such as 'src/', or '.' for everything"
                )
        return bool(self.files) and all(_inside(fixed_parts(file), allowed) for file in self.files)

    def render(self) -> str:
        """Write the plan as text for whoever must decide it."""
        return plan_text(self.model_dump(mode="json"))


def _inside(parts: Parts | None, allowed: list[Parts | None]) -> bool:
    return parts is not None and any(prefix is not None and parts[: len(prefix)] == prefix for prefix in allowed)
