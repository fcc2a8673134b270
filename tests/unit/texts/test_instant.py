from __future__ import annotations

import datetime
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.model import constraint
from mpi_match.texts.instant import GREATEST_INSTANT, LEAST_INSTANT, instant, instant_of, text_of_instant

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
offsets = st.integers(-1439, 1439).map(lambda minutes: datetime.timezone(datetime.timedelta(minutes=minutes)))
times = st.datetimes(
    min_value=datetime.datetime(1, 1, 3), max_value=datetime.datetime(9999, 12, 29), timezones=st.one_of(st.none(), offsets)
)


def counted(number: int, unit: str) -> Any:
    """A datetime64 of that many units since 1970."""
    return np.array(number, np.int64).view(f"M8[{unit}]")[()]


def ends_of_the_years(nanoseconds: int) -> Any:
    """The first instants and the last ones."""
    return st.sampled_from([LEAST_INSTANT + nanoseconds, GREATEST_INSTANT - nanoseconds])


def exactly(time: datetime.datetime) -> int:
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    return (time - EPOCH) // datetime.timedelta(microseconds=1) * 1000


@given(times, st.sampled_from("Tt "))
def test_texts_are_the_instants_of_the_standard_library(time: datetime.datetime, between: str) -> None:
    text = time.isoformat(between)
    assert instant(text if time.tzinfo else text + "Z") == exactly(time)
    assert instant_of(time) == exactly(time)


@given(st.dates())
def test_dates_begin_in_utc(date: datetime.date) -> None:
    expected = exactly(datetime.datetime(date.year, date.month, date.day))
    assert instant(date.isoformat()) == instant_of(date) == expected


def test_every_year_follows_the_one_before() -> None:
    days = ("01-01", "02-28", "02-29", "03-01", "12-31")
    found = [each for year in range(10_000) for day in days if (each := instant(f"{year:04}-{day}")) is not None]
    assert found[0] == -62_167_219_200 * 10**9
    assert len(found) == 42_425
    assert {(b - a) // (86_400 * 10**9) for a, b in itertools.pairwise(found)} == {1, 58, 305}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01 01:00:00+01:00", 0),
        ("1969-12-31T23:00:00-01:00", 0),
        ("1970-01-01T00:00:00.5Z", 500_000_000),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01T00:00:00.00000000100Z", 1),
        ("1970-01-01T00:00:00-00:00", 0),
        ("0000-01-01T00:00:00+23:59", LEAST_INSTANT),
        ("9999-12-31T23:59:59.999999999-23:59", GREATEST_INSTANT),
        ("2026-11-26T16:27:18.123456789+05:30", 1_795_690_638_123_456_789),
    ],
)
def test_instants(text: str, expected: int) -> None:
    assert instant(text) == expected


@given(st.integers(LEAST_INSTANT, GREATEST_INSTANT) | st.integers(0, 2 * 86_400 * 10**9).flatmap(ends_of_the_years))
def test_every_instant_has_a_text(nanoseconds: int) -> None:
    assert instant(text_of_instant(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-01-01T05:30:00.50+05:30", "2026-01-01T00:00:00.5Z"),
        ("0000-02-29", "0000-02-29T00:00:00Z"),
        ("0000-01-01T00:00:00+00:01", "0000-01-01T23:58:00+23:59"),
        ("9999-12-31T23:59:00-00:01", "9999-12-31T00:01:00-23:59"),
    ],
)
def test_constraints_show_instants_of_every_year(text: str, shown: str) -> None:
    assert str(constraint("t", "after", text)) == f"t after {shown!r}"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "1970",
            "1970-1-1",
            "1970-01-01T00:00:00",
            "1970-01-01T00:00Z",
            "1970-01-01T00:00:60Z",
            "1970-01-01T24:00:00Z",
        ),
        *("1970-01-01T00:60:00Z", "1970-13-01", "1970-00-01", "1970-02-29", "1970-01-00", "1900-02-29", "10000-01-01"),
        *("1970-01-01T00:00:00.Z", "1970-01-01T00:00:00.0000000001Z", "1970-01-01T00:00:00,5Z", "1970-01-01T00:00:00+24:00"),
        *(
            "1970-01-01T00:00:00+00:60",
            "1970-01-01T00:00:00+0000",
            "1970-01-01Z",
            " 1970-01-01",
            "1970-01-01\n",
            "-1970-01-01",
        ),
        *(
            "1970-01-01T00:00:00Z ",
            "١٩٧٠-01-01",
            "1970-01-01T00:00:00 Z",
            "1970-01-01_00:00:00Z",
            "1970-01-01T00:00:00\u221201:00",
        ),
    ],
)
def test_no_instant(text: str) -> None:
    assert instant(text) is None


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (np.datetime64("1969-12-31T23:59:59.123456789", "ns"), "1969-12-31T23:59:59.123456789Z"),
        (np.datetime64("2026-05", "M"), "2026-05-01"),
        (np.datetime64("1969", "Y"), "1969-01-01"),
        (np.datetime64("0000-03-01", "D"), "0000-03-01"),
        (np.datetime64("2026-01-01", "W"), "2026-01-01"),
        (counted(3, "25s"), "1970-01-01T00:01:15Z"),
        (counted(3, "2Y"), "1976-01-01"),
        (counted(-5000, "ps"), "1969-12-31T23:59:59.999999995Z"),
    ],
)
def test_times_of_numpy(time: np.datetime64, text: str) -> None:
    assert instant_of(time) == instant(text) is not None


@pytest.mark.parametrize(
    "time",
    [
        datetime.time(12, 30),
        np.datetime64("NaT"),
        counted(1, "ps"),
        counted(2**62, "s"),
        counted(-(2**62), "M"),
        np.datetime64(10_000 - 1970, "Y"),
    ],
)
def test_times_without_an_instant(time: object) -> None:
    assert instant_of(time) is None


def test_times_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    text = "2026-11-26T16:27:18.123456789+05:30"
    assert instant_of(pandas.Timestamp(text)) == instant(text)
    assert instant_of(pandas.Timestamp("1969-12-31T23:59:59.000000001")) == -999_999_999
    assert instant_of(pandas.NaT) is None


@given(st.integers(LEAST_INSTANT, GREATEST_INSTANT))
def test_the_residue_of_an_instant_fits(nanoseconds: int) -> None:
    assert abs(nanoseconds - int(float(nanoseconds))) <= 2**14
