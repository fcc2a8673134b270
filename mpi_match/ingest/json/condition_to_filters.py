"""Turns conditions into filters, in compiled code: the filters that `table.conditions.decompose` makes, without Python
objects.

A scanner writes the constraints of a condition as it writes all others, and records the tree over them in postfix order
(`put_leaves`, `put_join`):

    a = 1 and (b = 2 or not c = 3)          leaf 0, leaf 1, leaf 2, not, or 2, and 2

When the filter ends, `end_filter_of_conditions` makes *nodes* of its constraints and joins.  A node is a constraint, all of
some terms (EVERY) or any of some terms (SOME).  A *term* is twice the number of a node, plus one for its complement.  Equal
constraints are one node, and so are joins of the same terms, so that terms are equal exactly if their numbers are.  Then the
nodes that the filter asks for as parts get their names, which are digests of their contents, and the filter and its parts
are written in the place of the constraints.

Filters in doubt are flagged and left to the judge: those with more constraints, terms or nesting than there is room for, and
an `and` of nothing.
"""

from __future__ import annotations

import numpy as np

from mpi_match.compute.blake2b import DIGESTED_BYTES, digest_16
from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import f64_bits, load_f64, load_i64, load_u8, store_i64, store_u8, store_u64
from mpi_match.ingest.codes.code_tables import NOT_FOUND
from mpi_match.ingest.json.text import SCRATCH_BYTES, copied
from mpi_match.ingest.json.to_constraints import (
    CONDITION,
    CONSTRAINT_END,
    CONSTRAINT_KIND,
    CONSTRAINT_NAME,
    CONTENT,
    DIGEST_ORDER,
    FILTER_LABEL,
    FIRST_PART,
    HAS_ID_OF_UNNAMED,
    ID_OF_FILTER,
    LEAST_FILTER_BYTES,
    N_OPERANDS,
    N_SCANNED_CONSTRAINTS,
    N_SCANNED_FILTERS,
    N_SCANNED_PARTS,
    OPERAND_NUMBER,
    OPERAND_STRING,
    PART_DIGESTS,
    PARTS_BEFORE,
    STRING_POOL,
    SUBSCRIPTION_COUNTS,
    are_equal,
    begin_of,
    copy_constraint,
    end_filter,
    pooled,
    pooled_name,
    put_constraint,
    remove_constraints,
)
from mpi_match.operators import Op, Type
from mpi_match.table.kinds import KIND_OF_PRESENCE, kind_of
from mpi_match.table.virtual_names import MARK, PART_MARK

MOST_LEAVES = 512
MOST_NESTING = 64
"""Most constraints in the conditions of a filter, and most joins within one another, that compiled code reads."""
_MOST_TOKENS = 4 * MOST_LEAVES
_MOST_NODES = 2 * MOST_LEAVES
_MOST_TERMS = 16 * MOST_LEAVES
_N_TOKENS, _N_LEAVES, _N_NODES, _N_TERMS, _N_VALUES, _N_CONDITIONS = range(6)
_FIRST_CONSTRAINT, _FIRST_OPERAND, _TOKENS = range(6, 9)
_LEAF_CONSTRAINT = _TOKENS + _MOST_TOKENS
_NODE_KIND = _LEAF_CONSTRAINT + MOST_LEAVES
_NODE_FIRST = _NODE_KIND + _MOST_NODES
_NODE_END = _NODE_FIRST + _MOST_NODES
_NODE_PART = _NODE_END + _MOST_NODES
_NODE_TERM = _NODE_PART + _MOST_NODES
_TERMS = _NODE_TERM + _MOST_NODES
_VALUES = _TERMS + _MOST_TERMS
_BOUNDS = _VALUES + _MOST_TOKENS
LEVELS_OF_TREES = _BOUNDS + 4 * _MOST_NODES
TREE_LEVEL_WORDS = 3
N_CONDITION_WORDS = LEVELS_OF_TREES + TREE_LEVEL_WORDS * (MOST_NESTING + 1)
"""Words of CONDITION: counts, and the indices of the filter's first constraint and operand; the tokens; the
constraint of each leaf; kind, first and last term of each node (of a constraint, its index), the number of its part, and the
term that it is; terms of nodes; the stack of terms, and those of constraints beside conditions; the bounds of contents to be
sorted, those of terms before those of branches; and TREE_LEVEL_WORDS for each level of nesting, for the scanners of rows and
of predicates."""
LEAF_TOKEN, AND_TOKEN, OR_TOKEN, NOT_TOKEN = range(4)
"""Tokens, in the lowest two bits; the other bits hold the number of joined terms."""
_CONSTRAINT, _EVERY, _SOME = range(3)
_UNASKED, _ASKED = -2, -1
"""Instead of a part's number, before it has one."""

