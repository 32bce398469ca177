"""The command `teams`: one module per command, `entry` around them all."""

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; an interrupt while the command is still being loaded is one like any other."""
    try:
        from teams.cli.entry import main as run  # the one place where loading can be interrupted without a word
    except KeyboardInterrupt:
        return 130
    return run(argv)
