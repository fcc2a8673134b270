"""Writes constraints, operands and filters into the columns of `Subscriptions`, for the scanners of lines and of predicates.

The functions take addresses and numbers, allocate nothing and raise nothing.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.blake2b import WORD_ORDER
from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import load_f64, load_i64, load_u8, load_u64, store_f64, store_i64, store_u8
from mpi_match.ingest.codes.addresses import ADDRESS_DIGITS, IPV4, IPV6, address_at
from mpi_match.ingest.codes.code_tables import NOT_FOUND, SEED, hash_of, signed_residue
from mpi_match.ingest.codes.instants import instant_at
from mpi_match.ingest.codes.numbers import N_NUMBER_TABLES, put_number_bytes
from mpi_match.ingest.codes.string_pool import POOL_BOUNDS, POOL_FULL, POOLED_BYTES, is_below, number_of
from mpi_match.ingest.json.text import SCRATCH_BYTES, copied
from mpi_match.model import ANY_OPS, HAS, RESIDUE_MASK, VIEWS
from mpi_match.operators import OPERATORS, Form, Op, Operator, Takes, Type, View
from mpi_match.table.kinds import KIND_OF_PRESENCE, kind_of
from mpi_match.table.virtual_names import ATOM_FORMS, MARK, TYPE_LETTERS, VIEW_MARK, extreme_form
from mpi_match.texts.characters import LOWER_CASE, UPPER_A, UPPER_Z, ZERO

(
    SUBSCRIPTION_COUNTS,
    FILTER_ROW,
    FILTER_LABEL,
    FILTER_END,
    ID_OF_FILTER,
    AREA_FILTER,
    SCANNED_AREAS,
    SCANNED_ID_END,
    SCANNED_ID_BYTES,
    PART_DIGESTS,
    CONSTRAINT_NAME,
    CONSTRAINT_KIND,
    CONSTRAINT_END,
    OPERAND_NUMBER,
    OPERAND_STRING,
    FLAGGED_LINES,
    TEXT_SCRATCH,
    LABEL_SCRATCH,
    BOUND_SCRATCH,
    PREDICATE_SCRATCH,
    ALTERNATIVES,
    CONDITION,
    CONTENT,
    POOLS,
) = range(24)
"""Indices of the output arrays in the table of addresses:

    SUBSCRIPTION_COUNTS       i64[N_SUBSCRIPTION_COUNTS]: how much of each array is filled
    FILTER_ROW, FILTER_LABEL  i64: of each filter the row that it is from, and its interface, by number; of one of a part,
                              FIRST_PART less the number of the part
    FILTER_END                i64: where its constraints end
    ID_OF_FILTER              i64: its id, by number; HAS_NO_ID, or HAS_ID_OF_UNNAMED: that of the parts of filters without
                              an id
    AREA_FILTER, SCANNED_AREAS   i64, f64[3 ·]: the filters that have an area, by their places, and their areas
    SCANNED_ID_END, SCANNED_ID_BYTES   i64, u8: the ids end to end
    PART_DIGESTS              u64[2 ·]: the digest of each part, the lowest byte first; equal parts of different filters have
                              numbers of their own
    CONSTRAINT_NAME, CONSTRAINT_KIND, CONSTRAINT_END   i64, u8, i64: name, by number, or as FILTER_LABEL of a part; kind, and
                              where its operands end
    OPERAND_NUMBER, OPERAND_STRING   f64, i64: a number, or the double nearest to it; a string by its number, or, as it is
                              negative, ~ of a number's residue (`model.split`) modulo 2^16
    FLAGGED_LINES             i64[3 ·]: line, start, end in the data, which is before the line feed
    TEXT_SCRATCH, LABEL_SCRATCH, BOUND_SCRATCH   u8[SCRATCH_BYTES]: a string and a label without escapes; a `prefix_bound`
    PREDICATE_SCRATCH         u8[SCRATCH_BYTES]: the text of a predicate without escapes
    ALTERNATIVES              u64[N_ALTERNATIVE_WORDS], see `predicate_to_filters`
    CONDITION, CONTENT        i64[N_CONDITION_WORDS], u8[CONTENT_BYTES], see `condition_to_filters`
    POOLS                     i64[3]: the addresses of the pools LABEL_POOL, NAME_POOL and STRING_POOL
