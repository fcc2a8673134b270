"""Encodes events of typed columns into code space, in compiled code, by all threads.

    temp      31.0  25.5  19.0           codes      7   4   2
    city      0     -     1  Milan Turin            9   -  12       events 7 9 | 4 | 2 12

Some thousand events are encoded at a time, so that a cache holds them: first the present entries are found, then the columns
are encoded one after the other, in the order of the vocabulary's names.  Each code goes behind those that its event has
already, which is the order of attributes: nothing is sorted.  A dictionary is encoded once and its codes are gathered.
Atoms are searched for once in every entry of a dictionary; their virtual names, and those of nulls, follow all others.
Where all operands of a name are integers, and close together, a table has the codes of all integers from one below the least
to the greatest, and of what is between two of them: one look-up instead of a search.

    operands 3 5 6      integer   2    3    4    5    6
                        codes     0 0  1 2  2 2  3 4  5 6

The codes are those of `Events.encode`.  The encoder judges no row: those that the reader of the columns doubts
(`ColumnChunk.doubted`) get no attributes.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import compile_once, jit, nested
from mpi_match.compute.memory import (
    load_f64,
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    store_i64,
    store_u32,
    store_u64,
)
from mpi_match.compute.parallel import at_most, in_stretches, stretches_of
from mpi_match.events.batch import EventBatch
from mpi_match.ingest.codes.atoms import (
    ATOM_ROOTS,
    ATOMS_FOUND,
    FOUND_HEADER,
    FOUND_WORDS,
    NO_STATE,
    begin_row,
    find_atoms,
    found_atom,
)
from mpi_match.ingest.codes.code_tables import (
    STRING_SEEDS,
    code_among,
    code_of_boolean,
    code_of_string,
    feed,
    hashed,
    mixed,
    n_atoms_of,
    operands_of_name,
)
from mpi_match.ingest.columns.exact_integers import compile_check
from mpi_match.ingest.columns.typed import ColumnChunk, TypedColumn, Validity
from mpi_match.ingest.rows.judge import PLAIN
from mpi_match.model import Type
from mpi_match.table.vocabulary import Vocabulary

_BLOCK_EVENTS = 2**11
"""Events that are encoded together, so that a cache holds their codes."""
_MOST_STEPS, _GREATEST_STEP = 2**12, 2**31
"""Most integers of a table of codes, and the greatest integer in one: below that, doubles between integers exist."""
_LEAST_EVENTS = 2**14
"""Number of events below which a table of codes does not pay."""


class ColumnEncoder:
    """Encodes columns into the code space of a vocabulary; compiles when it is created.

    `location` names the columns of x and y; in a row that is not doubted, both are finite numbers, or both are missing.
    """

    def __init__(self, vocabulary: Vocabulary, location: tuple[str, str] | None = None, threads: int | None = None) -> None:
        self._vocabulary, self._location, self._most_threads = vocabulary, location, threads
        with compile_once("column-encoder"):
            self._tables = hashed(vocabulary, PLAIN)
            self._roots = self._tables.arrays[ATOM_ROOTS]
            self._steps: dict[int, _Steps] = {}
            compile_check()
            for doubted in (None, np.zeros(0, bool)):  # both ways to encode
                self.encode(ColumnChunk(0, {}, doubted))
            if np.any(self._roots != NO_STATE):
                self._atoms(Strings.of([b""]), int(self._roots[self._roots != NO_STATE][0]))

    def encode(self, chunk: ColumnChunk) -> EventBatch:
        """The events of a chunk.  Columns that no constraint names are left out."""
        with at_most(self._most_threads):
            return self._encode(chunk)

    def _encode(self, chunk: ColumnChunk) -> EventBatch:
        n, plan = chunk.n_events, _Plan()
        of_names = {i: name for name in chunk.columns if (i := self._vocabulary.name_id(name.encode())) >= 0}
        for i in sorted(of_names):
            column = chunk.columns[of_names[i]]
            self._add(plan, i, column, n)
            if column.nulls is not None and self._vocabulary.null_atoms[i] >= 0:
                plan.add_nulls(self._vocabulary.n_names + int(self._vocabulary.null_atoms[i]), column.nulls)
        rows = plan.rows()
        doubted = 0 if chunk.doubted is None else chunk.doubted.ctypes.data
        columns = (rows.ctypes.data, len(rows), doubted)
        bounds = [stretch * n // stretches_of(n) for stretch in range(stretches_of(n) + 1)]

        def count(stretch: int, _: int) -> int:
            work = _Work(len(rows))
            return int(_count(bounds[stretch], bounds[stretch + 1], columns, work.addresses[:3]))

        is_whole = plan.is_whole and chunk.doubted is None
        if is_whole:
            starts = np.array(bounds) * len(rows)
        else:
            starts = offsets_of(np.array(in_stretches(n, count), np.int64))
        offsets, attributes = np.empty(n + 1, np.uint32), np.empty(int(starts[-1]), self._vocabulary.packed_dtype)
        offsets[0] = 0
        to = (offsets.ctypes.data, attributes.ctypes.data, attributes.itemsize == 4)
        how = (self._tables.address, self._vocabulary.shift, self._vocabulary.n_names)

        def encode(stretch: int, _: int) -> None:
            start, stop, first = bounds[stretch], bounds[stretch + 1], int(starts[stretch])
            if is_whole:
                _encode_whole(start, stop, columns, how, first, to)
            else:
                work = _Work(len(rows))
                _encode_events(start, stop, columns, how, work.addresses, first, to)

        in_stretches(n, encode)
        return EventBatch(offsets, attributes, chunk.locations(self._location), self._vocabulary.fingerprint)

    def _add(self, plan: _Plan, name: int, column: TypedColumn, n_events: int) -> None:
        """Add the column of a name, with the codes of a dictionary's entries, and with the atoms of strings."""
        entry_codes = None
        if column.indices is not None:
            n, entries = len(column.values), _Plan()
            entries.add(name, column._replace(indices=None, validity=None))
            entry_codes = np.empty(n, np.uint32)
            _encode_entries(n, entries.rows().ctypes.data, self._tables.address, entry_codes.ctypes.data)
        atoms = None
        if column.type is Type.STRING and self._roots[name] != NO_STATE:
            atoms = self._atoms(cast(Strings, column.values), int(self._roots[name]))
        steps = _NO_STEPS
        if column.type is Type.NUMBER and column.indices is None and n_events >= _LEAST_EVENTS:
            steps = self._steps.get(name) or self._steps.setdefault(name, _steps_of(self._vocabulary, name))
        plan.add(name, column, entry_codes, atoms, steps)

    def _atoms(self, strings: Strings, root: int) -> tuple[Array, Array]:
        """The atoms of a name that each string satisfies: offsets i64[n + 1], and atoms i64, ascending for each."""
        n, n_atoms = len(strings), n_atoms_of(self._tables)
        where = ((strings.data.ctypes.data, strings.offsets.ctypes.data), root, self._tables.address)
        counts = np.zeros(n, np.int64)

        def find(stretch: int, n_stretches: int, to: tuple[int, int, int]) -> None:
            found = np.zeros(FOUND_HEADER + FOUND_WORDS * n_atoms, np.int64)
            start, stop = stretch * n // n_stretches, (stretch + 1) * n // n_stretches
            _find_all(start, stop, *where, found.ctypes.data, to)

        in_stretches(n, find, (counts.ctypes.data, 0, 0))
        starts = offsets_of(counts)
        atoms = np.empty(int(starts[-1]), np.int64)
        if len(atoms):
            in_stretches(n, find, (0, starts.ctypes.data, atoms.ctypes.data))
        return starts, atoms