_BRANCHES, _ORDERED, _END = (n * SCRATCH_BYTES for n in (1, 2, 3))
CONTENT_BYTES = _END + DIGESTED_BYTES
"""Bytes of CONTENT: the contents of a branch's terms; from _BRANCHES on those of a part's branches; and from _ORDERED on
those in their order."""
_LONGEST_HEAD = 64
_PRESENT, _ABSENT = int(KIND_OF_PRESENCE), kind_of(Type.ANY, Op.ABSENT)
_MARK, _PART_MARK, _N_DIGITS = MARK[0], tuple(PART_MARK), 32


@nested
def _count(work: int, which: int) -> int:
    return load_i64(load_i64(work, CONDITION), which)


@nested
def _set(work: int, which: int, value: int) -> None:
    store_i64(load_i64(work, CONDITION), which, value)


@nested
def begin_conditions(work: int) -> None:
    """Begin a filter, which has no conditions so far."""
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    _set(work, _N_TOKENS, 0)
    _set(work, _N_LEAVES, 0)
    _set(work, _N_CONDITIONS, 0)
    _set(work, _FIRST_CONSTRAINT, load_i64(counts, N_SCANNED_CONSTRAINTS))
    _set(work, _FIRST_OPERAND, load_i64(counts, N_OPERANDS))


@nested
def reset_conditions(work: int) -> None:
    """Remove the constraints and the conditions of the filter."""
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    _set(work, _N_TOKENS, 0)
    _set(work, _N_LEAVES, 0)
    store_i64(counts, N_SCANNED_CONSTRAINTS, _count(work, _FIRST_CONSTRAINT))
    store_i64(counts, N_OPERANDS, _count(work, _FIRST_OPERAND))


@nested
def has_conditions(work: int) -> bool:
    """Tells whether the filter has conditions."""
    return _count(work, _N_CONDITIONS) > 0


@nested
def _put_token(token: int, work: int) -> bool:
    n = _count(work, _N_TOKENS)
    if n == _MOST_TOKENS:
        return False
    _set(work, _TOKENS + n, token)
    _set(work, _N_TOKENS, n + 1)
    return True


@nested
def put_leaves(first: int, work: int) -> bool:
    """Record the constraints from `first` on as alternatives, which are different.  Returns False without room, and if
    they are equal all the same."""
    last, n = load_i64(load_i64(work, SUBSCRIPTION_COUNTS), N_SCANNED_CONSTRAINTS), _count(work, _N_LEAVES)
    if n + last - first > MOST_LEAVES:
        return False
    if last > first + 1 and are_equal(first, first + 1, _count(work, _FIRST_CONSTRAINT), _count(work, _FIRST_OPERAND), work):
        return False
    for constraint in range(first, last):
        _set(work, _LEAF_CONSTRAINT + n, constraint)
        n += 1
        if not _put_token(LEAF_TOKEN, work):
            return False
    _set(work, _N_LEAVES, n)
    return last == first + 1 or put_join(OR_TOKEN, last - first, work)


@nested
def put_join(join: int, n: int, work: int) -> bool:
    """Record that the last n terms are joined by AND_TOKEN or OR_TOKEN, or that NOT_TOKEN stands before the last one.
    Returns False without room."""
    return _put_token(n << 2 | join, work)


@nested
def end_condition(work: int) -> None:
    """End a condition; a filter may have several."""
    _set(work, _N_CONDITIONS, _count(work, _N_CONDITIONS) + 1)