"""
(
    SCANNED_ROWS,
    SCANNED_LINES,
    SCANNED_TO,
    N_SCANNED_FILTERS,
    N_SCANNED_CONSTRAINTS,
    N_OPERANDS,
    N_SCANNED_AREAS,
    N_SCANNED_IDS,
    N_ID_BYTES,
    N_SCANNED_PARTS,
    N_FLAGGED_LINES,
    LACKING_POOL,
    N_ALTERNATIVES,
    FOLDS,
    WHERE_IS_TEXT,
    IDS_BEFORE,
    PARTS_BEFORE,
    COUNTS_BEFORE,
) = range(18)
"""Columns of the counts: rows, including flagged ones; lines, including blank ones; the position of the next line; filters,
constraints, operands, areas, ids, bytes of ids, parts, flagged lines.  LACKING_POOL is the pool without room, or NOT_FOUND;
N_ALTERNATIVES is the number of alternatives of the row's predicate, 0 without one.  FOLDS is 1 while a constraint is read
that compares texts without regard to case.  WHERE_IS_TEXT is 1 if conditions are texts that hold JSON, as in lines that are
made of columns.  IDS_BEFORE and PARTS_BEFORE are the numbers of the first id and the first part.  From COUNTS_BEFORE on are
the counts from N_SCANNED_FILTERS to N_SCANNED_PARTS, those of what is written, as they were before the row."""
_N_OF_OUTPUT = N_SCANNED_PARTS + 1 - N_SCANNED_FILTERS
N_SUBSCRIPTION_COUNTS = COUNTS_BEFORE + _N_OF_OUTPUT
LABEL_POOL, NAME_POOL, STRING_POOL = range(3)
HAS_NO_ID, HAS_ID_OF_UNNAMED = -1, -2
FIRST_PART = -2
"""The label and the name of the part with the number 0; those of the next one are less by one."""
LEAST_FILTER_BYTES = 6
"""A line has at most one filter for LEAST_FILTER_BYTES of its bytes, and one constraint and one operand for each byte, or is
flagged."""

(
    KINDS,
    ELEMENT_FORMS,
    TAKEN,
    BOUNDED,
    FOLDED_OPS,
    ANY_OF_OPS,
    SURE_BYTES,
    SYMBOLS,
    SYMBOL_OPS,
    WORDS,
    WORD_OPS,
    DIGEST_ORDER,
    N_CONSTRAINT_TABLES,
) = range(N_NUMBER_TABLES, N_NUMBER_TABLES + 13)
"""Indices of the look-up tables (`operator_tables`) in the table of addresses, after those of numbers:

    KINDS                 i64[n operators, n types]: the kind of each operator and type (`kinds.kind_of`), or NOT_FOUND
    ELEMENT_FORMS         likewise, of operators on elements: the form of their virtual names, 0 for a type without one; the
                          operands are part of the name where KINDS has NOT_FOUND
    TAKEN                 i64, by operator: TAKES_NOTHING, TAKES_VALUE, TAKES_BOUNDS or TAKES_LIST
    BOUNDED               i64, by operator: 1 if a `prefix_bound` follows its operand
    FOLDED_OPS            i64, by operator: 1 if it has a form without regard to case
    ANY_OF_OPS            i64, by operator: 1 if a list of operands stands for any of them
    SURE_BYTES            i64, by operator: bytes of the longest text that is certainly an operand
    SYMBOLS, SYMBOL_OPS   u64, i64: the symbols of rows, packed, the first byte the lowest, then 0; and the operator of each
    WORDS, WORD_OPS       likewise, of predicates: signs, and operators of one word in lower case
    DIGEST_ORDER          u8: `blake2b.WORD_ORDER`
