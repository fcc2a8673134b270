from __future__ import annotations

import fnmatch
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.texts.wildcard import MAX_WILDCARD, literal, matches, tokens

letters = st.text(alphabet="aé€\U0001f600*?\\", max_size=12)


def by_the_book(text: str, pattern: list[str]) -> bool:
    """Every way to share the text among the tokens, tried by length."""
    reached = {0}
    for token in pattern:
        if token == "*":
            reached = set(range(min(reached, default=len(text) + 1), len(text) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(text) and (token == "?" or token[-1] == text[at])}
    return len(text) in reached


@given(letters, letters)
def test_matches_as_by_the_book(text: str, pattern: str) -> None:
    assert matches(text.encode(), pattern.encode()) == by_the_book(text, tokens(pattern))


@given(letters, letters)
def test_the_literal_is_in_every_match(text: str, pattern: str) -> None:
    if matches(text.encode(), pattern.encode()):
        assert literal(pattern) in text


@given(st.text(alphabet="abc", max_size=10), st.text(alphabet="abc*?", max_size=8))
def test_matches_as_fnmatch(text: str, pattern: str) -> None:
    assert matches(text.encode(), pattern.encode()) == fnmatch.fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("?", "é", True),
        ("??", "é", False),
        ("?", "\n", True),
        (r"\*", "*", True),
        (r"\*", "a", False),
        (r"\\", "\\", True),
        (r"C:\Win*", r"C:\Windows", True),
        ("a\\", "a\\", True),
        ("ab*ba", "aba", False),
        ("a.c", "abc", False),
    ],
)
def test_cases(pattern: str, text: str, expected: bool) -> None:
    assert matches(text.encode(), pattern.encode()) is expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("*", ""), (r"a*bcd?efgh\*", "efgh*"), (r"\\x", r"\x"), ("aa*é€", "é€"), ("", "")],
)
def test_literal(pattern: str, expected: str) -> None:
    assert literal(pattern) == expected


def test_many_stars_are_quick() -> None:
    began = time.process_time()
    assert not matches(b"a" * 2000, b"*a" * 1000 + b"*b")
    assert matches(b"a" * 2000, b"*a" * 2000)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("part", ["a", "a?", "*a", "\\\\", "*", "?"])
def test_long_patterns_are_answered_soon_and_longer_ones_refused(part: str) -> None:
    pattern, began = part * (MAX_WILDCARD // len(part)), time.process_time()
    assert matches(b"a", pattern.encode()) == (part == "*")
    literal(pattern)
    for function in (literal, lambda pattern: matches(b"a", pattern.encode())):
        with pytest.raises(ValueError, match="at most 65,536"):
            function(pattern * 100)
    assert time.process_time() - began < 2
