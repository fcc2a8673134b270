"""Instants as nanoseconds since 1970-01-01T00:00:00Z, exactly: of RFC 3339 texts, and of native times.

Days have 86,400 seconds and the Gregorian calendar reaches back to the year 0, as in RFC 3339.  These texts are not
instants: a time without an offset, a leap second, the hour 24, parts of a nanosecond.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

_TEXT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9})0*)?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2})))?"
)
_DAYS_OF_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SECOND = 10**9
_DAY_S = 86_400
_EPOCH_DAY = 719_528
"""The days from 0000-01-01 to 1970-01-01."""
_EPOCH_ORDINAL = 719_163
"""`toordinal` of 1970-01-01."""
_DAYS_OF_400_YEARS = 146_097
_GREATEST_OFFSET_S = (23 * 60 + 59) * 60
LEAST_INSTANT, GREATEST_INSTANT = -62_167_305_540 * _SECOND, 253_402_387_140 * _SECOND - 1
"""Nanoseconds since 1970: the first and the last instant that a text can name, with offsets of 23:59."""


def instant(text: str) -> int | None:
    """The nanoseconds since 1970 of `YYYY-MM-DD` (its beginning in UTC) or `YYYY-MM-DDTHH:MM:SS[.DIGITS]OFFSET`, else None.

    OFFSET is `Z`, `+HH:MM` or `-HH:MM`; `t`, a blank and `z` may stand for `T` and `Z`.  Digits after the ninth must be 0.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.group(1, 2, 3, 4, 5, 6))
    digits, sign, offset_hour, offset_minute = found.group(7, 8, 9, 10)
    days = _days(year, month, day)
    offset = 60 * int(offset_hour or 0) + int(offset_minute or 0)
    is_time = hour < 24 and minute < 60 and second < 60 and int(offset_hour or 0) < 24 and int(offset_minute or 0) < 60
    if days is None or not is_time:
        return None
    seconds = days * _DAY_S + hour * 3600 + (minute + (offset if sign == "-" else -offset)) * 60 + second
    return seconds * _SECOND + int((digits or "").ljust(9, "0"))


def text_of_instant(nanoseconds: int) -> str:
    """The text of an instant of `instant`, in UTC, or with an offset of 23:59 outside the years 0 to 9999 of UTC."""
    day = nanoseconds // (_DAY_S * _SECOND)
    offset = (day < -_EPOCH_DAY) - (day > datetime.date.max.toordinal() - _EPOCH_ORDINAL)
    seconds, fraction = divmod(nanoseconds + offset * _GREATEST_OFFSET_S * _SECOND, _SECOND)
    day, second = divmod(seconds, _DAY_S)
    date = datetime.date.fromordinal(day + _EPOCH_ORDINAL + _DAYS_OF_400_YEARS * (is_year_0 := day + _EPOCH_ORDINAL < 1))
    digits = f".{fraction:09}".rstrip("0") if fraction else ""
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}{digits}{('Z', '+23:59', '-23:59')[offset]}"
    return f"{date.year - 400 * is_year_0:04}-{date:%m-%d}T{clock}"


def text_of(time: Any) -> str | None:
    """The RFC 3339 text, in UTC, of the instant of a native time (`instant_of`); None without one, or before the year 1."""
    found = instant_of(time)
    if found is None or not 0 < (day := found // (_DAY_S * _SECOND) + _EPOCH_ORDINAL) <= datetime.date.max.toordinal():
        return None
    seconds, digits = divmod(found % (_DAY_S * _SECOND), _SECOND)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{digits:09}"
    return f"{datetime.date.fromordinal(day).isoformat()}T{clock}Z"


def instant_of(time: Any) -> int | None:
    """The nanoseconds since 1970 of a date (its beginning in UTC) or a date and time; None for a time of day, and NaT.

    `time` is a `datetime.date`, `datetime` or `time`, a pandas Timestamp or a NumPy datetime64; without an offset it is in
    UTC.  A datetime64 beyond the years of `instant`, or with parts of a nanosecond, has none.
    """
    if time != time or isinstance(time, datetime.time):
        return None
    if type(time).__name__ == "datetime64":
        return _instant_of_numpy(time)
    nanoseconds: int = (time.toordinal() - _EPOCH_ORDINAL) * _DAY_S * _SECOND
    if isinstance(time, datetime.datetime):
        nanoseconds += (3600 * time.hour + 60 * time.minute + time.second) * _SECOND + 1000 * time.microsecond
        nanoseconds += getattr(time, "nanosecond", 0)
        offset = time.utcoffset()
        if offset is not None:
            nanoseconds -= offset // datetime.timedelta(microseconds=1) * 1000
    return nanoseconds


_UNITS = {"W": 7 * _DAY_S, "D": _DAY_S, "h": 3600, "m": 60, "s": 1}
"""Seconds of NumPy's units."""
_FRACTIONS = {"ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
"""Units of NumPy in a second."""


def _instant_of_numpy(time: Any) -> int | None:
    unit = time.dtype.str.partition("[")[2].rstrip("]")
    count, name = re.fullmatch(r"(\d*)(\w*)", unit).groups()  # type: ignore[union-attr]
    if name in ("Y", "M"):
        time, name, count = time.astype("datetime64[M]"), "M", ""
    number = int(time.astype("int64")) * int(count or 1)
    if name == "M":
        year, month = divmod(number, 12)
        days = _days(year + 1970, month + 1, 1)
        return None if days is None else days * _DAY_S * _SECOND
    found, rest = divmod(number * _SECOND * _UNITS.get(name, 1), _FRACTIONS.get(name, 1))
    return found if not rest and LEAST_INSTANT <= found <= GREATEST_INSTANT else None


def _days(year: int, month: int, day: int) -> int | None:
    """The days from 1970-01-01 to a date of the years 0 to 9999; None if the date does not exist."""
    if not (0 <= year <= 9999 and 1 <= month <= 12):
        return None
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= day <= _DAYS_OF_MONTH[month - 1] + (is_leap and month == 2):
        return None
    before = year - 1  # in the year 0, which is a leap year, it is -1
    leap_days = before // 4 - before // 100 + before // 400 + 1
    return 365 * year + leap_days + sum(_DAYS_OF_MONTH[: month - 1]) + (is_leap and month > 2) + day - 1 - _EPOCH_DAY
