"""Characters that a terminal obeys are shown, whoever wrote them."""

from __future__ import annotations

import unicodedata

from mpi_match.humanize import visible


def test_control_characters_are_escaped_and_others_are_not() -> None:
    shown = visible("a\x1b[31m\x07\x9b2J\u202eb\x7f\0\r\t\n é 日本 \U0001f600")
    assert shown == "a\\x1b[31m\\x07\\x9b2J\\u202eb\\x7f\\x00\\x0d\\x09\n é 日本 \U0001f600"
    for code in (*range(0x2100), *range(0xFE00, 0xFF00)):
        character = chr(code)
        if unicodedata.category(character) == "Cc" or unicodedata.bidirectional(character) in _OVERRIDES:
            assert (visible(character) == character) == (character == "\n"), hex(code)
        elif unicodedata.category(character)[0] in "LNPS":
            assert visible(character) == character


_OVERRIDES = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
