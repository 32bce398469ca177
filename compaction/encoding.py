"""JSON as it is sent and stored: compact, keys in their order, a lone surrogate as it is.

Nothing looks for circles, which no JSON has.
"""

import json
from collections.abc import Callable
from typing import Any

_PLAIN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def _encoder() -> Callable[[Any], str]:
    """Return the encoder of CPython's accelerator, made once; `JSONEncoder.encode` makes one for each call, which takes half its time."""
    try:
        make: Any = vars(json.encoder)["c_make_encoder"]
        pieces = make(None, _PLAIN.default, json.encoder.encode_basestring, None, ":", ",", False, False, True)
    except (KeyError, TypeError):  # another Python
        return _PLAIN.encode
    join = "".join
    return lambda value: join(pieces(value, 0))


dumps = _encoder()
