r"""Turns predicates in text into filters, in compiled code: the filters that `predicates.parse` makes, without Python
objects.

The text is read once, from left to right.  Each term becomes a constraint, after those that are written.  An alternative is
the set of its terms, with a bit for each in u64, because its terms keep the order of the text.  A stack holds the
alternatives, with those of outer parentheses first:

    a and (b or c and d)        0  {a}          the terms before `(`, to be in every alternative
                                1  {b}          `or` ends an alternative
                                2  {c, d}
    at `)`                      0  {a, b}       every alternative outside with every one inside
                                1  {a, c, d}

A text with `not` is read once more, as a condition (`scan_condition`).

Lines in doubt are flagged and left to `predicates`: `not` before nothing but `exists` and `absent`, backslashes in texts,
`""` in names, numbers that JSON does not have, characters beyond ASCII outside quotes, more terms or alternatives than there
are bits and words for, and every text that is not a predicate.
"""

from __future__ import annotations

import numpy as np

from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import load_i64, load_u8, load_u64, store_i64, store_u8, store_u64
from mpi_match.ingest.codes.code_tables import NOT_FOUND, SEED, hash_of
from mpi_match.ingest.codes.numbers import HUGE_INTEGER, LARGE_INTEGER, NOT_READ, residue_at, scan_number
from mpi_match.ingest.codes.string_pool import POOL_FULL
from mpi_match.ingest.json.condition_to_filters import (
    AND_TOKEN,
    LEVELS_OF_TREES,
    MOST_NESTING,
    NOT_TOKEN,
    OR_TOKEN,
    TREE_LEVEL_WORDS,
    put_join,
    put_leaves,
    reset_conditions,
)
from mpi_match.ingest.json.text import FLAGGED_LINE, SCRATCH_BYTES
from mpi_match.ingest.json.to_constraints import (
    ALTERNATIVES,
    ANY,
    BOOLEAN,
    CONDITION,
    CONSTRAINT_END,
    FIRST_ELEMENT_OP,
    FOLDS,
    LEAST_FILTER_BYTES,
    N_ALTERNATIVES,
    N_OPERANDS,
    N_SCANNED_CONSTRAINTS,
    NAME_POOL,
    NUMBER,
    STRING,
    SUBSCRIPTION_COUNTS,
    TAKES_BOUNDS,
    TAKES_LIST,
    TAKES_NOTHING,
    TEXT_SCRATCH,
    WORD_OPS,
    WORDS,
    are_equal,
    begin_of,
    copy_constraint,
    end_filter,
    end_list,
    fold,
    form_of_text,
    is_special,
    numbered,
    op_among,
    open_same_filter,
    pooled_name,
    put_number,
    put_operand,
    put_text,
    put_text_of_element,
    put_typed,
    remove_constraints,
    taken_by,
)
from mpi_match.ingest.rows.predicate_text import MAX_FILTERS_OF_A_PREDICATE, MAX_OPERANDS
from mpi_match.operators import OPERATORS, Op
from mpi_match.texts.characters import (
    APOSTROPHE,
    BACKSLASH,
    BLANK,
    CLOSE_PARENTHESIS,
    COMMA,
    LOWER_A,
    LOWER_CASE,
    LOWER_Z,
    MINUS,
    NINE,
    OPEN_PARENTHESIS,
    POINT,
    QUOTE,
    RETURN,
    TAB,
    UNDERSCORE,
    UPPER_A,
    UPPER_Z,
    ZERO,
)

_MOST_TERMS = 64
_MOST_ALTERNATIVES = 256
_MOST_DEPTH = 32
_TERM_NUMBERS = _MOST_ALTERNATIVES
_FRAMES = _TERM_NUMBERS + _MOST_TERMS
N_ALTERNATIVE_WORDS = _FRAMES + 2 * _MOST_DEPTH
"""Words of ALTERNATIVES: the stack; the number of each term, which is that of the first equal term; and for each open
parenthesis, where in the stack the alternatives around it begin, and where the last of these begins."""
IS_CONDITION = -1
"""Instead of the number of alternatives of a predicate: it is a condition."""
assert _MOST_ALTERNATIVES <= MAX_FILTERS_OF_A_PREDICATE

