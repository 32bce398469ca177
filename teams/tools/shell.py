"""bash: one command in the work directory.

- Nothing that a command starts outlives the call (see `teams.tools.processes`).
- The environment is an allow-list: keys and tokens of the host process are not in it. What a command needs besides is given by the owner.
- It reads no start-up files and no standard input, so a command that asks a question gets the end of input instead of hanging.

This is not a sandbox: the command may do what its user may do, outside of the work directory as well. A real one can be put around it by
giving `shell_tool` another `program`.
"""

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from teams.tools.base import Tool, ToolContext, ToolError, ToolResult, Touches, tool
from teams.tools.processes import DEFAULT_ENDING, Ending, HeadTail, run_process
from teams.tools.results import sendable

ALLOWED_VARIABLES = frozenset({
    "PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL", "VIRTUAL_ENV",
})  # fmt: skip
ALLOWED_PREFIX = "LC_"
_BYTES_PER_CHAR = 4  # the widest character of UTF-8: this many bytes surely hold the characters that are wanted
_NOTE_CHARS = 160  # kept free for the line about exit code and limits


def scrubbed_environment(source: Mapping[str, str], extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Take the allowed variables of an environment, and add the owner's own."""
    kept = {name: value for name, value in source.items() if name in ALLOWED_VARIABLES or name.startswith(ALLOWED_PREFIX)}
    return {**kept, **(extra or {})}


def default_program() -> tuple[str, ...]:
    """Find the shell: bash without start-up files, or else `sh`."""
    bash = shutil.which("bash")
    return (bash, "--noprofile", "--norc", "-c") if bash else ("/bin/sh", "-c")


def shell_tool(
    root: Path,
    *,
    environment: Mapping[str, str] | None = None,
    time_seconds: float | None = 120.0,
    output_chars: int | None = 50_000,
    program: Sequence[str] | None = None,
    ending: Ending = DEFAULT_ENDING,
) -> Tool:
    """Make the `bash` tool for one directory.

    Args:
        environment: variables besides the allowed ones of this process.
        time_seconds: after which the command and all it started is killed; None for no limit.
        output_chars: of output that is shown, head and tail; the command may write more.
        program: to which the command is appended as the last argument.
        ending: how long a command that is stopped has after SIGTERM, and after SIGKILL.
    """
    start = tuple(program) if program is not None else default_program()
    # Read once, when the tool is made: what the host process puts into its environment later is none of the commands' business.
    variables = scrubbed_environment(os.environ, environment)

    @tool(effect="writes", time_limited=False, touches=Touches(command="command"))
    async def bash(command: str, context: ToolContext) -> ToolResult:
        """Run a shell command in the work directory and return its output and exit code.
        There is no input, and background processes end with the command.

        Args:
            command: what to run
        """
        if os.name != "posix":
            raise ToolError("bash cannot run here: it needs a POSIX system")
        if "\0" in command:
            raise ToolError("the command was not run: it holds a NUL character")
        kept = HeadTail(_BYTES_PER_CHAR * (output_chars or 10_000_000))
        try:
            code, timed_out = await run_process(
                (*start, command), cwd=root, environment=variables, time_seconds=time_seconds, output=kept, ending=ending
            )
        except (OSError, UnicodeError) as error:
            raise ToolError(f"the command was not run: {error}") from error
        how = (
            f"stopped: not finished within {time_seconds:g} seconds; it and all it started was killed" if timed_out else explain_exit(code)
        )
        return ToolResult(context.call_id, f"{_show(kept, output_chars)}[{how}]", is_error=timed_out)

    return bash


def explain_exit(code: int | None) -> str:
    """Say how a process ended; None and negative codes as `run_process` gives them."""
    if code is None:
        return "killed, but it does not end"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def _show(kept: HeadTail, output_chars: int | None) -> str:
    head, tail, gone = kept.parts()
    # Decoded in one piece where nothing is missing: a character may stand across the two.
    first, last = (
        (head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")) if gone else ((head + tail).decode("utf-8", "replace"), "")
    )
    room = max(0, output_chars - _NOTE_CHARS) if output_chars is not None else len(first) + len(last)
    if gone or len(first) > room:
        back = (last or first)[-(room // 2) :] if room // 2 else ""
        first = f"{first[: room - room // 2]}\n[... output of {kept.total_bytes:,} bytes in all: the middle is left out ...]\n{back}"
    return sendable(first if not first or first.endswith("\n") else f"{first}\n")
