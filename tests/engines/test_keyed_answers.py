"""Blocks of events that are answered: more answers than room, and the room of the next batch."""

from __future__ import annotations

import numpy as np
import pytest
from random_tables import judged

from mpi_match.arrays.csr import Array
from mpi_match.engines import open_engine
from mpi_match.engines.keyed.answers import CPU_ANSWER_ROOM, AnswerBlocks
from mpi_match.engines.keyed.cpu_search import match_blocks

BLOCK = 4


def answered(blocks: AnswerBlocks, sizes: list[int]) -> int:
    """Have events with so many answers answered, and compare these; returns how often a block was matched."""
    calls: list[int] = []

    def match(todo: Array, places: Array, counts: Array, ids: Array) -> None:
        calls.extend(todo.tolist())
        for block in todo:
            at = places[block]
            for event in range(BLOCK * block, min(BLOCK * (block + 1), len(sizes))):
                counts[event] = sizes[event]
                room = max(min(places[block + 1] - at, sizes[event]), 0)
                ids[at : at + room] = 100 * event + np.arange(room)
                at += sizes[event]

    counts, ids = blocks.match(len(sizes), np.dtype(np.uint16), match)
    assert ids.dtype == np.uint16
    assert counts.tolist() == sizes
    assert ids.tolist() == [100 * event + i for event, size in enumerate(sizes) for i in range(size)]
    return len(calls)


@pytest.mark.parametrize(("many", "again"), [(CPU_ANSWER_ROOM + 1, 2), (50, 3)])
def test_a_batch_like_the_last_one_is_matched_once(many: int, again: int) -> None:
    """The last block, of three events, has room for one answer more of each."""
    blocks, sizes = AnswerBlocks(BLOCK), [many] * 11
    assert answered(blocks, sizes) == 3 + again
    assert answered(blocks, sizes) == 3


def test_a_block_of_more_answers_than_the_others_is_matched_again_alone() -> None:
    blocks, sizes = AnswerBlocks(BLOCK), [1] * 36 + [90] * 4
    assert [answered(blocks, sizes), answered(blocks, sizes)] == [11, 11]
    assert answered(blocks, []) == 0


def test_read_only_events_are_matched_by_the_same_code() -> None:
    """To Numba they are of another type, for which it would compile the search once more."""
    case = judged("numbers")
    engine, batch = open_engine("keyed", case.table), case.batch[:]
    assert engine.match(batch) == case.interfaces
    signatures = list(match_blocks.signatures)
    for array in (batch.offsets, batch.attributes):
        array.flags.writeable = False
    try:
        assert engine.match(batch) == case.interfaces
    finally:
        for array in (batch.offsets, batch.attributes):
            array.flags.writeable = True
    assert match_blocks.signatures == signatures