"""
TAKES_NOTHING, TAKES_VALUE, TAKES_BOUNDS, TAKES_LIST = range(4)
"""Codes for the operands that an operator takes."""
FIRST_ELEMENT_OP = 64
"""`any OP` has the number of the operator plus this one, which is above the number of every operator, since kinds fit a
byte.  It does not depend on the set of operators, so compiled code stays valid when that changes."""
FIRST_NET_OP, FIRST_TIME_OP = 2 * FIRST_ELEMENT_OP, 3 * FIRST_ELEMENT_OP
"""Likewise, for operators on addresses (`in net`) and on instants (`before`, `after`, `at`)."""
_FIRST_OF_VIEW = {View.IP: FIRST_NET_OP, View.TIME: FIRST_TIME_OP}
_TAKEN = {Takes.NOTHING: TAKES_NOTHING, Takes.VALUE: TAKES_VALUE, Takes.BOUNDS: TAKES_BOUNDS, Takes.LIST: TAKES_LIST}
_PACKED_BYTES = 8
_MOST_NUMBER_BYTES = 16
"""Bytes of a number in a virtual name, with its residue."""
TYPES = (Type.ANY, Type.NUMBER, Type.STRING, Type.BOOLEAN)
ANY, NUMBER, STRING, BOOLEAN = map(int, TYPES)
N_TYPES = len(TYPES)
TAG_FORM = ord(ATOM_FORMS[Op.EQ])
"""The form of the virtual names of `any =`."""
_MARK, _OF_NUMBERS, _OF_TEXTS, _OF_BOOLEANS = (ord(each) for each in (MARK, *TYPE_LETTERS.values()))
_VIEW_MARK = VIEW_MARK[0]
_OF_CASE, _OF_ADDRESSES, OF_INSTANTS = (ord(view.value) for view in (View.FOLD, View.IP, View.TIME))
_BETWEEN, _PREFIX = int(Op.BETWEEN), int(Op.PREFIX)
_SLASH = ord("/")
_IPV4_BITS, _IPV6_BITS = 32, ADDRESS_DIGITS
_MOST_BITS_DIGITS = 3
_KIND_OF_ELEMENT = int(KIND_OF_PRESENCE)


def operator_tables() -> tuple[Array, ...]:
    """The tables, in the order of their indices.

    The judge handles the operators that they lack: those with symbols of more than eight bytes, with bounds that are not
    numbers or that must differ, and with operands that are checked for more than their length.
    """
    ops = {op: record for op, record in OPERATORS.items() if _is_read(record)}
    of_views = [(symbol, _FIRST_OF_VIEW[view] + op) for symbol, (view, op) in VIEWS.items() if view in _FIRST_OF_VIEW]
    symbols = [*((record.symbol, int(op)) for op, record in ops.items()), (HAS, FIRST_ELEMENT_OP + Op.EQ), *of_views]
    words = [(word, int(op)) for op, record in ops.items() for word in (record.symbol, *record.spellings) if " " not in word]
    n = 2 * FIRST_ELEMENT_OP
    taken, bounded, folded, of_lists, sure = np.zeros((5, n), np.int64)
    kinds, forms = np.full((n, N_TYPES), NOT_FOUND, np.int64), np.zeros((n, N_TYPES), np.int64)
    for op, record in ops.items():
        taken[op], bounded[op] = _TAKEN[record.takes], record.form is Form.PREFIX
        folded[[op, FIRST_ELEMENT_OP + op]], of_lists[[op, FIRST_ELEMENT_OP + op]] = record.folds, record.takes_any_of
        sure[[op, FIRST_ELEMENT_OP + op]] = record.sure_bytes if record.check is not None else np.iinfo(np.int64).max
        for type_ in record.types:
            kinds[op, type_] = kind_of(type_, op)
    for op in set(ops) & set(ANY_OPS.values()):
        of_elements = FIRST_ELEMENT_OP + op
        taken[of_elements] = taken[op]
        for type_ in op.record.types:
            extreme = extreme_form(op, type_)
            forms[of_elements, type_] = ord(extreme or ATOM_FORMS[op])
            if extreme:
                kinds[of_elements, type_] = kind_of(type_, op)
    return kinds, forms, taken, bounded, folded, of_lists, sure, *_packed_words(symbols), *_packed_words(words), WORD_ORDER


def _is_read(record: Operator) -> bool:
    if record.check is not None and not record.sure_bytes:
        return False
    if record.takes is Takes.BOUNDS and (any(record.excludes) or record.types != {Type.NUMBER}):
        return False
    return len(record.symbol.encode()) <= _PACKED_BYTES


def _packed_words(words: list[tuple[str, int]]) -> tuple[Array, Array]:
    short = [(int.from_bytes(word.encode(), "little"), op) for word, op in words if len(word.encode()) <= _PACKED_BYTES]
    return np.array([*(word for word, _ in short), 0], np.uint64), np.array([op for _, op in short], np.int64)


@nested
def op_among(words: int, ops: int, packed: np.uint64) -> int:
    """The operator of a packed word among WORDS or SYMBOLS, or NOT_FOUND."""
    i = 0
    while load_u64(words, i) != np.uint64(0):
        if load_u64(words, i) == packed:
            return load_i64(ops, i)
        i += 1
    return NOT_FOUND


@nested
def taken_by(op: int, tables: int) -> int:
    """TAKES_NOTHING, TAKES_VALUE, TAKES_BOUNDS or TAKES_LIST."""
    return load_i64(load_i64(tables, TAKEN), op)


@nested
def is_reserved(source: int, start: int, stop: int) -> bool:
    """Tells whether a name or a label begins with the noncharacter U+10FFFF (`model.RESERVED`)."""
    if stop - start < 4 or load_u8(source, start) != 0xF4 or load_u8(source, start + 1) != 0x8F:
        return False
    return load_u8(source, start + 2) == 0xBF and load_u8(source, start + 3) == 0xBF


@nested
def is_special(source: int, start: int, stop: int) -> bool:
    """Tells whether a name is one that no attribute has: a reserved one, or `*` (`model.EVERY_STRING`)."""
    return (stop - start == 1 and load_u8(source, start) == 42) or is_reserved(source, start, stop)


@nested
def numbered(pool: int, source: int, start: int, stop: int, hash_: np.uint64, work: int) -> int:
    """The number of a string in a pool; without room POOL_FULL, and the pool is noted."""
    found = number_of(load_i64(load_i64(work, POOLS), pool), source, start, stop, hash_)
    if found == POOL_FULL:
        store_i64(load_i64(work, SUBSCRIPTION_COUNTS), LACKING_POOL, pool)
    return found


@nested
def put_number(number: float, residue: float, work: int) -> None:
    """Write a number, given as the nearest double and the residue, as an operand."""
    put_operand(number, ~(int(residue) & RESIDUE_MASK), work)


@nested
def put_operand(number: float, string: int, work: int) -> None:
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    n = load_i64(counts, N_OPERANDS)
    store_f64(load_i64(work, OPERAND_NUMBER), n, number)
    store_i64(load_i64(work, OPERAND_STRING), n, string)
    store_i64(counts, N_OPERANDS, n + 1)


@nested
def _put_prefix_bound(source: int, start: int, stop: int, work: int) -> bool:
    """Write the operand `prefix_bound` of a prefix.  Returns False without room."""
    scratch = load_i64(work, BOUND_SCRATCH)
    if stop - start > SCRATCH_BYTES:
        return False
    n = copied(source, start, stop, scratch, 0)
    store_u8(scratch, n - 1, load_u8(scratch, n - 1) + 1)
    bound = numbered(STRING_POOL, scratch, 0, n, hash_of(scratch, 0, n, SEED), work)
    put_operand(0.0, bound, work)
    return bound != POOL_FULL


@nested
def fold(name: int, op: int, tables: int, work: int) -> int:
    """Begin a constraint without regard to case.  Returns the number of the view of its name, or NOT_FOUND if the operator
    has no such form, or without room."""
    if not load_i64(load_i64(tables, FOLDED_OPS), op):
        return NOT_FOUND
    store_i64(load_i64(work, SUBSCRIPTION_COUNTS), FOLDS, 1)
    return name_of_view(name, _OF_CASE, work)


@nested
def name_of_view(name: int, letter: int, work: int) -> int:
    """The number of the name of a view of an attribute, or NOT_FOUND without room."""
    source, start, stop = pooled_name(name, work)
    scratch = load_i64(work, BOUND_SCRATCH)
    if stop - start + 2 > SCRATCH_BYTES:
        return NOT_FOUND
    store_u8(scratch, 0, _VIEW_MARK)
    store_u8(scratch, 1, letter)
    n = copied(source, start, stop, scratch, 2)
    found = numbered(NAME_POOL, scratch, 0, n, hash_of(scratch, 0, n, SEED), work)
    return found if found != POOL_FULL else NOT_FOUND


@nested
def _folded(source: int, start: int, stop: int, work: int) -> int:
    """Write a text in lower case to TEXT_SCRATCH, which may have it already.  Returns the number of its bytes, or NOT_FOUND
    for one with other characters than those of ASCII, or without room."""
    scratch = load_i64(work, TEXT_SCRATCH)
    if stop - start > SCRATCH_BYTES:
        return NOT_FOUND
    for i in range(stop - start):
        byte = load_u8(source, start + i)
        if byte >= 128:
            return NOT_FOUND
        store_u8(scratch, i, byte + LOWER_CASE if UPPER_A <= byte <= UPPER_Z else byte)
    return stop - start


@nested
def put_text(source: int, start: int, stop: int, hash_: np.uint64, op: int, tables: int, work: int) -> bool:
    """Write a string with the hash `hash_` as an operand of `op`.  Returns False if it is not certain, or without room."""
    if stop - start > load_i64(load_i64(tables, SURE_BYTES), op):
        return False
    if load_i64(load_i64(work, SUBSCRIPTION_COUNTS), FOLDS):
        n = _folded(source, start, stop, work)
        if n == NOT_FOUND:
            return False
        source, start, stop = load_i64(work, TEXT_SCRATCH), 0, n
        hash_ = hash_of(source, 0, n, SEED)
    string = numbered(STRING_POOL, source, start, stop, hash_, work)
    if string == POOL_FULL:
        return False
    put_operand(0.0, string, work)
    return load_i64(load_i64(tables, BOUNDED), op) == 0 or stop == start or _put_prefix_bound(source, start, stop, work)


@nested
def _is_less(a: float, of_a: int, b: float, of_b: int) -> bool:
    """Tells whether a number is less than another, each as in OPERAND_NUMBER and OPERAND_STRING."""
    return a < b or (a == b and signed_residue(~of_a) < signed_residue(~of_b))


@nested
def _sort_operands(first: int, n: int, is_text: bool, work: int) -> None:
    """Sort operands in place by Shell's method: insertion sort for few, decreasing gaps for many."""
    numbers, strings = load_i64(work, OPERAND_NUMBER) + 8 * first, load_i64(work, OPERAND_STRING) + 8 * first
    pool = load_i64(load_i64(work, POOLS), STRING_POOL)
    gap = 1
    while 9 * gap < n:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            number, string, k = load_f64(numbers, i), load_i64(strings, i), i
            while k >= gap:
                if is_text:
                    if not is_below(pool, string, load_i64(strings, k - gap)):
                        break
                elif not _is_less(number, string, load_f64(numbers, k - gap), load_i64(strings, k - gap)):
                    break
                store_f64(numbers, k, load_f64(numbers, k - gap))
                store_i64(strings, k, load_i64(strings, k - gap))
                k -= gap
            store_f64(numbers, k, number)
            store_i64(strings, k, string)
        gap //= 3