(
    _TYPE,
    _NAME,
    _VALUES,
    _STRING_OFFSETS,
    _INDEX,
    _ENTRY_CODES,
    _BITS,
    _FIRST_BIT,
    _ATOM_OFFSETS,
    _ATOMS,
    _LAYOUT,
    _STEP_CODES,
    _FIRST_STEP,
    _LAST_STEP,
    _PLAN_WORDS,
) = range(15)
"""Words of a column in a plan: its type and name; addresses, or 0: its values, and offsets of strings; its index and the
codes u32 of a dictionary's entries; its validity, with a first bit; the atoms of each entry; the layout of its
numbers; `_Steps`.  Nulls are a column of their own, behind that which they are of: the name of their atom, and which entries
are nulls as the validity."""
_OF_NULLS = int(Type.NULL)
DOUBLES, INTEGERS, PAIRS = range(3)
"""Layouts of numbers: f64; i64; f64[·, 2], the nearest double and the residue (`arrays.exact`) of each."""


def layout_of(column: TypedColumn) -> int:
    """The layout of the numbers of a column."""
    return PAIRS if column.has_residues else INTEGERS if column.has_integers else DOUBLES


class _Steps(NamedTuple):
    """Codes u32[2 * (last - first + 1)] of the integers from `first` to `last`, each followed by the code of the values
    between it and the next one; None for a name without such a table.
    """

    codes: Array | None
    first: int = 0
    last: int = 0


