"""The arrays that are bound for `cpu_search.match_blocks`, each declared once, with its type and number of dimensions.

In compiled code `search_arrays.blocks(bound)` is the array.  Those of the type of attributes take that type:
`search_arrays.words(bound, dtype)`.
"""

from __future__ import annotations

import numpy as np

from mpi_match.compute.array_pointers import DeclaredArrays

APART = 16
"""Words between the rows of two threads, so that they do not write to the same cache line."""

ARRAYS = DeclaredArrays()

t32 = ARRAYS.declare(np.uint32)
t64 = ARRAYS.declare(np.uint64)
"""`KeyedIndex.views`."""
words = ARRAYS.declare()
"""`KeyedIndex.words`."""
blocks = ARRAYS.declare(np.uint64)
circles = ARRAYS.declare(np.float64)
records = ARRAYS.declare(np.uint32)
"""The blocks of a `Grid`, and its slots as f64 and as u32."""
checks = ARRAYS.declare()
"""`LiveFilters.words`."""
sub_buckets = ARRAYS.declare(np.uint8)
"""`Grid.sub_buckets`."""
levels = ARRAYS.declare(np.int64)
"""The levels in use."""
by_name = ARRAYS.declare(None, 2)
sparse = ARRAYS.declare(np.int64, 2)
waiting = ARRAYS.declare(np.int64, 3)
members = ARRAYS.declare(np.int64, 3)
node_levels = ARRAYS.declare(np.int64, 3)
slots = ARRAYS.declare(np.int64, 2)
lists = ARRAYS.declare(np.int64, 2)
seen = ARRAYS.declare(np.int64, 2)
"""Scratch, `by_name` and these, with a row for each thread; between events `by_name` holds no attribute."""
n_interfaces = ARRAYS.declare(np.int64)
"""The number of interfaces; a row of `seen` has more words."""
column_of_name = ARRAYS.declare(np.int32)
bin_bounds = ARRAYS.declare(np.int64)
n_bins = ARRAYS.declare(np.int64)
first_row = ARRAYS.declare(np.int64)
"""`Bins` (`column_of_name` and these), without columns if there is no bitmap."""
row_places = ARRAYS.declare(np.int64, 2)
"""Scratch, a row for each thread."""
position_bits = ARRAYS.declare(np.uint64)
position_summary = ARRAYS.declare(np.uint64, 2)
positions = ARRAYS.declare(np.uint32)
position_filters = ARRAYS.declare(np.uint32)
position_interfaces = ARRAYS.declare(np.uint32)
position_words = ARRAYS.declare()
"""`Bitmap`."""
later_bits = ARRAYS.declare(np.uint64)
later_summary = ARRAYS.declare(np.uint64, 2)
later_positions = ARRAYS.declare(np.uint32)
later_filters = ARRAYS.declare(np.uint32)
later_interfaces = ARRAYS.declare(np.uint32)
"""`LiveBitmap`; its checks are `checks`."""
verified = ARRAYS.declare(np.int64, 2)
"""A row for each thread, whose first word counts candidates."""
id_marks = ARRAYS.declare(np.uint64, 2)
"""Scratch, a row for each thread: a bit for each id, 0 between events (`sort_ids`)."""
blocks_to_match = ARRAYS.declare(np.int64)
"""Numbers of the blocks to match."""
n_taken = ARRAYS.declare(np.int64)
"""The number of blocks taken, 0 at first."""
places = ARRAYS.declare(np.int64)
counts = ARRAYS.declare(np.int64)
ids = ARRAYS.declare(np.uint32)
"""Output, see `AnswerBlocks`."""