@nested
def _leaf_term(leaf: int, work: int) -> int:
    """The term of a constraint; that of `absent` is the complement of `exists`, and a constraint that equals an earlier one
    has its term.  Returns NOT_FOUND without room."""
    kinds, sign = load_i64(work, CONSTRAINT_KIND), 0
    if load_u8(kinds, leaf) == _ABSENT:
        store_u8(kinds, leaf, _PRESENT)
        sign = 1
    first, first_operand = _count(work, _FIRST_CONSTRAINT), _count(work, _FIRST_OPERAND)
    n = _count(work, _N_NODES)
    for node in range(n):
        is_leaf, earlier = _count(work, _NODE_KIND + node) == _CONSTRAINT, _count(work, _NODE_FIRST + node)
        if is_leaf and are_equal(earlier, leaf, first, first_operand, work):
            return node << 1 | sign
    return _new_node(_CONSTRAINT, leaf, leaf, work) << 1 | sign if n < _MOST_NODES else NOT_FOUND


@nested
def _new_node(kind: int, first: int, end: int, work: int) -> int:
    n = _count(work, _N_NODES)
    _set(work, _NODE_KIND + n, kind)
    _set(work, _NODE_FIRST + n, first)
    _set(work, _NODE_END + n, end)
    _set(work, _NODE_PART + n, _UNASKED)
    _set(work, _NODE_TERM + n, n << 1)
    _set(work, _N_NODES, n + 1)
    return n


@nested
def _sort_terms(first: int, n: int, work: int) -> int:
    """Sort the terms from `first` on, and leave out those that equal the one before.  Returns the number of those left."""
    terms = load_i64(work, CONDITION) + 8 * (_TERMS + first)
    gap = 1
    while 9 * gap < n:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            term, k = load_i64(terms, i), i
            while k >= gap and load_i64(terms, k - gap) > term:
                store_i64(terms, k, load_i64(terms, k - gap))
                k -= gap
            store_i64(terms, k, term)
        gap //= 3
    kept = 0
    for i in range(n):
        if i == 0 or load_i64(terms, i) != load_i64(terms, kept - 1):
            store_i64(terms, kept, load_i64(terms, i))
            kept += 1
    return kept


@nested
def _node_of(kind: int, n: int, work: int) -> int:
    """The node that joins the n terms that are written behind those of nodes, or NOT_FOUND without room."""
    first = _count(work, _N_TERMS)
    for node in range(_count(work, _N_NODES)):
        begin = _count(work, _NODE_FIRST + node)
        if _count(work, _NODE_KIND + node) == kind and _count(work, _NODE_END + node) - begin == n:
            i = 0
            while i < n and _count(work, _TERMS + begin + i) == _count(work, _TERMS + first + i):
                i += 1
            if i == n:
                return node
    if _count(work, _N_NODES) == _MOST_NODES:
        return NOT_FOUND
    _set(work, _N_TERMS, first + n)
    return _new_node(kind, first, first + n, work)


@nested
def _all_of(n: int, work: int) -> int:
    """Take the last n terms from the stack, and return the term of all of them together, or NOT_FOUND without room.

    It has the terms of each EVERY in place of that, and the complements of the terms of each complement of a SOME.  If all
    are complements, it is the complement of a SOME itself.
    """
    top, first = _count(work, _N_VALUES), _count(work, _N_TERMS)
    filled = first
    for i in range(top - n, top):
        term = _count(work, _VALUES + i)
        kind, begin, end = _CONSTRAINT, 0, 1
        if _count(work, _NODE_KIND + (term >> 1)) == (_SOME if term & 1 else _EVERY):
            kind, begin, end = _EVERY, _count(work, _NODE_FIRST + (term >> 1)), _count(work, _NODE_END + (term >> 1))
        if filled + end - begin > _MOST_TERMS:
            return NOT_FOUND
        for k in range(begin, end):
            _set(work, _TERMS + filled, term if kind == _CONSTRAINT else _count(work, _TERMS + k) ^ term & 1)
            filled += 1
    _set(work, _N_VALUES, top - n)
    n = _sort_terms(first, filled - first, work)
    if n == 1:
        return _count(work, _TERMS + first)
    for i in range(n):
        if _count(work, _TERMS + first + i) & 1 == 0:
            node = _node_of(_EVERY, n, work)
            return node << 1 if node != NOT_FOUND else NOT_FOUND
    for i in range(n):
        _set(work, _TERMS + first + i, _count(work, _TERMS + first + i) ^ 1)
    node = _node_of(_SOME, n, work)
    return node << 1 | 1 if node != NOT_FOUND else NOT_FOUND


@nested
def _push(term: int, work: int) -> None:
    n = _count(work, _N_VALUES)
    _set(work, _VALUES + n, term)
    _set(work, _N_VALUES, n + 1)


