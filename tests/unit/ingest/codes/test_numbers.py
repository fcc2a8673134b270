"""Numbers of lines: the result of `float`, or no answer, and an answer for all but the rarest."""

from __future__ import annotations

import decimal
import json
import math
import random
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mpi_match.compute.compile_cache import jit
from mpi_match.compute.memory import AddressTable
from mpi_match.ingest.codes.numbers import (
    DECIMAL,
    HUGE_INTEGER,
    INTEGER,
    LARGE_INTEGER,
    NOT_READ,
    NUMBER_TABLES,
    residue_at,
    scan_number,
)
from mpi_match.model import GREATEST_INTEGER, LEAST_INTEGER, MAX_EXACT_INTEGER, split

TABLES = AddressTable(NUMBER_TABLES)


def read(text: str) -> tuple[int, int, float]:
    """Where the number of a text ends, its kind and its value."""
    data = np.frombuffer(text.encode() + b"\n", np.uint8)
    end, kind, value = scan_number(data.ctypes.data, 0, TABLES.address)
    return end, kind, value


def check(text: str) -> bool:
    """Compare with `float`; is there an answer?"""
    end, kind, value = read(text)
    assert end == len(text), text
    expected = float(text) + 0.0
    if kind == NOT_READ:
        return False
    if kind == HUGE_INTEGER:
        assert not LEAST_INTEGER <= int(text) <= GREATEST_INTEGER, text
        return True
    if kind == LARGE_INTEGER:
        assert abs(int(text)) > MAX_EXACT_INTEGER, text
        assert (value, residue(text, value)) == split(int(text)), text
        return True
    assert kind == (INTEGER if text.strip("-").isdigit() else DECIMAL), text
    assert struct.pack("d", value) == struct.pack("d", expected), text
    return True


@jit
def _residue(data: int, stop: int, value: float) -> float:
    return residue_at(data, 0, stop, value)


def residue(text: str, value: float) -> float:
    """The residue of a large integer."""
    data = np.frombuffer(text.encode() + b"\n", np.uint8)
    return float(_residue(data.ctypes.data, len(text), value))


def double(generator: random.Random) -> float:
    """Any finite double."""
    while True:
        (found,) = struct.unpack("d", generator.randbytes(8))
        if math.isfinite(found):
            return float(found)


def halfway(generator: random.Random) -> decimal.Decimal:
    """A number halfway between two doubles."""
    below = abs(double(generator))
    above = math.nextafter(below, math.inf)
    return (decimal.Decimal(below) + decimal.Decimal(above if math.isfinite(above) else below)) / 2


def digits(generator: random.Random, most: int) -> str:
    return str(generator.randrange(10 ** generator.randint(1, most)))


def shortest(generator: random.Random) -> Iterator[str]:
    """Numbers as programs write them: all have an answer."""
    yield repr(double(generator))
    yield f"{generator.uniform(-180, 180)!r}"
    yield f"{generator.gauss(0, 1):.{generator.randint(1, 17)}f}"
    yield f"{double(generator):.{generator.randint(0, 16)}e}"
    yield repr(5e-324 * generator.randrange(2 ** generator.randint(1, 53)))
    yield f"{digits(generator, 10)}.{digits(generator, 8)}"
    yield f"{digits(generator, 19)}e{generator.randint(-300, 280)}"
    yield digits(generator, 18)
    yield f"-{digits(generator, 16)}"


def hard(generator: random.Random) -> Iterator[str]:
    """More digits than matter, and numbers near the middle between two doubles."""
    middle = halfway(generator)
    yield f"{middle:e}"
    yield f"{middle:.{generator.randint(16, 60)}e}"
    yield f"{digits(generator, 40)}.{digits(generator, 40)}"
    yield f"0.{'0' * generator.randrange(30)}{digits(generator, 30)}e-{generator.randrange(330)}"
    yield f"{generator.randrange(2**64)}e{generator.randint(-345, 310)}"
    yield f"{decimal.Decimal(double(generator)):e}"
    yield f"1{digits(generator, 60)}{'0' * generator.randrange(20)}e{generator.randint(-350, 300)}"


@pytest.mark.untraced
def test_numbers_as_programs_write_them() -> None:
    generator = random.Random(1)
    texts = [text for _ in range(7000) for text in shortest(generator)]
    unread = [text for text in texts if not check(text)]
    assert [text for text in unread if float(text) and math.isfinite(float(text))] == []


def test_hard_numbers() -> None:
    generator = random.Random(2)
    with decimal.localcontext(prec=800):
        texts = [text for _ in range(6000) for text in hard(generator)]
    unread = [text for text in texts if not check(text)]
    beyond = [text for text in unread if float(text) in (0.0, math.inf)]
    assert all(len(text.partition("e")[0].replace(".", "").strip("0")) > 19 for text in set(unread) - set(beyond))


def test_what_no_double_is_near_to_is_not_read() -> None:
    for text in (
        "1e309",
        "1.7976931348623159e308",
        "1e400",
        "1e-400",
        "1e-324",
        "2.4e-324",
        "1e99999999999",
        "1e-99999999999",
    ):
        assert read(text)[1] == NOT_READ, text
    for text in ("0e99999999999", "0.000e-999", "-0.0", "-0", "0", "1.7976931348623157e308", "2.5e-324", "5e-324"):
        assert check(text), text


@pytest.mark.parametrize("text", ["", "-", "01", "-01", "00", "1.", "-.5", ".5", "1e", "1e+", "1.e5", "+1", "e5", "- 1"])
def test_what_is_no_number(text: str) -> None:
    """If a number ends before the text does, the rest is invalid in JSON."""
    end, kind, _ = read(text)
    assert kind == NOT_READ or end < len(text)


def test_integers() -> None:
    for n in (2**53 - 1, 2**53, 10**15, 123):
        for text in (str(n), str(-n)):
            assert read(text) == (len(text), INTEGER, float(text))
    for n in (2**53 + 1, 10**16, 2**64 - 1, 10**19, 10**19 - 1, -(2**53) - 1, -(2**63)):
        assert read(str(n))[1] == LARGE_INTEGER
        assert check(str(n))
    for n in (2**64, 2**64 + 5, 10**400, -(2**63) - 1, -(2**64), 2 * 10**19, 2**64 + 10**19, 10**20, 2**65 - 1, -(10**19)):
        assert read(str(n))[1] == HUGE_INTEGER
        assert check(str(n))
    assert read("9" * 5000)[1] == NOT_READ


@given(st.sampled_from([2**k for k in range(53, 65)]), st.integers(-(2**12), 2**12), st.booleans())
def test_integers_near_powers_of_two_have_their_residues(power: int, by: int, negative: bool) -> None:
    assert check(str(-power - by if negative else power + by))


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(2.2250738585072011e-308)
@example(2.2250738585072014e-308)
@example(9007199254740993.0)
@example(1e23)
def test_any_double_comes_back(value: float) -> None:
    assert check(json.dumps(value))
