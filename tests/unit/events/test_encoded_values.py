"""The checks of encoded events, with NumPy and in compiled code, beside a plain reading of what they check."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from mpi_match.arrays.csr import Array
from mpi_match.events import encoded
from mpi_match.events.encoded import Sound
from mpi_match.events.events import Events
from mpi_match.model import make_event, make_filter
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

VOCABULARY = Table.from_filters([make_filter("i", [[name, "=", value]]) for name in "abc" for value in (1, 2, 3)]).vocabulary


def is_sound(offsets: list[int], attributes: list[int], vocabulary: Vocabulary) -> bool:
    ends = [(each - offsets[0]) % 2**32 for each in offsets]
    names = [each >> vocabulary.shift for each in attributes]
    codes = [each & (2**vocabulary.shift - 1) for each in attributes]
    n_codes = vocabulary.n_codes.tolist()
    return (
        ends == sorted(ends)
        and ends[-1] == len(attributes)
        and all(before < after for start, stop in pairwise(ends) for before, after in pairwise(names[start:stop]))
        and all(name < len(n_codes) and code < n_codes[name] for name, code in zip(names, codes, strict=True))
    )


def changed(offsets: Array, attributes: Array, generator: random.Random) -> tuple[Array, Array]:
    """The columns with up to two values altered, moved behind 2^32, or cut."""
    offsets, attributes = offsets + np.uint32(generator.choice((0, 2**32 - 5))), attributes.copy()
    for _ in range(generator.randrange(3)):
        column = generator.choice((offsets, attributes))
        at = generator.randrange(len(column))
        column[at] = generator.choice(
            (int(column[generator.randrange(len(column))]), int(column[at]) ^ 1, generator.getrandbits(20))
        )
    return offsets, attributes[: len(attributes) - (generator.random() < 0.1)]


@pytest.mark.parametrize("few", [2**16, 0], ids=["NumPy", "compiled"])
def test_altered_columns_are_found(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded, "FEW_ATTRIBUTES", few)
    generator, sound = random.Random(1), Sound(VOCABULARY)
    found = {True: 0, False: 0}
    for _ in range(400):
        published = [{name: generator.randrange(5) for name in "abc" if generator.random() < 0.6} for _ in range(6)]
        batch = Events.of([make_event({"a": 1}), *map(make_event, published)]).encode(VOCABULARY)
        offsets, attributes = changed(batch.offsets, batch.attributes, generator)
        expected = is_sound(offsets.tolist(), attributes.tolist(), VOCABULARY)
        assert sound.has(offsets, attributes) == expected, (offsets, attributes)
        found[expected] += 1
    assert min(found.values()) > 50