@nested
def _make_distinct(first: int, work: int) -> None:
    """Remove operands that equal the one before, from `first` on."""
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    numbers, strings = load_i64(work, OPERAND_NUMBER), load_i64(work, OPERAND_STRING)
    kept = first
    for i in range(first, load_i64(counts, N_OPERANDS)):
        number, string = load_f64(numbers, i), load_i64(strings, i)
        if i == first or number != load_f64(numbers, kept - 1) or string != load_i64(strings, kept - 1):
            store_f64(numbers, kept, number)
            store_i64(strings, kept, string)
            kept += 1
    store_i64(counts, N_OPERANDS, kept)


@nested
def end_list(first: int, of_first: int, taken: int, work: int) -> bool:
    """Put the operands from `first` on, all of type `of_first`, in the order of a list.  Returns whether they are what is
    `taken`."""
    n = load_i64(load_i64(work, SUBSCRIPTION_COUNTS), N_OPERANDS) - first
    if taken == TAKES_BOUNDS:
        numbers, strings = load_i64(work, OPERAND_NUMBER) + 8 * first, load_i64(work, OPERAND_STRING) + 8 * first
        low, high = (load_f64(numbers, 0), load_i64(strings, 0)), (load_f64(numbers, 1), load_i64(strings, 1))
        return n == 2 and not _is_less(high[0], high[1], low[0], low[1])
    if n == 0:
        return False
    _sort_operands(first, n, of_first == STRING, work)
    _make_distinct(first, work)
    return True


