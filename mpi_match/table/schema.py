"""The arrays of a table by name, as used in a file, in shared memory and in a digest.

`TABLE` declares type, shape and rules of each.  Each component of a table has a function that names its arrays and one that
assembles it from them.  A range of names or of filters has the same arrays as the whole, so parts of a table are written by
the same functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mpi_match.arrays.csr import Array, ArraySource
from mpi_match.arrays.exact import exact, nearest_doubles, residues
from mpi_match.arrays.strings import Strings
from mpi_match.storage.schema import (
    F8,
    I2,
    I8,
    U1,
    U4,
    Dataset,
    Schema,
    are_distinct,
    are_sorted,
    are_sorted_in,
    are_text,
    ascends,
    ascends_in,
    ascends_strictly,
    count,
    is_among,
    is_below,
    is_csr,
    pool,
)
from mpi_match.table.constraints import Constraints
from mpi_match.table.filters import FilterColumns
from mpi_match.table.metadata import METADATA_DATASETS, METADATA_TYPES
from mpi_match.table.validate import (
    atoms_are_sorted,
    circles_are_circles,
    counts_add_up,
    filters_are_sorted,
    is_needed,
    lists_are_operands,
    names_are_names,
    numbers_are_plain,
    numbers_are_sorted,
    parts_have_their_filters,
    residues_are_residues,
    rows_are_objects,
    rows_are_sorted,
    rows_say_what_operators_can,
    sizes_add_up,
    virtual_names_have_their_constraints,
)
from mpi_match.table.vocabulary import ATOM_OPS, Vocabulary

TABLE = Schema(
    "table",
    attributes=(
        count("n_names", "names"),
        count("n_constraints", "all constraints"),
        count("n_filters", "filters"),
        count("n_interfaces", "interfaces"),
    ),
    columns=(
        *pool("names", "names", are_sorted, names_are_names),
        Dataset("numbers/name_offsets", I8, ("names + 1",), (is_csr("numbers"),)),
        Dataset("numbers/values", F8, ("numbers",), (numbers_are_plain, numbers_are_sorted)),
        Dataset("numbers/residues", I2, ("numbers",), (residues_are_residues,), optional=True),
        Dataset("strings/name_offsets", I8, ("names + 1",), (is_csr("strings"),)),
        *pool("strings", "strings", are_sorted_in("strings/name_offsets")),
        Dataset("atoms/name_offsets", I8, ("names + 1",), (is_csr("atoms"),)),
        Dataset("atoms/op", U1, ("atoms",), (is_among(ATOM_OPS),)),
        *pool("atoms", "atoms", are_text, atoms_are_sorted),
        Dataset("constraints/name_offsets", I8, ("names + 1",), (is_csr("constraints"), counts_add_up)),
        Dataset("constraints/kind", U1, ("constraints",)),
        Dataset("constraints/lo", U4, ("constraints",)),
        Dataset("constraints/hi", U4, ("constraints",)),
        Dataset("constraints/filter", U4, ("constraints",), (is_below("filters"),)),
        Dataset("presence/name_offsets", I8, ("names + 1",), (is_csr("presences"), is_needed), optional=True),
        Dataset("presence/filter", U4, ("presences",), (is_below("filters"), filters_are_sorted), optional=True),
        Dataset("sets/name_offsets", I8, ("names + 1",), (is_csr("sets"),)),
        Dataset("sets/offsets", I8, ("sets + 1",), (is_csr("codes of sets"),)),
        Dataset("sets/codes", U4, ("codes of sets",), (ascends_in("sets/offsets"),)),
        Dataset("filters/size", U4, ("filters",)),
        Dataset("filters/interface", U4, ("filters",), (ascends, is_below("interfaces"))),
        Dataset("filters/area_filter", U4, ("areas",), (ascends_strictly, is_below("filters"))),
        Dataset("filters/area", F8, ("areas", 3), (circles_are_circles,)),
        Dataset("filters/id_filter", U4, ("ids",), (ascends_strictly, is_below("filters"))),
        *pool("filters/id", "ids", are_text, separator="_"),
        *pool("interfaces", "interfaces", are_text, are_sorted),
        *pool("metadata/name", "columns of metadata", are_text, are_distinct, separator="_", optional=True),
        Dataset("metadata/type", U1, ("columns of metadata",), (is_among(METADATA_TYPES),), optional=True),
        *pool("metadata/id", "metadata", are_text, are_sorted, separator="_", optional=True),
        *pool("metadata/row", "metadata", are_text, rows_are_objects, separator="_", optional=True),
    ),
    rules=(
        sizes_add_up,
        rows_are_sorted,
        lists_are_operands,
        rows_say_what_operators_can,
        virtual_names_have_their_constraints,
        parts_have_their_filters,
    ),
    together=(("presence/name_offsets", "presence/filter"), METADATA_DATASETS),
    parts="pieces",
    noun="table",
    remedy="compile it again",
)
"""The content of a table file, in the order of its digest."""
OUTLINE = replace(TABLE, rules=())
"""The same for columns that are read without the others: their rules refer only to their own group."""


def vocabulary_arrays(v: Vocabulary, *, with_residues: bool = False) -> Iterator[tuple[str, Array]]:
    """Datasets of a vocabulary (also of a range of names: a part).

    Residues are left out if no number has one, unless they are wanted for the sake of other ranges.
    """
    yield from v.names.named("names")
    yield from (("numbers/name_offsets", v.number_offsets), ("numbers/values", nearest_doubles(v.numbers)))
    if with_residues or v.numbers.dtype == np.complex128:
        yield "numbers/residues", residues(v.numbers)
    yield "strings/name_offsets", v.string_offsets
    yield from v.strings.named("strings")
    yield from (("atoms/name_offsets", v.atom_offsets), ("atoms/op", v.atom_op))
    yield from v.atoms.named("atoms")


def constraint_arrays(rows: Constraints, *, presence: bool = False, whole: bool = False) -> Iterator[tuple[str, Array]]:
    """Datasets of the constraints (also of a range of names).

    Arrays of rows that only ask for presence are left out if there are none, unless `presence` wants them.  `whole` keeps
    all rows together unless all only ask for presence, so processes that share the columns need not make any of them again.
    """
    c, offsets, filters = rows.split() if rows.only_presence or not whole else (rows, rows.offsets, rows.filter_id[:0])
    yield from (("constraints/name_offsets", c.offsets), ("constraints/kind", c.kind), ("constraints/lo", c.lo))
    yield from (("constraints/hi", c.hi), ("constraints/filter", c.filter_id))
    if presence or len(filters):
        yield from (("presence/name_offsets", offsets), ("presence/filter", filters))
    yield from (("sets/name_offsets", c.set_offsets), ("sets/offsets", c.set_code_offsets), ("sets/codes", c.set_codes))


def filter_arrays(f: FilterColumns) -> Iterator[tuple[str, Array]]:
    """Datasets of the filters (also of a range of filters)."""
    yield from (("filters/size", f.size), ("filters/interface", f.interface))
    yield from (("filters/area_filter", f.area_filter), ("filters/area", f.area))
    yield from (("filters/id_filter", f.id_filter), ("filters/id_data", f.ids.data), ("filters/id_offsets", f.ids.offsets))


def label_arrays(labels: Strings) -> Iterator[tuple[str, Array]]:
    """Datasets of the interfaces (also of a range of them)."""
    yield from labels.named("interfaces")


def exact_numbers(reader: ArraySource) -> Array:
    """The numeric operands as an exact array (`arrays.exact`)."""
    values = reader.array("numbers/values")
    return exact(values, reader.array("numbers/residues")) if "numbers/residues" in reader else values


def read_vocabulary(reader: ArraySource) -> Vocabulary:
    """Only the vocabulary of a table file: all that encoding events needs."""
    return Vocabulary(
        names=Strings.read(reader, "names"),
        number_offsets=reader.array("numbers/name_offsets"),
        numbers=exact_numbers(reader),
        string_offsets=reader.array("strings/name_offsets"),
        strings=Strings.read(reader, "strings"),
        atom_offsets=reader.array("atoms/name_offsets"),
        atom_op=reader.array("atoms/op"),
        atoms=Strings.read(reader, "atoms"),
    )


def read_constraints(reader: ArraySource, n_codes: Array) -> Constraints:
    """The constraints, from the arrays of `constraint_arrays`; `n_codes` i64[n_names] as in `Vocabulary`."""
    others = Constraints(
        offsets=reader.array("constraints/name_offsets"),
        kind=reader.array("constraints/kind"),
        lo=reader.array("constraints/lo"),
        hi=reader.array("constraints/hi"),
        filter_id=reader.array("constraints/filter"),
        set_offsets=reader.array("sets/name_offsets"),
        set_code_offsets=reader.array("sets/offsets"),
        set_codes=reader.array("sets/codes"),
    )
    if "presence/filter" not in reader:
        return others
    return Constraints.joined(others, reader.array("presence/name_offsets"), reader.array("presence/filter"), n_codes)


def read_filters(reader: ArraySource) -> FilterColumns:
    """The filters, from the arrays of `filter_arrays`."""
    return FilterColumns(
        size=reader.array("filters/size"),
        interface=reader.array("filters/interface"),
        area_filter=reader.array("filters/area_filter"),
        area=reader.array("filters/area"),
        id_filter=reader.array("filters/id_filter"),
        ids=Strings(reader.array("filters/id_data"), reader.array("filters/id_offsets")),
    )


def read_labels(reader: ArraySource) -> Strings:
    """The labels, from the arrays of `label_arrays`."""
    return Strings.read(reader, "interfaces")
