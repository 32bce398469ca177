"""A strict endpoint and the real client in front of it."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeAlias

import pytest

from teams.models import AnthropicExtra, AnthropicModel, ScriptedModel
from teams.testing.fake_anthropic import FakeAnthropic, open_fake_anthropic
from teams.testing.fake_anthropic.server import Responder

Opened: TypeAlias = tuple[FakeAnthropic, AnthropicModel]


class OpenEndpoint(Protocol):
    """Opens a fake endpoint with a client in front of it, which is closed on leaving."""

    def __call__(
        self, responder: Responder | ScriptedModel, *, name: str = ..., key: str = ..., extra: AnthropicExtra | None = ...
    ) -> AbstractAsyncContextManager[Opened]:
        """Open them."""
        ...


@asynccontextmanager
async def _open(
    responder: Responder | ScriptedModel, *, name: str = "claude-sonnet-4-5", key: str = "test-key", extra: AnthropicExtra | None = None
) -> AsyncGenerator[Opened]:
    async with open_fake_anthropic(responder, context_window_tokens=5_000) as server:
        model = AnthropicModel(name, api_key=key, base_url=server.base_url, extra=extra)
        try:
            yield server, model
        finally:
            await model.aclose()


@pytest.fixture
def open_endpoint() -> OpenEndpoint:
    """Open a fake endpoint with a client in front of it."""
    return _open
