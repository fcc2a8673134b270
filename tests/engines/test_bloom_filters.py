"""The Bloom filters of names of `ccm` and `clcb`: how many names that an event lacks pass."""

from __future__ import annotations

import numpy as np
import pytest

from mpi_match.engines.ccm.bloom import bit_of


@pytest.mark.parametrize(("n_hashes", "printed"), [(1, 0.17), (2, 0.10)])
def test_as_many_other_names_pass_an_event_of_six_names_as_clcbs_paper_prints(n_hashes: int, printed: float) -> None:
    """With 32 bits (section 4.3): 10 %, which takes two hashes."""
    rng, n_bits, passed = np.random.default_rng(0), 32, []
    for _ in range(2000):
        names = rng.choice(10_000, 26, replace=False)
        bits = np.array([bit_of(names, nth, n_bits.bit_length() - 1) for nth in range(n_hashes)])
        of_event = np.isin(np.arange(n_bits), bits[:, :6])
        passed.append(of_event[bits[:, 6:]].all(axis=0).mean())
    assert np.mean(passed) == pytest.approx(printed, abs=0.01)
