"""`Events.encode` in compiled code, by all threads: the same batch for the same events.

Each attribute is looked up in the tables of the vocabulary (`codes.code_tables`), and put in order as the scanner of lines
does.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import compile_once, jit, nested
from mpi_match.compute.memory import AddressTable, constant_i64, load_f64, load_i64, load_u8, load_u32, store_i64
from mpi_match.compute.parallel import at_most, in_stretches, stretches_of
from mpi_match.events.batch import REJECTED, EventBatch
from mpi_match.events.events import Events
from mpi_match.events.lists import ListColumns
from mpi_match.ingest.codes.atoms import begin_row
from mpi_match.ingest.codes.code_tables import (
    BOOLEAN_ELEMENT,
    ELEMENTS,
    JUDGED,
    NAME_IDS,
    NAME_ROLES,
    NOT_FOUND,
    NUMBER_BOUNDS,
    NUMBER_ELEMENT,
    SEED,
    find_name,
    has_atoms,
    hash_of,
    hashed,
    mixed,
    n_atoms_of,
    signed_residue,
)
from mpi_match.ingest.json import to_codes
from mpi_match.ingest.json.event_scanner import LEAST_ROW_BYTES, ThreadArrays, collected, with_encoded
from mpi_match.ingest.json.text import FLAGGED_LINE
from mpi_match.ingest.json.to_codes import (
    AS_ELEMENT,
    AS_VALUE,
    ATTRIBUTE_ENDS,
    MOST_ATOMS,
    MOST_OF_VIEWS,
    N_ATTRIBUTES,
    PACKED_ATTRIBUTES,
    ROW_ATOMS,
    ROWS,
    SCAN_COUNTS,
    end_attributes,
    flag,
    put,
    put_list,
    put_null,
    put_number,
    put_text,
)
from mpi_match.ingest.rows.judge import PLAIN
from mpi_match.model import Type
from mpi_match.table.vocabulary import Vocabulary

(
    _OFFSETS,
    _NAME,
    _TYPE,
    _NUMBER,
    _STRING,
    _STRING_BYTES,
    _STRING_BOUNDS,
    _LIST_OFFSETS,
    _ELEMENT_TYPE,
    _ELEMENT_NUMBER,
    _ELEMENT_STRING,
    _ENTRIES,
) = range(12)
"""Places in the table of addresses of events: their columns, and the entry of each name or NOT_FOUND, i64."""
_IS_NUMBER, _IS_TEXT, _IS_LIST, _IS_NULL = map(int, (Type.NUMBER, Type.STRING, Type.LIST, Type.NULL))
_NO_LISTS = ListColumns.concat(())


class EventsEncoder:
    """Encodes events into the code space of a vocabulary; compiles its functions when it is created."""

    def __init__(self, vocabulary: Vocabulary, threads: int | None = None) -> None:
        self._vocabulary, self._most_threads = vocabulary, threads
        with compile_once("events-encoder-atoms" if has_atoms(vocabulary) else "events-encoder"):
            self._tables = hashed(vocabulary, PLAIN)
            self._n_atoms = n_atoms_of(self._tables)
            self.encode(Events.of([None]))

    def encode(self, events: Events) -> EventBatch:
        """The batch that `events.encode` makes."""
        if self._vocabulary.asks_of_rows:
            return events.encode(self._vocabulary)
        with at_most(self._most_threads):
            offsets, attributes, flagged = self._encode(events)
        if len(flagged):
            attributes = with_encoded(offsets, attributes, flagged, events.take(flagged).encode(self._vocabulary))
        rejected = None if events.rejected is None else events.rejected.astype(REJECTED)
        return EventBatch(offsets, attributes, events.location, self._vocabulary.fingerprint, rejected)

    def _encode(self, events: Events) -> tuple[Array, Array, Array]:
        """Offsets and attributes of all rows, and the rows that are left to `Events.encode`, which have no attributes
        yet."""
        n, lists = len(events), events.lists or _NO_LISTS
        entries = np.empty(len(events.names), np.int64)
        names = AddressTable((events.names.data, events.names.offsets))
        _find_entries(len(entries), names.address, self._tables.address, entries.ctypes.data)
        columns = (events.offsets, events.name, events.type, events.number, events.string)
        strings = (events.strings.data, events.strings.offsets)
        table = AddressTable((*columns, *strings, lists.offsets, lists.type, lists.number, lists.string, entries))
        bounds = [stretch * n // stretches_of(n) for stretch in range(stretches_of(n) + 1)]
        n_elements = _elements_of(events)

        def encode(stretch: int, _: int) -> ThreadArrays:
            start, stop = bounds[stretch], bounds[stretch + 1]
            first, last = int(events.offsets[start]), int(events.offsets[stop])
            most = last - first + (MOST_OF_VIEWS + 1) * int(n_elements[last] - n_elements[first])
            n_atoms, most_atoms = self._n_atoms, 2 * most if self._n_atoms else 0
            while True:
                part = ThreadArrays(LEAST_ROW_BYTES * (stop - start), n_atoms, most_atoms, most)
                _encode_rows(start, stop, table.address, self._tables.address, part.address)
                found = part.count(to_codes.N_ATOMS)
                if found <= most_atoms:
                    return part
                most_atoms = found

        parts = in_stretches(n, encode)
        offsets, attributes, _ = collected(parts, n, self._vocabulary.packed_dtype)
        flagged = [
            start + part.filled(to_codes.FLAGGED, to_codes.N_FLAGGED)[:, 0]
            for start, part in zip(bounds, parts, strict=False)
        ]
        return offsets, attributes, np.concatenate(flagged)


def _elements_of(events: Events) -> Array:
    """i64[m + 1]: the number of elements before each attribute; a scalar counts as one."""
    lengths = np.ones(len(events.type), np.int64)
    if events.lists is not None:
        listed = np.flatnonzero(events.type == Type.LIST)
        lengths[listed] = np.diff(events.lists.offsets)[events.string[listed]]
    return np.append(0, np.cumsum(lengths))


@jit
def _find_entries(n: int, names: int, tables: int, entries: int) -> None:
    """Write the entry of each name."""
    data, bounds = load_i64(names, 0), load_i64(names, 1)
    for i in range(n):
        start, stop = load_i64(bounds, i), load_i64(bounds, i + 1)
        store_i64(entries, i, find_name(data, start, stop, mixed(hash_of(data, start, stop, SEED)), tables))


@nested
def _put_value(
    events: int, value_at: tuple[int, int, int, int], entry: int, as_: int, to: int, n: int, tables: int, work: int
) -> int:
    """Write the codes of a scalar to the attribute with this entry, as `to_codes.put_text` does; `value_at` are
    the types, numbers and strings of values, and its number among them."""
    types, numbers, strings, k = value_at
    type_, value = load_u8(types, k), load_f64(numbers, k)
    if type_ == _IS_TEXT:
        string, bounds = load_u32(strings, k), load_i64(events, _STRING_BOUNDS)
        start, stop, data = load_i64(bounds, string), load_i64(bounds, string + 1), load_i64(events, _STRING_BYTES)
        return put_text((data, start, stop), entry, as_, to, n, tables, work)
    if value == value:
        kind, residue = NUMBER_ELEMENT if type_ == _IS_NUMBER else BOOLEAN_ELEMENT, load_u32(strings, k)
        return put_number((value, signed_residue(residue)), kind, entry, as_, to, n, tables, work)
    name, bounds = load_i64(constant_i64(tables, NAME_IDS), entry), constant_i64(tables, NUMBER_BOUNDS)
    if as_ != AS_VALUE or name == NOT_FOUND:
        return n
    return put(to, n, name, 2 * (load_i64(bounds, name + 1) - load_i64(bounds, name)) + 1, tables)


@nested
def _encode_row(row: int, events: int, tables: int, work: int) -> int:
    """Write the attributes of a row, unordered, after those that are counted.  Returns their number, or FLAGGED_LINE for a
    row that is left to Python."""
    names, offsets, entries = load_i64(events, _NAME), load_i64(events, _OFFSETS), load_i64(events, _ENTRIES)
    roles = constant_i64(tables, NAME_ROLES)
    to = load_i64(work, PACKED_ATTRIBUTES) + 8 * load_i64(load_i64(work, SCAN_COUNTS), N_ATTRIBUTES)
    values = (load_i64(events, _TYPE), load_i64(events, _NUMBER), load_i64(events, _STRING))
    listed = (load_i64(events, _ELEMENT_TYPE), load_i64(events, _ELEMENT_NUMBER), load_i64(events, _ELEMENT_STRING))
    n = 0
    for k in range(load_i64(offsets, row), load_i64(offsets, row + 1)):
        entry = load_i64(entries, load_u32(names, k))
        if entry == NOT_FOUND:
            continue
        role = load_i64(roles, entry)
        if role == JUDGED:
            return FLAGGED_LINE
        if load_u8(values[0], k) == _IS_NULL:
            put_null(entry, AS_VALUE, tables, work)
            continue
        if load_u8(values[0], k) != _IS_LIST:
            n = _put_value(events, (*values, k), entry, AS_VALUE, to, n, tables, work)
            if n == FLAGGED_LINE:
                return n
            continue
        n = put_list(entry, to, n, tables)
        if role == ELEMENTS:
            item, bounds = load_u32(values[2], k), load_i64(events, _LIST_OFFSETS)
            for j in range(load_i64(bounds, item), load_i64(bounds, item + 1)):
                n = _put_value(events, (*listed, j), entry, AS_ELEMENT, to, n, tables, work)
                if n == FLAGGED_LINE:
                    return n
    return n


@jit
def _encode_rows(start: int, stop: int, events: int, tables: int, work: int) -> None:
    """Encode rows, in the form that `scanner.scan_lines` writes."""
    counts = load_i64(work, SCAN_COUNTS)
    for i in range(MOST_ATOMS):
        store_i64(counts, i, 0)
    for row in range(start, stop):
        begin_row(load_i64(work, ROW_ATOMS))
        n = _encode_row(row, events, tables, work)
        if n < 0:
            flag(0, 0, 0, work)
        else:
            end_attributes(n, tables, work)
        store_i64(load_i64(work, ATTRIBUTE_ENDS), row - start, load_i64(counts, N_ATTRIBUTES))
        store_i64(counts, ROWS, row - start + 1)
