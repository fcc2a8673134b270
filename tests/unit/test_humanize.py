"""Numbers formatted for people."""

import pytest

from mpi_match.humanize import byte_size, clock_time, rate, seconds


@pytest.mark.parametrize(("value", "said"), [(2e-6, "2 µs"), (0.0123, "12.3 ms"), (65.0, "65.00 s")])
def test_durations_are_readable(value: float, said: str) -> None:
    assert seconds(value) == said


@pytest.mark.parametrize(("value", "said"), [(850, "850 events/s"), (12345, "12.3 k events/s"), (4.2e6, "4.2 M events/s")])
def test_rates_are_readable(value: float, said: str) -> None:
    assert rate(value) == said


def test_sizes_and_times_are_said_in_units() -> None:
    assert [byte_size(n) for n in (0, 999, 19_100_000, 4.2e9)] == ["0 B", "999 B", "19.1 MB", "4.2 GB"]
    assert [clock_time(s) for s in (0.4, 7, 165, 3765)] == ["0:00", "0:07", "2:45", "1:02:45"]
