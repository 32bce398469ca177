"""Whatever was ever in a context is found by one call, by its words or by its id."""

import json
import re
from pathlib import Path
from typing import Any, cast

import pytest

from compaction.compactor import Compactor
from compaction.models import ModelFacts
from compaction.options import CompactionOptions
from compaction.recall import Archive, recall_id, texts_of
from compaction.session import Entry, Header, encode_header, encode_message
from compaction.sessionfile import SessionArchive, SessionFile
from compaction.transcript import ModelMessage
from compaction.triggers import Cause
from compaction.view import View
from tests.compaction.strategies import TRANSCRIPTS, assistant, call, image, result, transcript, user

EVAL = sorted((Path(__file__).parents[2].parent / "shared" / "eval").glob("*.json"))


def strings(value: object) -> list[str]:
    """Return every string in JSON, keys included; of an image only its address."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if fields.get("type") == "image":
            return strings([fields["source"].get("url", "")])
        return [text for key, part in fields.items() for text in (key, *strings(part))]
    return [text for part in cast("list[object]", value) for text in strings(part)] if isinstance(value, list) else []


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_every_string_of_a_real_session_is_found(path: Path) -> None:
    """Each text, result, input and thought of a session is found whole, by one search, in the message that held it."""
    messages = transcript(path)
    archive = Archive(messages)
    missed: list[str] = []
    for number, message in enumerate(messages, 1):
        for block in message.content:
            shown = {key: block.get(key) for key in ("text", "thinking", "input", "content")}
            for text in strings(json.loads(json.dumps(shown))):
                is_data = len(text) > 2_000 and " " not in text and "\n" not in text  # images and opaque fields
                if len(text) < 9 or text in shown or is_data:
                    continue
                found = archive.find(text, limit=100_000)
                if not any(hit.message == number for hit in found.found):
                    missed.append(text[:80])
    assert missed == []


@pytest.mark.parametrize("path", EVAL, ids=lambda path: path.stem)
def test_every_answer_of_the_evaluation_is_found(path: Path) -> None:
    """All exact answers to all questions of the planted sessions are found by one call each."""
    asked = found = 0
    for session in json.loads(path.read_text(encoding="utf-8")):
        archive = Archive([ModelMessage("user" if m["role"] != "assistant" else "assistant", _text_of(m)) for m in session["messages"]])
        for question in session["questions"]:
            for exact in _exact(question):
                asked += 1
                found += bool(archive.find(exact, limit=1).found)
    assert asked >= 600
    assert found == asked


def _text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or json.dumps(part.get("arguments", ""))) for part in content) or "(nothing)"


def _exact(question: dict[str, Any]) -> list[str]:
    answer = question.get("expected") or question.get("answer") or question.get("answers")
    return [str(part) for part in cast("list[object]", answer)] if isinstance(answer, list) else [str(answer)]


def test_ids_are_those_of_the_content_and_lines_can_be_chosen() -> None:
    """The same body has the same id wherever it stands; a range of lines of it can be asked for, and a message by its number."""
    body = "\n".join(f"line {number}" for number in range(1, 51))
    given = result("a", body)
    archive = Archive([user("go"), assistant(call("a", path="x.py")), user(given)])
    assert recall_id(given) == recall_id(result("other", body, is_error=True))
    found = archive.get(recall_id(given), (3, 4))
    assert found is not None
    assert (found.text, found.message, found.name) == ("line 3\nline 4", 3, "read")
    third = archive.get("m3")
    assert third is not None
    assert third.text == body
    assert archive.get("m4") is None
    assert archive.get("r000000000000") is None


def test_media_come_back_as_blocks() -> None:
    """An image in a result is found by the id of the result and by its own."""
    picture = image()
    archive = Archive([assistant(call("a")), user(result("a", [picture]))])
    for wanted in (recall_id(result("a", [picture])), recall_id(picture)):
        found = archive.get(wanted)
        assert found is not None
        assert found.media == (picture,)


def test_a_search_gives_the_newest_first_and_counts_the_rest() -> None:
    """Many places are bounded, with the number of those that are not shown; a snippet shows what stands around."""
    archive = Archive([user(f"number {i} is the needle of message {i}") for i in range(30)])
    search = archive.find("needle", limit=5)
    assert [hit.message for hit in search.found] == [30, 29, 28, 27, 26]
    assert search.more == 25
    assert "number 29 is the needle" in search.found[0].snippet
    with pytest.raises(ValueError, match="empty"):
        archive.find("")


def test_texts_are_found_as_the_model_wrote_them() -> None:
    """Quotes, line ends, backslashes, a lone surrogate, numbers and JSON of an input are found as they were seen."""
    archive = Archive(
        [
            user('she said "no"\nand \\left'),
            assistant(call("a", count=12345, pattern=r"\d+\s", deep={"list": ["x", 'y "z"']})),
            user("bad \ud800 end"),
        ]
    )
    for text in ('said "no"\nand \\l', "12345", r"\d+\s", 'y "z"', '"count":12345', "bad \ud800 end"):
        assert archive.find(text).found, text
    assert not archive.find("she said no").found
    assert list(texts_of(image())) == []


async def _compacted(view: View, archive: Archive, *more: ModelMessage, window_tokens: int = 12_000, max_images: int = 100) -> View:
    """Return a view with more messages, after a compaction that the archive takes in."""
    for message in more:
        view.append(message)
        archive.add(message)
    facts = ModelFacts(name="test", window_tokens=window_tokens, token_factor=1.0, max_images=max_images)
    prepared = await Compactor(CompactionOptions(), facts=facts, reply_tokens=0).prepare(view, cause=Cause.SIZE)
    archive.add_view(prepared.view.messages)
    return prepared.view


def _ids(view: View) -> list[str]:
    return [found for message in view.messages for found in re.findall(r'recall\(\\?"(r[0-9a-f]{12})', message.json)]


async def test_the_id_of_a_body_that_was_shortened_first_leads_to_the_whole_one() -> None:
    """A result and an input that a trim cut, and a later edit moved out of sight, are found whole by the id that stands there."""
    archive, middle = Archive(), "the needle in the middle"
    body = "hay " * 30_000 + middle + " hay" * 30_000
    view = await _compacted(View(), archive, user("go"), assistant(call("w", content=body)), user(result("w", body)))
    assert middle not in "".join(message.json for message in view.messages)
    small = [message for n in range(8) for message in (assistant(call(f"s{n}")), user(result(f"s{n}", f"line {n} " * 300)))]
    view = await _compacted(view, archive, *small, window_tokens=40_000)
    old = [
        message for message in view.messages if any(block.get("id") == "w" or block.get("tool_use_id") == "w" for block in message.content)
    ]
    ids = _ids(View(old))
    assert len(ids) == 2
    for wanted in ids:
        found = archive.get(wanted)
        assert found is not None
        assert middle in found.text


async def test_images_beyond_what_the_model_takes_are_found_by_their_ids() -> None:
    """The oldest images go, those of the task last; each leaves an id that brings it back, also when its result is moved out later."""
    archive, pictures = Archive(), [image(100 + n, 100) for n in range(6)]
    rounds = [
        message
        for n in range(1, 6)
        for message in (assistant(call(f"i{n}")), user(result(f"i{n}", [pictures[n], {"type": "text", "text": f"seen {n} " * 200}])))
    ]
    view = await _compacted(View(), archive, user("like this", pictures[0]), *rounds, window_tokens=100_000, max_images=2)
    assert view.messages[0].content[1] == pictures[0]
    assert pictures[5] in view.messages[-1].tool_results[0]["content"]
    more = [message for n in range(4) for message in (assistant(call(f"s{n}")), user(result(f"s{n}", "x")))]
    view = await _compacted(view, archive, *more, window_tokens=100_000, max_images=2)
    shown = [archive.get(wanted) for wanted in _ids(view)]
    assert None not in shown
    assert sorted(str(block["source"]["data"]) for found in shown if found for block in found.media) == sorted(
        str(picture["source"]["data"]) for picture in pictures[1:]
    )


def test_a_session_file_is_read_on_from_where_the_last_look_ended(tmp_path: Path) -> None:
    """What was appended since is found; a torn last line is not, until it is whole; nothing is read twice."""
    path = tmp_path / "ann.jsonl"
    archive = SessionArchive(path)
    assert len(archive.update()) == 0
    with SessionFile(path) as file:
        file.append([encode_header(Header("ann", "now")), encode_message(Entry(user("first words"), "now"))])
        assert archive.update().find("first words").found
        file.append([encode_message(Entry(assistant("second words"), "now"))])
        line = encode_message(Entry(user("third words"), "now"))
        with path.open("ab") as raw:
            raw.write(line[:20])
        found = archive.update()
        assert [bool(found.find(text).found) for text in ("first words", "second words", "third words")] == [True, True, False]
        with path.open("ab") as raw:
            raw.write(line[20:])
        assert [hit.message for hit in archive.update().find("words").found] == [3, 2, 1]