@nested
def _flip(n: int, work: int) -> None:
    """Replace the last n terms of the stack by their complements."""
    top = _count(work, _N_VALUES)
    for i in range(top - n, top):
        _set(work, _VALUES + i, _count(work, _VALUES + i) ^ 1)


@nested
def _evaluate(begin: int, end: int, leaf: int, work: int) -> bool:
    """Push the terms of the trees in tokens[begin:end], whose first leaf has the number `leaf`.  Returns False without
    room."""
    for i in range(begin, end):
        token = _count(work, _TOKENS + i)
        kind, n = token & 3, token >> 2
        if kind == LEAF_TOKEN:
            term = _leaf_term(_count(work, _LEAF_CONSTRAINT + leaf), work)
            leaf += 1
        elif kind == NOT_TOKEN:
            _flip(1, work)
            continue
        elif kind == AND_TOKEN:
            term = _all_of(n, work)
        else:
            _flip(n, work)
            term = _all_of(n, work)
            term = term ^ 1 if term != NOT_FOUND else NOT_FOUND
        if term == NOT_FOUND:
            return False
        _push(term, work)
    return True


@nested
def _push_own(work: int) -> bool:
    """Push the terms of the filter's constraints beside its conditions.  Returns False without room."""
    n_terms = load_i64(load_i64(work, SUBSCRIPTION_COUNTS), N_SCANNED_CONSTRAINTS) - _count(work, _FIRST_CONSTRAINT)
    first, n_leaves, leaf = _count(work, _FIRST_CONSTRAINT), _count(work, _N_LEAVES), 0
    if n_terms - n_leaves > MOST_LEAVES:
        return False
    for constraint in range(first, first + n_terms):
        if leaf < n_leaves and _count(work, _LEAF_CONSTRAINT + leaf) == constraint:
            leaf += 1
            continue
        term = _leaf_term(constraint, work)
        if term == NOT_FOUND:
            return False
        _push(term, work)
    return True


@nested
def _is_presence(constraint: int, work: int) -> bool:
    """Tells whether a constraint is `exists`; constraints on virtual names have its kind too."""
    if load_u8(load_i64(work, CONSTRAINT_KIND), constraint) != _PRESENT:
        return False
    data, start, stop = pooled_name(load_i64(load_i64(work, CONSTRAINT_NAME), constraint), work)
    return start == stop or load_u8(data, start) != _MARK


@nested
def _asks_part(term: int, work: int) -> bool:
    """Tells whether a term that must hold is the presence or the absence of a part, rather than a constraint."""
    node = term >> 1
    if _count(work, _NODE_KIND + node) != _CONSTRAINT:
        return True
    return term & 1 == 1 and not _is_presence(_count(work, _NODE_FIRST + node), work)


@nested
def _ask(at: int, end: int, work: int) -> None:
    """Note the parts that the terms in words[at:end] ask for."""
    for i in range(at, end):
        term = _count(work, i)
        if _asks_part(term, work):
            _set(work, _NODE_PART + (term >> 1), _ASKED)


@nested
def _n_branches(node: int, work: int) -> int:
    if _count(work, _NODE_KIND + node) != _SOME:
        return 1
    return _count(work, _NODE_END + node) - _count(work, _NODE_FIRST + node)


@nested
def _branch(node: int, i: int, work: int) -> tuple[int, int]:
    """The words of the terms that must all hold in branch i of a part."""
    at = _NODE_TERM + node
    if _count(work, _NODE_KIND + node) == _SOME:
        at = _TERMS + _count(work, _NODE_FIRST + node) + i
    joined = _count(work, at) >> 1
    if _count(work, _NODE_KIND + joined) != _EVERY:
        return at, at + 1
    return _TERMS + _count(work, _NODE_FIRST + joined), _TERMS + _count(work, _NODE_END + joined)


@nested
def _ask_for_parts(begin: int, end: int, work: int) -> None:
    """Note the parts that the filter asks for, whose terms are words[begin:end], and the parts that these ask for.  The
    number of a node is above those of the nodes in it."""
    _ask(begin, end, work)
    node = _count(work, _N_NODES) - 1
    while node >= 0:
        if _count(work, _NODE_PART + node) == _ASKED:
            for i in range(_n_branches(node, work)):
                begin, end = _branch(node, i, work)
                _ask(begin, end, work)
        node -= 1


