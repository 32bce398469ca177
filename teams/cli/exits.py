"""How a command ends: its exit codes, and the errors that only commands raise."""

from teams.errors import UsageError

OK, FAILED, USAGE, NO_TEAM, INTERRUPTED = 0, 1, 2, 3, 130
BROKEN_PIPE = 141
"""128 + SIGPIPE: whoever read the output, such as `head`, has gone."""

EXIT_HELP = """\
exit codes:
  0    done
  1    it failed or was refused; the reason is on stderr
  2    the command line is wrong
  3    the directory is no team, or its journal is damaged
  130  interrupted by Ctrl-C"""


class CommandFailed(UsageError):
    """A command could not do what was asked; the message is for a person."""


class CommandLineError(Exception):
    """A command line is wrong in a way that only the command itself could see."""