_NO_STEPS = _Steps(None)


def _steps_of(vocabulary: Vocabulary, name: int) -> _Steps:
    """Those of a name."""
    operands = vocabulary.numbers[int(vocabulary.number_offsets[name]) : int(vocabulary.number_offsets[name + 1])].real
    if not 0 < len(operands) <= _MOST_STEPS or max(-operands[0], operands[-1]) > _GREATEST_STEP:
        return _NO_STEPS
    if operands[-1] - operands[0] >= _MOST_STEPS - 1 or np.any(operands != np.floor(operands)):
        return _NO_STEPS
    first, last = int(operands[0]) - 1, int(operands[-1])
    numbers = np.arange(2 * (last - first + 1)) / 2 + first
    return _Steps(vocabulary.number_codes(np.full(len(numbers), name), numbers).astype(np.uint32), first, last)


class _Work:
    """The scratch arrays of a thread for a block: the present entries of each column, their numbers, sizes and ends of
    events, and codes."""

    def __init__(self, n_columns: int) -> None:
        n = _BLOCK_EVENTS
        present, sizes = np.empty((n_columns, n), np.uint32), np.empty(n, np.uint32)
        self._kept = present, np.empty(n_columns, np.int64), sizes, np.empty(n, np.int64), np.empty(n, np.uint32)
        self.addresses: tuple[int, int, int, int, int] = tuple(each.ctypes.data for each in self._kept)  # type: ignore[assignment]


class _Plan:
    """Columns for compiled code, in the order of their names; keeps the arrays behind the addresses alive.

    is_whole   tells whether every event has an entry in each column, and no atoms
    """

    def __init__(self) -> None:
        self._words: list[list[int]] = []
        self._kept: list[Array] = []
        self.is_whole = True

    def add(
        self,
        name: int,
        column: TypedColumn,
        entry_codes: Array | None = None,
        atoms: tuple[Array, Array] | None = None,
        steps: _Steps = _NO_STEPS,
    ) -> None:
        values, offsets = (
            (column.values.data, column.values.offsets) if isinstance(column.values, Strings) else (column.values, None)
        )
        bits, first_bit = column.validity or (None, 0)
        before = [self._address(array) for array in (values, offsets, column.indices, entry_codes, bits)]
        behind = [self._address(array) for array in atoms or (None, None)]
        numbers = [layout_of(column), self._address(steps.codes), steps.first, steps.last]
        self._words.append([int(column.type), name, *before, first_bit, *behind, *numbers])
        self.is_whole &= bits is None and atoms is None

    def add_nulls(self, name: int, nulls: Validity) -> None:
        """Add the nulls of a column, with the name of the atom that they satisfy."""
        row = [0] * _PLAN_WORDS
        row[_TYPE], row[_NAME], row[_BITS], row[_FIRST_BIT] = _OF_NULLS, name, self._address(nulls.bits), nulls.first_bit
        self._words.append(row)
        self.is_whole = False

    def _address(self, array: Array | None) -> int:
        if array is None:
            return 0
        self._kept.append(np.ascontiguousarray(array))
        return self._kept[-1].ctypes.data

    def rows(self) -> Array:
        """i64[columns, _PLAN_WORDS]."""
        self._kept.append(np.array(self._words, np.int64).reshape(-1, _PLAN_WORDS))
        return self._kept[-1]


