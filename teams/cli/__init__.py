"""The command `teams`: one module per command, `entry` around them all."""

from teams.cli.entry import main

__all__ = ["main"]
