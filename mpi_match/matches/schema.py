"""The content of a file of matches: the answers, or the names of the parts that hold them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mpi_match.arrays.csr import ascends_within, offsets_of, smallest_unsigned
from mpi_match.journal.reader import IDENTITY
from mpi_match.storage.schema import (
    I8,
    TEXT,
    U1,
    U2,
    U4,
    Content,
    Dataset,
    Fault,
    Schema,
    are_distinct_names,
    are_file_names,
    are_text,
    count,
    is_at_least,
    pool,
)


def _are_answers(content: Content) -> Fault:
    """Return a fault unless each event has as many ids as its count says, in ascending order."""
    counts, ids = content.arrays["matches/counts"], content.arrays["matches/ids"]
    n_ids = content.sizes["ids"]
    types = counts.dtype, ids.dtype
    if types != (smallest_unsigned(n_ids), smallest_unsigned(max(n_ids - 1, 0))):
        return "matches/counts and matches/ids do not have the narrowest types"
    if int(counts.sum(dtype=np.int64)) != len(ids):
        return "matches/counts and matches/ids have inconsistent lengths"
    if len(ids) and int(ids.max()) >= n_ids:
        return f"matches/ids holds {int(ids.max()):,}, and there are {n_ids:,}"
    return None if ascends_within(offsets_of(counts), ids[:-1] < ids[1:]) else "matches/ids is not sorted within an event"


def _has_labels_for_all(content: Content) -> Fault:
    n, n_ids = content.sizes["labels"], content.sizes["ids"]
    return None if n in (0, n_ids) else f"there are {n:,} labels for {n_ids:,} ids"


_OF_IDS = pool("labels", "labels", are_text)
_OF_EVENTS = pool("ids", "events", are_text, optional=True)
_TOGETHER = (("ids/data", "ids/offsets"),)
_IDENTITY = tuple(replace(each, optional=each.name.endswith("digest")) for each in IDENTITY)

PARTS = Schema(
    "matches",
    attributes=(*_IDENTITY, count("n_matches")),
    columns=(
        Dataset("answers/part", TEXT, ("parts",), (are_file_names, are_distinct_names)),
        Dataset("answers/bytes", I8, ("parts",), (is_at_least(0),)),
        *_OF_IDS,
        *_OF_EVENTS,
    ),
    together=_TOGETHER,
    without=("matches/counts", "matches/ids"),
    noun="file of matches",
    remedy="match the events again",
)
"""An index of parts; their combined answers are checked like those of a file that holds them itself."""

MATCHES = Schema(
    "matches",
    attributes=(*_IDENTITY, count("n_matches", "matches")),
    columns=(
        Dataset("matches/counts", (U1, U2, U4), ("events",)),
        Dataset("matches/ids", (U1, U2, U4), ("matches",)),
        *_OF_IDS,
        *_OF_EVENTS,
    ),
    rules=(_has_labels_for_all, _are_answers),
    together=_TOGETHER,
    instead={"answers/part": PARTS},
    noun=PARTS.noun,
    remedy=PARTS.remedy,
)
"""A file that holds the answers itself."""
