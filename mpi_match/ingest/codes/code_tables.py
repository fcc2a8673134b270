"""A vocabulary as flat look-up tables, for compiled code that encodes events from their bytes.

    names      open addressing, linear probing: hash of a dotted name -> its entry; entries are the vocabulary's names and
               those that an `EventForm` names, each with its id (-1: no constraint uses it) and its role
    numbers    the operands of a name divided into as many buckets of equal width; a bucket knows its first operand
    strings    open addressing: hash of (name, operand) -> operand; what is not found is searched for among the name's
               sorted operands

A hash only says where to look: bytes are compared.  Everything is exact, `code_of_number` and `code_of_string` are the codes
of `Vocabulary.number_codes` and `Vocabulary.string_code`.
"""

from __future__ import annotations

from bisect import bisect_left
from weakref import WeakKeyDictionary

import numpy as np

from mpi_match.arrays.csr import Array, owners
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.memory import AddressTable, any_u64, constant_i64, is_on_cpu, load_f64, load_i64, load_u8, load_u64
from mpi_match.compute.vectors import reversed_bytes, word_at
from mpi_match.ingest.codes.atoms import NO_STATE, Tries, automaton, names_with_tries
from mpi_match.ingest.codes.element_atoms import (
    BEGINNINGS_ROOT,
    N_TABLES_SO_FAR,
    NO_RECORD,
    PATTERN_ROOT,
    TRIE_ROOT,
    ElementTables,
    element_tables,
)
from mpi_match.ingest.codes.name_steps import MOST_POINTS, beginnings, dotted, step_tables
from mpi_match.ingest.codes.numbers import NUMBER_TABLES
from mpi_match.ingest.codes.patterns import LITERAL_BOUNDS, Pattern, pattern_tables
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.model import Op, Type, View
from mpi_match.operators import PATTERN_OPS
from mpi_match.table.virtual_names import EVERY_NAME, VIEW_MARK, forms_of, prefix_of, view_name
from mpi_match.table.vocabulary import ATOM_OPS, Vocabulary

NO_ROLE, X, Y, ID, ELEMENTS, JUDGED = range(6)
"""Roles of an attribute: those in an `EventForm` (X and Y stay attributes, ID does not); ELEMENTS for one with
virtual names or views; JUDGED for one with these and another role, or with operators that only Python evaluates."""
NOT_FOUND = -1
_JUDGED_OPS = frozenset(op for op in ATOM_OPS if op.record.is_judged) - PATTERN_OPS
"""The operators on texts that only Python evaluates."""