_NO_WORD, _0, _1 = np.uint64(0), np.uint64(0), np.uint64(1)


def _packed(word: str) -> np.uint64:
    """The bytes of a word, the first the lowest."""
    return np.uint64(int.from_bytes(word.encode(), "little"))


_AND, _OR, _NOT, _IN_WORD, _BETWEEN_WORD, _EXISTS_WORD, _ABSENT_WORD = map(
    _packed, ("and", "or", "not", "in", "between", "exists", "absent")
)
_PREFIX_WORD, _SUFFIX_WORD, _CONTAINS_WORD, _TRUE, _FALSE, _HAS_WORD, _ANY_WORD = map(
    _packed, ("prefix", "suffix", "contains", "true", "false", "has", "any")
)
_I_WORD = _packed("i")
_EQ, _NOT_IN = int(Op.EQ), int(Op.NOT_IN)
_SIGN_BYTES = tuple(
    sorted(
        {
            ord(byte)
            for op in OPERATORS.values()
            for sign in (op.symbol, *op.spellings)
            for byte in sign
            if not (byte.isalpha() or byte == " ")
        }
    )
)
"""The bytes of comparisons."""


@nested
def _byte(data: int, at: int, stop: int) -> int:
    """The byte at a position, or 0 at the end; text outside quotes has no byte 0."""
    return load_u8(data, at) if at < stop else 0


@nested
def _after_space(data: int, at: int, stop: int) -> int:
    while at < stop and (load_u8(data, at) == BLANK or TAB <= load_u8(data, at) <= RETURN):
        at += 1
    return at


@nested
def _is_of_word(byte: int) -> bool:
    """Tells whether a word may have this byte; all bytes beyond ASCII count."""
    return (
        ZERO <= byte <= NINE
        or LOWER_A <= (byte | LOWER_CASE) <= LOWER_Z
        or byte == UNDERSCORE
        or byte == POINT
        or byte >= 128
    )


@nested
def _word(data: int, at: int, stop: int) -> tuple[int, np.uint64]:
    """Read the word that begins here.  Returns where it ends, and its bytes in lower case, packed; _NO_WORD for more than 8
    bytes.

    The end is the beginning if no word begins here, and FLAGGED_LINE for a byte beyond ASCII.
    """
    packed, n = _NO_WORD, 0
    byte = _byte(data, at, stop)
    if ZERO <= byte <= NINE or byte == POINT:
        return at, _NO_WORD
    while _is_of_word(byte):
        if byte >= 128:
            return FLAGGED_LINE, _NO_WORD
        if n < 8:
            packed |= np.uint64(byte + LOWER_CASE if UPPER_A <= byte <= UPPER_Z else byte) << np.uint64(8 * n)
        n += 1
        at += 1
        byte = _byte(data, at, stop)
    return at, packed if n <= 8 else _NO_WORD


@nested
def _is_keyword(word: np.uint64) -> bool:
    """Tells whether a word is reserved, so that it is not a name."""
    if word in (_AND, _OR, _NOT, _TRUE, _FALSE, _IN_WORD):
        return True
    return word in (_BETWEEN_WORD, _EXISTS_WORD, _ABSENT_WORD, _PREFIX_WORD, _SUFFIX_WORD, _CONTAINS_WORD)