@nested
def put_constraint(name: int, kind: int, work: int) -> None:
    """Write a constraint after its operands."""
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    n = load_i64(counts, N_SCANNED_CONSTRAINTS)
    store_i64(load_i64(work, CONSTRAINT_NAME), n, name)
    store_u8(load_i64(work, CONSTRAINT_KIND), n, kind)
    store_i64(load_i64(work, CONSTRAINT_END), n, load_i64(counts, N_OPERANDS))
    store_i64(counts, N_SCANNED_CONSTRAINTS, n + 1)


@nested
def pooled(pool: int, item: int, work: int) -> tuple[int, int, int]:
    """The address, start and end of a string by its number, valid until another one of its pool is numbered."""
    address = load_i64(load_i64(work, POOLS), pool)
    bounds = load_i64(address, POOL_BOUNDS)
    return load_i64(address, POOLED_BYTES), load_i64(bounds, item), load_i64(bounds, item + 1)


@nested
def pooled_name(name: int, work: int) -> tuple[int, int, int]:
    """The result of `pooled` for a name."""
    return pooled(NAME_POOL, name, work)


@nested
def _begin_element(base: tuple[int, int, int], form: int, type_: int, work: int) -> int:
    """Write the virtual name of an operator on elements, up to its operand, into BOUND_SCRATCH. Returns where it ends, or
    NOT_FOUND without room.  `base` are the address, start and end of the list's name."""
    source, start, stop = base
    scratch = load_i64(work, BOUND_SCRATCH)
    if stop - start + 4 > SCRATCH_BYTES:
        return NOT_FOUND
    store_u8(scratch, 0, _MARK)
    n = copied(source, start, stop, scratch, 1)
    store_u8(scratch, n, _MARK)
    store_u8(scratch, n + 1, form)
    store_u8(scratch, n + 2, _OF_NUMBERS if type_ == NUMBER else _OF_TEXTS if type_ == STRING else _OF_BOOLEANS)
    return n + 3


