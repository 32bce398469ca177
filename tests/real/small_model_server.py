"""The child process of the slow lane: llama.cpp's server with a small model, for as long as its standard input is open.

usage: python small_model_server.py GGUF_FILE TEMPLATE_FILE < a pipe

Laws: the address is the only line on standard output, written when the model answers; the process ends when its parent does, however that
ends, because the pipe closes then.

One thread: OpenMP's threads wait for each other in a busy loop, and two of them come to a stand when anything else runs on the machine.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

WINDOW_TOKENS = 8_192  # what SmolLM2 was trained for
SLOTS = 1  # agents take turns, and what they have in common (their tools, which the template puts first) is read once


def main() -> None:
    """Serve until standard input ends."""
    gguf, template = sys.argv[1:]
    llama: Any = import_module("xllamacpp")  # an extension without types, and absent where the lane is skipped
    params = llama.CommonParams()
    params.model.path = gguf
    params.model_alias = {"small-model"}
    params.chat_template = Path(template).read_text(encoding="utf-8")
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = SLOTS
    params.cache_ram_mib = 512
    params.n_ctx = SLOTS * WINDOW_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.sampling.temp = 0.0  # the same request gets the same answer
    params.sampling.penalty_repeat = 1.1  # or it says the same sentence for ever; with 1.2 it cannot repeat what it was asked
    params.verbosity = 1  # errors
    server = llama.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # its threads may be in the middle of an answer that nobody waits for


if __name__ == "__main__":
    main()