@nested
def _scan_name(data: int, at: int, stop: int, work: int) -> tuple[int, int]:
    """Read the name that begins here.  Returns where it ends, and its number."""
    start = at
    if _byte(data, at, stop) == QUOTE:
        start += 1
        at = start
        while at < stop and load_u8(data, at) != QUOTE:
            at += 1
        if at == stop or _byte(data, at + 1, stop) == QUOTE:
            return FLAGGED_LINE, NOT_FOUND
        end, behind = at, at + 1
    else:
        at, word = _word(data, at, stop)
        if at in (FLAGGED_LINE, start) or _is_keyword(word):
            return FLAGGED_LINE, NOT_FOUND
        end, behind = at, at
    if is_special(data, start, end):
        return FLAGGED_LINE, NOT_FOUND
    name = numbered(NAME_POOL, data, start, end, hash_of(data, start, end, SEED), work)
    return (behind if name != POOL_FULL else FLAGGED_LINE), name


@nested
def _text(data: int, at: int, stop: int, scratch: int) -> tuple[int, int, int, int]:
    """Read the text at a single quote.  Returns where it ends, and the address, start and end of its bytes."""
    at += 1
    start, n_quotes = at, 0
    while at < stop:
        byte = load_u8(data, at)
        if byte == BACKSLASH:
            return FLAGGED_LINE, data, 0, 0
        if byte == APOSTROPHE:
            if _byte(data, at + 1, stop) != APOSTROPHE:
                break
            n_quotes += 1
            at += 1
        at += 1
    if at >= stop:
        return FLAGGED_LINE, data, 0, 0
    if n_quotes == 0:
        return at + 1, data, start, at
    if at - start > SCRATCH_BYTES:
        return FLAGGED_LINE, data, 0, 0
    n, i = 0, start
    while i < at:
        store_u8(scratch, n, load_u8(data, i))
        n += 1
        i += 2 if load_u8(data, i) == APOSTROPHE else 1
    return at + 1, scratch, 0, n


@nested
def _scan_value(data: int, at: int, stop: int, op: int, tables: int, work: int) -> tuple[int, int]:
    """Write the value that begins here as an operand.  Returns where it ends, and its type."""
    byte = _byte(data, at, stop)
    if byte == APOSTROPHE:
        at, source, start, end = _text(data, at, stop, load_i64(work, TEXT_SCRATCH))
        if at == FLAGGED_LINE or not put_text(source, start, end, hash_of(source, start, end, SEED), op, tables, work):
            return FLAGGED_LINE, STRING
        return at, STRING
    if byte == MINUS or ZERO <= byte <= NINE:
        start = at
        at, kind, value = scan_number(data, at, tables)
        if kind in (NOT_READ, HUGE_INTEGER) or _is_of_word(_byte(data, at, stop)):
            return FLAGGED_LINE, NUMBER
        put_number(value, residue_at(data, start, at, value) if kind == LARGE_INTEGER else 0.0, work)
        return at, NUMBER
    at, word = _word(data, at, stop)
    if at == FLAGGED_LINE or (word != _TRUE and word != _FALSE):
        return FLAGGED_LINE, BOOLEAN
    put_operand(np.float64(word == _TRUE), NOT_FOUND, work)
    return at, BOOLEAN


@nested
def _scan_list(data: int, at: int, stop: int, op: int, tables: int, work: int) -> tuple[int, int]:
    """Write the values of the list that begins here as operands.  Returns where it ends, and the type of all of them."""
    first, of_first = load_i64(load_i64(work, SUBSCRIPTION_COUNTS), N_OPERANDS), ANY
    if _byte(data, at, stop) != OPEN_PARENTHESIS:
        return FLAGGED_LINE, ANY
    separator = 44
    while separator == COMMA:
        at, type_ = _scan_value(data, _after_space(data, at + 1, stop), stop, op, tables, work)
        if at == FLAGGED_LINE or (of_first != ANY and type_ != of_first):
            return FLAGGED_LINE, ANY
        of_first = type_
        at = _after_space(data, at, stop)
        separator = _byte(data, at, stop)
    if separator != CLOSE_PARENTHESIS or not end_list(first, of_first, taken_by(op, tables), work):
        return FLAGGED_LINE, ANY
    return at + 1, of_first


