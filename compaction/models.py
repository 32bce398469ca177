"""What is known of the models, as data: windows, prices, and which rules each one enforces.

Names are matched by their longest known prefix, after a provider's own prefix was taken off (`anthropic.`, `us.anthropic.`, `anthropic/`);
a name that is not known gets careful facts: the smallest window, and every prohibition.
"""

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """One model, or one family of models.

    Prices are in dollars for a million tokens; cache factors in units of the input price.
    """

    name: str
    window_tokens: int = 1_000_000
    output_tokens: int = 128_000
    manual_thinking: bool = False  # thinking: enabled with a budget
    disabled_thinking: bool = True
    adaptive_thinking: bool = True
    binds_thinking: bool = False  # V66: a thinking block is valid only after what was sent before it
    forced_tool: bool = True
    prefill: bool = False
    sampling: bool = False  # temperature, top_p, top_k other than the default
    system_messages: bool = False  # V06: role system inside messages
    max_images: int = 600
    large_images: bool = True
    min_cache_tokens: int = 1_024
    token_factor: float = 1.45  # tokens for one base token of compaction.tokens, before any was reported
    input_price: float = 5.0
    output_price: float = 25.0
    cache_read_factor: float = 0.10
    cache_write_factor: float = 1.25
    provider_compaction: bool = True  # on demand, by the provider itself


def _old(name: str, cache_tokens: int, prices: tuple[float, float]) -> ModelFacts:
    """Build the facts of a model before 4.6."""
    return ModelFacts(
        name=name,
        window_tokens=200_000,
        output_tokens=64_000,
        manual_thinking=True,
        adaptive_thinking=False,
        prefill=True,
        sampling=True,
        max_images=100,
        large_images=False,
        min_cache_tokens=cache_tokens,
        token_factor=1.1,
        input_price=prices[0],
        output_price=prices[1],
        provider_compaction=False,
    )


def _mid(name: str, cache_tokens: int, prices: tuple[float, float]) -> ModelFacts:
    """Build the facts of a 4.6 model: the large window, the older tokenizer."""
    return ModelFacts(
        name=name,
        manual_thinking=True,
        sampling=True,
        large_images=False,
        min_cache_tokens=cache_tokens,
        token_factor=1.1,
        input_price=prices[0],
        output_price=prices[1],
    )


_FACTS = (
    ModelFacts(
        name="claude-fable-5-1", disabled_thinking=False, binds_thinking=True, forced_tool=False, system_messages=True,
        min_cache_tokens=512, input_price=10.0, output_price=50.0, cache_read_factor=0.025,
    ),
    ModelFacts(
        name="claude-mythos-5-1", disabled_thinking=False, forced_tool=False, system_messages=True, min_cache_tokens=512,
        input_price=10.0, output_price=50.0,
    ),
    ModelFacts(
        name="claude-opus-5-5", disabled_thinking=False, binds_thinking=True, forced_tool=False, system_messages=True,
        min_cache_tokens=512, input_price=4.0, output_price=20.0, cache_read_factor=0.05,
    ),
    ModelFacts(
        name="claude-sonnet-5-5", disabled_thinking=False, binds_thinking=True, forced_tool=False, system_messages=True,
        min_cache_tokens=512, input_price=3.0, output_price=15.0,
    ),
    ModelFacts(name="claude-haiku-5-5", binds_thinking=True, input_price=1.0, output_price=5.0, provider_compaction=False),
    ModelFacts(
        name="claude-fable-5", disabled_thinking=False, system_messages=True, min_cache_tokens=512, input_price=10.0, output_price=50.0
    ),
    ModelFacts(
        name="claude-mythos-5", disabled_thinking=False, system_messages=True, min_cache_tokens=512, input_price=10.0, output_price=50.0
    ),
    ModelFacts(name="claude-mythos-preview", disabled_thinking=False, min_cache_tokens=2_048, input_price=10.0, output_price=50.0),
    ModelFacts(name="claude-opus-5", system_messages=True, min_cache_tokens=512),
    ModelFacts(name="claude-sonnet-5", input_price=2.0, output_price=10.0),
    ModelFacts(name="claude-opus-4-8", system_messages=True),
    ModelFacts(name="claude-opus-4-7", min_cache_tokens=2_048),
    _mid("claude-opus-4-6", 4_096, (5.0, 25.0)),
    _mid("claude-sonnet-4-6", 1_024, (3.0, 15.0)),
    _old("claude-opus-4-5", 4_096, (5.0, 25.0)),
    _old("claude-sonnet-4-5", 1_024, (3.0, 15.0)),
    _old("claude-haiku-4-5", 4_096, (1.0, 5.0)),
    _old("claude-opus-4", 1_024, (15.0, 75.0)),
    _old("claude-sonnet-4", 1_024, (3.0, 15.0)),
    _old("claude-3-5-haiku", 2_048, (0.8, 4.0)),
)  # fmt: skip

KNOWN_MODELS = {facts.name: facts for facts in _FACTS}

# A model that nobody knows: what is refused by any model is avoided, and nothing is promised.
UNKNOWN_MODEL = ModelFacts(
    name="",
    window_tokens=200_000,
    output_tokens=32_000,
    disabled_thinking=True,
    binds_thinking=True,
    max_images=100,
    min_cache_tokens=4_096,
    token_factor=1.25,
    input_price=0.0,
    output_price=0.0,
    provider_compaction=False,
)


@cache
def model_facts(name: str) -> ModelFacts:
    """Return the facts of the model of this name, those of UNKNOWN_MODEL when no known name is its prefix."""
    bare = name.lower().rsplit("/", 1)[-1]
    at = bare.find("claude-")
    bare = bare[at:].replace(".", "-") if at >= 0 else bare
    found = [known for known in KNOWN_MODELS if bare.startswith(known) and not bare[len(known) : len(known) + 1].isalnum()]
    return KNOWN_MODELS[max(found, key=len)] if found else UNKNOWN_MODEL
