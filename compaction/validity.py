"""The provider's rules for a request, each a named check.

`RULES` is the table. Severities: E is refused today, E-old by some models and gateways, W is taken but does harm.
Every check is pure and linear in the request.

Not here, because a body alone cannot show it:
V36 (the input fits the window: needs the model's tokenizer; the compactor estimates it), V40 (the latest reply goes back
byte-identical: needs the reply), the truth of signatures in V41, V66 to V73 (thinking is bound to what was sent before it: needs the
earlier requests; the edit epochs of View keep it), V74 (instructions are appended, not edited: the same). V05's smaller limits of
other platforms and the page counts of PDFs (V60) are not known from a body either.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from compaction import rules_media as media
from compaction import rules_shape as shape
from compaction import rules_tools as tools
from compaction.request import Finding, Request

Severity: TypeAlias = Literal["E", "E-old", "W"]


class Rule(NamedTuple):
    """One rule: its id, how bad a breach is, what it demands, and the check that yields each breach."""

    id: str
    severity: Severity
    title: str
    check: Callable[[Request], Iterator[Finding]]


class Problem(NamedTuple):
    """A broken rule: its id, the message (-1: the request as a whole), and what is wrong."""

    rule: str
    message_index: int
    detail: str


RULES: tuple[Rule, ...] = (
    Rule("V01", "E", "there is at least one message", shape.has_messages),
    Rule("V02", "E-old", "the first message is the user's", shape.starts_with_user),
    Rule("V03", "E-old", "roles alternate", shape.roles_alternate),
    Rule("V04", "E", "there are at most 100,000 messages", shape.few_messages),
    Rule("V05", "E", "the body has at most 32 MB", shape.small_body),
    Rule("V06", "E", "system messages stand where the model takes them", shape.system_placed),
    Rule("V07", "E", "messages have content", shape.messages_filled),
    Rule("V08", "E", "texts have words", shape.texts_filled),
    Rule("V09", "E", "a prefill does not end in white space", shape.prefill_trimmed),
    Rule("V10", "E", "the list ends with the user, where the model takes no prefill", shape.no_prefill),
    Rule("V11", "E", "blocks have known fields only", shape.known_fields),
    Rule("V12", "E", "the model takes the parameters", shape.parameters_taken),
    Rule("V13", "E", "every call has its result right after it", tools.calls_answered),
    Rule("V14", "E", "results come first in their message", tools.results_first),
    Rule("V15", "E", "every result has its call right before it", tools.results_match),
    Rule("V16", "E", "a call has one result", tools.one_result),
    Rule("V17", "E", "call ids are unique", tools.unique_ids),
    Rule("V18", "E", "call ids and inputs are well formed", tools.calls_formed),
    Rule("V19", "E", "calls are the assistant's, results the user's", tools.sides_kept),
    Rule("V20", "E", "a request with tool blocks defines tools", tools.tools_defined),
    Rule("V21", "E", "results hold what a result may hold", tools.results_formed),
    Rule("V30", "E", "the provider's calls have their results, or their turn is open", tools.server_calls_answered),
    Rule("V30", "E", "the provider's tools that were called are defined", tools.server_tools_defined),
    Rule("V41", "E", "thinking carries its proof", media.thinking_signed),
    Rule("V41", "E", "only the assistant thinks", media.thinking_sides),
    Rule("V42", "E", "unsigned thinking is not empty", media.thinking_filled),
    Rule("V43", "E", "with thinking by hand, the final turn starts with it", media.turn_starts_thinking),
    Rule("V46", "E", "clear_thinking is the first edit, with thinking on", media.clear_thinking_first),
    Rule("V50", "E", "there are at most four cache marks", media.few_marks),
    Rule("V51", "E", "cache marks stand on blocks that can bear one", media.marks_placed),
    Rule("V52", "E", "cache marks of a longer life come first", media.long_marks_first),
    Rule("V60", "E", "images are few and small enough", media.few_images),
    Rule("V61", "E", "among many images none is large", media.many_images_small),
    Rule("V63", "E", "images are what they say", media.images_readable),
)


def problems(request: Request) -> list[Problem]:
    """Return every broken rule, in the order of the table."""
    return [Problem(rule.id, *finding) for rule in RULES for finding in rule.check(request)]


def valid(request: Request) -> bool:
    """Tell whether a request breaks no rule."""
    return not any(True for rule in RULES for _ in rule.check(request))
