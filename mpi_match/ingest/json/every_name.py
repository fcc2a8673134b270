"""Walks through a line and puts out every attribute, with its dotted name and the position of its value.

It serves events that are kept before the needed names are known (`to_columns`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import load_i64, load_u8, load_u64, store_i64, store_u8, store_u64
from mpi_match.ingest.codes.code_tables import SEED, feed, hash_of, mixed
from mpi_match.ingest.json.text import (
    FLAGGED_LINE,
    SCRATCH_BYTES,
    after_blanks,
    after_margin,
    copied,
    decode_string,
    scan_string,
)
from mpi_match.ingest.json.to_codes import N_WORK_TABLES
from mpi_match.texts.characters import BACKSLASH, CLOSE_BRACE, COLON, COMMA, LINE_FEED, OPEN_BRACE, POINT, QUOTE

MOST_NAMES = 1024
"""Most names of a line, at all depths."""
MOST_DEPTH = 16
"""Most levels of nested objects."""
NAME_HASHES_SEEN, PREFIX_ENDS, PREFIX_HASHES, DOTTED_NAME, N_EVERY_NAME_TABLES = range(N_WORK_TABLES, N_WORK_TABLES + 5)
"""Places in the table of addresses of a thread, behind those of `to_codes`:

    NAME_HASHES_SEEN             u64[SEEN_HEADER + MOST_NAMES]: N_SEEN, how many names the line has had; SEEN_BITS, a bit for
                                 each, by its hash; their hashes
    PREFIX_ENDS, PREFIX_HASHES   i64[MOST_DEPTH], u64[MOST_DEPTH]: length and hash of what names begin with at each depth
    DOTTED_NAME                  u8[SCRATCH_BYTES]: a name without escapes
"""
N_SEEN, SEEN_BITS, SEEN_HEADER = range(3)


@nested
def see(seen: int, hash_: np.uint64) -> bool:
    """Keep a name's hash in NAME_HASHES_SEEN. Returns True if it is new and fits."""
    n, bit = load_i64(seen, N_SEEN), np.uint64(1) << (hash_ >> np.uint64(58))
    bits = load_u64(seen, SEEN_BITS)
    if bits & bit != np.uint64(0):
        for k in range(n):
            if load_u64(seen, SEEN_HEADER + k) == hash_:
                return False
    if n == MOST_NAMES:
        return False
    store_u64(seen, SEEN_HEADER + n, hash_)
    store_i64(seen, N_SEEN, n + 1)
    store_u64(seen, SEEN_BITS, bits | bit)
    return True


def every_name_scanner(  # noqa: C901  one pass over a line
    scan_attribute: Callable[..., tuple[int, int]],
) -> Callable[[int, int, int, int], tuple[int, int]]:
    """The function that scans a line, which `scan_attribute` puts out.

    `scan_attribute(data, at, name, n_attributes, tables, work)` is compiled into it.  It gets the value that begins at `at`,
    which is not an object; its dotted name as address, start, end and hash, which is the last one seen; and the number of
    the row's attributes that are written.  It returns where the value ends (FLAGGED_LINE if it is not certain), and the new
    number of attributes.
    """

    @nested
    def scan_line(data: int, at: int, tables: int, work: int) -> tuple[int, int]:  # noqa: C901
        """Scan the line that begins at `at` of data u8, with a byte that is not a blank, as the next row.

        Returns where it ends, at its line feed, and the number of attributes written after those that are counted.  For a
        line that is not certain the end is FLAGGED_LINE, and the rest is undefined.
        """
        if load_u8(data, at) != OPEN_BRACE:
            return FLAGGED_LINE, 0
        at = after_blanks(data, at + 1)
        dotted, seen = load_i64(work, DOTTED_NAME), load_i64(work, NAME_HASHES_SEEN)
        prefix_ends, prefix_hashes = load_i64(work, PREFIX_ENDS), load_i64(work, PREFIX_HASHES)
        store_i64(seen, N_SEEN, 0)
        store_i64(seen, SEEN_BITS, 0)
        n_attributes = 0
        depth, prefix_end, prefix_hash = 0, 0, SEED
        closing = load_u8(data, at) == CLOSE_BRACE
        while True:
            while closing:
                at += 1
                if depth == 0:
                    at = after_margin(data, at)
                    return (at if load_u8(data, at) == LINE_FEED else FLAGGED_LINE), n_attributes
                depth -= 1
                prefix_end, prefix_hash = load_i64(prefix_ends, depth), load_u64(prefix_hashes, depth)
                at = after_blanks(data, at)
                closing = load_u8(data, at) == CLOSE_BRACE
                if not closing:
                    if load_u8(data, at) != COMMA:
                        return FLAGGED_LINE, 0
                    at = after_blanks(data, at + 1)
            if load_u8(data, at) != QUOTE:
                return FLAGGED_LINE, 0
            start = at + 1
            at, hash_ = scan_string(data, start, prefix_hash)
            source, stop = data, at
            if depth or load_u8(data, at) == BACKSLASH:
                source = dotted
                at, stop = decode_string(data, start, dotted, prefix_end, SCRATCH_BYTES)
                start = 0
                if at == FLAGGED_LINE:
                    return FLAGGED_LINE, 0
                hash_ = hash_of(dotted, prefix_end, stop, prefix_hash)
            elif load_u8(data, at) == QUOTE:
                at += 1
            else:
                return FLAGGED_LINE, 0
            name_hash = mixed(hash_)
            if not see(seen, name_hash):
                return FLAGGED_LINE, 0
            at = after_blanks(data, at)
            if load_u8(data, at) != COLON:
                return FLAGGED_LINE, 0
            at = after_blanks(data, at + 1)
            if load_u8(data, at) == OPEN_BRACE:
                if depth + 1 == MOST_DEPTH or stop - start >= SCRATCH_BYTES:
                    return FLAGGED_LINE, 0
                if source == data:
                    stop = copied(data, start, stop, dotted, 0)
                store_u8(dotted, stop, POINT)
                store_i64(prefix_ends, depth, prefix_end)
                store_u64(prefix_hashes, depth, prefix_hash)
                depth += 1
                prefix_end, prefix_hash = stop + 1, feed(hash_, POINT)
                at = after_blanks(data, at + 1)
                closing = load_u8(data, at) == CLOSE_BRACE
                continue
            at, n_attributes = scan_attribute(data, at, (source, start, stop, name_hash), n_attributes, tables, work)
            if at == FLAGGED_LINE:
                return FLAGGED_LINE, 0
            at = after_blanks(data, at)
            if load_u8(data, at) == COMMA:
                at = after_blanks(data, at + 1)
            elif load_u8(data, at) == CLOSE_BRACE:
                closing = True
            else:
                return FLAGGED_LINE, 0

    return scan_line