@nested
def _put_element(n: int, kind: int, work: int) -> bool:
    """Write the constraint on the virtual name in BOUND_SCRATCH, which ends at n.  Returns False without room."""
    scratch = load_i64(work, BOUND_SCRATCH)
    name = numbered(NAME_POOL, scratch, 0, n, hash_of(scratch, 0, n, SEED), work)
    if name == POOL_FULL:
        return False
    put_constraint(name, kind, work)
    return True


@nested
def _put_operands(first: int, type_: int, taken: int, n: int, work: int) -> int:
    """Move the operands from `first` on, all of one type, to the end of the virtual name in BOUND_SCRATCH, which has n
    bytes.  Returns where it ends then, or NOT_FOUND without room."""
    counts, scratch = load_i64(work, SUBSCRIPTION_COUNTS), load_i64(work, BOUND_SCRATCH)
    pool = load_i64(load_i64(work, POOLS), STRING_POOL)
    bounds = load_i64(pool, POOL_BOUNDS)
    for k in range(first, load_i64(counts, N_OPERANDS)):
        string = load_i64(load_i64(work, OPERAND_STRING), k)
        if type_ != STRING:
            if n + _MOST_NUMBER_BYTES > SCRATCH_BYTES:
                return NOT_FOUND
            residue = ~string & RESIDUE_MASK if type_ == NUMBER else 0
            n = put_number_bytes(scratch, n, load_f64(load_i64(work, OPERAND_NUMBER), k) + 0.0, residue)  # -0.0 is 0.0
            continue
        start, stop = load_i64(bounds, string), load_i64(bounds, string + 1)
        if n + 4 + stop - start > SCRATCH_BYTES:
            return NOT_FOUND
        if taken != TAKES_VALUE:
            for i in range(4):
                store_u8(scratch, n + i, (stop - start) >> (24 - 8 * i) & 0xFF)
            n += 4
        n = copied(load_i64(pool, POOLED_BYTES), start, stop, scratch, n)
    store_i64(counts, N_OPERANDS, first)
    return n


@nested
def put_text_of_element(base: tuple[int, int, int], form: int, text: tuple[int, int, int], work: int) -> bool:
    """Write the constraint that some element of a list satisfies the operator of `form` with a text.  Returns False without
    room.

    `base` are the address, start and end of the list's name, `text` those of the operand.
    """
    source, start, stop = text
    if load_i64(load_i64(work, SUBSCRIPTION_COUNTS), FOLDS):
        start, stop = 0, _folded(source, start, stop, work)
        source = load_i64(work, TEXT_SCRATCH)
        if stop == NOT_FOUND:
            return False
    n = _begin_element(base, form, STRING, work)
    if n == NOT_FOUND or n + stop - start > SCRATCH_BYTES:
        return False
    return _put_element(copied(source, start, stop, load_i64(work, BOUND_SCRATCH), n), _KIND_OF_ELEMENT, work)


@nested
def form_of_text(op: int, tables: int) -> int:
    """The form of virtual names of an operator that takes one text as part of the name, or 0 for other operators."""
    at = N_TYPES * op + STRING
    if op < FIRST_ELEMENT_OP or taken_by(op, tables) != TAKES_VALUE or load_i64(load_i64(tables, KINDS), at) != NOT_FOUND:
        return 0
    return load_i64(load_i64(tables, ELEMENT_FORMS), at)


@nested
def put_typed(name: int, op: int, type_: int, first: int, tables: int, work: int) -> bool:
    """Write a constraint after its operands, which begin at `first` and are all of one type.  Returns False if the type
    lacks the operator, or without room."""
    if type_ != STRING and load_i64(load_i64(work, SUBSCRIPTION_COUNTS), FOLDS):
        return False
    kind = load_i64(load_i64(tables, KINDS), N_TYPES * op + type_)
    if op >= FIRST_ELEMENT_OP:
        form = load_i64(load_i64(tables, ELEMENT_FORMS), N_TYPES * op + type_)
        if form == 0:
            return False
        n, is_extreme = _begin_element(pooled_name(name, work), form, type_, work), kind != NOT_FOUND
        if n != NOT_FOUND and not is_extreme:
            n = _put_operands(first, type_, taken_by(op, tables), n, work)
        return n != NOT_FOUND and _put_element(n, kind if is_extreme else _KIND_OF_ELEMENT, work)
    if kind == NOT_FOUND:
        return False
    put_constraint(name, kind, work)
    return True


@nested
def _bits_of_net(data: int, at: int, stop: int, most: int) -> int:
    """The number of bits in data[at:stop], which is `/BITS` or empty, or NOT_FOUND."""
    if at == stop:
        return most
    at += 1
    if at == stop or stop - at > _MOST_BITS_DIGITS:
        return NOT_FOUND
    bits = 0
    while at < stop:
        digit = load_u8(data, at) - ZERO
        if digit < 0 or digit > 9:
            return NOT_FOUND
        bits = 10 * bits + digit
        at += 1
    return bits if bits <= most else NOT_FOUND


