"""The names that matter, as steps from object to object, for code that walks through a line.

A *node* is an entry of the names (`code_tables`): a name of the vocabulary or of the form, or the beginning of one, up to
one of its points.  A *step* leads from the node of an object, or from the row, by the name of one of its values to another
node:

    a.b.c named    nodes  a, a.b, a.b.c    steps  row -a-> a    row -a.b-> a.b    row -a.b.c-> a.b.c
                                                  a -b-> a.b    a -b.c-> a.b.c    a.b -c-> a.b.c

since a name in an object may have points itself.  A node without steps has no names below it.  Steps are found by the hash
of their bytes, eight at a time, and compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import inlined, jit, nested
from mpi_match.compute.memory import constant_i64, load_i64, load_u8, load_u64, store_i64, store_u64
from mpi_match.compute.vectors import word_at
from mpi_match.texts.characters import BACKSLASH, POINT, QUOTE

STEP_HASH, STEP_FROM, STEP_TO, STEP_FIRST, STEP_LAST, STEP_IS_DOTTED, NAME_STEP_WORDS = range(7)
"""Words of a step: the hash of its bytes; the nodes that it leads from and to; its bytes among those of the names; 1 if they
include a point."""
ROW_NODE, NO_STEP = -1, -1
MOST_POINTS = 64
"""Most points of a name.  With more there would be thousands of steps to it."""
_MIX, _LENGTH = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_29, _32 = np.uint64(29), np.uint64(32)


def dotted(names: Strings, indices: Array) -> list[bytes]:
    """The names at these indices, ascending, that have points."""
    points = np.flatnonzero(names.data == POINT)
    owners = np.unique(np.searchsorted(names.offsets, points, "right") - 1)
    return [names[int(i)] for i in np.intersect1d(owners, indices)]


def beginnings(names: list[bytes]) -> list[bytes]:
    """The beginnings of the names up to each of their points, ascending."""
    return sorted({name[:at] for name in names for at in range(len(name)) if name[at] == POINT})


def step_tables(names: Strings, nodes: Array, of_dotted: dict[bytes, int]) -> tuple[Array, Array, Array, Array]:
    """The tables of steps to the names at the indices `nodes`; `of_dotted` gives that of each name with points, and that of
    each beginning.

    Slots i64 (open addressing, linear probing: a step, or NO_STEP); steps i64[s, NAME_STEP_WORDS]; for each name the node up
    to its last point, or ROW_NODE; and `_beginnings`.
    """
    parents = np.full(len(names), ROW_NODE, np.int64)
    further: list[tuple[int, ...]] = []
    for name, node in of_dotted.items():
        end, above = int(names.offsets[node + 1]), ROW_NODE
        begin = end - len(name)
        points = [at for at in range(len(name)) if name[at] == POINT]
        for point in points:
            above = of_dotted[name[:point]]
            rest = name[point + 1 :]
            further.append((0, above, node, begin + point + 1, end, int(b"." in rest)))
        parents[node] = above
    steps = np.zeros((len(nodes) + len(further), NAME_STEP_WORDS), np.int64)
    steps[: len(nodes), STEP_FROM], steps[: len(nodes), STEP_TO] = ROW_NODE, nodes
    steps[: len(nodes), STEP_FIRST], steps[: len(nodes), STEP_LAST] = names.offsets[nodes], names.offsets[nodes + 1]
    steps[: len(nodes), STEP_IS_DOTTED] = parents[nodes] != ROW_NODE
    steps[len(nodes) :] = np.array(further, np.int64).reshape(-1, NAME_STEP_WORDS)
    slots = np.full(1 << max(2 * len(steps) - 1, 1).bit_length(), NO_STEP, np.int64)
    data = np.ascontiguousarray(names.data)
    _fill(data.ctypes.data, steps.ctypes.data, len(steps), slots.ctypes.data, len(slots) - 1)
    return slots, steps, parents, _beginnings(data, steps)


def _beginnings(names: Array, steps: Array) -> Array:
    """u64[2^10]: a bit for each two bytes that a step's name in JSON, with its closing quote, may begin with, the first byte
    in the lower eight bits of the bit's number; a name with an escape there may be that of any step."""
    first, last = steps[:, STEP_FIRST], steps[:, STEP_LAST]
    bytes_ = np.append(names, np.zeros(2, np.uint8))
    one = np.where(last - first > 0, bytes_[first], QUOTE)
    two = np.where(last - first > 1, bytes_[first + 1], QUOTE)
    begins = np.zeros((2**8, 2**8), bool)  # of the second byte and the first
    begins[two, one] = begins[BACKSLASH, :] = begins[:, BACKSLASH] = True
    begins[:, QUOTE] = bool((one == QUOTE).any())
    return np.packbits(begins.reshape(-1), bitorder="little").view(np.uint64)


