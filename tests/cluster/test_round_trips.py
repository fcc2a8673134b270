"""Round trips, counted in logarithmic steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.cluster.scheduling.timeouts import RoundTrips


@given(st.lists(st.floats(1e-7, 1e3), min_size=1, max_size=200))
def test_percentiles_of_round_trips_are_right_to_half_a_per_cent(seconds: list[float]) -> None:
    trips = RoundTrips()
    trips.add(seconds[:1])
    trips.add(seconds[1:])
    for percent in (1, 50, 99, 100):
        exact = np.percentile(seconds, percent, method="inverted_cdf")
        assert trips.percentile(percent) == pytest.approx(exact, rel=0.006)


def test_no_round_trips_have_no_percentiles() -> None:
    assert RoundTrips().in_us() is None