@nested
def _put_net(source: int, start: int, stop: int, name: int, tables: int, work: int) -> bool:
    """Write the constraint `in net` with the text of a network (`address.network`) on the view with the number `name`.
    Returns False if it is not certain, or without room."""
    end, scratch = start, load_i64(work, BOUND_SCRATCH)
    while end < stop and load_u8(source, end) != _SLASH:
        end += 1
    kind, number = address_at(source, start, end, scratch)
    first = load_i64(load_i64(work, SUBSCRIPTION_COUNTS), N_OPERANDS)
    if kind == IPV4:
        bits = _bits_of_net(source, end, stop, _IPV4_BITS)
        if bits == NOT_FOUND:
            return False
        others = (1 << (_IPV4_BITS - bits)) - 1
        put_number(np.float64(number & ~others), 0.0, work)
        put_number(np.float64(number | others), 0.0, work)
        return put_typed(name, _BETWEEN, NUMBER, first, tables, work)
    bits = _bits_of_net(source, end, stop, _IPV6_BITS)
    if kind != IPV6 or bits == NOT_FOUND:
        return False
    if not put_text(scratch, 0, bits, hash_of(scratch, 0, bits, SEED), _PREFIX, tables, work):
        return False
    return put_typed(name, _PREFIX, STRING, first, tables, work)


@nested
def put_instant(source: int, start: int, stop: int, work: int) -> bool:
    """Write the instant of a text as an operand.  Returns False if it has none."""
    is_instant, nearest, residue = instant_at(source, start, stop)
    if is_instant:
        put_number(nearest, np.float64(residue), work)
    return is_instant


@nested
def put_text_of_view(source: int, start: int, stop: int, name: int, op: int, tables: int, work: int) -> bool:
    """Write the constraint of an operator on addresses or on instants with a text.  `name` is the number of the name of the
    view.  Returns False if it is not certain, or without room."""
    if op < FIRST_TIME_OP:
        return _put_net(source, start, stop, name, tables, work)
    first = load_i64(load_i64(work, SUBSCRIPTION_COUNTS), N_OPERANDS)
    return put_instant(source, start, stop, work) and put_typed(name, op - FIRST_TIME_OP, NUMBER, first, tables, work)


@nested
def view_of(name: int, op: int, work: int) -> int:
    """The number of the name of the view that an operator on addresses or on instants asks for, or NOT_FOUND without
    room."""
    return name_of_view(name, _OF_ADDRESSES if op < FIRST_TIME_OP else OF_INSTANTS, work)


@nested
def begin_row(work: int) -> None:
    """Note the counts of what is written."""
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    for i in range(_N_OF_OUTPUT):
        store_i64(counts, COUNTS_BEFORE + i, load_i64(counts, N_SCANNED_FILTERS + i))


@nested
def take_row_back(work: int) -> None:
    """Remove what was written since `begin_row`."""
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    for i in range(_N_OF_OUTPUT):
        store_i64(counts, N_SCANNED_FILTERS + i, load_i64(counts, COUNTS_BEFORE + i))


@nested
def begin_filter(work: int) -> None:
    store_i64(load_i64(work, ID_OF_FILTER), load_i64(load_i64(work, SUBSCRIPTION_COUNTS), N_SCANNED_FILTERS), HAS_NO_ID)


@nested
def put_id(source: int, start: int, stop: int, work: int) -> None:
    """Write the id of the open filter."""
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    n, end = load_i64(counts, N_SCANNED_IDS), load_i64(counts, N_ID_BYTES)
    end = copied(source, start, stop, load_i64(work, SCANNED_ID_BYTES), end)
    store_i64(load_i64(work, SCANNED_ID_END), n, end)
    store_i64(load_i64(work, ID_OF_FILTER), load_i64(counts, N_SCANNED_FILTERS), load_i64(counts, IDS_BEFORE) + n)
    store_i64(counts, N_ID_BYTES, end)
    store_i64(counts, N_SCANNED_IDS, n + 1)


@nested
def begin_area(work: int) -> int:
    """Begin the area of the open filter.  Returns the address of its three numbers, which are then to be written."""
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    n = load_i64(counts, N_SCANNED_AREAS)
    store_i64(load_i64(work, AREA_FILTER), n, load_i64(counts, N_SCANNED_FILTERS))
    store_i64(counts, N_SCANNED_AREAS, n + 1)
    return load_i64(work, SCANNED_AREAS) + 24 * n


