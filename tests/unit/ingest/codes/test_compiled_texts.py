"""Folding, wildcards, regular expressions, addresses and instants in compiled code: what `mpi_match.texts` says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mpi_match.compute.compile_cache import jit
from mpi_match.ingest.codes import addresses, folding, instants, regexps, wildcards
from mpi_match.model import split
from mpi_match.texts.address import address
from mpi_match.texts.folding import fold, folds
from mpi_match.texts.instant import GREATEST_INSTANT, LEAST_INSTANT, instant
from mpi_match.texts.regexp import Automaton, compiled, matches
from mpi_match.texts.regexp_syntax import RegexpError
from mpi_match.texts.wildcard import matches as wildcard_matches

TABLE = folding.fold_table()
GUARD = 0xAA
"""Value of the bytes around a text and behind a scratch, which are not part of them."""


@jit
def _fold(data: int, start: int, stop: int, folded: int, room: int, table: int) -> int:
    return folding.fold_text(data, start, stop, folded, room, table)


@jit
def _address(data: int, start: int, stop: int, digits: int) -> tuple[int, int]:
    return addresses.address_at(data, start, stop, digits)


@jit
def _instant(data: int, start: int, stop: int) -> tuple[bool, float, int]:
    return instants.instant_at(data, start, stop)


@jit
def _wildcard(data: int, start: int, stop: int, pattern: int, length: int) -> bool:
    return wildcards.wildcard_matches(data, start, stop, pattern, length)


@jit
def _regexp(data: int, start: int, stop: int, automaton: int, state: int) -> tuple[bool, int]:
    return regexps.regexp_matches(data, start, stop, automaton, state), regexps.regexp_words(automaton)


def placed(text: bytes) -> tuple[Any, int, int]:
    """The text among digits that could continue it, and where it starts and stops."""
    return np.frombuffer(b"1:a" + text + b"1:a", np.uint8), 3, 3 + len(text)


def folded_in_room(text: bytes, room: int) -> bytes | None:
    """The folding of a text, None without room; nothing is written behind the room."""
    data, start, stop = placed(text)
    out = np.full(room + 8, GUARD, np.uint8)
    n = _fold(data.ctypes.data, start, stop, out.ctypes.data, room, TABLE.ctypes.data)
    assert (out[room:] == GUARD).all()
    return None if n == folding.FOLDING_TOO_LONG else out[:n].tobytes()


cased = st.sampled_from(sorted({*folds(), *folds().values()})).map(chr)


@given(st.lists(st.characters(exclude_categories=["Cs"]) | cased | st.characters(max_codepoint=127), max_size=20))
def test_foldings(characters: list[str]) -> None:
    text = "".join(characters)
    expected = fold(text).encode()
    assert folded_in_room(text.encode(), len(expected)) == expected
    if expected:
        assert folded_in_room(text.encode(), len(expected) - 1) is None


def test_every_character_folds_alike() -> None:
    text = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    expected = fold(text).encode()
    assert folded_in_room(text.encode(), len(expected)) == expected


@given(st.binary(max_size=12), st.integers(0, 12))
def test_bytes_that_are_no_text_stay_in_the_room(data: bytes, room: int) -> None:
    folded_in_room(data, room)


def found_address(text: bytes) -> int | str | None:
    data, start, stop = placed(text)
    digits = np.full(addresses.ADDRESS_DIGITS + 8, GUARD, np.uint8)
    kind, number = _address(data.ctypes.data, start, stop, digits.ctypes.data)
    assert (digits[addresses.ADDRESS_DIGITS :] == GUARD).all()
    if kind == addresses.IPV6:
        assert number == 0
        return digits[: addresses.ADDRESS_DIGITS].tobytes().decode()
    return int(number) if kind == addresses.IPV4 else None


address_texts = (
    st.ip_addresses(v=4).map(str)
    | st.ip_addresses(v=6).map(str)
    | st.ip_addresses(v=6).map(lambda found: found.exploded.upper())
    | st.text(alphabet="0123456789abcdefABCDEFg:.%/ ", max_size=46)
    | st.lists(st.sampled_from(["0", "1", "ffff", "10.0.0.1", ":", ":", "::", "00"]), max_size=18).map("".join)
    | st.lists(st.sampled_from(["0", "7", "255", "256", "01", "", "٣"]), max_size=5).map(".".join)
    | st.text(max_size=5)
)


@given(address_texts)
@example("::")
@example("1:2:3:4:5:6:7::")
@example("::2:3:4:5:6:7:8")
@example("1:2:3:4:5:6:7:8::")
@example("1:2:3:4:5:6:1.2.3.4")
@example("1:2:3:4:5:6:7:1.2.3.4")
@example("::1:2:3:4:5:1.2.3.4")
@example("::1:2:3:4:5:6:1.2.3.4")
@example("12345::")
@example(":")
@example("::1:")
@example("1::2::3")
@example("")
def test_addresses(text: str) -> None:
    assert found_address(text.encode()) == address(text)


def found_instant(text: bytes) -> tuple[float, int] | None:
    data, start, stop = placed(text)
    is_instant, nearest, residue = _instant(data.ctypes.data, start, stop)
    return (nearest, residue) if is_instant else None


def parts(*choices: str) -> st.SearchStrategy[str]:
    return st.sampled_from(choices)


digits = st.integers(0, 70).map(lambda number: f"{number:02}")
instant_texts = (
    st.builds(
        "{}-{}-{}{}{}:{}:{}{}{}".format,
        st.integers(0, 9999).map(lambda year: f"{year:04}"),
        st.integers(0, 13).map(lambda month: f"{month:02}"),
        st.integers(0, 32).map(lambda day: f"{day:02}"),
        parts("T", "t", " ", "T", "T", "_"),
        st.integers(0, 24).map(lambda hour: f"{hour:02}"),
        st.integers(0, 60).map(lambda minute: f"{minute:02}"),
        st.integers(0, 60).map(lambda second: f"{second:02}"),
        st.just("") | st.from_regex(r"\.[0-9]{0,11}", fullmatch=True) | st.from_regex(r"\.[0-9]{1,9}0{0,5}", fullmatch=True),
        parts("Z", "z", "", "+00:00", "-23:59", "+05:30", "+24:00", "-00:60", "+0100", "Z ", "+01:00:00", "x"),
    )
    | st.dates().map(str)
    | st.datetimes(timezones=st.timezones()).map(lambda time: time.isoformat())
    | st.text(alphabet="0123456789-:.TZ+ ", max_size=32)
    | st.text(max_size=6)
)


@given(instant_texts)
@example("0000-01-01T00:00:00+23:59")
@example("9999-12-31T23:59:59.999999999-23:59")
@example("1969-12-31T23:59:59.999999999Z")
@example("1833-11-24T17:31:44Z")
@example("2106-02-07T06:28:15.999999999Z")
@example("2106-02-07T06:28:16Z")
@example("1969-12-31")
@example("2000-02-29")
@example("1900-02-29")
@example("")
def test_instants(text: str) -> None:
    expected = instant(text)
    assert found_instant(text.encode()) == (None if expected is None else split(expected))


def text_of(nanoseconds: int) -> str:
    """The text of an instant of the years 1 to 9999."""
    seconds, fraction = divmod(nanoseconds, 10**9)
    return f"{np.datetime64(seconds, 's')}.{fraction:09}Z"


@given(st.integers(LEAST_INSTANT + 86_400 * 10**9, GREATEST_INSTANT - 86_400 * 10**9))
def test_nanoseconds(nanoseconds: int) -> None:
    text = text_of(nanoseconds)
    assert instant(text) == nanoseconds
    assert found_instant(text.encode()) == split(nanoseconds)


def test_times_halfway_between_two_doubles() -> None:
    for power in range(1, 16):
        for k in (2**52, 2**52 + 1, 2**53 - 1):
            for sign, far in ((1, 0), (-1, 0), (1, 1), (-1, -1)):
                number = sign * ((2 * k + 1) << power - 1) + far
                if LEAST_INSTANT + 86_400 * 10**9 < number < GREATEST_INSTANT - 86_400 * 10**9:
                    assert found_instant(text_of(number).encode()) == split(number)


wild = st.text(alphabet="aé€\U0001f600*?\\", max_size=12)


@given(wild, wild)
@example("", "*")
@example("aaa", "a*a*a*a")
def test_wildcards(text: str, pattern: str) -> None:
    data, start, stop = placed(text.encode())
    made = np.frombuffer(wildcards.wildcard_bytes(pattern) + b"\0", np.uint8)
    found = _wildcard(data.ctypes.data, start, stop, made.ctypes.data, len(made) - 1)
    assert found == wildcard_matches(text.encode(), pattern.encode())


regexp_parts = st.sampled_from(
    [
        *(*"abk1_ é€ſ", "\U0001f600", ".", "", r"\d", r"\w", r"\W", r"\b", r"\B", "^", "$", r"\n", "[^a]", "[a-k]"),
        *("(?i:k)", r"\pL", "(?m:^)", "(?m:$)", "[é-€]", "a{70}", "(?:ab|é){40}", "[^é]{9}"),
    ]
)
regexps_of_parts = st.recursive(
    regexp_parts,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{0,2}", "{1,3}"])).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)
regexp_texts = st.text(alphabet="abkK1_ \n-é€ſ\U0001f600", max_size=10) | st.sampled_from(["a" * 75, "ab" * 41, "é" * 40])


@given(st.lists(regexps_of_parts, min_size=1, max_size=3), st.lists(regexp_texts, min_size=1, max_size=4))
@example(["", r"\b", r"\B", "(?m)^$", "$"], ["", "a", "é", "aéa", "\n"])
@example(["(?:a{70}|b)+c"], ["a" * 140 + "c", "a" * 139 + "c"])
def test_regexps(patterns: list[str], texts: list[str]) -> None:
    automata = []
    for pattern in patterns:
        try:
            automata.append(compiled(pattern))
        except RegexpError:
            assert r"\pL" in pattern  # hundreds of positions, perhaps repeated
            return
    for most_items in (regexps.MOST_TABLE_ITEMS, 0):
        check_regexps(patterns, automata, texts, regexps.regexp_table(automata, most_items))


def check_regexps(patterns: list[str], automata: list[Automaton], texts: list[str], made: tuple[Any, Any]) -> None:
    table, places = made
    state = np.full(regexps.REGEXP_STATE_WORDS + 8, GUARD, np.uint64)
    for pattern, automaton, place in zip(patterns, automata, places.tolist(), strict=True):
        for text in texts:
            data, start, stop = placed(text.encode())
            found, n_words = _regexp(data.ctypes.data, start, stop, table.ctypes.data + 8 * place, state.ctypes.data)
            assert found == matches(text.encode(), pattern.encode()), (pattern, text)
            has_table = table[int(place)] == 0
            assert n_words == (0 if has_table or len(automaton.follow) <= 64 else 2 * -(-len(automaton.follow) // 64))
            assert (state[n_words:] == GUARD).all()
            state[:] = GUARD


@pytest.mark.parametrize("n", [63, 64, 65, 128, 129, 4096])
@pytest.mark.parametrize("most_items", [regexps.MOST_TABLE_ITEMS, 0])
def test_regexps_of_many_positions(n: int, most_items: int) -> None:
    table, places = regexps.regexp_table([compiled("b"), compiled("a" * n)], most_items)
    state = np.zeros(regexps.REGEXP_STATE_WORDS, np.uint64)
    for text, expected in (("a" * (n - 1), False), ("b" + "a" * n, True), ("a" * (n - 1) + "ba", False)):
        data, start, stop = placed(text.encode())
        found, _ = _regexp(data.ctypes.data, start, stop, table.ctypes.data + 8 * int(places[1]), state.ctypes.data)
        assert found == expected
