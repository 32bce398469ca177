"""Every error that compaction raises of its own.

CompactionError
├── InvalidEdit          an edit broke a rule of the provider: a fault of this package
├── NoRoomForMessages    reply, system and tools fill the window
└── SessionError         the session file on disk
    └── NotASession      the file's first line is no session header

Wrong arguments stay TypeError and ValueError. What a broken transcript is cannot be an error: it is repaired.
"""

from collections.abc import Sequence


class CompactionError(Exception):
    """The base of every error that compaction raises."""


class NoRoomForMessages(CompactionError):
    """The window is filled before the first message."""

    def __init__(self, *, window_tokens: int, reply_tokens: int, system_tokens: int, tools_tokens: int) -> None:
        super().__init__(
            f"no room for messages in a window of {window_tokens} tokens: the reply takes {reply_tokens}, the system text {system_tokens} "
            f"and the tools {tools_tokens}; lower the reply's limit, offer fewer tools, or use a model with a larger window"
        )
        self.window_tokens, self.reply_tokens = window_tokens, reply_tokens
        self.system_tokens, self.tools_tokens = system_tokens, tools_tokens


class InvalidEdit(CompactionError):
    """An edit led to a list that the provider would refuse; nothing was changed."""

    def __init__(self, problems: Sequence[object]) -> None:
        shown = "; ".join(str(problem) for problem in problems[:3]) or "the list is not one that can be sent"
        super().__init__(f"cannot compact: the edited messages are not valid: {shown}")
        self.problems = tuple(problems)


class SessionError(CompactionError):
    """A session could not be read or written."""


class NotASession(SessionError):
    """A file is not a session, or of a format that this version does not know."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot load the session: {reason}")
        self.reason = reason