@nested
def end_filter(work: int) -> None:
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    n = load_i64(counts, N_SCANNED_FILTERS)
    store_i64(load_i64(work, FILTER_ROW), n, load_i64(counts, SCANNED_ROWS))
    store_i64(load_i64(work, FILTER_LABEL), n, NOT_FOUND)
    store_i64(load_i64(work, FILTER_END), n, load_i64(counts, N_SCANNED_CONSTRAINTS))
    store_i64(counts, N_SCANNED_FILTERS, n + 1)


@nested
def begin_of(constraint: int, first: int, first_operand: int, work: int) -> int:
    """The index where the operands of a constraint of the row begin."""
    return load_i64(load_i64(work, CONSTRAINT_END), constraint - 1) if constraint > first else first_operand


@nested
def are_equal(one: int, other: int, first: int, first_operand: int, work: int) -> bool:
    names, kinds = load_i64(work, CONSTRAINT_NAME), load_i64(work, CONSTRAINT_KIND)
    if load_i64(names, one) != load_i64(names, other) or load_u8(kinds, one) != load_u8(kinds, other):
        return False
    i, j = begin_of(one, first, first_operand, work), begin_of(other, first, first_operand, work)
    n = load_i64(load_i64(work, CONSTRAINT_END), one) - i
    if n != load_i64(load_i64(work, CONSTRAINT_END), other) - j:
        return False
    numbers, strings = load_i64(work, OPERAND_NUMBER), load_i64(work, OPERAND_STRING)
    for k in range(n):
        if load_f64(numbers, i + k) != load_f64(numbers, j + k) or load_i64(strings, i + k) != load_i64(strings, j + k):
            return False
    return True


@nested
def copy_constraint(constraint: int, first: int, first_operand: int, work: int) -> None:
    """Write a constraint of the row again, with its operands."""
    names, kinds = load_i64(work, CONSTRAINT_NAME), load_i64(work, CONSTRAINT_KIND)
    numbers, strings = load_i64(work, OPERAND_NUMBER), load_i64(work, OPERAND_STRING)
    start, stop = begin_of(constraint, first, first_operand, work), load_i64(load_i64(work, CONSTRAINT_END), constraint)
    for k in range(start, stop):
        put_operand(load_f64(numbers, k), load_i64(strings, k), work)
    put_constraint(load_i64(names, constraint), load_u8(kinds, constraint), work)


@nested
def remove_constraints(first: int, n_terms: int, n_filters: int, first_operand: int, work: int) -> None:
    """Move the constraints that are written after the terms to the place of the terms."""
    counts, ends = load_i64(work, SUBSCRIPTION_COUNTS), load_i64(work, CONSTRAINT_END)
    names, kinds = load_i64(work, CONSTRAINT_NAME), load_i64(work, CONSTRAINT_KIND)
    numbers, strings = load_i64(work, OPERAND_NUMBER), load_i64(work, OPERAND_STRING)
    n_operands = load_i64(ends, first + n_terms - 1) - first_operand
    for i in range(first + n_terms, load_i64(counts, N_SCANNED_CONSTRAINTS)):
        store_i64(names, i - n_terms, load_i64(names, i))
        store_u8(kinds, i - n_terms, load_u8(kinds, i))
        store_i64(ends, i - n_terms, load_i64(ends, i) - n_operands)
    for i in range(first_operand + n_operands, load_i64(counts, N_OPERANDS)):
        store_f64(numbers, i - n_operands, load_f64(numbers, i))
        store_i64(strings, i - n_operands, load_i64(strings, i))
    filter_ends, last = load_i64(work, FILTER_END), load_i64(counts, N_SCANNED_FILTERS)
    for i in range(last - n_filters, last):
        store_i64(filter_ends, i, load_i64(filter_ends, i) - n_terms)
    store_i64(counts, N_SCANNED_CONSTRAINTS, load_i64(counts, N_SCANNED_CONSTRAINTS) - n_terms)
    store_i64(counts, N_OPERANDS, load_i64(counts, N_OPERANDS) - n_operands)


@nested
def open_same_filter(work: int) -> None:
    """Open a filter with the area and the id of the last one."""
    counts, ids = load_i64(work, SUBSCRIPTION_COUNTS), load_i64(work, ID_OF_FILTER)
    n, last = load_i64(counts, N_SCANNED_FILTERS), load_i64(counts, N_SCANNED_AREAS) - 1
    store_i64(ids, n, load_i64(ids, n - 1))
    if last >= 0 and load_i64(load_i64(work, AREA_FILTER), last) == n - 1:
        area, same = begin_area(work), load_i64(work, SCANNED_AREAS) + 24 * last
        for i in range(3):
            store_f64(area, i, load_f64(same, i))