@nested
def _put_word(to: int, at: int, word: int | np.int64, n: int) -> int:
    """Write n bytes of a number, the lowest first.  Returns where they end."""
    for i in range(n):
        store_u8(to, at + i, word >> 8 * i & 0xFF)
    return at + n


@nested
def _kind_and_name(term: int, work: int) -> tuple[int, int]:
    """The kind and the name of the constraint that a term is, without its operands."""
    node = term >> 1
    if _asks_part(term, work):
        return (_ABSENT if term & 1 else _PRESENT), FIRST_PART - _count(work, _NODE_PART + node)
    constraint = _count(work, _NODE_FIRST + node)
    kind = _ABSENT if term & 1 else load_u8(load_i64(work, CONSTRAINT_KIND), constraint)
    return kind, load_i64(load_i64(work, CONSTRAINT_NAME), constraint)


@nested
def _put_term(term: int, at: int, work: int) -> int:
    """Write the content of a term (`table.conditions`) at a position of CONTENT.  Returns where it ends, or NOT_FOUND
    without room."""
    to, room = load_i64(work, CONTENT), _BRANCHES
    kind, name = _kind_and_name(term, work)
    start, stop = 0, 0
    if not term & 1 and not _asks_part(term, work):
        constraint = _count(work, _NODE_FIRST + (term >> 1))
        start = begin_of(constraint, _count(work, _FIRST_CONSTRAINT), _count(work, _FIRST_OPERAND), work)
        stop = load_i64(load_i64(work, CONSTRAINT_END), constraint)
    if name <= FIRST_PART:
        if at + _LONGEST_HEAD > room:
            return NOT_FOUND
        at = _put_word(to, at, kind, 1)
        at = _put_word(to, at, 0, 4)
        at = _put_word(to, at, len(_PART_MARK) + _N_DIGITS, 4)
        return _put_name_of_part(FIRST_PART - name, to, at, work)
    data, first, last = pooled_name(name, work)
    if at + last - first + _LONGEST_HEAD + 12 * (stop - start) > room:
        return NOT_FOUND
    at = _put_word(to, at, kind, 1)
    at = _put_word(to, at, stop - start, 4)
    at = _put_word(to, at, last - first, 4)
    at = copied(data, first, last, to, at)
    for k in range(start, stop):
        string = load_i64(load_i64(work, OPERAND_STRING), k)
        if string < 0:
            if at + 10 > room:
                return NOT_FOUND
            bits = f64_bits(load_f64(load_i64(work, OPERAND_NUMBER), k) + 0.0)  # -0.0 is 0.0
            at = _put_word(to, at, np.int64(bits), 8)
            at = _put_word(to, at, ~string, 2)
            continue
        data, first, last = pooled(STRING_POOL, string, work)
        if at + 4 + last - first > room:
            return NOT_FOUND
        at = _put_word(to, at, last - first, 4)
        at = copied(data, first, last, to, at)
    return at


@nested
def _is_before(data: int, one: int, other: int, bounds: int) -> bool:
    """Tells whether the bytes at one pair of bounds are less than those at another."""
    i, n = load_i64(bounds, 2 * one), load_i64(bounds, 2 * one + 1)
    j, m = load_i64(bounds, 2 * other), load_i64(bounds, 2 * other + 1)
    while i < n and j < m:
        a, b = load_u8(data, i), load_u8(data, j)
        if a != b:
            return a < b
        i += 1
        j += 1
    return n - i < m - j


@nested
def _put_in_order(first: int, n: int, at: int, end: int, work: int) -> int:
    """Write the contents whose bounds are n pairs from pair `first` on in their order, at a position of CONTENT. Returns
    where they end, or NOT_FOUND if that is beyond `end`."""
    data, bounds = load_i64(work, CONTENT), load_i64(work, CONDITION) + 8 * (_BOUNDS + 2 * first)
    for i in range(1, n):
        k = i
        while k > 0 and _is_before(data, k, k - 1, bounds):
            for side in range(2):
                held = load_i64(bounds, 2 * k + side)
                store_i64(bounds, 2 * k + side, load_i64(bounds, 2 * k - 2 + side))
                store_i64(bounds, 2 * k - 2 + side, held)
            k -= 1
    for i in range(n):
        start, stop = load_i64(bounds, 2 * i), load_i64(bounds, 2 * i + 1)
        if at + stop - start > end:
            return NOT_FOUND
        at = copied(data, start, stop, data, at)
    return at


