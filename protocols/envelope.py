"""How a message is presented to a model: an envelope that the runtime writes around a body that cannot break out of it.

Laws: the attributes are the runtime's, whatever a body says; no body, whatever it contains, holds anything that could be read as the
beginning or the end of an envelope or of any other tag; nothing is lost: `html.unescape` of an escaped body is the body.

What is escaped, and why not everything: a body is often code, and code full of entities gets copied into files with them. So `&` is
escaped only where an entity could be read, and `<` stays only where it can be nothing but an operator: before `=`, `<`, a digit, and in
`a < b` where an operand and more of an expression follow. Everything else that looks like `<` becomes an entity, also full-width and other
look-alikes, unless a CJK letter follows, since that is how titles are quoted there. Tag characters (U+E0000 to U+E007F), which people
cannot see and models can read, become visible entities. `>` alone opens and closes nothing and stays.
"""

import re
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from protocols.messages import Message

_LOOKALIKES: Final = (
    "\u02c2\u1438\u16b2\u2039\u226e\u22d6\u2329\u276c\u276e\u2770\u27e8\u27ea\u29fc\u3008\u300a\ufe3d\ufe3f\ufe64\uff1c\U0001d236"
)
"""Characters that look like `<`: those of Unicode's confusables, those that normalise to it, and the angle brackets of all kinds."""

_CJK: Final = "\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\U00020000-\U0002fa1f\U00030000-\U000323af"
"""Letters only: the combining marks between them would vanish and leave a tag."""

_INVISIBLE: Final = "\U000e0000-\U000e007f"
"""Tag characters: a second ASCII that is not displayed."""

_RESERVED: Final = "message|system|user|human|assistant|inbox|tool|function|result|team|lead|notice|reminder|thinking|antml|context"
"""What the name of an envelope might contain; `a < b` keeps its `<` only when `b` has none of them."""

_OPERAND: Final = rf"(?!\w{{0,64}}(?i:{_RESERVED}))[A-Za-z_]\w{{0,64}}"
_GOES_ON: Final = r"[.()\[\];:,+*%&|?]|\ (?:and|or|else|then|&&|\|\|)\ "
_OPERATOR: Final = rf"[=<0-9]|\ (?:[0-9]|{_OPERAND}(?:{_GOES_ON}))"


def render_envelope(message: "Message") -> str:
    """Write a message as the block of text that its recipient's model reads."""
    attributes = [("id", message.id), ("from", message.sender), ("type", message.type)]
    if message.request_id is not None:
        attributes.append(("request_id", message.request_id))
    for name in message.shown_attributes:
        value = getattr(message, name)
        if value is not None:
            attributes.append((name, str(value).lower() if isinstance(value, bool) else str(value)))
    if message.artifact is not None:
        attributes.append(("artifact", message.artifact))
    texts = [message.content] if message.content else []
    texts += [f"{name}: {text}" for name in message.shown_texts if (text := getattr(message, name))]
    opening = " ".join(f'{name}="{escape_attribute(value)}"' for name, value in attributes)
    return f"<message {opening}>\n{escape_text(chr(10).join(texts))}\n</message>"


def escape_text(text: str) -> str:
    """Escape a body so that it holds no tag of any kind, and `html.unescape` gives it back."""
    return _suspects().sub(_entity, text)


def escape_attribute(text: str) -> str:
    """Escape a value so that it stays inside its quotes and shows exactly what it is."""
    return _NOT_PLAIN.sub(lambda found: f"&#{ord(found.group())};", text)


_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.:/@()+ -]")
_NAMED: Final = {"<": "&lt;", "&": "&amp;"}


def _entity(found: re.Match[str]) -> str:
    character = found.group()
    return _NAMED.get(character) or f"&#{ord(character)};"


@cache
def _suspects() -> re.Pattern[str]:
    """Build the pattern of all characters to escape; on first use, since the table of entities is large and most imports never need it."""
    from html.entities import html5  # 2,231 names

    without_semicolon = "|".join(sorted(name for name in html5 if not name.endswith(";")))
    entity = rf"#|[A-Za-z][A-Za-z0-9]*;|{without_semicolon}"
    verdict = rf"(?<=<)(?!{_OPERATOR})|(?<=&)(?={entity})|(?<=[{_LOOKALIKES}])(?![{_CJK}])|(?<=[{_INVISIBLE}])"
    # one set in front, because only then the engine skips quickly over text without suspects
    return re.compile(rf"[<&{_LOOKALIKES}{_INVISIBLE}](?:{verdict})", re.ASCII)
