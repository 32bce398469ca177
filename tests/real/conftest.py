"""A real model behind a real endpoint: one process for all tests of the lane, one client for each."""

from collections.abc import AsyncGenerator, Generator

import pytest

from teams.models import AnthropicModel
from tests.real.small_model import INSTALL, CallsToolFirst, client_of, find_weights, serve_small_model


@pytest.fixture(scope="session")
def endpoint() -> Generator[str]:
    """Give the address of the endpoint; skip where the packages are absent."""
    weights = find_weights()
    if weights is None:
        pytest.skip(f"no small model here: {INSTALL}")
    with serve_small_model(weights) as address:
        yield address


@pytest.fixture
async def small_model(endpoint: str) -> AsyncGenerator[AnthropicModel]:
    """Give a client whose answers end after one tool call."""
    model = client_of(endpoint, *CallsToolFirst.STOP_SEQUENCES)
    yield model
    await model.aclose()