@nested
def _is_there(column: int, i: int) -> bool:
    """Tells whether entry i of a column is present."""
    bits, bit = load_i64(column, _BITS), load_i64(column, _FIRST_BIT) + i
    return bits == 0 or (load_u8(bits, bit >> 3) >> (bit & 7)) & 1 != 0


@nested
def _count_bits(bits: int, start: int, stop: int) -> int:
    """The number of bits that are set."""
    n, i = 0, start
    while i < stop:
        byte = load_u8(bits, i >> 3)
        if i & 7 == 0 and i + 8 <= stop:
            byte -= (byte >> 1) & 0x55
            byte = (byte & 0x33) + ((byte >> 2) & 0x33)
            n += (byte + (byte >> 4)) & 0x0F
            i += 8
        else:
            n += (byte >> (i & 7)) & 1
            i += 1
    return n


@nested
def _find_present(start: int, stop: int, column: int, doubted: int, to: int) -> int:
    """Write the numbers of the present entries, in rows that are not doubted, to u32. Returns how many there are."""
    bits, first_bit, n, i = load_i64(column, _BITS), load_i64(column, _FIRST_BIT), 0, start
    while i < stop:
        if bits != 0 and (first_bit + i) & 7 == 0 and load_u8(bits, (first_bit + i) >> 3) == 0:
            i += 8  # bits beyond the last entry are those of no entry
            continue
        if _is_there(column, i) and (doubted == 0 or load_u8(doubted, i) == 0):
            store_u32(to, n, i)
            n += 1
        i += 1
    return n


@nested
def _code_of(column: int, i: int, tables: int) -> int:
    """The code of entry i, which is present; its column does not hold numbers."""
    if load_i64(column, _INDEX) != 0:
        return load_u32(load_i64(column, _ENTRY_CODES), load_i32(load_i64(column, _INDEX), i))
    type_, name, values = load_i64(column, _TYPE), load_i64(column, _NAME), load_i64(column, _VALUES)
    if type_ == Type.STRING:
        offsets = load_i64(column, _STRING_OFFSETS)
        first, last, hash_ = load_i64(offsets, i), load_i64(offsets, i + 1), load_u64(load_i64(tables, STRING_SEEDS), name)
        for k in range(first, last):
            hash_ = feed(hash_, load_u8(values, k))
        return code_of_string(name, values, first, last, mixed(hash_), tables)
    return code_of_boolean(name, load_u8(values, i), tables)


@nested
def _step_of(value: float, first: int, last: int) -> int:
    """The index of the code of a number, not NaN, in `_Steps.codes`."""
    within = min(max(value, np.float64(first)), np.float64(last))
    floor = int(within)
    floor -= int(np.float64(floor) > within)
    return 2 * (floor - first) + int(np.float64(floor) != value)


@nested
def _put(to: tuple[int, int, int, int, bool], j: int, code: int) -> None:
    """Write code number j of a column.  `to`: an array, the index of the first code, and the distance of two codes; the bits
    before those of a code; whether items are u32, else u64.
    """
    array, first, step, name, is_narrow = to
    if is_narrow:
        store_u32(array, first + j * step, name | code)
    else:
        store_u64(array, first + j * step, np.uint64(name | code))