@nested
def _put_branch(node: int, i: int, at: int, work: int) -> int:
    """Write the content of a branch of a part at a position of CONTENT.  Returns where it ends, or NOT_FOUND without
    room."""
    begin, end = _branch(node, i, work)
    bounds = load_i64(work, CONDITION) + 8 * _BOUNDS
    n, to = end - begin, 0
    if n > _MOST_NODES:
        return NOT_FOUND
    for k in range(n):
        start = to
        to = _put_term(_count(work, begin + k), start, work)
        if to == NOT_FOUND:
            return NOT_FOUND
        store_i64(bounds, 2 * k, start)
        store_i64(bounds, 2 * k + 1, to)
    if at + 4 > _ORDERED:
        return NOT_FOUND
    return _put_in_order(0, n, _put_word(load_i64(work, CONTENT), at, n, 4), _ORDERED, work)


@nested
def _name_part(node: int, tables: int, work: int) -> bool:
    """Give a part its number, and write the digest that is its name.  Returns False without room."""
    content, at, n = load_i64(work, CONTENT), _BRANCHES, _n_branches(node, work)
    bounds = load_i64(work, CONDITION) + 8 * (_BOUNDS + 2 * _MOST_NODES)
    if n > _MOST_NODES:
        return False
    for i in range(n):
        start = at
        at = _put_branch(node, i, start, work)
        if at == NOT_FOUND:
            return False
        store_i64(bounds, 2 * i, start)
        store_i64(bounds, 2 * i + 1, at)
    end = _put_in_order(_MOST_NODES, n, _ORDERED, _END, work)
    if end == NOT_FOUND:
        return False
    for i in range(DIGESTED_BYTES):
        store_u8(content, end + i, 0)
    low, high = digest_16(content + _ORDERED, end - _ORDERED, load_i64(tables, DIGEST_ORDER))
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    part = load_i64(counts, N_SCANNED_PARTS)
    store_u64(load_i64(work, PART_DIGESTS), 2 * part, low)
    store_u64(load_i64(work, PART_DIGESTS), 2 * part + 1, high)
    store_i64(counts, N_SCANNED_PARTS, part + 1)
    _set(work, _NODE_PART + node, load_i64(counts, PARTS_BEFORE) + part)
    return True