SEED = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_LONG_BYTES = 64
"""Bytes of the shortest string that is searched for, not hashed, among few operands."""
_KEY_BYTES = 8
_OF_EVERY_STRING, _OF_BEGINNINGS = 32.0, 2.0**-40
"""Shares of the tries that read every string of an event, and of those that need no rows (`atoms.automaton`)."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_29, _32 = np.uint64(29), np.uint64(32)


(
    NAME_SLOTS,
    NAME_HASHES,
    NAME_BYTES,
    NAME_BOUNDS,
    NAME_IDS,
    NAME_ROLES,
    NUMBERS,
    NUMBER_RESIDUES,
    NUMBER_BOUNDS,
    BUCKET_FIRST,
    BUCKET_LOW,
    BUCKET_SCALE,
    STRING_SLOTS,
    STRING_HASHES,
    STRING_BYTES,
    STRING_BOUNDS,
    STRING_SEEDS,
    OPERAND_BOUNDS,
    ELEMENT_SEEDS,
    ELEMENT_HEADS,
    ELEMENT_OWNERS,
    STEP_SLOTS,
    NAME_STEPS,
    NODE_PARENTS,
    STEP_BEGINNINGS,
    NODE_SHAPES,
    VIEW_ENTRIES,
    HAS_PATTERNS,
    LONGEST_OPERANDS,
    OPERAND_KEYS,
    SCALARS,
) = range(N_TABLES_SO_FAR, N_TABLES_SO_FAR + 31)
"""Places in the table of addresses, behind those of numbers, atoms and elements, for v names, e entries, s string operands:

    NAME_SLOTS, NAME_HASHES        i64[slots]: entry, or NOT_FOUND; u64[e]
    NAME_BYTES, NAME_BOUNDS        u8, i64[e + 1]
    NAME_IDS, NAME_ROLES           i64[e]
    NUMBERS, NUMBER_RESIDUES       f64: nearest doubles and residues (`model.split`) of the operands in the vocabulary; the
                                   latter empty where HAS_RESIDUES is 0
    NUMBER_BOUNDS                  i64[v + 1]
    BUCKET_FIRST                   i64: the first operand of each bucket of each name, and the end of its last
    BUCKET_LOW, BUCKET_SCALE       f64[v]: a value is in bucket (value - low) * scale, or in the first or last
    STRING_SLOTS, STRING_HASHES    i64[slots]: operand, or NOT_FOUND; u64[s]
    STRING_BYTES, STRING_BOUNDS    u8, i64[s + 1]
    STRING_SEEDS                   u64[v]: the hash that a name's strings begin with
    OPERAND_BOUNDS                 i64[v + 1]: the string operands of each name
    ELEMENT_SEEDS, ELEMENT_HEADS   u64[e, N_ELEMENT_TYPES], i64[e]: of an attribute with the role ELEMENTS, the hash that its
                                   names of `any =` begin with, for each type of elements, and the bytes before the element
    ELEMENT_OWNERS                 i64[e]: of such a name, N_ELEMENT_TYPES * the attribute's entry + type; else NOT_FOUND
    STEP_SLOTS, NAME_STEPS, NODE_PARENTS, STEP_BEGINNINGS
                                   as `name_steps.step_tables` makes them
    NODE_SHAPES                    i64[e]: what is looked at of a value with this name: 0, or the sum of IS_NAMED, HAS_MORE
                                   and IS_SCOPED
    VIEW_ENTRIES                   i64[e, N_VIEW_WORDS]: of an attribute with the role ELEMENTS, the entry of each of its
                                   views, or NOT_FOUND; HAS_VIEWS is 1 if it has some
    HAS_PATTERNS                   i64[v]: 1 for a name with patterns
    LONGEST_OPERANDS               i64[v]: bytes of the longest string operand of each name, -1 for a name without
    OPERAND_KEYS                   u64[s]: the first eight bytes of each string operand, zeros behind it, the first highest
    SCALARS                        u64: NAME_MASK, STRING_MASK, CODE_BITS, LOCATED, HAS_IDS, VOCABULARY_SIZE, STEP_MASK,
                                   ALL_JUDGED, HAS_RESIDUES, EVERY_STRING_ENTRY, JOINED_ROOT