@nested
def _write_codes(column: int, entries: int, start: int, n: int, tables: int, to: tuple[int, int, int, int, bool]) -> None:
    """Write the codes of n present entries of a column: those at `entries`, u32, or, if that is 0, those from `start` on;
    `to` as in `_put`."""
    if load_i64(column, _TYPE) != Type.NUMBER or load_i64(column, _INDEX) != 0:
        for j in range(n):
            _put(to, j, _code_of(column, load_u32(entries, j) if entries != 0 else start + j, tables))
        return
    operands, values = operands_of_name(load_i64(column, _NAME), tables), load_i64(column, _VALUES)
    of_nan, layout = 2 * (operands[2] - operands[1]) + 1, load_i64(column, _LAYOUT)
    by_step, first, last = load_i64(column, _STEP_CODES), load_i64(column, _FIRST_STEP), load_i64(column, _LAST_STEP)
    if by_step != 0 and layout == INTEGERS:
        for j in range(n):
            value = load_i64(values, load_u32(entries, j) if entries != 0 else start + j)
            step = min(max(value, first), last)
            _put(to, j, load_u32(by_step, 2 * (step - first) + int(step != value)))
        return
    if by_step != 0 and layout == DOUBLES:
        for j in range(n):
            number = load_f64(values, load_u32(entries, j) if entries != 0 else start + j)
            _put(to, j, load_u32(by_step, _step_of(number, first, last)) if number == number else of_nan)
        return
    if layout == PAIRS:
        for j in range(n):
            i = load_u32(entries, j) if entries != 0 else start + j
            number, residue = load_f64(values, 2 * i), load_f64(values, 2 * i + 1)
            _put(to, j, code_among(number, residue, operands, tables) if number == number else of_nan)
        return
    for j in range(n):
        i = load_u32(entries, j) if entries != 0 else start + j
        number = np.float64(load_i64(values, i)) if layout == INTEGERS else load_f64(values, i)
        _put(to, j, code_among(number, 0.0, operands, tables) if number == number else of_nan)


@jit
def _encode_entries(n: int, column: int, tables: int, codes: int) -> None:
    """Write the codes u32 of the entries of a dictionary."""
    _write_codes(column, 0, 0, n, tables, (codes, 0, 1, 0, True))


@nested
def _atoms_of(column: int, i: int) -> tuple[int, int]:
    """The first atom of entry i, which is present, and the one after its last."""
    index, offsets = load_i64(column, _INDEX), load_i64(column, _ATOM_OFFSETS)
    entry = load_i32(index, i) if index != 0 else i
    return load_i64(offsets, entry), load_i64(offsets, entry + 1)


@nested
def _find_all_present(start: int, stop: int, columns: tuple[int, int, int], work: tuple[int, int, int]) -> int:
    """Find the present entries of a block: write those of each column, and their number, and count the attributes of each
    event, including atoms."""
    plan, n_columns, doubted = columns
    present, n_present, sizes = work
    total = 0
    for i in range(stop - start):
        store_u32(sizes, i, 0)
    for k in range(n_columns):
        column, mine = plan + 8 * _PLAN_WORDS * k, present + 4 * _BLOCK_EVENTS * k
        n, with_atoms = _find_present(start, stop, column, doubted, mine), load_i64(column, _ATOM_OFFSETS) != 0
        store_i64(n_present, k, n)
        total += n
        for j in range(n):
            i, size = load_u32(mine, j), 1
            if with_atoms:
                first, last = _atoms_of(column, i)
                size += last - first
                total += last - first
            store_u32(sizes, i - start, load_u32(sizes, i - start) + size)
    return total


@jit
def _count(start: int, stop: int, columns: tuple[int, int, int], work: tuple[int, int, int]) -> int:
    """The number of attributes of some events, including atoms.

    `columns`: the address of the plan, its columns, and that of the marks of doubted rows, or 0; `work` as in
    `_find_all_present`.
    """
    plan, n_columns, doubted = columns
    by_bits, total = doubted == 0, 0
    for k in range(n_columns):
        by_bits &= load_i64(plan + 8 * _PLAN_WORDS * k, _ATOM_OFFSETS) == 0
    if by_bits:
        for k in range(n_columns):
            column = plan + 8 * _PLAN_WORDS * k
            bits, first_bit = load_i64(column, _BITS), load_i64(column, _FIRST_BIT)
            total += _count_bits(bits, first_bit + start, first_bit + stop) if bits != 0 else stop - start
        return total
    for block in range(start, stop, _BLOCK_EVENTS):
        total += _find_all_present(block, min(block + _BLOCK_EVENTS, stop), columns, work)
    return total


@nested
def _append(attributes: int, ends: int, i: int, packed: int, is_narrow: bool) -> None:
    """Append an attribute to those of event i; `ends` has the end of these."""
    at = load_i64(ends, i)
    _put((attributes, at, 0, 0, is_narrow), 0, packed)
    store_i64(ends, i, at + 1)