@nested
def _put_name_of_part(part: int, to: int, at: int, work: int) -> int:
    """Write the name of a part.  Returns where it ends."""
    digest = load_i64(work, PART_DIGESTS) + 16 * (part - load_i64(load_i64(work, SUBSCRIPTION_COUNTS), PARTS_BEFORE))
    at = _put_word(to, at, _PART_MARK[0] | _PART_MARK[1] << 8, 2)
    for i in range(_N_DIGITS // 2):
        byte = load_u8(digest, i)
        at = _put_word(to, at, _digit(byte >> 4) | _digit(byte & 15) << 8, 2)
    return at


@nested
def _digit(value: int) -> int:
    """The hexadecimal digit of a number below 16."""
    return value + (48 if value < 10 else 87)


@nested
def _put_constraint_of(term: int, work: int) -> None:
    """Write the constraint that a term is."""
    if term & 1 or _asks_part(term, work):
        kind, name = _kind_and_name(term, work)
        put_constraint(name, kind, work)
    else:
        first, first_operand = _count(work, _FIRST_CONSTRAINT), _count(work, _FIRST_OPERAND)
        copy_constraint(_count(work, _NODE_FIRST + (term >> 1)), first, first_operand, work)


@nested
def _put_part(node: int, id_: int, work: int) -> None:
    """Write the filters of a part, each with an id."""
    counts, labels = load_i64(work, SUBSCRIPTION_COUNTS), load_i64(work, FILTER_LABEL)
    for i in range(_n_branches(node, work)):
        begin, end = _branch(node, i, work)
        for k in range(begin, end):
            _put_constraint_of(_count(work, k), work)
        n = load_i64(counts, N_SCANNED_FILTERS)
        store_i64(load_i64(work, ID_OF_FILTER), n, id_)
        end_filter(work)
        store_i64(labels, n, FIRST_PART - _count(work, _NODE_PART + node))


@nested
def _begin_of_tree(end: int, work: int) -> int:
    """The index of the first token of the tree whose last token is before `end`."""
    lacking = 1
    while lacking > 0:
        end -= 1
        token = _count(work, _TOKENS + end)
        lacking += token >> 2 if token & 3 in (AND_TOKEN, OR_TOKEN) else 1 if token & 3 == NOT_TOKEN else 0
        lacking -= 1
    return end


@nested
def _without_not(end: int, sign: int, work: int) -> tuple[int, int]:
    """The end of the tree before `end` without the NOT_TOKEN behind it, and `sign` changed by each."""
    while _count(work, _TOKENS + end - 1) & 3 == NOT_TOKEN:
        end, sign = end - 1, sign ^ 1
    return end, sign


@nested
def _has_complement(work: int) -> bool:
    """Tells whether the tree has the complement of a constraint other than `exists` and `absent`."""
    at, leaf = _count(work, _N_TOKENS), _count(work, _N_LEAVES)
    _set(work, _N_VALUES, 0)
    _push(0, work)
    while at > 0:
        at -= 1
        token, top = _count(work, _TOKENS + at), _count(work, _N_VALUES) - 1
        sign = _count(work, _VALUES + top)
        _set(work, _N_VALUES, top)
        if token & 3 == LEAF_TOKEN:
            leaf -= 1
            if sign and not _has_opposite(_count(work, _LEAF_CONSTRAINT + leaf), work):
                return True
        elif token & 3 == NOT_TOKEN:
            _push(sign ^ 1, work)
        else:
            for _ in range(token >> 2):
                _push(sign, work)
    return False


@nested
def _has_opposite(constraint: int, work: int) -> bool:
    """Tells whether a constraint is `exists` or `absent`."""
    return load_u8(load_i64(work, CONSTRAINT_KIND), constraint) == _ABSENT or _is_presence(constraint, work)


@nested
def _evaluate_text(work: int) -> bool:
    """Push the terms of a predicate: of what must all hold, first the conditions, whose number is noted, then the
    constraints.  Returns False without room.

    Only conditions are joined with one another (`_all_of`), as `rows.predicate_text` has them.
    """
    end, sign = _without_not(_count(work, _N_TOKENS), 0, work)
    root, n = _count(work, _TOKENS + end - 1), 1
    if root & 3 == (OR_TOKEN if sign else AND_TOKEN):
        end, n = end - 1, root >> 2
    bounds = load_i64(work, CONDITION) + 8 * _BOUNDS
    if n > _MOST_NODES:
        return False
    for i in range(n - 1, -1, -1):
        store_i64(bounds, 2 * i + 1, end)
        end = _begin_of_tree(end, work)
        store_i64(bounds, 2 * i, end)
    for are_own in range(2):
        leaf, n_conditions = 0, 0
        for i in range(n):
            begin, stop = load_i64(bounds, 2 * i), load_i64(bounds, 2 * i + 1)
            first_leaf = leaf
            for k in range(begin, stop):
                leaf += _count(work, _TOKENS + k) & 3 == LEAF_TOKEN
            stop, own_sign = _without_not(stop, sign, work)
            is_own = stop == begin + 1
            if is_own and own_sign:
                is_own = _has_opposite(_count(work, _LEAF_CONSTRAINT + first_leaf), work)
            if is_own != are_own:
                continue
            if not _evaluate(begin, stop, first_leaf, work):
                return False
            if own_sign:
                _flip(1, work)
            n_conditions += 1
        if not are_own:
            _set(work, _N_CONDITIONS, n_conditions)
            whole = _all_of(n_conditions, work)
            if whole == NOT_FOUND:
                return False
            _push(whole, work)
    return True


@nested
def _evaluate_rows(work: int) -> bool:
    """Push the term of all conditions together, and those of the constraints beside them.  Returns False without room."""
    if not _evaluate(0, _count(work, _N_TOKENS), 0, work):
        return False
    whole = _all_of(_count(work, _N_CONDITIONS), work)
    if whole == NOT_FOUND:
        return False
    _push(whole, work)
    return _push_own(work)


@nested
def _terms_of_filter(is_text: bool, work: int) -> tuple[int, int]:
    """The words of the terms that must all hold; none without room."""
    _set(work, _N_NODES, 0)
    _set(work, _N_TERMS, 0)
    _set(work, _N_VALUES, 0)
    if not (_evaluate_text(work) if is_text else _evaluate_rows(work)):
        return 0, 0
    first, n, filled = _count(work, _N_TERMS), _count(work, _N_VALUES), 0
    for i in range(n):
        term = _count(work, _VALUES + i)
        begin, end = _VALUES + i, _VALUES + i + 1
        if not term & 1 and _count(work, _NODE_KIND + (term >> 1)) == _EVERY:
            begin, end = _TERMS + _count(work, _NODE_FIRST + (term >> 1)), _TERMS + _count(work, _NODE_END + (term >> 1))
        if first + filled + end - begin > _MOST_TERMS:
            return 0, 0
        for k in range(begin, end):
            _set(work, _TERMS + first + filled, _count(work, k))
            filled += 1
    return _TERMS + first, _TERMS + first + _sort_terms(first, filled, work)


@nested
def _size(begin: int, end: int, work: int) -> int:
    """The number of operands of the constraints that the terms in words[begin:end] become."""
    n_operands = 0
    first, first_operand = _count(work, _FIRST_CONSTRAINT), _count(work, _FIRST_OPERAND)
    for i in range(begin, end):
        term = _count(work, i)
        if not term & 1 and not _asks_part(term, work):
            constraint = _count(work, _NODE_FIRST + (term >> 1))
            ends = load_i64(load_i64(work, CONSTRAINT_END), constraint)
            n_operands += ends - begin_of(constraint, first, first_operand, work)
    return n_operands


@nested
def _fits(begin: int, end: int, n_bytes: int, work: int) -> bool:
    """Tells whether the filter with the terms in words[begin:end] and its parts fit the columns."""
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    n_terms = load_i64(counts, N_SCANNED_CONSTRAINTS) - _count(work, _FIRST_CONSTRAINT)
    old_operands = load_i64(counts, N_OPERANDS) - _count(work, _FIRST_OPERAND)
    n_filters = 1
    n_constraints, n_operands = end - begin, _size(begin, end, work)
    for node in range(_count(work, _N_NODES)):
        if _count(work, _NODE_PART + node) == _ASKED:
            for i in range(_n_branches(node, work)):
                first, last = _branch(node, i, work)
                of_branch = _size(first, last, work)
                n_constraints, n_operands = n_constraints + last - first, n_operands + of_branch
                n_filters += 1
    if n_filters * LEAST_FILTER_BYTES > n_bytes:
        return False
    return n_terms + n_constraints <= n_bytes and old_operands + n_operands <= n_bytes


@nested
def end_filter_of_conditions(is_text: bool, n_bytes: int, tables: int, work: int) -> bool:
    """End a filter that has conditions: write it without them, and its parts.  Returns False if it is in doubt.

    The filter is written with `n_bytes`, and its condition is a predicate in text or a tree in JSON.  Its constraints, those
    of its conditions, its area and its id are in the columns.  A predicate has one condition, with a complement in it;
    without any, it is no condition (`rows.predicate_text`).
    """
    counts = load_i64(work, SUBSCRIPTION_COUNTS)
    first, first_operand = _count(work, _FIRST_CONSTRAINT), _count(work, _FIRST_OPERAND)
    n_terms, n_filters = load_i64(counts, N_SCANNED_CONSTRAINTS) - first, load_i64(counts, N_SCANNED_FILTERS)
    if is_text and not _has_complement(work):
        return False
    begin, end = _terms_of_filter(is_text, work)
    if begin == end:
        return False
    _ask_for_parts(begin, end, work)
    if not _fits(begin, end, n_bytes, work):
        return False
    for node in range(_count(work, _N_NODES)):
        if _count(work, _NODE_PART + node) == _ASKED and not _name_part(node, tables, work):
            return False
    for i in range(begin, end):
        _put_constraint_of(_count(work, i), work)
    id_ = load_i64(load_i64(work, ID_OF_FILTER), n_filters)
    end_filter(work)
    for node in range(_count(work, _N_NODES)):
        if _count(work, _NODE_PART + node) != _UNASKED:
            _put_part(node, id_ if id_ >= 0 else HAS_ID_OF_UNNAMED, work)
    remove_constraints(first, n_terms, load_i64(counts, N_SCANNED_FILTERS) - n_filters, first_operand, work)
    return True