@inlined
def begins_step(data: int, at: int, beginnings: int) -> bool:
    """Tells if the name that begins at byte `at`, behind its quote, may be that of a step (`_beginnings`)."""
    begin = load_u8(data, at) | load_u8(data, at + 1) << 8
    return bool(load_u64(beginnings, begin >> 6) >> np.uint64(begin & 63) & np.uint64(1) != np.uint64(0))


@nested
def _fed(hash_: np.uint64, word: np.uint64) -> np.uint64:
    hash_ = (hash_ ^ word) * _MIX
    return hash_ ^ (hash_ >> _32)


def step_functions(word: Callable[[Any, Any, Any], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`hash_of_step(data, start, stop, node)` and `find_step(data, start, stop, node, slots, steps, mask, names)`.

    The latter finds the step from a node by the name data[start:stop], or NO_STEP, in the tables at these addresses; `word`
    is one of `vectors`.
    """

    @nested
    def hash_of_step(data: int, start: int, stop: int, node: int) -> np.uint64:
        hash_, at = np.uint64(node + 2) * _MIX ^ np.uint64(stop - start) * _LENGTH, start
        while stop - at > 8:
            hash_ = _fed(hash_, word(data, at, 8))
            at += 8
        hash_ = _fed(hash_, word(data, at, stop - at)) * _MIX
        return hash_ ^ (hash_ >> _29)

    @nested
    def is_same(data: int, start: int, stop: int, names: int, first: int) -> bool:
        while stop - start > 8:
            if word(data, start, 8) != word(names, first, 8):
                return False
            start += 8
            first += 8
        return bool(word(data, start, stop - start) == word(names, first, stop - start))

    @nested
    def find_step(data: int, start: int, stop: int, node: int, slots: int, steps: int, mask: np.uint64, names: int) -> int:
        hash_ = hash_of_step(data, start, stop, node)
        slot = hash_ & mask
        while True:
            step = constant_i64(slots, slot)
            if step == NO_STEP:
                return NO_STEP
            found = steps + 8 * NAME_STEP_WORDS * step
            if load_u64(found, STEP_HASH) == hash_ and constant_i64(found, STEP_FROM) == node:
                first, last = constant_i64(found, STEP_FIRST), constant_i64(found, STEP_LAST)
                if last - first == stop - start and is_same(data, start, stop, names, first):
                    return step
            slot = (slot + np.uint64(1)) & mask

    return hash_of_step, find_step


_hash_of_step, _ = step_functions(word_at)


@jit
def _fill(names: int, steps: int, n_steps: int, slots: int, mask: int) -> None:
    """Fill the hashes of steps, and the slots."""
    for step in range(n_steps):
        found = steps + 8 * NAME_STEP_WORDS * step
        hash_ = _hash_of_step(names, load_i64(found, STEP_FIRST), load_i64(found, STEP_LAST), load_i64(found, STEP_FROM))
        store_u64(found, STEP_HASH, hash_)
        slot = hash_ & np.uint64(mask)
        while load_i64(slots, slot) != NO_STEP:
            slot = (slot + np.uint64(1)) & np.uint64(mask)
        store_i64(slots, slot, step)
