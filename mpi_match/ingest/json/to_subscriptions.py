"""Turns JSON lines of subscriptions into the columns of `Subscriptions`, in compiled code, without a Python object for a
line.

`scan_subscriptions` reads a line once, from left to right, and writes each filter, constraint and operand when it meets it;
names, strings and labels become numbers (`string_pool`).  As the scanner of events does, it never rejects a row: it *flags*
a line that it cannot judge with certainty, takes back its output for that line, and leaves it to `rows.judge`.  It flags
texts that are not JSON or not UTF-8, members, operators and operands other than those below, predicates that
`predicate_to_filters` cannot read, and lines that exceed the scratch arrays.

If a pool lacks room in the middle of a line, the line is taken back, and the scan ends before it.

The functions take addresses and numbers, allocate nothing and raise nothing; a position is FLAGGED_LINE if they cannot go
on.  Every text ends with a line feed, and no loop passes one.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.memory import AddressTable, load_i64, load_u8, store_f64, store_i64, store_u8
from mpi_match.ingest.codes.code_tables import NOT_FOUND, SEED, equal, hash_of
from mpi_match.ingest.codes.numbers import (
    HUGE_INTEGER,
    INTEGER,
    LARGE_INTEGER,
    NOT_READ,
    NUMBER_TABLES,
    residue_at,
    scan_number,
)
from mpi_match.ingest.codes.string_pool import POOL_FULL
from mpi_match.ingest.json.condition_to_filters import (
    LEVELS_OF_TREES,
    MOST_NESTING,
    NOT_TOKEN,
    TREE_LEVEL_WORDS,
    begin_conditions,
    end_condition,
    end_filter_of_conditions,
    has_conditions,
    put_join,
    put_leaves,
)
from mpi_match.ingest.json.predicate_to_filters import IS_CONDITION, put_alternatives, scan_condition, scan_predicate
from mpi_match.ingest.json.text import (
    FLAGGED_LINE,
    SCRATCH_BYTES,
    after_blanks,
    after_margin,
    literal,
    next_line,
    scan_string,
    text_at,
)
from mpi_match.ingest.json.to_constraints import (
    ANY,
    ANY_OF_OPS,
    BOOLEAN,
    CONDITION,
    FILTER_LABEL,
    FIRST_ELEMENT_OP,
    FIRST_NET_OP,
    FIRST_TIME_OP,
    FLAGGED_LINES,
    FOLDS,
    LABEL_POOL,
    LABEL_SCRATCH,
    LACKING_POOL,
    N_ALTERNATIVES,
    N_CONSTRAINT_TABLES,
    N_FLAGGED_LINES,
    N_OPERANDS,
    N_SCANNED_CONSTRAINTS,
    N_SCANNED_FILTERS,
    NAME_POOL,
    NUMBER,
    OF_INSTANTS,
    PREDICATE_SCRATCH,
    SCANNED_LINES,
    SCANNED_ROWS,
    SCANNED_TO,
    STRING,
    SUBSCRIPTION_COUNTS,
    SYMBOL_OPS,
    SYMBOLS,
    TAG_FORM,
    TAKES_BOUNDS,
    TAKES_NOTHING,
    TAKES_VALUE,
    TEXT_SCRATCH,
    WHERE_IS_TEXT,
    begin_area,
    begin_filter,
    begin_row,
    end_filter,
    end_list,
    fold,
    form_of_text,
    is_reserved,
    is_special,
    name_of_view,
    numbered,
    op_among,
    operator_tables,
    pooled_name,
    put_id,
    put_instant,
    put_number,
    put_operand,
    put_text,
    put_text_of_element,
    put_text_of_view,
    put_typed,
    take_row_back,
    taken_by,
    view_of,
)
from mpi_match.texts.characters import (
    BACKSLASH,
    BLANK,
    CLOSE_BRACE,
    CLOSE_BRACKET,
    COLON,
    COMMA,
    LINE_FEED,
    LOWER_A,
    LOWER_I,
    LOWER_N,
    LOWER_Y,
    MINUS,
    NINE,
    OPEN_BRACE,
    OPEN_BRACKET,
    QUOTE,
    ZERO,
)

KEY_BYTES, KEY_BOUNDS = range(N_CONSTRAINT_TABLES, N_CONSTRAINT_TABLES + 2)
"""Places in the table of addresses, behind those of numbers and constraints: u8, i64, the names of members by number."""
_KEYS = (b"interface", b"constraints", b"area", b"id", b"filters", b"tags", b"predicate", b"where", b"and", b"or", b"not")
_INTERFACE, _CONSTRAINTS, _AREA, _ID, _FILTERS, _TAGS, _PREDICATE, _WHERE = range(8)
_N_KEYS = 8
_JOINS = 7
"""The member of a condition that is AND_TOKEN, OR_TOKEN or NOT_TOKEN has the number of that behind this one."""
_ASKS = 1 << _CONSTRAINTS | 1 << _AREA | 1 << _TAGS | 1 << _WHERE
"""Members that mark a filter; every filter has one of them."""
_BESIDE_PREDICATE = 1 << _AREA | 1 << _ID
"""Members that a row with a predicate may have; other members must be null."""


def _tables() -> AddressTable:
    bounds = np.cumsum([0, *map(len, _KEYS)])
    keys: Array = np.frombuffer(b"".join(_KEYS), np.uint8)
    return AddressTable((*NUMBER_TABLES, *operator_tables(), keys, bounds))


TABLES = _tables()
"""The tables that the scanner reads; they do not depend on the input."""


@nested
def _add(counts: int, which: int, n: int) -> None:
    store_i64(counts, which, load_i64(counts, which) + n)


@nested
def _first_item(data: int, at: int) -> int:
    """The position of the first item of the list that begins here, or of its closing bracket."""
    return after_blanks(data, at + 1) if load_u8(data, at) == OPEN_BRACKET else FLAGGED_LINE


@nested
def _is_item(data: int, at: int, closing: int) -> bool:
    """Tells whether an item begins here rather than the `closing` bracket."""
    return at != FLAGGED_LINE and load_u8(data, at) != closing


@nested
def _next_item(data: int, at: int, closing: int) -> int:
    """The position after the comma and the blanks that follow an item of a list or object, or of its `closing` bracket.

    `at` is FLAGGED_LINE for an item that is not certain.
    """
    if at == FLAGGED_LINE:
        return FLAGGED_LINE
    at = after_blanks(data, at)
    if load_u8(data, at) == COMMA:
        at = after_blanks(data, at + 1)
        return at if load_u8(data, at) != closing else FLAGGED_LINE
    return at if load_u8(data, at) == closing else FLAGGED_LINE


@nested
def _label(data: int, at: int, scratch: int, tables: int) -> tuple[int, int, int, int, np.uint64]:
    """Does what `text_at` does, for a string or for an integer, which has its digits as text."""
    byte = load_u8(data, at)
    if byte != MINUS and not ZERO <= byte <= NINE:
        return text_at(data, at, scratch)
    start = at
    at, kind, value = scan_number(data, at, tables)
    if kind != INTEGER and kind != LARGE_INTEGER and kind != HUGE_INTEGER:
        return FLAGGED_LINE, data, 0, 0, SEED
    if kind == INTEGER and value == 0.0:
        start = at - 1  # also of -0
    return at, data, start, at, hash_of(data, start, at, SEED)


@nested
def _is_any(data: int, at: int) -> bool:
    """Tells whether the next bytes are `any` and a blank."""
    if load_u8(data, at) != LOWER_A or load_u8(data, at + 1) != LOWER_N:
        return False
    return load_u8(data, at + 2) == LOWER_Y and load_u8(data, at + 3) == BLANK


@nested
def _symbol(data: int, at: int, tables: int) -> tuple[int, int, bool]:
    """Read the operator at a quote.  Returns where it ends, its number, and whether it is without regard to case; a line
    with an unknown operator is flagged."""
    if load_u8(data, at) != QUOTE:
        return FLAGGED_LINE, NOT_FOUND, False
    at += 1
    first = 0
    if _is_any(data, at):
        at, first = at + 4, FIRST_ELEMENT_OP
    symbol, n, folds = np.uint64(0), np.uint64(0), False
    while load_u8(data, at) != QUOTE:
        byte = load_u8(data, at)
        if byte == BLANK and load_u8(data, at + 1) == LOWER_I and load_u8(data, at + 2) == QUOTE:
            at, folds = at + 2, True
            break
        if byte < BLANK or byte == BACKSLASH or n == np.uint64(64):
            return FLAGGED_LINE, NOT_FOUND, False
        symbol |= np.uint64(byte) << n
        n += np.uint64(8)
        at += 1
    op = op_among(load_i64(tables, SYMBOLS), load_i64(tables, SYMBOL_OPS), symbol)
    if op == NOT_FOUND or (first and op >= first) or (folds and op >= FIRST_ELEMENT_OP):
        return FLAGGED_LINE, NOT_FOUND, False
    return at + 1, first + op, folds


@nested
def _scan_operand(data: int, at: int, op: int, tables: int, work: int) -> tuple[int, int]:
    """Write the value that begins here as an operand.  Returns where it ends, and its type."""
    byte = load_u8(data, at)
    if byte == QUOTE:
        at, source, start, stop, hash_ = text_at(data, at, load_i64(work, TEXT_SCRATCH))
        if at == FLAGGED_LINE:
            return FLAGGED_LINE, STRING
        if not put_text(source, start, stop, hash_, op, tables, work):
            return FLAGGED_LINE, STRING
        return at, STRING
    if byte == MINUS or ZERO <= byte <= NINE:
        start = at
        at, kind, value = scan_number(data, at, tables)
        if kind in (NOT_READ, HUGE_INTEGER):
            return FLAGGED_LINE, NUMBER
        put_number(value, residue_at(data, start, at, value) if kind == LARGE_INTEGER else 0.0, work)
        return at, NUMBER
    found, at = literal(data, at)
    if found < 0 or found == 2:
        return FLAGGED_LINE, BOOLEAN
    put_operand(np.float64(found), NOT_FOUND, work)
    return at, BOOLEAN


@nested
def _scan_list(data: int, at: int, op: int, tables: int, work: int) -> tuple[int, int]:
    """Write the values of the list that begins here as operands.  Returns where it ends, and the type of all of them."""
    at = _first_item(data, at)
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    first, of_first = load_i64(counts, N_OPERANDS), ANY
    while _is_item(data, at, CLOSE_BRACKET):
        at, type_ = _scan_operand(data, at, op, tables, work)
        if of_first != ANY and type_ != of_first:
            return FLAGGED_LINE, ANY
        of_first = type_
        at = _next_item(data, at, CLOSE_BRACKET)
    if at == FLAGGED_LINE or not end_list(first, of_first, taken_by(op, tables), work):
        return FLAGGED_LINE, ANY
    return at + 1, of_first


@nested
def _scan_operands(data: int, at: int, op: int, tables: int, work: int) -> tuple[int, int]:
    """Write the operands after an operator that takes a list or nothing.  Returns where the constraint's list ends, and the
    type of the operands."""
    at = after_blanks(data, at)
    if taken_by(op, tables) == TAKES_NOTHING:
        return (at if load_u8(data, at) == CLOSE_BRACKET else FLAGGED_LINE), ANY
    if load_u8(data, at) != COMMA:
        return FLAGGED_LINE, ANY
    at, type_ = _scan_list(data, after_blanks(data, at + 1), op, tables, work)
    if at == FLAGGED_LINE:
        return FLAGGED_LINE, ANY
    at = after_blanks(data, at)
    return (at if load_u8(data, at) == CLOSE_BRACKET else FLAGGED_LINE), type_


@nested
def _scan_element(data: int, at: int, base: tuple[int, int, int], form: int, work: int) -> int:
    """Write the constraint `put_text_of_element` of the text that begins here.  Returns where the text ends."""
    at, text, start, stop, _ = text_at(data, at, load_i64(work, TEXT_SCRATCH))
    if at == FLAGGED_LINE or not put_text_of_element(base, form, (text, start, stop), work):
        return FLAGGED_LINE
    return at


@nested
def _scan_tags(data: int, at: int, tables: int, work: int) -> int:
    """Write the constraints of a list of tags.  Returns where it ends."""
    bounds = load_i64(tables, KEY_BOUNDS)
    base = (load_i64(tables, KEY_BYTES), load_i64(bounds, _TAGS), load_i64(bounds, _TAGS + 1))
    store_i64(load_i64(work, SUBSCRIPTION_COUNTS), FOLDS, 0)
    at = _first_item(data, at)
    while _is_item(data, at, CLOSE_BRACKET):
        at = _next_item(data, _scan_element(data, at, base, TAG_FORM, work), CLOSE_BRACKET)
    return at + 1 if at != FLAGGED_LINE else FLAGGED_LINE


@nested
def _scan_operand_of(data: int, at: int, name: int, op: int, tables: int, work: int) -> int:
    """Write a constraint with the one value that begins here as its operand.  Returns where that ends."""
    form = form_of_text(op, tables)
    if form != 0 and load_u8(data, at) == QUOTE:
        return _scan_element(data, at, pooled_name(name, work), form, work)
    first = load_i64(load_i64(work, SUBSCRIPTION_COUNTS), N_OPERANDS)
    at, type_ = _scan_operand(data, at, op, tables, work)
    return at if at != FLAGGED_LINE and put_typed(name, op, type_, first, tables, work) else FLAGGED_LINE


@nested
def _scan_any_of(data: int, at: int, name: int, op: int, tables: int, work: int) -> int:
    """Write a constraint for each value of the list that begins here.  Returns where the list ends."""
    at = _first_item(data, at)
    if not _is_item(data, at, CLOSE_BRACKET):
        return FLAGGED_LINE
    while _is_item(data, at, CLOSE_BRACKET):
        at = _next_item(data, _scan_operand_of(data, at, name, op, tables, work), CLOSE_BRACKET)
    return at + 1 if at != FLAGGED_LINE else FLAGGED_LINE


@nested
def _operand(data: int, at: int) -> int:
    """The position of the operand after the comma that follows."""
    at = after_blanks(data, at)
    return after_blanks(data, at + 1) if load_u8(data, at) == COMMA else FLAGGED_LINE


@nested
def _scan_of_view(data: int, at: int, name: int, op: int, tables: int, work: int) -> int:
    """Write the constraint of an operator on addresses or on instants, whose operand begins here, or those with each text of
    a list.  Returns where the operand ends."""
    view = view_of(name, op, work)
    if view == NOT_FOUND:
        return FLAGGED_LINE
    is_list = load_u8(data, at) == OPEN_BRACKET
    if is_list:
        at = _first_item(data, at)
        if op >= FIRST_TIME_OP or not _is_item(data, at, CLOSE_BRACKET):
            return FLAGGED_LINE
    while True:
        at, source, start, stop, _ = text_at(data, at, load_i64(work, TEXT_SCRATCH))
        if at == FLAGGED_LINE or not put_text_of_view(source, start, stop, view, op, tables, work):
            return FLAGGED_LINE
        if not is_list:
            return at
        at = _next_item(data, at, CLOSE_BRACKET)
        if not _is_item(data, at, CLOSE_BRACKET):
            return at + 1 if at != FLAGGED_LINE else FLAGGED_LINE


@nested
def _are_bounds_of_instants(data: int, at: int, op: int, tables: int) -> bool:
    """Tells whether the operand that begins here is a list whose first item is a text, and the operator `between`."""
    if op >= FIRST_ELEMENT_OP or taken_by(op, tables) != TAKES_BOUNDS or load_u8(data, at) != OPEN_BRACKET:
        return False
    return load_u8(data, after_blanks(data, at + 1)) == QUOTE


@nested
def _scan_bounds_of_instants(data: int, at: int, name: int, op: int, tables: int, work: int) -> int:
    """Write the constraint `between` with the list of two instants that begins here.  Returns where the list ends."""
    view, first = name_of_view(name, OF_INSTANTS, work), load_i64(load_i64(work, SUBSCRIPTION_COUNTS), N_OPERANDS)
    at = _first_item(data, at)
    while _is_item(data, at, CLOSE_BRACKET):
        at, source, start, stop, _ = text_at(data, at, load_i64(work, TEXT_SCRATCH))
        if at != FLAGGED_LINE and not put_instant(source, start, stop, work):
            return FLAGGED_LINE
        at = _next_item(data, at, CLOSE_BRACKET)
    if at == FLAGGED_LINE or view == NOT_FOUND or not end_list(first, NUMBER, TAKES_BOUNDS, work):
        return FLAGGED_LINE
    return at + 1 if put_typed(view, op, NUMBER, first, tables, work) else FLAGGED_LINE


@nested
def _scan_constraint(data: int, at: int, tables: int, work: int) -> int:
    """Write the constraint in the list that begins here, or those of which any must hold.  Returns where the list ends."""
    if load_u8(data, at) != OPEN_BRACKET:
        return FLAGGED_LINE
    at, source, start, stop, hash_ = text_at(data, after_blanks(data, at + 1), load_i64(work, TEXT_SCRATCH))
    if at == FLAGGED_LINE or is_special(source, start, stop):
        return FLAGGED_LINE
    name, counts = numbered(NAME_POOL, source, start, stop, hash_, work), load_i64(work, SUBSCRIPTION_COUNTS)
    at = after_blanks(data, at)
    if name == POOL_FULL or load_u8(data, at) != COMMA:
        return FLAGGED_LINE
    at, op, folds = _symbol(data, after_blanks(data, at + 1), tables)
    if at == FLAGGED_LINE:
        return FLAGGED_LINE
    store_i64(counts, FOLDS, 0)
    if folds:
        name = fold(name, op, tables, work)
        if name == NOT_FOUND:
            return FLAGGED_LINE
    is_of_view = op >= FIRST_NET_OP
    if not is_of_view and taken_by(op, tables) != TAKES_VALUE:
        operand = _operand(data, at)
        if operand != FLAGGED_LINE and _are_bounds_of_instants(data, operand, op, tables):
            at = _scan_bounds_of_instants(data, operand, name, op, tables, work)
            at = after_blanks(data, at) if at != FLAGGED_LINE else FLAGGED_LINE
            return at + 1 if at != FLAGGED_LINE and load_u8(data, at) == CLOSE_BRACKET else FLAGGED_LINE
        first = load_i64(counts, N_OPERANDS)
        at, type_ = _scan_operands(data, at, op, tables, work)
        return at + 1 if at != FLAGGED_LINE and put_typed(name, op, type_, first, tables, work) else FLAGGED_LINE
    at = _operand(data, at)
    if at == FLAGGED_LINE:
        return FLAGGED_LINE
    if is_of_view:
        at = _scan_of_view(data, at, name, op, tables, work)
    elif load_u8(data, at) != OPEN_BRACKET:
        at = _scan_operand_of(data, at, name, op, tables, work)
    elif load_i64(load_i64(tables, ANY_OF_OPS), op):
        at = _scan_any_of(data, at, name, op, tables, work)
    else:
        return FLAGGED_LINE
    at = after_blanks(data, at) if at != FLAGGED_LINE else FLAGGED_LINE
    return at + 1 if at != FLAGGED_LINE and load_u8(data, at) == CLOSE_BRACKET else FLAGGED_LINE


@nested
def _scan_leaf(data: int, at: int, tables: int, work: int) -> int:
    """Write the constraint of a condition in the list that begins here.  Returns where it ends."""
    first = load_i64(load_i64(work, SUBSCRIPTION_COUNTS), N_SCANNED_CONSTRAINTS)
    at = _scan_constraint(data, at, tables, work)
    return at if at != FLAGGED_LINE and put_leaves(first, work) else FLAGGED_LINE


@nested
def _begin_join(data: int, at: int, depth: int, tables: int, work: int) -> int:
    """Begin the condition in the object at `at`, within `depth` others.  Returns where the first condition in it begins."""
    if depth == MOST_NESTING:
        return FLAGGED_LINE
    at, key = _key(data, after_blanks(data, at + 1), _N_KEYS, len(_KEYS), tables)
    if at == FLAGGED_LINE:
        return FLAGGED_LINE
    frame = load_i64(work, CONDITION) + 8 * (LEVELS_OF_TREES + TREE_LEVEL_WORDS * depth)
    store_i64(frame, 0, key - _JOINS)
    store_i64(frame, 1, 0)
    if key - _JOINS == NOT_TOKEN:
        return at
    at = _first_item(data, at)
    return at if _is_item(data, at, CLOSE_BRACKET) else FLAGGED_LINE


@nested
def _end_joins(data: int, at: int, depth: int, work: int) -> tuple[int, int]:
    """End the conditions that end behind the one that ends here.  Returns where they end or where the next condition begins,
    and how many conditions are around that."""
    while depth > 0:
        frame = load_i64(work, CONDITION) + 8 * (LEVELS_OF_TREES + TREE_LEVEL_WORDS * (depth - 1))
        join, n = load_i64(frame, 0), load_i64(frame, 1) + 1
        if join != NOT_TOKEN:
            at = _next_item(data, at, CLOSE_BRACKET)
            if at == FLAGGED_LINE:
                return FLAGGED_LINE, depth
            if load_u8(data, at) != CLOSE_BRACKET:
                store_i64(frame, 1, n)
                return at, depth
            at += 1
        at = after_blanks(data, at)
        if load_u8(data, at) != CLOSE_BRACE or not put_join(join, n, work):
            return FLAGGED_LINE, depth
        at += 1
        depth -= 1
    return at, 0


@nested
def _scan_condition(data: int, at: int, tables: int, work: int) -> int:
    """Write the constraints of the condition in the object that begins here, and record its tree.  Returns where it ends."""
    depth = 0
    while True:
        while load_u8(data, at) == OPEN_BRACE:
            at = _begin_join(data, at, depth, tables, work)
            if at == FLAGGED_LINE:
                return FLAGGED_LINE
            depth += 1
        at = _scan_leaf(data, at, tables, work)
        if at == FLAGGED_LINE:
            return FLAGGED_LINE
        at, depth = _end_joins(data, at, depth, work)
        if at == FLAGGED_LINE:
            return FLAGGED_LINE
        if depth == 0:
            end_condition(work)
            return at


@nested
def _scan_where(data: int, at: int, tables: int, work: int) -> int:
    """Write the constraint or the condition that begins here.  Returns where it ends."""
    if load_u8(data, at) == OPEN_BRACE:
        return _scan_condition(data, at, tables, work)
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    first = load_i64(counts, N_SCANNED_CONSTRAINTS)
    at = _scan_constraint(data, at, tables, work)
    if at == FLAGGED_LINE or load_i64(counts, N_SCANNED_CONSTRAINTS) == first + 1:
        return at
    if not put_leaves(first, work):
        return FLAGGED_LINE
    end_condition(work)
    return at


@nested
def _scan_text_of_where(data: int, at: int, tables: int, work: int) -> int:
    """Write the constraint or the condition in JSON that is in the string that begins here.  Returns where the string
    ends."""
    scratch = load_i64(work, PREDICATE_SCRATCH)
    at, source, start, stop, _ = text_at(data, at, scratch)
    if at == FLAGGED_LINE or source != scratch or stop == SCRATCH_BYTES:
        return FLAGGED_LINE
    store_u8(scratch, stop, LINE_FEED)
    end = _scan_where(scratch, after_blanks(scratch, start), tables, work)
    return at if end != FLAGGED_LINE and after_blanks(scratch, end) == stop else FLAGGED_LINE


@nested
def _scan_constraints(data: int, at: int, tables: int, work: int) -> int:
    """Write the constraints and conditions of a list.  Returns where it ends."""
    at = _first_item(data, at)
    while _is_item(data, at, CLOSE_BRACKET):
        at = _next_item(data, _scan_where(data, at, tables, work), CLOSE_BRACKET)
    return at + 1 if at != FLAGGED_LINE else FLAGGED_LINE


@nested
def _scan_area(data: int, at: int, tables: int, work: int) -> int:
    """Write the area of the next filter.  Returns where it ends."""
    at = _first_item(data, at)
    if at == FLAGGED_LINE:
        return FLAGGED_LINE
    area = begin_area(work)
    for i in range(3):
        at, kind, value = scan_number(data, at, tables)
        if kind in (NOT_READ, LARGE_INTEGER, HUGE_INTEGER) or (i == 2 and value < 0.0):
            return FLAGGED_LINE
        store_f64(area, i, value)
        at = _next_item(data, at, CLOSE_BRACKET)
        if at == FLAGGED_LINE or (load_u8(data, at) == CLOSE_BRACKET) != (i == 2):
            return FLAGGED_LINE
    return at + 1


@nested
def _scan_id(data: int, at: int, tables: int, work: int) -> int:
    """Write the id of the next filter.  Returns where it ends."""
    at, source, start, stop, _ = _label(data, at, load_i64(work, TEXT_SCRATCH), tables)
    if at == FLAGGED_LINE or is_reserved(source, start, stop):
        return FLAGGED_LINE
    put_id(source, start, stop, work)
    return at


@nested
def _key(data: int, at: int, first: int, end: int, tables: int) -> tuple[int, int]:
    """Read the name of a member at a quote, and the colon.  Returns where its value begins, and its number among those from
    `first` to `end`."""
    if load_u8(data, at) != QUOTE:
        return FLAGGED_LINE, NOT_FOUND
    start = at + 1
    at, _ = scan_string(data, start, SEED)
    if load_u8(data, at) != QUOTE:
        return FLAGGED_LINE, NOT_FOUND
    bounds, found = load_i64(tables, KEY_BOUNDS), NOT_FOUND
    for key in range(first, end):
        if equal(data, start, at, load_i64(tables, KEY_BYTES), load_i64(bounds, key), load_i64(bounds, key + 1)):
            found = key
    at = after_blanks(data, at + 1)
    if found == NOT_FOUND or load_u8(data, at) != COLON:
        return FLAGGED_LINE, NOT_FOUND
    return after_blanks(data, at + 1), found


@nested
def _scan_part(data: int, at: int, key: int, tables: int, work: int) -> tuple[int, bool]:
    """Write a member of a filter.  Returns where it ends, and whether it is other than null."""
    if key in (_INTERFACE, _FILTERS, _PREDICATE):
        return FLAGGED_LINE, False
    if load_u8(data, at) == LOWER_N:
        found, at = literal(data, at)
        return (at if found == 2 else FLAGGED_LINE), False
    if key == _CONSTRAINTS:
        return _scan_constraints(data, at, tables, work), True
    if key == _AREA:
        return _scan_area(data, at, tables, work), True
    if key == _TAGS:
        return _scan_tags(data, at, tables, work), True
    if key == _WHERE and load_u8(data, at) == QUOTE and load_i64(load_i64(work, SUBSCRIPTION_COUNTS), WHERE_IS_TEXT):
        return _scan_text_of_where(data, at, tables, work), True
    if key == _WHERE:
        return _scan_where(data, at, tables, work), True
    return _scan_id(data, at, tables, work), True


@nested
def _begin_filter(work: int) -> None:
    begin_filter(work)
    begin_conditions(work)


@nested
def _end_filter(n_bytes: int, tables: int, work: int) -> bool:
    """End a filter whose text has `n_bytes`.  Returns False if it is in doubt."""
    if has_conditions(work):
        return end_filter_of_conditions(False, n_bytes, tables, work)
    end_filter(work)
    return True


@nested
def _scan_filter(data: int, at: int, tables: int, work: int) -> int:
    """Write the filter in the object that begins here.  Returns where it ends."""
    if load_u8(data, at) != OPEN_BRACE:
        return FLAGGED_LINE
    _begin_filter(work)
    begin = at
    at = after_blanks(data, at + 1)
    members, given = 0, 0
    while load_u8(data, at) != CLOSE_BRACE:
        at, key = _key(data, at, 0, _N_KEYS, tables)
        if at == FLAGGED_LINE or members >> key & 1:
            return FLAGGED_LINE
        at, is_given = _scan_part(data, at, key, tables, work)
        if at == FLAGGED_LINE:
            return FLAGGED_LINE
        members |= 1 << key
        if is_given:
            given |= 1 << key
        at = _next_item(data, at, CLOSE_BRACE)
        if at == FLAGGED_LINE:
            return FLAGGED_LINE
    if given & _ASKS == 0 or not _end_filter(at - begin, tables, work):
        return FLAGGED_LINE
    return at + 1


@nested
def _scan_filters(data: int, at: int, tables: int, work: int) -> int:
    """Write the filters of a list.  Returns where it ends."""
    at = _first_item(data, at)
    if not _is_item(data, at, CLOSE_BRACKET):
        return FLAGGED_LINE
    while _is_item(data, at, CLOSE_BRACKET):
        at = _next_item(data, _scan_filter(data, at, tables, work), CLOSE_BRACKET)
    return at + 1 if at != FLAGGED_LINE else FLAGGED_LINE


@nested
def _scan_text_of_predicate(data: int, at: int, tables: int, work: int) -> int:
    """Write the terms of the predicate in the string that begins here, and note its alternatives, or that it is a condition.
    Returns where the string ends."""
    scratch = load_i64(work, PREDICATE_SCRATCH)
    at, source, start, stop, _ = text_at(data, at, scratch)
    if at == FLAGGED_LINE:
        return FLAGGED_LINE
    if source == scratch:
        if stop == SCRATCH_BYTES:
            return FLAGGED_LINE
        store_u8(scratch, stop, 10)
    n = scan_predicate(source, start, stop, tables, work)
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    if n == 0 and load_i64(counts, LACKING_POOL) == NOT_FOUND:
        n = scan_condition(source, start, stop, tables, work)
    store_i64(counts, N_ALTERNATIVES, n)
    return at if n else FLAGGED_LINE


@nested
def _scan_members(data: int, at: int, tables: int, work: int) -> tuple[int, int, int, int, np.uint64]:
    """Write the filters of the row in the object that begins here.  Returns where it ends, and the address, start, end and
    hash of its label.

    The members other than nulls must be one of three sets.  The filter of a row with a predicate stays open.
    """
    label, label_start, label_stop, label_hash = data, 0, 0, SEED
    begin, members, given = at, 0, 0
    while load_u8(data, at) != CLOSE_BRACE:
        at, key = _key(data, at, 0, _N_KEYS, tables)
        if at == FLAGGED_LINE or members >> key & 1:
            return FLAGGED_LINE, label, 0, 0, SEED
        is_given = True
        if key == _INTERFACE:
            at, label, label_start, label_stop, label_hash = _label(data, at, load_i64(work, LABEL_SCRATCH), tables)
        elif key == _FILTERS:
            at = _scan_filters(data, at, tables, work)
        elif key == _PREDICATE:
            at = _scan_text_of_predicate(data, at, tables, work)
        else:
            at, is_given = _scan_part(data, at, key, tables, work)
        if at == FLAGGED_LINE:
            return FLAGGED_LINE, label, 0, 0, SEED
        members |= 1 << key
        if is_given:
            given |= 1 << key
        at = _next_item(data, at, CLOSE_BRACE)
        if at == FLAGGED_LINE:
            return FLAGGED_LINE, label, 0, 0, SEED
    if members >> _FILTERS & 1:
        is_whole = members == (1 << _FILTERS | 1 << _INTERFACE)
    elif members >> _PREDICATE & 1:
        is_whole = members & ~_BESIDE_PREDICATE == (1 << _PREDICATE | 1 << _INTERFACE)
    else:
        is_whole = members >> _INTERFACE & 1 != 0 and given & _ASKS != 0 and _end_filter(at - begin, tables, work)
    return (at + 1 if is_whole else FLAGGED_LINE), label, label_start, label_stop, label_hash


@nested
def _scan_row(data: int, at: int, tables: int, work: int) -> int:
    """Write the filters of the line that begins at `at`, with a byte other than a blank.  Returns the position of its line
    feed."""
    if load_u8(data, at) != OPEN_BRACE:
        return FLAGGED_LINE
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    begin, first = at, load_i64(counts, N_SCANNED_FILTERS)
    n_constraints, n_operands = load_i64(counts, N_SCANNED_CONSTRAINTS), load_i64(counts, N_OPERANDS)
    _begin_filter(work)
    store_i64(counts, N_ALTERNATIVES, 0)
    at, source, start, stop, hash_ = _scan_members(data, after_blanks(data, at + 1), tables, work)
    if at == FLAGGED_LINE or is_reserved(source, start, stop):
        return FLAGGED_LINE
    at = after_margin(data, at)
    if load_u8(data, at) != LINE_FEED:
        return FLAGGED_LINE
    n = load_i64(counts, N_ALTERNATIVES)
    if n == IS_CONDITION:
        if not end_filter_of_conditions(True, at - begin, tables, work):
            return FLAGGED_LINE
    elif n and not put_alternatives(n_constraints, n_operands, at - begin, work):
        return FLAGGED_LINE
    label = numbered(LABEL_POOL, source, start, stop, hash_, work)
    if label == POOL_FULL:
        return FLAGGED_LINE
    labels = load_i64(work, FILTER_LABEL)
    for i in range(first, load_i64(counts, N_SCANNED_FILTERS)):
        if load_i64(labels, i) == NOT_FOUND:
            store_i64(labels, i, label)
    return at


@nested
def _flag(line: int, start: int, stop: int, work: int) -> None:
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    flagged = load_i64(work, FLAGGED_LINES) + 24 * load_i64(counts, N_FLAGGED_LINES)
    store_i64(flagged, 0, line)
    store_i64(flagged, 1, start)
    store_i64(flagged, 2, stop)
    _add(counts, N_FLAGGED_LINES, 1)


@jit
def scan_subscriptions(data: int, stop: int, tables: int, work: int) -> None:
    """Scan the lines of data[:stop] u8, whose last byte is a line feed, from SCANNED_TO on.

    SCANNED_TO is `stop` in the end, unless a pool lacks room.  Blanks around a line and a byte order mark before it are left
    out as `rows.trimmed` does; a blank line is not a row.
    """
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    store_i64(counts, LACKING_POOL, NOT_FOUND)
    at = load_i64(counts, SCANNED_TO)
    while at < stop:
        begin = at
        if load_u8(data, at) == 0xEF and load_u8(data, at + 1) == 0xBB and load_u8(data, at + 2) == 0xBF:
            at += 3
        at = after_margin(data, at)
        if load_u8(data, at) != LINE_FEED:
            begin_row(work)
            end = _scan_row(data, at, tables, work)
            if end == FLAGGED_LINE:
                take_row_back(work)
                if load_i64(counts, LACKING_POOL) != NOT_FOUND:
                    return
                end = next_line(data, at) - 1
                _flag(load_i64(counts, SCANNED_LINES), begin, end, work)
            _add(counts, SCANNED_ROWS, 1)
            at = end
        _add(counts, SCANNED_LINES, 1)
        at += 1
        store_i64(counts, SCANNED_TO, at)
