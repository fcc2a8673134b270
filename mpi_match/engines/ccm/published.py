"""Constraints and events as values, for `sat=published`: the kernel compares types, operators, numbers and texts itself.

    rows     three words a constraint: operator and type, then the operand (two for `between`)
    values   two words an attribute: its type, then its value
    texts    the bytes of all strings, first those of constraints

A number is the bits of its double, a boolean 0 or 1, a string the position and number of its bytes: `start << TEXT_BITS |
length`.  An attribute of an event is its name and the number of its value, so the values of all events of a run are on the
GPU before the first is matched.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.errors import EngineError
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.operators import Form, Op, Type
from mpi_match.table.kinds import OP_OF_KIND, kinds_where
from mpi_match.table.table import Table
from mpi_match.table.virtual_names import VIEW_MARK
from mpi_match.table.vocabulary import Vocabulary

TEXT_BITS = 24
"""Bits of the length of a string."""
OP_SHIFT = 8
"""Bits of the type in the first word of a row; the operator follows."""
ROW_WORDS, VALUE_WORDS = 3, 2
"""Words of a constraint and of a value."""
VALUE_SHIFT = 32
"""Bits of a value's number in an attribute; the name follows."""
EVALUATED = (
    *(Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.BETWEEN),
    *(Op.PREFIX, Op.SUFFIX, Op.CONTAINS, Op.EXISTS, Op.ABSENT),
)
"""Operators that `sat=published` takes."""

_EXCLUDES_LO, _EXCLUDES_HI = (kinds_where(lambda record, end=end: record.excludes[end]) for end in range(2))  # type: ignore[misc]
_HAS_LO = kinds_where(lambda record: record.has_low)


@dataclass(frozen=True, eq=False)
class EventValues:
    """The values of all events of a run: `values` i64[v, 2], `texts` u8 (see the module)."""

    values: Array
    texts: Array


NO_VALUES = EventValues(np.zeros((0, VALUE_WORDS), np.int64), np.zeros(0, np.uint8))


@dataclass(eq=False, repr=False)
class PublishedBatch(EventBatch):
    """A batch whose attributes are names with the numbers of their values, u64 `name << VALUE_SHIFT | number`."""

    published: EventValues | None = None

    def __getitem__(self, events: slice) -> EventBatch:
        """Events `start` to `stop` as a batch that shares this one's memory."""
        part = super().__getitem__(events)
        return PublishedBatch(
            *(part.offsets, part.attributes, part.location, part.fingerprint),
            rejected=part.rejected,
            published=self.published,
        )


def published_batch(chunks: Iterable[Events], vocabulary: Vocabulary) -> PublishedBatch:
    """Events as they were published, as one batch.  Raises EngineError for rejected rows and inexact numbers."""
    sizes, attributes, values, texts, locations = [], [], [], [], []
    n_values = n_bytes = 0
    for chunk in chunks:
        if chunk.rejected is not None or (chunk.string[chunk.type == Type.NUMBER] != 0).any():
            raise EngineError("sat=published takes events without rejected rows whose numbers are doubles; use sat=codes")
        name = vocabulary.name_ids(chunk.names)[chunk.name]
        event = np.repeat(np.arange(chunk.n_events), np.diff(chunk.offsets))
        kept = np.flatnonzero((name >= 0) & (chunk.type != Type.NULL))
        kept = kept[np.lexsort((name[kept], event[kept]))]
        sizes.append(np.bincount(event[kept], minlength=chunk.n_events))
        attributes.append(name[kept] << VALUE_SHIFT | n_values + np.arange(len(kept)))
        bits = chunk.number[kept].astype(np.float64).view(np.int64)
        is_text, is_boolean = chunk.type[kept] == Type.STRING, chunk.type[kept] == Type.BOOLEAN
        bits[is_boolean] = chunk.number[kept][is_boolean].astype(np.int64)
        bits[is_text] = places_of(chunk.strings, chunk.string[kept][is_text], n_bytes)
        values.append(np.stack([chunk.type[kept].astype(np.int64), bits], axis=1))
        texts.append(chunk.strings.data)
        locations.append(np.full((chunk.n_events, 2), np.nan) if chunk.location is None else chunk.location)
        n_values, n_bytes = n_values + len(kept), n_bytes + len(chunk.strings.data)
    counts = np.concatenate([np.zeros(1, np.int64), *sizes])
    return PublishedBatch(
        np.cumsum(counts).astype(np.uint32),
        np.concatenate([np.zeros(0, np.int64), *attributes]).astype(np.uint64),
        np.concatenate([np.zeros((0, 2)), *locations]),
        vocabulary.fingerprint,
        published=EventValues(
            np.concatenate([np.zeros((0, VALUE_WORDS), np.int64), *values]), np.concatenate([np.zeros(0, np.uint8), *texts])
        ),
    )


