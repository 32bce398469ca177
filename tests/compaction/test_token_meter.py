"""Sizes: what texts, images and documents are estimated at, and how reported usage corrects it."""

import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.images import LARGE, STANDARD, image_tokens, read_head
from compaction.models import KNOWN_MODELS, UNKNOWN_MODEL, ModelFacts, model_facts
from compaction.tokens import FACTOR_BOUNDS, NOTHING, TokenMeter, Weight, count_text, total, weigh, weigh_all
from compaction.transcript import ModelMessage
from tests.compaction.strategies import assistant, broken, call, conversations, image, png, result, say, user


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("", 0, 0),
        ("hello", 1, 3),
        ("The quick brown fox jumps over the lazy dog. " * 20, 160, 260),  # 10 words and a dot each
        ("团队中的每个成员都有自己的任务和邮箱" * 10, 140, 250),
        ("チームの各メンバーは自分のタスクを持つ" * 10, 130, 260),
        ("팀의 각 구성원은 자신의 작업을 가지고 있습니다 " * 10, 200, 420),
        ("Каждый участник команды имеет свои задачи " * 10, 200, 420),
        ("1234567890" * 20, 60, 140),
        ("9f86d081884c7d65" * 20, 140, 300),
        ("😀🚀✅" * 20, 80, 240),
    ],
)
def test_texts_are_counted_by_their_script(text: str, low: int, high: int) -> None:
    """Each script has its own density: a Chinese character is about a token, a Latin word too."""
    assert low <= count_text(text) <= high


@given(st.text())
def test_any_text_can_be_counted(text: str) -> None:
    """Nothing, not even a lone surrogate, makes the counter fail; a text that is not empty has a token at least."""
    assert count_text(text + "\ud83d") >= 1
    assert count_text(text) >= (1 if text else 0)


@given(broken())
def test_weights_add_up(messages: list[ModelMessage]) -> None:
    """The weight of a list is the sum of its messages', and is the same when measured anew."""
    fresh = [ModelMessage(message.role, message.content) for message in messages]
    assert weigh_all(messages) == total(weigh(message) for message in fresh)
    assert weigh_all(messages).minus(weigh_all(messages)) == NOTHING


def test_a_message_is_measured_once() -> None:
    """The weight is kept on the message, as are its JSON and its text."""
    message = user("words", image())
    assert weigh(message) is weigh(message)
    assert message.json is message.json
    assert message.text is message.text


def heads() -> list[tuple[str, bytes]]:
    """Return the heads of images of 300 x 200 pixels."""
    exif = b"\xff\xe1" + struct.pack(">H", 5_002) + b"e" * 5_000
    frame = b"\xff\xc0" + struct.pack(">HBHH", 17, 8, 200, 300) + b"\x03" + b"\0" * 9
    vp8x = b"RIFF\0\0\0\0WEBPVP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + (299).to_bytes(3, "little") + (199).to_bytes(3, "little")
    vp8l = b"RIFF\0\0\0\0WEBPVP8L" + struct.pack("<I", 10) + b"\x2f" + (299 | 199 << 14).to_bytes(4, "little") + b"\0" * 8
    vp8 = b"RIFF\0\0\0\0WEBPVP8 " + struct.pack("<I", 10) + b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 300, 200) + b"\0" * 4
    return [
        ("image/png", base64.b64decode(png(300, 200))),
        ("image/gif", b"GIF89a" + struct.pack("<HH", 300, 200) + b"\0" * 9),
        ("image/jpeg", b"\xff\xd8" + exif + b"\xff\xdb" + struct.pack(">H", 4) + b"\0\0" + frame),
        ("image/webp", vp8x),
        ("image/webp", vp8l),
        ("image/webp", vp8),
    ]


@pytest.mark.parametrize(("media_type", "data"), heads())
def test_image_heads_are_read(media_type: str, data: bytes) -> None:
    """The size of each format is read from its first bytes."""
    facts = read_head(base64.b64encode(data).decode())
    assert facts == (media_type, 300, 200)


@given(st.binary(max_size=200), st.sampled_from(heads()), st.integers(0, 200))
def test_no_image_head_fails(noise: bytes, head: tuple[str, bytes], cut: int) -> None:
    """Cut or wrong data is an image of unknown size, not an error."""
    for data in (noise, head[1][:cut], head[1][:cut] + noise):
        facts = read_head(base64.b64encode(data).decode() + "=")
        assert facts.width >= 0
        assert facts.height >= 0


