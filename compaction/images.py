"""Read the size of an image from its first bytes, without decoding it.

Sources: PNG, GIF, JPEG and WebP file headers; costs and limits by the provider's vision rules (V60 to V64).
"""

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

PATCH_PX = 28
MAX_SIDE_PX = 8_000
MAX_SIDE_MANY_PX = 2_000
MANY_IMAGES = 20
MAX_BASE64_CHARS = 10 * 1024 * 1024
_HEAD_CHARS = 64  # enough for PNG, GIF and WebP
_JPEG_HEAD_CHARS = 400_000  # EXIF data with a thumbnail may stand before the size
_BYTES_PER_PAGE = 50_000  # a PDF with text and some pictures; there is no cheap exact way
TOKENS_PER_PAGE = 3_000


class ImageFacts(NamedTuple):
    """What the head of an image tells; width and height are 0 when it cannot be read."""

    media_type: str | None
    width: int
    height: int


class Detail(NamedTuple):
    """Up to which size a model looks at an image: pixels of the longer side, and tokens."""

    side_px: int
    tokens: int


STANDARD = Detail(1_568, 1_568)
LARGE = Detail(2_576, 4_784)


def read_head(data: str) -> ImageFacts:
    """Read the media type and the size in pixels from base64 data; unknown when it is none of the four formats."""
    head = _decode(data[:_HEAD_CHARS])
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        return ImageFacts("image/png", int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big"))
    if head[:6] in {b"GIF87a", b"GIF89a"} and len(head) >= 10:
        return ImageFacts("image/gif", int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little"))
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return ImageFacts("image/webp", *_webp_size(head))
    if head.startswith(b"\xff\xd8"):
        return ImageFacts("image/jpeg", *_jpeg_size(_decode(data[:_JPEG_HEAD_CHARS])))
    return ImageFacts(None, 0, 0)


def image_tokens(width: int, height: int, detail: Detail) -> int:
    """Return what an image costs; one of unknown size costs the most that an image can."""
    if width <= 0 or height <= 0:
        return detail.tokens
    scale = min(1.0, detail.side_px / max(width, height))
    patches = math.ceil(width * scale / PATCH_PX) * math.ceil(height * scale / PATCH_PX)
    return min(patches, detail.tokens)


def source_of(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the source of an image or a document; empty when it has none."""
    source = block.get("source")
    return cast("Mapping[str, Any]", source) if isinstance(source, Mapping) else {}


def pdf_pages(data: str) -> int:
    """Estimate the number of pages of a base64 PDF from its length."""
    return max(1, math.ceil(len(data) * 3 / 4 / _BYTES_PER_PAGE))


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text[: len(text) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def _webp_size(head: bytes) -> tuple[int, int]:
    kind = head[12:16]
    if len(head) < 30:
        return 0, 0
    if kind == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    return 0, 0


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0
