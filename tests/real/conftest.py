"""A real model behind a real endpoint: one process for all tests of the lane, one client for each."""

from collections.abc import AsyncGenerator, Generator

import pytest

from teams.models import AnthropicExtra, AnthropicModel
from tests.real.small_model import INSTALL, CallsToolFirst, find_weights, serve_small_model
from tests.real.small_model_server import WINDOW_TOKENS


@pytest.fixture(scope="session")
def endpoint() -> Generator[str]:
    """Give the address of the endpoint; skip where the packages are absent."""
    weights = find_weights()
    if weights is None:
        pytest.skip(f"no small model here; {INSTALL}")
    with serve_small_model(weights) as address:
        yield address


@pytest.fixture
async def small_model(endpoint: str) -> AsyncGenerator[AnthropicModel]:
    """Give the real client in front of the endpoint, with the window that the model really has."""
    model = AnthropicModel(
        "small-model",
        api_key="none",
        base_url=endpoint,
        context_window_tokens=WINDOW_TOKENS,
        max_output_tokens=512,
        extra=AnthropicExtra(body={"stop_sequences": list(CallsToolFirst.STOP_SEQUENCES)}),
    )
    yield model
    await model.aclose()