@nested
def _scan_bounds(data: int, at: int, stop: int, op: int, tables: int, work: int) -> tuple[int, int]:
    """Write the bounds after `op`, such as `between`.  Returns where they end, and their type."""
    first = load_i64(load_i64(work, SUBSCRIPTION_COUNTS), N_OPERANDS)
    at, low = _scan_value(data, at, stop, op, tables, work)
    if at == FLAGGED_LINE:
        return FLAGGED_LINE, ANY
    at, word = _word(data, _after_space(data, at, stop), stop)
    if at == FLAGGED_LINE or word != _AND:
        return FLAGGED_LINE, ANY
    at, high = _scan_value(data, _after_space(data, at, stop), stop, op, tables, work)
    if at == FLAGGED_LINE or low != high or not end_list(first, low, taken_by(op, tables), work):
        return FLAGGED_LINE, ANY
    return at, low


@nested
def _sign(data: int, at: int, stop: int, tables: int) -> tuple[int, int]:
    """Read the comparison at a sign.  Returns where it ends, and its operator."""
    packed, n = _NO_WORD, 0
    while n < 8 and _byte(data, at + n, stop) in _SIGN_BYTES:
        packed |= np.uint64(_byte(data, at + n, stop)) << np.uint64(8 * n)
        n += 1
    op = op_among(load_i64(tables, WORDS), load_i64(tables, WORD_OPS), packed) if n else NOT_FOUND
    return at + n if op != NOT_FOUND else FLAGGED_LINE, op


@nested
def _plain_operator(data: int, at: int, stop: int, tables: int) -> tuple[int, int]:
    """Read the operator that begins here, without `any`.  Returns where it ends, and its number."""
    end, word = _word(data, at, stop)
    if end == FLAGGED_LINE:
        return FLAGGED_LINE, NOT_FOUND
    if end == at:
        return _sign(data, at, stop, tables)
    if word == _NOT:
        end, second = _word(data, _after_space(data, end, stop), stop)
        return (end if second == _IN_WORD else FLAGGED_LINE), _NOT_IN
    op = op_among(load_i64(tables, WORDS), load_i64(tables, WORD_OPS), word) if word != _NO_WORD else NOT_FOUND
    return end if op != NOT_FOUND else FLAGGED_LINE, op


@nested
def _operator(data: int, at: int, stop: int, tables: int) -> tuple[int, int]:
    """Read the operator after a name.  Returns where it ends, and its number."""
    end, word = _word(data, at, stop)
    if end != FLAGGED_LINE and word == _HAS_WORD:
        return end, FIRST_ELEMENT_OP + _EQ
    if end == FLAGGED_LINE or word != _ANY_WORD:
        return _plain_operator(data, at, stop, tables)
    end, op = _plain_operator(data, _after_space(data, end, stop), stop, tables)
    return end, FIRST_ELEMENT_OP + op if end != FLAGGED_LINE else NOT_FOUND


@nested
def _scan_term(data: int, at: int, stop: int, tables: int, work: int) -> int:
    """Write the constraint that begins here.  Returns where it ends."""
    at, name = _scan_name(data, at, stop, work)
    if at == FLAGGED_LINE:
        return FLAGGED_LINE
    at = _after_space(data, at, stop)
    _, first_word = _word(data, at, stop)
    at, op = _operator(data, at, stop, tables)
    if at == FLAGGED_LINE:
        return FLAGGED_LINE
    store_i64(load_i64(work, SUBSCRIPTION_COUNTS), FOLDS, 0)
    end, word = _word(data, _after_space(data, at, stop), stop)
    if end != FLAGGED_LINE and word == _I_WORD:
        name, at = fold(name, op, tables, work), end
        if name == NOT_FOUND or first_word == _HAS_WORD:
            return FLAGGED_LINE
    form, operand = form_of_text(op, tables), _after_space(data, at, stop)
    if form != 0 and _byte(data, operand, stop) == APOSTROPHE:
        at, source, start, end = _text(data, operand, stop, load_i64(work, TEXT_SCRATCH))
        if at == FLAGGED_LINE or not put_text_of_element(pooled_name(name, work), form, (source, start, end), work):
            return FLAGGED_LINE
        return at
    first = load_i64(load_i64(work, SUBSCRIPTION_COUNTS), N_OPERANDS)
    type_, taken = ANY, taken_by(op, tables)
    if taken != TAKES_NOTHING:
        at = _after_space(data, at, stop)
        if taken == TAKES_LIST:
            at, type_ = _scan_list(data, at, stop, op, tables, work)
        elif taken == TAKES_BOUNDS:
            at, type_ = _scan_bounds(data, at, stop, op, tables, work)
        else:
            at, type_ = _scan_value(data, at, stop, op, tables, work)
    return at if at != FLAGGED_LINE and put_typed(name, op, type_, first, tables, work) else FLAGGED_LINE


