"""How many tokens are left for messages."""

from dataclasses import dataclass

from compaction.errors import NoRoomForMessages


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBudget:
    """The window, and what is taken from it before the first message; all in the model's tokens.

    Raises:
        NoRoomForMessages: nothing is left.
        ValueError: a figure is negative.
    """

    window_tokens: int
    reply_tokens: int = 0
    system_tokens: int = 0
    tools_tokens: int = 0

    def __post_init__(self) -> None:
        figures = {"window": self.window_tokens, "reply": self.reply_tokens, "system": self.system_tokens, "tools": self.tools_tokens}
        for name, tokens in figures.items():
            if tokens < 0:
                raise ValueError(f"the {name} cannot take {tokens} tokens")
        if self.message_tokens <= 0:
            raise NoRoomForMessages(
                window_tokens=self.window_tokens,
                reply_tokens=self.reply_tokens,
                system_tokens=self.system_tokens,
                tools_tokens=self.tools_tokens,
            )

    @property
    def message_tokens(self) -> int:
        """The tokens left for messages."""
        return self.window_tokens - self.reply_tokens - self.system_tokens - self.tools_tokens