@jit
def _encode_whole(
    start: int,
    stop: int,
    columns: tuple[int, int, int],
    how: tuple[int, int, int],
    first: int,
    to: tuple[int, int, bool],
) -> None:
    """`_encode_events` for events that all have an entry in each column, and no atoms."""
    plan, n_columns, _ = columns
    tables, shift, _ = how
    offsets, attributes, is_narrow = to
    for block in range(start, stop, _BLOCK_EVENTS):
        n, at = min(_BLOCK_EVENTS, stop - block), first + (block - start) * n_columns
        for i in range(n):
            store_u32(offsets, block + i + 1, at + (i + 1) * n_columns)
        for k in range(n_columns):
            column = plan + 8 * _PLAN_WORDS * k
            name = load_i64(column, _NAME) << shift
            _write_codes(column, 0, block, n, tables, (attributes, at + k, n_columns, name, is_narrow))


@jit
def _encode_events(
    start: int,
    stop: int,
    columns: tuple[int, int, int],
    how: tuple[int, int, int],
    work: tuple[int, int, int, int, int],
    first: int,
    to: tuple[int, int, bool],
) -> None:
    """Write the attributes of some events, from attribute `first` on, and where each event ends.

    `columns` as in `_count`; `how`: address of the tables, bits of a code, number of names; `work`: as in
    `_find_all_present`, the ends of events, i64, and codes of a column, u32; `to`: offsets u32[n + 1], attributes, whether
    these are u32.
    """
    plan, n_columns, _ = columns
    tables, shift, n_names = how
    present, n_present, sizes, ends, codes = work
    offsets, attributes, is_narrow = to
    at = first
    for block in range(start, stop, _BLOCK_EVENTS):
        end = min(block + _BLOCK_EVENTS, stop)
        _find_all_present(block, end, columns, (present, n_present, sizes))
        for i in range(end - block):
            store_i64(ends, i, at)
            at += load_u32(sizes, i)
            store_u32(offsets, block + i + 1, at)
        for k in range(n_columns):
            column, mine = plan + 8 * _PLAN_WORDS * k, present + 4 * _BLOCK_EVENTS * k
            name, n = load_i64(column, _NAME) << shift, load_i64(n_present, k)
            if load_i64(column, _TYPE) == _OF_NULLS:
                continue
            _write_codes(column, mine, 0, n, tables, (codes, 0, 1, 0, True))
            for j in range(n):
                _append(attributes, ends, load_u32(mine, j) - block, name | load_u32(codes, j), is_narrow)
        for k in range(n_columns):
            column, mine = plan + 8 * _PLAN_WORDS * k, present + 4 * _BLOCK_EVENTS * k
            if load_i64(column, _TYPE) == _OF_NULLS:
                name = load_i64(column, _NAME) << shift
                for j in range(load_i64(n_present, k)):
                    _append(attributes, ends, load_u32(mine, j) - block, name, is_narrow)
            elif load_i64(column, _ATOM_OFFSETS) != 0:
                for j in range(load_i64(n_present, k)):
                    i = load_u32(mine, j)
                    low, high = _atoms_of(column, i)
                    for atom in range(low, high):
                        name = n_names + load_i64(load_i64(column, _ATOMS), atom)
                        _append(attributes, ends, i - block, name << shift, is_narrow)


@jit
def _find_all(
    start: int, stop: int, strings: tuple[int, int], root: int, tables: int, found: int, to: tuple[int, int, int]
) -> None:
    """Find the atoms of some strings, given as bytes and offsets i64.

    `to`: their counts i64[n]; or, if that is 0, where those of each string begin, i64[n + 1], and the atoms, which ascend.
    """
    data, offsets = strings
    counts, starts, atoms = to
    for i in range(start, stop):
        begin_row(found)
        find_atoms(root, data, load_i64(offsets, i), load_i64(offsets, i + 1), tables, found)
        n = load_i64(found, ATOMS_FOUND)
        if counts != 0:
            store_i64(counts, i, n)
            continue
        first = load_i64(starts, i)
        for k in range(n):
            atom, at = found_atom(found, k), first + k
            while at > first and load_i64(atoms, at - 1) > atom:
                store_i64(atoms, at, load_i64(atoms, at - 1))
                at -= 1
            store_i64(atoms, at, atom)