@nested
def _close(begin: int, inner: int, top: int, sets: int) -> int:
    """Join each alternative from `begin` to `inner` of the stack with each from there to `top`.  Returns where they end, or
    NOT_FOUND."""
    n_outer, n_inner = inner - begin, top - inner
    if top + n_outer * n_inner > _MOST_ALTERNATIVES:
        return NOT_FOUND
    n = top
    for i in range(begin, inner):
        for j in range(inner, top):
            store_u64(sets, n, load_u64(sets, i) | load_u64(sets, j))
            n += 1
    for i in range(n - top):
        store_u64(sets, begin + i, load_u64(sets, top + i))
    return begin + n - top


@nested
def scan_predicate(data: int, at: int, stop: int, tables: int, work: int) -> int:
    """Write the terms of data[at:stop], UTF-8, and their alternatives as sets.  Returns the number of alternatives, or 0 if
    the text is not certain.

    The byte at `stop` is read, and must not continue a number.
    """
    counts, sets = load_i64(work, SUBSCRIPTION_COUNTS), load_i64(work, ALTERNATIVES)
    first = load_i64(counts, N_SCANNED_CONSTRAINTS)
    outer, begin, top, depth = 0, 0, 1, 0  # where the alternatives within the innermost parenthesis begin, and its last one
    store_u64(sets, 0, _0)
    while True:
        at = _after_space(data, at, stop)
        if _byte(data, at, stop) == OPEN_PARENTHESIS:
            if depth == _MOST_DEPTH or top == _MOST_ALTERNATIVES:
                return 0
            store_i64(sets, _FRAMES + 2 * depth, outer)
            store_i64(sets, _FRAMES + 2 * depth + 1, begin)
            depth += 1
            outer, begin = top, top
            store_u64(sets, top, _0)
            top += 1
            at += 1
            continue
        term = load_i64(counts, N_SCANNED_CONSTRAINTS) - first
        at = _scan_term(data, at, stop, tables, work) if term < _MOST_TERMS else FLAGGED_LINE
        if at == FLAGGED_LINE:
            return 0
        for i in range(begin, top):
            store_u64(sets, i, load_u64(sets, i) | _1 << np.uint64(term))
        at = _after_space(data, at, stop)
        while _byte(data, at, stop) == CLOSE_PARENTHESIS:
            if depth == 0:
                return 0
            depth -= 1
            inner, outer = outer, load_i64(sets, _FRAMES + 2 * depth)
            begin = load_i64(sets, _FRAMES + 2 * depth + 1)
            top = _close(begin, inner, top, sets)
            if top == NOT_FOUND:
                return 0
            at = _after_space(data, at + 1, stop)
        if at == stop:
            return top if depth == 0 else 0
        at, word = _word(data, at, stop)
        if at == FLAGGED_LINE or (word != _AND and word != _OR):
            return 0
        if word == _OR:
            if top == _MOST_ALTERNATIVES:
                return 0
            begin = top
            store_u64(sets, top, _0)
            top += 1


@nested
def _frame(depth: int, work: int) -> int:
    """The address of the counts within `depth` parentheses: conjunctions, terms of the last one, and `not` before the next
    term."""
    return load_i64(work, CONDITION) + 8 * (LEVELS_OF_TREES + TREE_LEVEL_WORDS * depth)


