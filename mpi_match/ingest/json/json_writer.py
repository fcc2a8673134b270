"""Writes objects as JSON with one encoder for all of them: `json.JSONEncoder.encode` makes one for each, which takes longer
than to write an event of a few attributes."""

from __future__ import annotations

import json
from collections.abc import Callable
from json import encoder as encoders
from typing import Any


def json_writer(default: Callable[[Any], Any] | None = None, *, ascii_only: bool) -> Callable[[Any], str]:
    """`write(value)`, which is `json.dumps` without blanks; it raises as that does, and RecursionError for an object that
    contains itself."""
    plain = json.JSONEncoder(check_circular=False, ensure_ascii=ascii_only, separators=(",", ":"), default=default)
    make = getattr(encoders, "c_make_encoder", None)
    if make is None:
        return plain.encode
    texts = encoders.encode_basestring_ascii if ascii_only else encoders.encode_basestring
    pieces = make(None, plain.default, texts, None, ":", ",", False, False, True)
    return lambda value: "".join(pieces(value, 0))
