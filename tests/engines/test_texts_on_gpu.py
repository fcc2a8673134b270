"""Foldings, addresses, instants, wildcards and regular expressions on a GPU: those of `mpi_match.texts`."""

from __future__ import annotations

import numpy as np
import pytest
from text_kernel import ROOM, answered_on_gpu, expected_answers, scratch_of, texts


@pytest.mark.gpu
def test_texts() -> None:
    tried = texts(20_000)
    answers, scratch = answered_on_gpu(tried)
    assert np.array_equal(answers, expected_answers(tried))
    for row, (folded, digits) in zip(scratch, scratch_of(tried), strict=True):
        assert np.array_equal(row[: len(folded)], folded)
        assert np.array_equal(row[ROOM : ROOM + len(digits)], digits)
