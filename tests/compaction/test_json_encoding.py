"""JSON is compact, keeps what it is given, and is the same with and without the accelerator of CPython."""

import importlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction import encoding

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner) | st.tuples(inner, inner))


@given(VALUES)
def test_json_is_what_the_standard_encoder_makes_of_it(value: Any) -> None:
    """Keys keep their order, and nothing is escaped that need not be."""
    assert encoding.dumps(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def test_json_refuses_what_is_none() -> None:
    """A value that JSON does not know is an error that names its type."""
    with pytest.raises(TypeError, match="set is not JSON serializable"):
        encoding.dumps({"a": {1}})
    assert encoding.dumps({"a": [1]}) == '{"a":[1]}'  # an error leaves nothing behind


def test_json_needs_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python without it makes the same JSON."""
    value: dict[str, Any] = {"text": "é\n\ud800", "list": [1, 2.5, None, True], "tuple": ("a", {})}
    expected = encoding.dumps(value)
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    assert importlib.reload(encoding).dumps(value) == expected
    monkeypatch.undo()
    importlib.reload(encoding)