@nested
def _open_frame(depth: int, work: int) -> None:
    for i in range(TREE_LEVEL_WORDS):
        store_i64(_frame(depth, work), i, 0)


@nested
def _open_terms(data: int, at: int, stop: int, depth: int, work: int) -> tuple[int, int]:
    """Read each `not` and parenthesis before a comparison.  Returns where that begins, and the number of parentheses around
    it."""
    while True:
        at = _after_space(data, at, stop)
        if _byte(data, at, stop) == OPEN_PARENTHESIS:
            if depth == MOST_NESTING:
                return FLAGGED_LINE, depth
            depth, at = depth + 1, at + 1
            _open_frame(depth, work)
            continue
        end, word = _word(data, at, stop)
        if end == FLAGGED_LINE or word != _NOT:
            return at, depth
        n = load_i64(_frame(depth, work), 2) + 1
        if n > MOST_NESTING:
            return FLAGGED_LINE, depth
        store_i64(_frame(depth, work), 2, n)
        at = end


@nested
def _end_conjunction(depth: int, is_last: bool, work: int) -> bool:
    """Join the terms of a conjunction and, if it is the last of its predicate, the conjunctions before it with it.  Returns
    False without room."""
    frame = _frame(depth, work)
    n, n_terms = load_i64(frame, 0) + 1, load_i64(frame, 1)
    store_i64(frame, 0, n)
    store_i64(frame, 1, 0)
    if n_terms > 1 and not put_join(AND_TOKEN, n_terms, work):
        return False
    return not is_last or n == 1 or put_join(OR_TOKEN, n, work)


@nested
def _close_terms(data: int, at: int, stop: int, depth: int, work: int) -> tuple[int, int]:
    """End a term, and each parenthesis that is closed behind it.  Returns where they end, and the number of parentheses
    around that."""
    while True:
        frame = _frame(depth, work)
        if load_i64(frame, 2) & 1 and not put_join(NOT_TOKEN, 1, work):
            return FLAGGED_LINE, depth
        store_i64(frame, 1, load_i64(frame, 1) + 1)
        store_i64(frame, 2, 0)
        at = _after_space(data, at, stop)
        if _byte(data, at, stop) != CLOSE_PARENTHESIS:
            return at, depth
        if depth == 0 or not _end_conjunction(depth, True, work):
            return FLAGGED_LINE, depth
        depth, at = depth - 1, at + 1


@nested
def scan_condition(data: int, at: int, stop: int, tables: int, work: int) -> int:
    """Write the terms of data[at:stop] as `scan_predicate` does, in place of those that it has written, and record the tree
    over them as a condition.  Returns IS_CONDITION, or 0 if the text is not certain."""
    reset_conditions(work)
    depth = 0
    _open_frame(depth, work)
    while True:
        at, depth = _open_terms(data, at, stop, depth, work)
        if at == FLAGGED_LINE:
            return 0
        first = load_i64(load_i64(work, SUBSCRIPTION_COUNTS), N_SCANNED_CONSTRAINTS)
        at = _scan_term(data, at, stop, tables, work)
        if at == FLAGGED_LINE or not put_leaves(first, work):
            return 0
        at, depth = _close_terms(data, at, stop, depth, work)
        if at == FLAGGED_LINE:
            return 0
        if at == stop:
            return IS_CONDITION if depth == 0 and _end_conjunction(depth, True, work) else 0
        at, word = _word(data, at, stop)
        if at == FLAGGED_LINE or (word != _AND and word != _OR):
            return 0
        if word == _OR and not _end_conjunction(depth, False, work):
            return 0


@nested
def _number_terms(first: int, n_terms: int, first_operand: int, work: int) -> bool:
    """Write the number of each term.  Returns whether any two of them are equal."""
    numbers = load_i64(work, ALTERNATIVES) + 8 * _TERM_NUMBERS
    found = False
    for term in range(n_terms):
        same = 0
        while same < term and not are_equal(first + same, first + term, first, first_operand, work):
            same += 1
        store_i64(numbers, term, same)
        found = found or same < term
    return found