def places_of(strings: Strings, chosen: Array, start: int) -> Array:
    """i64: start and length of some strings, whose bytes begin at `start`.  Raises EngineError for a longer one."""
    lengths = np.diff(strings.offsets)[chosen]
    if lengths.max(initial=0) >> TEXT_BITS:
        raise EngineError(f"sat=published takes strings below {1 << TEXT_BITS:,} bytes; use sat=codes")
    found: Array = (start + strings.offsets[:-1][chosen]) << TEXT_BITS | lengths
    return found


def not_evaluated(table: Table) -> str | None:
    """The reason why `sat=published` does not take a table; None if it does."""
    v, c = table.vocabulary, table.constraints
    other = [Op(op).symbol for op in np.unique(OP_OF_KIND[c.kind]) if op not in EVALUATED]
    if other or (len(v.names) and v.names[len(v.names) - 1][:1] >= VIEW_MARK):
        what = f"the operator {other[0]!r}" if other else "views of attributes, or elements of lists"
        return f"the table has {what}, which ccm.sat=published does not evaluate; ccm.sat=codes does"
    if v.numbers.dtype != np.float64:
        return "the table has integers that are not doubles, which ccm.sat=published does not compare; ccm.sat=codes does"
    return None


def evaluated_rows(table: Table, order: Array, name: Array) -> tuple[Array, Array]:
    """Constraints `order` as rows, i64[n * ROW_WORDS], and the bytes u8 of their strings; `name` is that of each."""
    v, c = table.vocabulary, table.constraints
    kind, name = c.kind[order], name[order]
    lo, hi = c.lo[order].astype(np.int64), c.hi[order].astype(np.int64)
    type_, op = c.type[order].astype(np.int64), OP_OF_KIND[kind].astype(np.int64)
    low, high = lo - _EXCLUDES_LO[kind], hi + _EXCLUDES_HI[kind]
    first = np.where(_HAS_LO[kind] | (c.form[order] <= Form.UNEQUAL) | (c.form[order] == Form.PREFIX), low, high)
    found = np.zeros((len(order), ROW_WORDS), np.int64)
    found[:, 0] = type_ | op << OP_SHIFT
    is_atom = c.form[order] == Form.ATOM
    pool = len(v.strings.data)
    for column, code in ((1, first), (2, high)):
        has = ~is_atom & ((op == Op.BETWEEN) | (column == 1))
        mine = np.flatnonzero((type_ == Type.NUMBER) & has)
        at = v.number_offsets[name[mine]] + code[mine] // 2
        found[mine, column] = v.numbers[at].view(np.int64)
        mine = np.flatnonzero((type_ == Type.STRING) & has & (column == 1))
        begin = v.segment(Type.STRING)[0][name[mine]]
        is_empty = (op[mine] == Op.PREFIX) & (code[mine] == begin)
        at = v.string_offsets[name[mine]] + (code[mine] - begin) // 2
        found[mine[~is_empty], column] = places_of(v.strings, at[~is_empty], 0)
        mine = np.flatnonzero((type_ == Type.BOOLEAN) & has)
        found[mine, column] = code[mine] - v.segment(Type.BOOLEAN)[0][name[mine]]
    mine = np.flatnonzero(is_atom)
    found[mine, 1] = places_of(v.atoms, v.atom_offsets[name[mine]] + lo[mine], pool)
    return found.reshape(-1), np.concatenate([v.strings.data, v.atoms.data])
