"""CCM's table `Constraints` as its kernel reads it: packed rows in runs, and everything else in one array of words.

A *run* is the rows that one attribute of an event must test.  The table groups its constraints by name; here the rows of a
name are also grouped by type, because a code has one type and cannot satisfy rows of another:

    name 0                              name 1         ...   atom 0   atom 1
    exists | number | string | boolean  exists | ...         all true

An attribute of name n and type t tests the runs "exists" and t of n; an atom (a virtual name, see `vocabulary`) tests its
own run.

A row is one 64-bit word, start in the low half and width in the high half.  Code x satisfies it iff `(x - start) mod 2^32 <=
width`:

    lo <= x <= hi        start = lo        width = hi - lo
    not lo <= x <= hi    start = hi + 1    width = lo - hi - 2 (mod 2^32): wraps around; within its type's run this is `!=`
    exists, atoms        start = 0         width = 2^32 - 1
    in, not in           start = 2^31 + number of the set   width = 0 for `in`, 1 for `not in`

Counters count down and are packed into words as narrowly as the largest filter allows (usually bytes).  A filter is complete
when its counter goes from 1 to 0, so its size need not be looked up.  `absent` and areas are not counted; they are the
*rest* of a filter, which is verified when its counter reaches 0.  A filter without counted constraints is on the list
`always`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.engines.ccm.bloom import filter_names
from mpi_match.engines.ccm.published import TEXT_BITS, VALUE_SHIFT, EventValues, evaluated_rows
from mpi_match.engines.entries import can_serve
from mpi_match.errors import EngineError
from mpi_match.model import Type
from mpi_match.operators import Form
from mpi_match.table.table import Table

SET_ROW = 1 << 31
"""Flag bit in the start of a row that tests a set; all codes and set numbers are below it."""
HAS_REST = 1 << 31
"""Flag bit in the interface of a filter that has an area or an `absent`."""
ALL_CODES = (1 << 32) - 1
NAME_BITS = 32
"""Bits in the vector of a filter's names."""

SECTIONS = (
    "run_offsets",  # [4 n_names + n_atoms + 1] offsets of runs: exists, number, string, boolean of name 0, ...; then atoms
    "segment_ends",  # [2 n_names] for each name, the code of NaN and the last code of a string
    "row_filter",  # [n_rows] filter of each row
    "row_names",  # [n_rows] bits of the names of each row's filter, with phases=3; else empty
    "counters",  # [counter_words] number of constraints to count of each filter, packed
    "interface",  # [n_filters] interface, plus HAS_REST
    "always",  # filters without counted constraints
    "rest_filter",  # [n_rest] filters with HAS_REST, ascending
    "rest_area",  # [n_rest] 1 + number of its area, or 0
    "absent_offsets",  # [n_rest + 1]
    "absent_names",  # names that must be absent
    "set_offsets",  # [n_sets + 1]
    "set_codes",  # ascending within a set
)
"""Sections of the words, in order; word i of the header is the start of section i."""
SECTION = {name: i for i, name in enumerate(SECTIONS)}
N_NAMES, CODE_SHIFT, COUNTER_WORDS, COUNTER_LOG, N_ALWAYS, N_REST, AREAS, ANSWER_WORDS, VALUES, TEXTS = range(
    len(SECTIONS), len(SECTIONS) + 10
)
"""The rest of the header.  COUNTER_LOG: 2^n counters share a word; AREAS: start of the areas in the rows; ANSWER_WORDS:
words of a bit mask; with sat=published, VALUES and TEXTS: start of the values of events and of the bytes of strings."""
CCM_HEADER_WORDS = TEXTS + 1