@nested
def _distinct_terms(alternative: np.uint64, n_terms: int, numbers: int) -> np.uint64:
    """An alternative without the terms that are equal to an earlier one of it."""
    kept, seen = _0, _0
    for term in range(n_terms):
        number = _1 << np.uint64(load_i64(numbers, term))
        if alternative >> np.uint64(term) & _1 and not seen & number:
            kept |= _1 << np.uint64(term)
            seen |= number
    return kept


@nested
def _are_same(one: np.uint64, other: np.uint64, n_terms: int, numbers: int) -> bool:
    """Tells whether two alternatives of distinct terms have equal terms in the same order."""
    i, j = 0, 0
    while True:
        while i < n_terms and not one >> np.uint64(i) & _1:
            i += 1
        while j < n_terms and not other >> np.uint64(j) & _1:
            j += 1
        if i == n_terms or j == n_terms:
            return i == j
        if load_i64(numbers, i) != load_i64(numbers, j):
            return False
        i += 1
        j += 1


@nested
def _make_distinct(n: int, n_terms: int, sets: int) -> int:
    """Remove terms and alternatives that are equal to earlier ones.  Returns the number of alternatives that are left."""
    numbers, kept = sets + 8 * _TERM_NUMBERS, 0
    for i in range(n):
        alternative = _distinct_terms(load_u64(sets, i), n_terms, numbers)
        k = 0
        while k < kept and not _are_same(load_u64(sets, k), alternative, n_terms, numbers):
            k += 1
        if k == kept:
            store_u64(sets, kept, alternative)
            kept += 1
    return kept


@nested
def _sizes(n: int, first: int, n_terms: int, first_operand: int, work: int) -> tuple[int, int]:
    """The numbers of constraints and operands of all alternatives together."""
    sets, n_constraints, n_operands = load_i64(work, ALTERNATIVES), 0, 0
    for term in range(n_terms):
        size = load_i64(load_i64(work, CONSTRAINT_END), first + term) - begin_of(first + term, first, first_operand, work)
        for i in range(n):
            if load_u64(sets, i) >> np.uint64(term) & _1:
                n_constraints += 1
                n_operands += size
    return n_constraints, n_operands


@nested
def put_alternatives(first: int, first_operand: int, n_bytes: int, work: int) -> bool:
    """Write the filters of the alternatives (`scan_predicate`) in the place of their terms.  Returns False without room.

    The row, of `n_bytes`, has its terms from constraint `first` and operand `first_operand` on, and its area and id in the
    filter that is open.
    """
    counts, sets = load_i64(work, SUBSCRIPTION_COUNTS), load_i64(work, ALTERNATIVES)
    n, n_terms = load_i64(counts, N_ALTERNATIVES), load_i64(counts, N_SCANNED_CONSTRAINTS) - first
    are_any_equal = _number_terms(first, n_terms, first_operand, work)
    if n == 1 and not are_any_equal:
        end_filter(work)
        return True
    n_constraints, n_operands = _sizes(n, first, n_terms, first_operand, work)
    if n > 1 and n_constraints + n_operands > MAX_OPERANDS:
        return False
    if n * LEAST_FILTER_BYTES > n_bytes:
        return False
    if n_terms + n_constraints > n_bytes or load_i64(counts, N_OPERANDS) - first_operand + n_operands > n_bytes:
        return False
    if are_any_equal:
        n = _make_distinct(n, n_terms, sets)
    for i in range(n):
        if i:
            open_same_filter(work)
        for term in range(n_terms):
            if load_u64(sets, i) >> np.uint64(term) & _1:
                copy_constraint(first + term, first, first_operand, work)
        end_filter(work)
    remove_constraints(first, n_terms, n, first_operand, work)
    return True