def test_images_cost_their_area() -> None:
    """An image costs its patches of 28 pixels, scaled down first, not the length of its data."""
    assert image_tokens(280, 280, STANDARD) == 100
    assert image_tokens(281, 280, STANDARD) == 110
    assert image_tokens(8_000, 8_000, STANDARD) == 1_568
    assert image_tokens(8_000, 8_000, LARGE) == 4_784
    assert image_tokens(0, 0, LARGE) == 4_784
    weight = weigh(user(result("a", [image(280, 280)])))
    assert (weight.images, weight.image_tokens) == (1, 100)
    assert weigh(user({"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}})).image_tokens == 1_568


def test_documents_cost_their_pages() -> None:
    """A PDF is estimated by its length; a text document by its text."""
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "A" * 400_000}}
    assert weigh(user(pdf)).pages == 6
    plain = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "word " * 1_000}}
    assert 900 < weigh(user(plain)).text_tokens < 2_200


def test_hidden_thinking_costs_what_its_signature_tells() -> None:
    """Thinking whose text was left out is not free."""
    assert weigh(assistant({"type": "thinking", "thinking": "", "signature": "c2ln" * 600})).text_tokens > 300


def test_used_is_what_was_reported_and_what_came_after() -> None:
    """A report replaces the estimate of all that was sent, and only what came after is estimated."""
    meter = TokenMeter(ModelFacts(name="x", token_factor=1.0), fixed_text_tokens=100)
    sent = Weight(1_000)
    assert meter.used(sent, epoch=0) == 1_000
    meter.observe(sent, epoch=0, input_tokens=1_100)
    assert meter.used(sent, epoch=0) == 1_000
    assert meter.used(sent.plus(Weight(50)), epoch=0) == 1_050
    meter.observe(sent, epoch=0, input_tokens=2_200)
    assert meter.factor == 1.5
    assert meter.used(sent, epoch=0) == 2_200 - meter.fixed_tokens
    assert meter.used(sent, epoch=1) == 1_500, "a report of an older epoch says nothing of this list"


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**7))))
def test_the_learned_factor_is_bounded(reports: list[tuple[int, int]]) -> None:
    """Whatever is reported, the factor stays within its bounds, and estimates stay finite."""
    meter = TokenMeter(ModelFacts(name="x"))
    for text, reported in reports:
        meter.observe(Weight(text), epoch=0, input_tokens=reported)
        assert FACTOR_BOUNDS[0] <= meter.factor <= FACTOR_BOUNDS[1]
        meter.overflowed()
        assert meter.factor <= FACTOR_BOUNDS[1]


@given(conversations())
def test_the_factor_is_learned(messages: list[ModelMessage]) -> None:
    """After a few reports of a model that counts twice as much, estimates are about right."""
    meter = TokenMeter(ModelFacts(name="x", token_factor=1.0), fixed_text_tokens=2_000)
    weight = weigh_all(messages)
    truth = 2 * (weight.text_tokens + 2_000) + weight.image_tokens_large
    for _ in range(8):
        meter.observe(weight, epoch=0, input_tokens=truth)
    assert abs(meter.tokens(weight) + meter.fixed_tokens - truth) <= 0.02 * truth


def test_model_names_are_matched_by_prefix() -> None:
    """Dated names, provider prefixes and dots find their family; the longest name wins; strangers get careful facts."""
    assert model_facts("claude-sonnet-4-5-20250929").name == "claude-sonnet-4-5"
    assert model_facts("claude-opus-5-5").name == "claude-opus-5-5"
    assert model_facts("claude-opus-5-20260401").name == "claude-opus-5"
    assert model_facts("us.anthropic.claude-haiku-4-5-v1:0").name == "claude-haiku-4-5"
    assert model_facts("anthropic/claude-opus-4.8").name == "claude-opus-4-8"
    for stranger in ("gpt-5", "claude-opus-55", "", "claude-"):
        assert model_facts(stranger) is UNKNOWN_MODEL
    assert UNKNOWN_MODEL.window_tokens == min(facts.window_tokens for facts in KNOWN_MODELS.values())
    assert UNKNOWN_MODEL.binds_thinking


def test_odd_json_is_weighed() -> None:
    """Blocks of a kind that is not known are estimated by their texts; opaque data by its length."""
    block = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": "A" * 6_000, "title": "word " * 100}]}
    assert 1_000 < weigh(assistant(block)).text_tokens < 1_500
    inputs = {"lines": [1, None, {"text": "word " * 100}]}
    assert weigh(assistant(call("a", **inputs))).text_tokens >= count_text(json.dumps(inputs["lines"])) // 2
    assert weigh(user(result("a", None))).text_tokens > 0
    assert weigh(user(say("x"), {"type": "document", "source": {"type": "content", "content": [say("y"), image()]}})).images == 1
