"""The content of an event table: events as published, and encoded for a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mpi_match.arrays.csr import Array, owners
from mpi_match.arrays.exact import RESIDUE, are_split
from mpi_match.model import Type
from mpi_match.storage.schema import (
    F8,
    I8,
    U1,
    U4,
    U8,
    Content,
    Dataset,
    Fault,
    Schema,
    are_distinct,
    are_text,
    ascends_strictly,
    count,
    digest,
    is_among,
    is_at_least,
    is_below,
    is_csr,
    pool,
)

BLOCK_EVENTS = 2**16
"""Events in a block: the encoded columns have one checksum, and one 64-bit start, for each."""
LIST_COLUMNS = ("lists/offsets", "lists/type", "lists/number", "lists/string")
_SCALARS = (Type.NUMBER, Type.STRING, Type.BOOLEAN)


def _are_points(name: str, content: Content) -> Fault:
    """Finite, or NaN twice."""
    location = content.arrays[name]
    is_point, is_none = np.isfinite(location).all(axis=1), np.isnan(location).all(axis=1)
    return None if bool((is_point | is_none).all()) else "holds a location that is neither two numbers nor none"


def _are_values(content: Content) -> Fault:
    """Unused fields are 0: only a number and a boolean have a number, only a string and a list have a string; and a number
    has the residue of an integer in place of a string.
    """
    arrays = content.arrays
    for group in ("events", "lists"):
        if f"{group}/type" not in arrays:
            continue
        type_, number, string = (arrays[f"{group}/{column}"] for column in ("type", "number", "string"))
        has_number, is_boolean = np.isin(type_, (Type.NUMBER, Type.BOOLEAN)), type_ == Type.BOOLEAN
        if np.any(number[~has_number] != 0) or not np.isin(number[is_boolean], (0, 1)).all():
            return f"{group}/number holds a value that the attribute's type does not have"
        if np.any(string[is_boolean | (type_ == Type.NULL)] != 0) or not _are_residues(number, string, type_ == Type.NUMBER):
            return f"{group}/string holds a number that is none of the strings, and no residue"
        for indexed, pool_ in ((Type.STRING, "strings"), (Type.LIST, "lists")):
            used = string[type_ == indexed]
            if len(used) and int(used.max()) >= content.sizes.get(pool_, 0):
                return f"{group}/string holds a number that is none of the {pool_}"
    return None


def _are_residues(number: Array, string: Array, is_number: Array) -> bool:
    """Tells whether every number in `string` is the residue, modulo 2^16, of an integer with that nearest double."""
    some = np.flatnonzero(is_number & (string != 0))
    return bool((string[some] < 2**16).all() and are_split(number[some], string[some].astype(RESIDUE)).all())


def _names_are_distinct(content: Content) -> Fault:
    """An event has each attribute once."""
    event = owners(content.arrays["events/offsets"]).astype(np.uint64)
    named = np.sort(event << np.uint64(32) | content.arrays["events/name"])
    return "events/name holds a name twice in an event" if np.any(named[1:] == named[:-1]) else None


def _rejected_rows_are_empty(content: Content) -> Fault:
    """A rejected row has no attributes, location or id."""
    arrays = content.arrays
    rejected = arrays.get("events/rejected")
    if rejected is None:
        return None
    if np.diff(arrays["events/offsets"])[rejected].any():
        return "events/rejected names a row that has attributes"
    if "events/location" in arrays and not np.isnan(arrays["events/location"][rejected]).all():
        return "events/rejected names a row that has a location"
    if "ids/offsets" in arrays and np.diff(arrays["ids/offsets"])[rejected].any():
        return "events/rejected names a row that has an id"
    return None


RAW = Schema(
    "events",
    attributes=(count("n_events", "events"), digest("vocabulary")),
    columns=(
        Dataset("events/offsets", I8, ("events + 1",), (is_csr("attributes"),)),
        Dataset("events/name", U4, ("attributes",), (is_below("names"),)),
        Dataset("events/type", U1, ("attributes",), (is_among((*_SCALARS, Type.LIST, Type.NULL)),)),
        Dataset("events/number", F8, ("attributes",)),
        Dataset("events/string", U4, ("attributes",)),
        *pool("names", "names", are_text, are_distinct),
        *pool("strings", "strings", are_text, are_distinct),
        Dataset("events/location", F8, ("events", 2), (_are_points,), optional=True),
        Dataset("events/rejected", I8, ("rejected",), (ascends_strictly, is_at_least(0), is_below("events")), optional=True),
        *pool("ids", "events", are_text, optional=True),
        Dataset("lists/offsets", I8, ("lists + 1",), (is_csr("elements"),), optional=True),
        Dataset("lists/type", U1, ("elements",), (is_among(_SCALARS),), optional=True),
        Dataset("lists/number", F8, ("elements",), optional=True),
        Dataset("lists/string", U4, ("elements",), optional=True),
    ),
    together=(LIST_COLUMNS,),
    rules=(_are_values, _names_are_distinct, _rejected_rows_are_empty),
    noun="event table",
    remedy="compile the events again",
)
"""The columns as they were published."""

EVENTS = replace(
    RAW,
    columns=(
        *RAW.columns,
        *pool("left_out", "left out", are_text, optional=True),
        Dataset("left_out/events", I8, ("left out",), (is_at_least(0),), optional=True),
        Dataset("encoded/offsets", U4, ("events + 1",), ranged=True),
        Dataset("encoded/attributes", (U4, U8), ("encoded attributes",), ranged=True),
        Dataset("encoded/location", F8, ("events", 2), optional=True, ranged=True),
        Dataset("encoded/block_attributes", I8, ("blocks + 1",), (is_csr("encoded attributes"),)),
        Dataset("encoded/block_crc32", U4, ("blocks",)),
    ),
    rules=(),
    derived={"blocks": lambda sizes: -(-sizes["events"] // BLOCK_EVENTS)},
    together=(
        ("events/location", "encoded/location"),
        ("ids/data", "ids/offsets"),
        ("left_out/data", "left_out/offsets"),
        LIST_COLUMNS,
    ),
    parts="files",
)
"""All columns of a file.  The encoded columns are checked in blocks, when they are used."""