@dataclass(frozen=True)
class CcmRows:
    """The table of CCM in arrays.

    rows        i64                     packed rows, then x, y and r of each area as the bits of doubles
    words       u32                     header and sections
    longest_of  i32[n_names + n_atoms]  the most rows that one attribute of each name can test
    texts       u8                      with sat=published, bytes of the strings of constraints; else None
    """

    rows: Array
    words: Array
    longest_of: Array
    texts: Array | None = None

    @property
    def shift(self) -> int:
        """Bits of an attribute below its name."""
        return int(self.words[CODE_SHIFT])

    def with_values(self, events: EventValues) -> CcmRows:
        """The table with the values of events and the bytes of all strings behind its rows, for sat=published."""
        assert self.texts is not None
        words, values = self.words.copy(), events.values.copy()
        is_text = values[:, 0] == Type.STRING
        values[is_text, 1] += len(self.texts) << TEXT_BITS
        texts = np.concatenate([self.texts, events.texts])
        padded = np.zeros(-(-len(texts) // 8) * 8, np.uint8)
        padded[: len(texts)] = texts
        words[VALUES], words[TEXTS] = len(self.rows), len(self.rows) + values.size
        return replace(self, rows=np.concatenate([self.rows, values.reshape(-1), padded.view("<i8")]), words=words)

    @property
    def longest_run(self) -> int:
        """Number of rows in the longest run that an attribute can test."""
        return int(self.longest_of.max(initial=0))

    @property
    def counters(self) -> Array:
        """u32[counter_words]: the counters' initial values for an event."""
        start = int(self.words[SECTION["counters"]])
        return self.words[start : start + self.counter_words]

    @property
    def counter_words(self) -> int:
        """Words of one event's counters."""
        return int(self.words[COUNTER_WORDS])

    @property
    def counter_log(self) -> int:
        """The n for which 2^n counters share a word."""
        return int(self.words[COUNTER_LOG])

    @property
    def answer_words(self) -> int:
        """Words of one event's bit mask."""
        return int(self.words[ANSWER_WORDS])


def too_large(table: Table, engine: str) -> str | None:
    """Return the reason why `engine` cannot hold a table, naming an engine that can; None if the table is small enough."""
    v, c = table.vocabulary, table.constraints
    sizes = {
        "codes on one name": int(v.n_codes.max(initial=0)),
        "names and atoms": v.n_names + v.n_atoms,
        "filters": table.n_filters,
        "interfaces": table.n_interfaces,
        "constraints": table.n_constraints,
        "sets": len(c.set_code_offsets),
    }
    for what, n in sizes.items():
        if n >= SET_ROW:
            return f"{engine} cannot hold the table's {n} {what} (at most 2^31 - 1); {can_serve('any size')}"
    return None


def ccm_rows(
    table: Table, engine: str = "ccm", *, by_filter: bool = False, with_names: bool = False, published: bool = False
) -> CcmRows:
    """Lay a table out for the kernels of `engine`.  The rows of a run ascend by kind and operand or, with `by_filter`, by
    filter.

    With `with_names`, the section `row_names` is filled.  With `published`, rows are those of `ccm.published`, and all rows
    of a name, atoms too, are its run "exists".

    Raises EngineError for a table that is `too_large`, or that needs more than 2^32 words.
    """
    if reason := too_large(table, engine):
        raise EngineError(reason)
    v, c = table.vocabulary, table.constraints
    form, name = c.form, c.name_id
    is_atom, is_absent = form == Form.ATOM, form == Form.ABSENT
    plain, atoms = np.flatnonzero(~is_atom & ~is_absent), np.flatnonzero(is_atom)
    atom = v.atom_offsets[name[atoms]] + c.lo[atoms]
    by_atom = np.argsort(atom, kind="stable")
    order = np.concatenate([plain, atoms[by_atom]])
    run = np.concatenate([4 * name[plain] + c.type[plain], 4 * v.n_names + atom[by_atom]])
    if published:
        order = np.flatnonzero(~is_absent)
        run = 4 * name[order]
    if by_filter:
        order = order[np.argsort(run << 32 | c.filter_id[order])]
    run_offsets = offsets_of(np.bincount(run, minlength=4 * v.n_names + v.n_atoms))

    size = np.bincount(c.filter_id[order], minlength=table.n_filters)
    counters, counter_log = _packed_counters(size)
    rest = _rest(table, name, is_absent)
    interface = table.filters.interface.astype(np.uint32)
    interface[rest["rest_filter"]] |= np.uint32(HAS_REST)
    always = np.flatnonzero(size == 0)
    sections = {
        "run_offsets": run_offsets,
        "segment_ends": np.stack([v.segment(Type.NUMBER)[1] + 1, v.segment(Type.STRING)[1]], axis=1).reshape(-1),
        "row_filter": c.filter_id[order],
        "row_names": filter_names(table, NAME_BITS, 1)[0, c.filter_id[order]] if with_names else order[:0],
        "counters": counters,
        "interface": interface,
        "always": always,
        **rest,
        "set_offsets": c.set_code_offsets,
        "set_codes": c.set_codes,
    }
    packed, texts = evaluated_rows(table, order, name) if published else (_packed_rows(table, order, name), None)
    header = np.zeros(CCM_HEADER_WORDS, np.int64)
    header[: len(SECTIONS)] = CCM_HEADER_WORDS + offsets_of(np.array([len(sections[s]) for s in SECTIONS]))[:-1]
    header[N_NAMES], header[CODE_SHIFT] = v.n_names, VALUE_SHIFT if published else v.shift
    header[COUNTER_WORDS], header[COUNTER_LOG] = len(counters), counter_log
    header[N_ALWAYS], header[N_REST] = len(always), len(rest["rest_filter"])
    header[AREAS], header[ANSWER_WORDS] = len(packed), -(-table.n_interfaces // 32)
    if header.max() >= 1 << 32:
        raise EngineError(
            f"{engine} cannot hold the table's {table.n_constraints} constraints of {table.n_filters} filters; "
            f"{can_serve('any size')}"
        )
    words = np.concatenate([header.astype(np.uint32), *(sections[s].astype(np.uint32) for s in SECTIONS)])
    rows = np.concatenate([packed.view(np.int64), np.ascontiguousarray(table.filters.area).reshape(-1).view(np.int64)])
    return CcmRows(rows, words, _longest(run_offsets, v.n_names), texts)


def _packed_rows(table: Table, order: Array, name: Array) -> Array:
    """u64[n_rows]: start and width of the constraints `order`."""
    c = table.constraints
    form, lo, hi = c.form[order], c.lo[order].astype(np.int64), c.hi[order].astype(np.int64)
    start, width = lo.copy(), hi - lo
    differs, listed = form == Form.UNEQUAL, np.isin(form, (Form.IN_LIST, Form.OUT_OF_LIST))
    start[differs], width[differs] = hi[differs] + 1, lo[differs] - hi[differs] - 2
    start[listed] = SET_ROW + c.set_offsets[name[order[listed]]] + lo[listed]
    width[listed] = form[listed] == Form.OUT_OF_LIST
    true = np.isin(form, (Form.EXISTS, Form.ATOM))
    start[true], width[true] = 0, ALL_CODES
    packed: Array = start.astype(np.uint64) | (width & ALL_CODES).astype(np.uint64) << np.uint64(32)
    return packed


def _packed_counters(size: Array) -> tuple[Array, int]:
    """Counters u32 of filters with `size` counted constraints, and the logarithm of the number of counters in a word."""
    largest = int(size.max(initial=0))
    log, dtype = (2, np.uint8) if largest < 1 << 8 else (1, np.uint16) if largest < 1 << 16 else (0, np.uint32)
    padded = np.zeros(-(-len(size) // (1 << log)) << log, dtype)
    padded[: len(size)] = size
    return padded.astype(np.dtype(dtype).newbyteorder("<")).view(np.uint32), log


def _rest(table: Table, name: Array, is_absent: Array) -> dict[str, Array]:
    """The sections that verify a filter whose counter has reached 0: its area, and the names that must be absent."""
    filters, absent_filter = table.filters, table.constraints.filter_id[is_absent]
    rest_filter = np.unique(np.concatenate([filters.area_filter, absent_filter]))
    rest_area = np.zeros(len(rest_filter), np.int64)
    rest_area[np.searchsorted(rest_filter, filters.area_filter)] = 1 + np.arange(len(filters.area_filter))
    at = np.searchsorted(rest_filter, absent_filter)
    return {
        "rest_filter": rest_filter,
        "rest_area": rest_area,
        "absent_offsets": offsets_of(np.bincount(at, minlength=len(rest_filter))),
        "absent_names": name[is_absent][np.argsort(at, kind="stable")],
    }


def _longest(run_offsets: Array, n_names: int) -> Array:
    lengths = np.diff(run_offsets)
    of_names = lengths[: 4 * n_names].reshape(-1, 4)
    found = [of_names[:, 0] + of_names[:, 1:].max(axis=1, initial=0), lengths[4 * n_names :]]
    return np.concatenate(found).astype(np.int32)
