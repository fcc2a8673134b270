"""The arrays of a table by name: as they are called in a file, in the memory that hosts share, and in a digest.

Each part of a table has a function that names its arrays and one that makes it of them again.  A range of names or of
filters has the same arrays as the whole, so parts of a table are written by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpi_match.arrays.csr import Array, ArraySource
from mpi_match.arrays.strings import Strings
from mpi_match.table.constraints import Constraints
from mpi_match.table.filters import FilterColumns
from mpi_match.table.vocabulary import Vocabulary


def vocabulary_arrays(v: Vocabulary) -> Iterator[tuple[str, Array]]:
    """Datasets of a vocabulary (also of a range of names: a part)."""
    yield from v.names.named("names")
    yield from (("numbers/name_offsets", v.number_offsets), ("numbers/values", v.numbers))
    yield "strings/name_offsets", v.string_offsets
    yield from v.strings.named("strings")
    yield from (("atoms/name_offsets", v.atom_offsets), ("atoms/op", v.atom_op))
    yield from v.atoms.named("atoms")


def constraint_arrays(c: Constraints) -> Iterator[tuple[str, Array]]:
    """Datasets of the constraints (also of a range of names)."""
    yield from (("constraints/name_offsets", c.offsets), ("constraints/kind", c.kind), ("constraints/lo", c.lo))
    yield from (("constraints/hi", c.hi), ("constraints/filter", c.filter_id))
    yield from (("sets/name_offsets", c.set_offsets), ("sets/offsets", c.set_code_offsets), ("sets/codes", c.set_codes))


def filter_arrays(f: FilterColumns) -> Iterator[tuple[str, Array]]:
    """Datasets of the filters (also of a range of filters)."""
    yield from (("filters/size", f.size), ("filters/interface", f.interface))
    yield from (("filters/area_filter", f.area_filter), ("filters/area", f.area))
    yield from (("filters/id_filter", f.id_filter), ("filters/id_data", f.ids.data), ("filters/id_offsets", f.ids.offsets))


def label_arrays(labels: Strings) -> Iterator[tuple[str, Array]]:
    """Datasets of the interfaces (also of a range of them)."""
    yield from labels.named("interfaces")


def read_vocabulary(reader: ArraySource) -> Vocabulary:
    """Only the vocabulary of a table file: all that encoding events needs."""
    return Vocabulary(
        names=Strings.read(reader, "names"),
        number_offsets=reader.array("numbers/name_offsets"),
        numbers=reader.array("numbers/values"),
        string_offsets=reader.array("strings/name_offsets"),
        strings=Strings.read(reader, "strings"),
        atom_offsets=reader.array("atoms/name_offsets"),
        atom_op=reader.array("atoms/op"),
        atoms=Strings.read(reader, "atoms"),
    )


def read_constraints(reader: ArraySource) -> Constraints:
    """What `constraint_arrays` names."""
    return Constraints(
        offsets=reader.array("constraints/name_offsets"),
        kind=reader.array("constraints/kind"),
        lo=reader.array("constraints/lo"),
        hi=reader.array("constraints/hi"),
        filter_id=reader.array("constraints/filter"),
        set_offsets=reader.array("sets/name_offsets"),
        set_code_offsets=reader.array("sets/offsets"),
        set_codes=reader.array("sets/codes"),
    )


def read_filters(reader: ArraySource) -> FilterColumns:
    """What `filter_arrays` names."""
    return FilterColumns(
        size=reader.array("filters/size"),
        interface=reader.array("filters/interface"),
        area_filter=reader.array("filters/area_filter"),
        area=reader.array("filters/area"),
        id_filter=reader.array("filters/id_filter"),
        ids=Strings(reader.array("filters/id_data"), reader.array("filters/id_offsets")),
    )


def read_labels(reader: ArraySource) -> Strings:
    """What `label_arrays` names."""
    return Strings.read(reader, "interfaces")
