"""Scripts for a scripted model that are written as ordinary code, one after the other, and still decide from the request alone.

Laws: a script is a function of what it was sent: the same request gets the same answer, however often it was retried, cut off or
asked again by another process; a call is looked up in the transcript before it is made, so nothing is done twice; what was interrupted is
done again.

The script runs from its beginning for every request. `Hand.do` returns what the tool said if the transcript holds that call; if not, the
call is the answer to the request. `Hand.wait` ends the turn until there is the mail that it wants.
"""

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from compaction.transcript import Block, ModelMessage
from teams.models.base import ModelRequest
from teams.models.script import Reply, block_text, call, say
from teams.models.scripted import ScriptFunction

_ENVELOPE = re.compile(r"<message ([^>]*)>\n(.*?)\n</message>", re.DOTALL)
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_EXIT = re.compile(r"\[exit code (\d+)\]\s*\Z")


class Mail(NamedTuple):
    """A message as it stands in the transcript; what is not in its envelope is empty."""

    id: str
    sender: str
    type: str
    content: str
    request_id: str = ""
    approved: bool = False


class Answer(NamedTuple):
    """What a tool said."""

    text: str
    is_error: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether a command ended with exit code 0."""
        found = _EXIT.search(self.text)
        return found is not None and found[1] == "0"


class _TurnEnds(Exception):
    """The script has nothing to do until there is news."""


class _Answered(Exception):
    """The script has decided on its reply."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self.reply = reply


class Hand:
    """What a script sees and does: the mail and the tool results of one transcript."""

    def __init__(self, request: ModelRequest) -> None:
        self.system = request.system
        self.mail: list[Mail] = []
        self._answers: dict[str, list[Answer]] = {}
        self._used: Counter[str] = Counter()
        asked: dict[str, str] = {}
        for message in request.messages:
            for block in message.tool_calls:
                asked[block["id"]] = _key(block["name"], block["input"])
            if message.role == "user":
                self._read(message, asked)

    def do(self, tool: str, /, words: str = "", **inputs: Any) -> Answer:
        """Call a tool, saying `words`, and return its answer; the n-th same call of the script is the n-th in the transcript."""
        key = _key(tool, inputs)
        answers, used = self._answers.get(key, ()), self._used[key]
        self._used[key] += 1
        if used < len(answers):
            return answers[used]
        reply = call(tool, **inputs)
        raise _Answered(say(words) + reply if words else reply)

    def wait(self, wanted: Callable[[Mail], bool], words: str) -> Mail:
        """Return the first mail that is wanted; end the turn with `words` while there is none."""
        for mail in self.mail:
            if wanted(mail):
                return mail
        raise _TurnEnds(words)

    def _read(self, message: ModelMessage, asked: Mapping[str, str]) -> None:
        for block in message.content:
            text = block_text(block)
            if block["type"] == "text":
                self.mail += [_mail(found) for found in _ENVELOPE.finditer(text)]
            elif block["type"] == "tool_result" and not _was_interrupted(block, text):
                key = asked.get(block["tool_use_id"], "")
                self._answers.setdefault(key, []).append(Answer(text, bool(block.get("is_error"))))


def replay(play: Callable[[Hand], str]) -> ScriptFunction:
    """Make a script of a function, whose return value is what it says when all is done; it agrees to every shutdown."""

    def script(request: ModelRequest) -> Reply:
        hand = Hand(request)
        try:
            try:
                words = play(hand)
            except _TurnEnds as ends:
                words = str(ends)
            for mail in hand.mail:
                if mail.type == "shutdown_request":
                    hand.do("shutdown_response", request_id=mail.request_id, approve=True, reason="nothing of mine is left half done")
        except _Answered as answered:
            return answered.reply
        return say(words)

    return script


def _key(tool: str, inputs: Mapping[str, Any]) -> str:
    return f"{tool} {json.dumps(inputs, sort_keys=True)}"


def _mail(found: re.Match[str]) -> Mail:
    of = {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(found[1])}
    body = html.unescape(found[2])
    return Mail(of["id"], of["from"], of["type"], body, of.get("request_id", ""), of.get("approve") == "true")


def _was_interrupted(block: Block, text: str) -> bool:
    return bool(block.get("is_error")) and text.startswith("interrupted")