"""
TEXT_ELEMENT, NUMBER_ELEMENT, BOOLEAN_ELEMENT, N_ELEMENT_TYPES = range(4)
(
    NAME_MASK,
    STRING_MASK,
    CODE_BITS,
    LOCATED,
    HAS_IDS,
    VOCABULARY_SIZE,
    STEP_MASK,
    ALL_JUDGED,
    HAS_RESIDUES,
    EVERY_STRING_ENTRY,
    JOINED_ROOT,
) = range(11)
"""Masks for numbers of slots; bits of a code in a packed attribute; 1 if the form names a location, an id; v; 1 if every
line is flagged (`name_steps.MOST_POINTS`); 1 if some operand has a residue; the entry of the list of all strings, or
NO_ENTRY if no filter asks for it; the root of the trie of these, if they are only folded and searched for strings that they
contain, so that they may be searched as one text, or else NO_ENTRY."""
NO_ENTRY = np.uint64(2**64 - 1)
HAS_VIEWS, FOLD_VIEW, IP_VIEW, TIME_VIEW, N_VIEW_WORDS = range(5)
_VIEW_WORDS = {View.FOLD: FOLD_VIEW, View.IP: IP_VIEW, View.TIME: TIME_VIEW}
IS_NAMED, HAS_MORE, IS_SCOPED = 1, 2, 4
"""Flags of a name: a value with it is an attribute; names go on in an object with it; filters ask for one object of a list
with it."""


_MADE: WeakKeyDictionary[Vocabulary, dict[EventForm, AddressTable]] = WeakKeyDictionary()


def hashed(vocabulary: Vocabulary, form: EventForm) -> AddressTable:
    """The tables of a vocabulary, for events of a form.  They are made once and live as long as the vocabulary."""
    made = _MADE.setdefault(vocabulary, {})
    if form not in made:
        made[form] = _tables_of(vocabulary, form)
    return made[form]


def n_atoms_of(tables: AddressTable) -> int:
    """Number of atoms, those of elements and the literals of patterns included, in the tables of a vocabulary."""
    return len(tables.arrays[LITERAL_BOUNDS]) - 1


def has_atoms(vocabulary: Vocabulary) -> bool:
    """Tells whether there are such atoms, before the tables are made."""
    return vocabulary.n_atoms > 0 or any(first.op is not Op.EQ for first, _, _ in forms_of(vocabulary.names))


def _tables_of(vocabulary: Vocabulary, form: EventForm) -> AddressTable:
    of_elements = element_tables(vocabulary)
    special: dict[bytes, int] = {}
    bases = list(dict.fromkeys(first.base for first, _, _ in forms_of(vocabulary.names)))
    for name, role in zip((*(form.location or (None, None)), form.id), (X, Y, ID), strict=True):
        if name is not None:
            special[name.encode(errors="surrogatepass")] = role
    for base in dict.fromkeys((*bases, *vocabulary.views)):
        special[base] = ELEMENTS if base not in special else JUDGED
    special.update(dict.fromkeys((*vocabulary.names_with_atoms(_JUDGED_OPS), *of_elements.judged), JUDGED))
    for base, views in vocabulary.views.items():
        if JUDGED in (special.get(view_name(base, view)) for view in views):
            special[base] = JUDGED
    attributes = [name for name in special if not name.startswith(VIEW_MARK)]
    n_attributes = bisect_left(vocabulary.names, VIEW_MARK)
    with_points = dotted(vocabulary.names, np.arange(n_attributes)) + [name for name in attributes if b"." in name]
    all_judged = special.get(EVERY_NAME) == JUDGED or any(name.count(b".") > MOST_POINTS for name in with_points)
    above = [] if all_judged else beginnings(with_points)
    known = {name: vocabulary.name_id(name) for name in (*special, *above, *with_points)}
    fresh = [name for name, name_id in known.items() if name_id < 0]
    names, strings = Strings.concat([vocabulary.names, Strings.of(fresh)]), vocabulary.strings
    entry = {**known, **{name: vocabulary.n_names + i for i, name in enumerate(fresh)}}
    ids, roles = np.arange(len(names)), np.full(len(names), NO_ROLE, np.int64)
    ids[vocabulary.n_names :] = NOT_FOUND
    for text, role in special.items():
        roles[entry[text]] = role
        if role == ID:
            ids[entry[text]] = NOT_FOUND
    seeds = _seeds(vocabulary.n_names)
    name_slots, name_hashes = _hash_table(names, np.full(len(names), SEED))
    string_slots, string_hashes = _hash_table(strings, seeds[owners(vocabulary.string_offsets)])
    low, scale = _bucket_widths(vocabulary)
    first = _bucket_first(vocabulary, low, scale)
    named = form.location is not None, form.id is not None
    masks = (len(name_slots) - 1, len(string_slots) - 1)
    has_residues = vocabulary.numbers.dtype == np.complex128
    numbers = (
        *(vocabulary.numbers.real, vocabulary.numbers.imag if has_residues else np.zeros(0)),
        *(vocabulary.number_offsets, first, low, scale),
    )
    texts = (string_slots, string_hashes, strings.data, strings.offsets, seeds, vocabulary.string_offsets)
    elements = _elements(vocabulary, entry, len(names))
    fresh_nodes = [entry[name] for name in fresh if not name.startswith(VIEW_MARK)]
    nodes = np.append(np.arange(n_attributes), np.array(fresh_nodes, np.int64))
    shapes = np.zeros(len(names), np.int64)
    shapes[:n_attributes] |= IS_NAMED
    shapes[[entry[name] for name in attributes]] |= IS_NAMED
    shapes[[entry[name] for name in above]] |= HAS_MORE
    for path in vocabulary.scopes.paths if not all_judged else ():
        shapes[entry[path.encode()]] |= IS_SCOPED  # the beginning of a name that a constraint has
    pointed = {} if all_judged else {name: entry[name] for name in (*above, *with_points) if b"." in name or name in above}
    steps = step_tables(names, nodes, pointed)
    every = np.uint64(entry[EVERY_NAME]) if vocabulary.asks_every_string else NO_ENTRY
    last = (len(steps[0]) - 1, all_judged, has_residues, every, _joined_root(vocabulary, of_elements))
    scalars = np.array([*masks, vocabulary.shift, *named, vocabulary.n_names, *last], np.uint64)
    of_names = (name_slots, name_hashes, names.data, names.offsets, ids, roles)
    columns = (*of_names, *numbers, *texts, *elements, *steps, shapes, _views(vocabulary, entry, len(names)))
    records = np.full(len(names), NO_RECORD, np.int64)
    for base, record in of_elements.records.items():
        records[entry[base]] = record
    atom_names = np.append(vocabulary.n_names + np.arange(vocabulary.n_atoms), of_elements.atom_names)
    tries = Tries.concat([Tries.of_atoms(vocabulary), of_elements.tries])
    has_patterns, patterns = _patterns(vocabulary)
    of_records = of_elements.tables[0][:, PATTERN_ROOT]
    of_records[of_records != NO_STATE] += tries.n_tries
    patterns += [each._replace(trie=tries.n_tries + each.trie) for each in of_elements.patterns]
    n_tries = tries.n_tries + 1 + max((each.trie for each in of_elements.patterns), default=-1)
    folds = any(View.FOLD in views for views in vocabulary.views.values())
    tries, of_patterns = pattern_tables(patterns, tries._replace(n_tries=n_tries), len(atom_names), folds)
    longest = np.full(vocabulary.n_names, -1, np.int64)
    np.maximum.at(longest, owners(vocabulary.string_offsets), np.diff(strings.offsets).astype(np.int64))
    shares = _shares(of_elements, tries.n_tries)
    found = (*automaton(vocabulary, tries, atom_names, shares), *of_patterns)
    return AddressTable(
        (*NUMBER_TABLES, *found, records, *of_elements.tables, *columns, has_patterns, longest, _keys(strings), scalars)
    )


def _joined_root(vocabulary: Vocabulary, of_elements: ElementTables) -> np.uint64:
    """JOINED_ROOT."""
    folded = view_name(EVERY_NAME, View.FOLD)
    forms = [(first, stop - start) for first, start, stop in forms_of(vocabulary.names) if first.base.endswith(EVERY_NAME)]
    is_folded = vocabulary.views.get(EVERY_NAME) == [View.FOLD] and len(forms) == 1 and forms[0][0].base == folded
    is_plain = any(vocabulary.name_id(each) >= 0 for each in (EVERY_NAME, folded))
    if not is_folded or is_plain or forms[0][0].op is not Op.CONTAINS or not forms[0][0].rest:
        return NO_ENTRY
    return np.uint64(of_elements.tables[0][of_elements.records[folded], TRIE_ROOT])


def _shares(of_elements: ElementTables, n_tries: int) -> Array:
    """The shares of tries for `automaton`."""
    shares, records = np.ones(n_tries), of_elements.tables[0]
    every_string = [record for base, record in of_elements.records.items() if base.endswith(EVERY_NAME)]
    for roots, share in (
        (records[every_string][:, [TRIE_ROOT, PATTERN_ROOT]], _OF_EVERY_STRING),
        (records[:, BEGINNINGS_ROOT], _OF_BEGINNINGS),
    ):
        shares[roots[roots != NO_STATE]] = share
    return shares


def _keys(strings: Strings) -> Array:
    """OPERAND_KEYS."""
    first, length = strings.offsets[:-1].astype(np.int64), np.diff(strings.offsets).astype(np.int64)
    bytes_, keys = np.append(strings.data, np.zeros(_KEY_BYTES, np.uint8)), np.zeros(len(strings), np.uint64)
    for k in range(_KEY_BYTES):
        keys = keys << np.uint64(8) | np.where(k < length, bytes_[first + k], 0).astype(np.uint64)
    return keys


def _patterns(vocabulary: Vocabulary) -> tuple[Array, list[Pattern]]:
    """i64[v]: 1 for each name with patterns; and the patterns of all names."""
    has_patterns, names_of_tries = np.zeros(vocabulary.n_names, np.int64), names_with_tries(vocabulary)
    atoms = np.flatnonzero(np.isin(vocabulary.atom_op, sorted(PATTERN_OPS)))
    names = np.searchsorted(vocabulary.atom_offsets, atoms, side="right") - 1
    has_patterns[names] = 1
    tries = np.searchsorted(names_of_tries, names)
    of_atoms = zip(tries.tolist(), atoms.tolist(), strict=True)
    return has_patterns, [Pattern(k, atom, Op(vocabulary.atom_op[atom]), vocabulary.atoms[atom]) for k, atom in of_atoms]


def _views(vocabulary: Vocabulary, entry: dict[bytes, int], n_entries: int) -> Array:
    """VIEW_ENTRIES; `entry` of each attribute with views, and of views that have virtual names."""
    entries = np.full((n_entries, N_VIEW_WORDS), NOT_FOUND, np.int64)
    entries[:, HAS_VIEWS] = 0
    for base, views in vocabulary.views.items():
        entries[entry[base], HAS_VIEWS] = 1
        for view in views:
            name = view_name(base, view)
            entries[entry[base], _VIEW_WORDS[view]] = entry[name] if name in entry else vocabulary.name_id(name)
    return entries


def _elements(vocabulary: Vocabulary, entry: dict[bytes, int], n_entries: int) -> tuple[Array, Array, Array]:
    """ELEMENT_SEEDS, ELEMENT_HEADS and ELEMENT_OWNERS; `entry` of each attribute with virtual names."""
    seeds, heads = np.zeros((n_entries, N_ELEMENT_TYPES), np.uint64), np.zeros(n_entries, np.int64)
    owners_ = np.full(n_entries, NOT_FOUND, np.int64)
    for base in dict.fromkeys(first.base for first, _, _ in forms_of(vocabulary.names)):
        heads[entry[base]] = len(prefix_of(base)) + 2
    for first, start, stop in forms_of(vocabulary.names):
        if first.op is Op.EQ:
            type_, base_entry = _ELEMENT_TYPES[first.type], entry[first.base]
            hashes = np.zeros(1, np.uint64)
            _feed_all(np.frombuffer(bytearray(first.head), np.uint8), hashes)
            seeds[base_entry, type_] = hashes[0]
            owners_[start:stop] = N_ELEMENT_TYPES * base_entry + type_
    return seeds, heads, owners_


_ELEMENT_TYPES = {Type.STRING: TEXT_ELEMENT, Type.NUMBER: NUMBER_ELEMENT, Type.BOOLEAN: BOOLEAN_ELEMENT}


def _hash_table(strings: Strings, seeds: Array) -> tuple[Array, Array]:
    """Slots i64, at most half of them used, and the hash u64 of every string, each from its seed."""
    hashes = np.zeros(len(strings), np.uint64)
    slots = np.full(1 << max(2 * len(hashes) - 1, 1).bit_length(), NOT_FOUND, np.int64)
    _fill(np.array(strings.data), np.array(strings.offsets), seeds, hashes, slots)
    return slots, hashes


def _seeds(n_names: int) -> Array:
    with np.errstate(over="ignore"):
        return (np.arange(1, n_names + 1, dtype=np.uint64) * _MIX) ^ SEED


def _bucket_widths(vocabulary: Vocabulary) -> tuple[Array, Array]:
    """Least finite operand of each name, and buckets per unit; 0 and 0 if there are fewer than two, or all are equal."""
    low, scale = np.zeros(vocabulary.n_names), np.zeros(vocabulary.n_names)
    numbers = vocabulary.numbers.real
    finite = np.isfinite(numbers)
    for n in np.flatnonzero(vocabulary.n_numbers > 1):
        rows = slice(int(vocabulary.number_offsets[n]), int(vocabulary.number_offsets[n + 1]))
        operands = numbers[rows][finite[rows]]
        if len(operands) > 1:
            with np.errstate(over="ignore", divide="ignore"):
                per_unit = len(operands) / (operands[-1] - operands[0])
            if np.isfinite(per_unit):
                low[n], scale[n] = operands[0], per_unit
    return low, scale


def _bucket_first(vocabulary: Vocabulary, low: Array, scale: Array) -> Array:
    """The first operand of each bucket; n operands have n buckets and the end of the last."""
    name = owners(vocabulary.number_offsets)
    with np.errstate(over="ignore", invalid="ignore"):
        found = (vocabulary.numbers.real - low[name]) * scale[name]
    bucket = np.where(found > 0.0, np.minimum(found, vocabulary.n_numbers[name] - 1), 0.0).astype(np.int64)
    n_in = np.bincount(vocabulary.number_offsets[name] + name + bucket, minlength=len(name) + vocabulary.n_names)
    return np.cumsum(n_in) - n_in


@nested
def feed(hash_: np.uint64, byte: int) -> np.uint64:
    """The hash of a string that is one byte longer (FNV-1a, before `mixed`)."""
    return (hash_ ^ np.uint64(byte)) * _PRIME


@nested
def hash_of(data: int, start: int, stop: int, hash_: np.uint64) -> np.uint64:
    """The hash, before `mixed`, of data[start:stop] appended to a string with the hash `hash_`."""
    for i in range(start, stop):
        hash_ = feed(hash_, load_u8(data, i))
    return hash_


@nested
def mixed(hash_: np.uint64) -> np.uint64:
    """A hash with every bit depending on every byte."""
    hash_ ^= hash_ >> _32
    hash_ *= _MIX
    return hash_ ^ (hash_ >> _29)


@jit
def _feed_all(data: Array, hashes: Array) -> None:
    """Write the hash of bytes, before `mixed`, to hashes[0]."""
    found = SEED
    for byte in data:
        found = feed(found, byte)
    hashes[0] = found


@jit
def _fill(data: Array, offsets: Array, seeds: Array, hashes: Array, slots: Array) -> None:
    """Fill `hashes` and `slots`."""
    mask = np.uint64(len(slots) - 1)
    for i in range(len(hashes)):
        found = seeds[i]
        for k in range(offsets[i], offsets[i + 1]):
            found = feed(found, data[k])
        hashes[i] = mixed(found)
        slot = hashes[i] & mask
        while slots[slot] != NOT_FOUND:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = i


@nested
def bucket_of(value: float, low: float, scale: float, n_buckets: int) -> int:
    """The bucket of a number on a name.  Monotonic in `value`: subtraction, multiplication, truncation preserve order."""
    found = (value - low) * scale
    if not found > 0.0:
        return 0
    return n_buckets - 1 if found >= n_buckets - 1 else int(found)


@nested
def equal(data: int, start: int, stop: int, pool: int, first: int, last: int) -> bool:
    """Tells whether data[start:stop] equals pool[first:last]."""
    n, k = stop - start, 0
    if last - first != n:
        return False
    while k < n and load_u8(data, start + k) == load_u8(pool, first + k):
        k += 1
    return k == n


@nested
def find_name(data: int, start: int, stop: int, hash_: np.uint64, tables: int) -> int:
    """The entry of the name data[start:stop] with hash `hash_`, or NOT_FOUND."""
    slots, hashes = constant_i64(tables, NAME_SLOTS), constant_i64(tables, NAME_HASHES)
    mask = load_u64(constant_i64(tables, SCALARS), NAME_MASK)
    slot = hash_ & mask
    while True:
        entry = load_i64(slots, slot)
        if entry == NOT_FOUND:
            return NOT_FOUND
        if load_u64(hashes, entry) == hash_:
            bounds = constant_i64(tables, NAME_BOUNDS)
            first, last = load_i64(bounds, entry), load_i64(bounds, entry + 1)
            if equal(data, start, stop, constant_i64(tables, NAME_BYTES), first, last):
                return entry
        slot = (slot + np.uint64(1)) & mask


@nested
def find_element(data: int, start: int, stop: int, hash_: np.uint64, owner: int, tables: int) -> int:
    """The name of `any =` of an `owner` (ELEMENT_OWNERS) for the element data[start:stop], or NOT_FOUND.

    `hash_` is the hash of the whole name.
    """
    slots, hashes, owners_ = (
        constant_i64(tables, NAME_SLOTS),
        constant_i64(tables, NAME_HASHES),
        constant_i64(tables, ELEMENT_OWNERS),
    )
    head = load_i64(constant_i64(tables, ELEMENT_HEADS), owner // N_ELEMENT_TYPES)
    mask = load_u64(constant_i64(tables, SCALARS), NAME_MASK)
    slot = hash_ & mask
    while True:
        entry = load_i64(slots, slot)
        if entry == NOT_FOUND:
            return NOT_FOUND
        if load_u64(hashes, entry) == hash_ and load_i64(owners_, entry) == owner:
            bounds = constant_i64(tables, NAME_BOUNDS)
            first, last = load_i64(bounds, entry) + head, load_i64(bounds, entry + 1)
            if equal(data, start, stop, constant_i64(tables, NAME_BYTES), first, last):
                return entry
        slot = (slot + np.uint64(1)) & mask


@nested
def signed_residue(residue: int) -> float:
    """The residue of a number, from its value modulo 2^16."""
    return np.float64((residue ^ 0x8000) - 0x8000)


@nested
def operands_of_name(name: int, tables: int) -> tuple[int, int, int, int, float, float]:
    """The properties of a name that `code_among` needs."""
    bounds, buckets = constant_i64(tables, NUMBER_BOUNDS), constant_i64(tables, BUCKET_FIRST)
    first, last = load_i64(bounds, name), load_i64(bounds, name + 1)
    low, scale = load_f64(constant_i64(tables, BUCKET_LOW), name), load_f64(constant_i64(tables, BUCKET_SCALE), name)
    return constant_i64(tables, NUMBERS), first, last, buckets + 8 * (first + name), low, scale


@nested
def code_among(value: float, residue: float, operands: tuple[int, int, int, int, float, float], tables: int) -> int:
    """Code of a number, not NaN, given as the nearest double and the residue, on a name with these operands."""
    numbers, first, last, buckets, low, scale = operands
    if first == last:
        return 0
    bucket = bucket_of(value, low, scale, last - first)
    left, right = load_i64(buckets, bucket), load_i64(buckets, bucket + 1)
    while left < right:
        middle = (left + right) >> 1
        if load_f64(numbers, middle) < value:
            left = middle + 1
        else:
            right = middle
    while left < last and load_f64(numbers, left) == value:
        has_residues = load_u64(constant_i64(tables, SCALARS), HAS_RESIDUES) != np.uint64(0)
        of_operand = load_f64(constant_i64(tables, NUMBER_RESIDUES), left) if has_residues else 0.0
        if of_operand >= residue:
            return 2 * (left - first) + (1 if of_operand == residue else 0)
        left += 1
    return 2 * (left - first)


@nested
def code_of_number(name: int, number: tuple[float, float], tables: int) -> int:
    """Code of a number, not NaN, given as in `code_among`, on a name."""
    return code_among(number[0], number[1], operands_of_name(name, tables), tables)


@nested
def _below(operand: int, data: int, start: int, stop: int, tables: int) -> bool:
    """Tells whether a string operand is less than data[start:stop], by bytes."""
    pool, bounds = constant_i64(tables, STRING_BYTES), constant_i64(tables, STRING_BOUNDS)
    first = load_i64(bounds, operand)
    n, m, k = load_i64(bounds, operand + 1) - first, stop - start, 0
    if is_on_cpu():
        while k + _KEY_BYTES <= min(n, m):
            one, other = any_u64(pool + first + k), any_u64(data + start + k)
            if one != other:
                return bool(reversed_bytes(one) < reversed_bytes(other))
            k += _KEY_BYTES
    while k < min(n, m):
        a, b = load_u8(pool, first + k), load_u8(data, start + k)
        if a != b:
            return a < b
        k += 1
    return n < m


@nested
def _first_key_not_below(left: int, right: int, key: np.uint64, keys: int) -> int:
    """The first of the keys from `left` to before `right` that is not less than a key, or `right`."""
    n = right - left
    while n > 0:
        half = (n + 1) >> 1
        left += half if load_u64(keys, left + half - 1) < key else 0
        n -= half
    return left


@nested
def _first_not_below(left: int, right: int, data: int, start: int, stop: int, tables: int) -> int:
    """The first of the string operands from `left` to before `right` that is not less than data[start:stop], or `right`."""
    if is_on_cpu():
        key, keys = reversed_bytes(word_at(data, start, min(stop - start, _KEY_BYTES))), constant_i64(tables, OPERAND_KEYS)
        left = _first_key_not_below(left, right, key, keys)
        is_begun = left < right and load_u64(keys, left) == key
        right = _first_key_not_below(left, right, key + np.uint64(1), keys) if is_begun else left
    while left < right:
        middle = (left + right) >> 1
        if _below(middle, data, start, stop, tables):
            left = middle + 1
        else:
            right = middle
    return left


@nested
def _code_of_long_string(name: int, data: int, start: int, stop: int, tables: int) -> int:
    """Does what `code_of_string` does, without a hash: the search reads fewer bytes of a long string."""
    of_strings, of_numbers = constant_i64(tables, OPERAND_BOUNDS), constant_i64(tables, NUMBER_BOUNDS)
    left, right = load_i64(of_strings, name), load_i64(of_strings, name + 1)
    base = 2 * (load_i64(of_numbers, name + 1) - load_i64(of_numbers, name) - left) + 2
    pool, bounds = constant_i64(tables, STRING_BYTES), constant_i64(tables, STRING_BOUNDS)
    found = _first_not_below(left, right, data, start, stop, tables)
    if found == right or not equal(data, start, stop, pool, load_i64(bounds, found), load_i64(bounds, found + 1)):
        return base + 2 * found
    return base + 2 * found + 1


@nested
def code_of_string(name: int, data: int, start: int, stop: int, hash_: np.uint64, tables: int) -> int:
    """Code of the string data[start:stop] on a name; `hash_` is its hash from the name's seed, or any number if no operand
    has its length."""
    of_strings, of_numbers = constant_i64(tables, OPERAND_BOUNDS), constant_i64(tables, NUMBER_BOUNDS)
    left, right = load_i64(of_strings, name), load_i64(of_strings, name + 1)
    base = 2 * (load_i64(of_numbers, name + 1) - load_i64(of_numbers, name) - left) + 2
    if left == right:
        return base + 2 * left
    slots, hashes = constant_i64(tables, STRING_SLOTS), constant_i64(tables, STRING_HASHES)
    pool, bounds = constant_i64(tables, STRING_BYTES), constant_i64(tables, STRING_BOUNDS)
    mask = load_u64(constant_i64(tables, SCALARS), STRING_MASK)
    slot = hash_ & mask
    while stop - start <= load_i64(constant_i64(tables, LONGEST_OPERANDS), name):
        operand = load_i64(slots, slot)
        if operand == NOT_FOUND:
            break
        if load_u64(hashes, operand) == hash_ and left <= operand < right:
            first, last = load_i64(bounds, operand), load_i64(bounds, operand + 1)
            if equal(data, start, stop, pool, first, last):
                return base + 2 * operand + 1
        slot = (slot + np.uint64(1)) & mask
    return base + 2 * _first_not_below(left, right, data, start, stop, tables)


@nested
def code_of_text(name: int, data: int, start: int, stop: int, tables: int) -> int:
    """Code of the string data[start:stop] on a name.

    It is hashed if an operand of the name has its length, and if it is short or there are many operands.
    """
    hash_ = SEED
    if stop - start <= load_i64(constant_i64(tables, LONGEST_OPERANDS), name):
        bounds = constant_i64(tables, OPERAND_BOUNDS)
        n_operands = load_i64(bounds, name + 1) - load_i64(bounds, name)
        if stop - start >= _LONG_BYTES and n_operands < 4 * (stop - start):
            return _code_of_long_string(name, data, start, stop, tables)
        hash_ = mixed(hash_of(data, start, stop, load_u64(constant_i64(tables, STRING_SEEDS), name)))
    return code_of_string(name, data, start, stop, hash_, tables)


@nested
def first_string_code(name: int, tables: int) -> int:
    """The least code of a string on a name."""
    bounds = constant_i64(tables, NUMBER_BOUNDS)
    return 2 * (load_i64(bounds, name + 1) - load_i64(bounds, name)) + 2


@nested
def code_of_boolean(name: int, value: int, tables: int) -> int:
    """Code of false, 0, of true, 1, or of a list, 2, on a name."""
    of_numbers, of_strings = constant_i64(tables, NUMBER_BOUNDS), constant_i64(tables, OPERAND_BOUNDS)
    n_numbers = load_i64(of_numbers, name + 1) - load_i64(of_numbers, name)
    n_strings = load_i64(of_strings, name + 1) - load_i64(of_strings, name)
    return 2 * (n_numbers + n_strings) + 3 + value
