"""What the team refuses, as an error result for the model that asked."""

from collections.abc import Generator
from contextlib import contextmanager

from protocols.envelope import escape_text
from protocols.errors import ProtocolError
from teams.errors import TeamError
from teams.tools.base import ToolError


@contextmanager
def explained() -> Generator[None]:
    """Turn what the team refuses into an error result for the model."""
    try:
        yield
    except (TeamError, ProtocolError) as error:
        raise ToolError(escape_text(str(error))) from error
