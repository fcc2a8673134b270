"""Conditions between the columns of a table, checked before anything is computed from them.

Checksums say that a file is what its writer wrote; these rules, with those of `schema`, say that the writer wrote a table.
Everything that engines assume is checked once, when a table is loaded: a valid table can be indexed without bounds checks,
on a GPU too.  Beyond that, every row has bounds that its operator can have (docs/format.md, "Codes"), so that engines, which
use intervals, and the naive matcher, which uses operands, agree.

Each rule is one vectorised pass over flat arrays, in blocks where it needs more than a flag for a row.  Rules assume that
those before them hold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

import numpy as np

from mpi_match.arrays.csr import Array, ascends_within, first_rows, offsets_of, owners, take_ranges
from mpi_match.arrays.exact import are_split, exact
from mpi_match.arrays.strings import Strings
from mpi_match.model import RESERVED, ModelError, Op, Type
from mpi_match.operators import OPERATORS, Form
from mpi_match.storage.schema import Content, Fault, strings_of
from mpi_match.table.kinds import IS_ATOM, IS_KIND, IS_LISTED, OP_OF_KIND, TYPE_OF_KIND, kind_of, kinds_where
from mpi_match.table.virtual_names import MARK, VIEW_MARK, attribute_of, forms_of, is_part, parse
from mpi_match.texts.characters import LINE_FEED

VALIDATED_AT_ONCE = 2**14
"""Rows checked together where more than a flag for each is needed: intermediate results stay in a core's cache."""
MANY_ROWS = 2**22
"""From this many rows on, counting in compiled code pays."""
CHECKED_BYTES = 2**20
"""Bytes of strings compared together."""


_OF_NULLS = [op for op, record in OPERATORS.items() if record.of_nulls]
_KNOWN = IS_KIND & ~kinds_where(lambda record: record.form is Form.EXISTS)
_PREFIX = kinds_where(lambda record: record.form is Form.PREFIX)
_IS_INTERVAL = _KNOWN & ~_PREFIX & ~IS_LISTED & ~IS_ATOM
_HAS_LO, _HAS_HI = kinds_where(lambda record: record.has_low), kinds_where(lambda record: record.has_high)
_ABOVE = kinds_where(lambda record: record.excludes[0]).astype(np.int64)
_BELOW = kinds_where(lambda record: record.excludes[1]).astype(np.int64)
"""Distance of a bound's code from that of its operand."""
_IS_ONE = kinds_where(lambda record: record.is_listed or record.form in (Form.EQUAL, Form.UNEQUAL, Form.ATOM))
"""Kinds with equal bounds."""


def names_are_names(name: str, content: Content) -> Fault:
    """Each is text, or a virtual name with an operand in canonical form."""
    names = strings_of(name, content)
    at = bisect_left(names, VIEW_MARK)
    bad = names.between(0, at).not_text()
    if len(bad):
        return f"and its data hold a name that is not UTF-8, number {int(bad[0]):,}"
    try:
        for name_of_view in names.slice(at, bisect_left(names, MARK)):
            attribute_of(name_of_view)
        for virtual, start, stop in forms_of(names):
            if virtual.type is Type.STRING and virtual.op is Op.EQ:
                starts = names.offsets[start:stop] + len(virtual.head)
                lengths = names.offsets[start + 1 : stop + 1] - starts
                texts = Strings(names.data[take_ranges(starts, lengths)], offsets_of(lengths))
                if len(bad := texts.not_text()):
                    return f"and its data hold a name with an operand that is not UTF-8, number {start + int(bad[0]):,}"
            elif virtual.op is not None:
                for each in names.slice(start, stop):
                    parse(each).operand()
    except ModelError as error:
        return f"and its data: {error}"
    return None


def parts_have_their_filters(content: Content) -> Fault:
    """Reserved labels are those of parts of conditions, and each has a filter.

    There may be more names of parts: a table in a joint vocabulary has those of other tables.
    """
    labels = strings_of("interfaces/offsets", content)
    first = bisect_left(labels, RESERVED.encode())
    parts = [VIEW_MARK + label[len(RESERVED.encode()) :] for label in labels.slice(first, len(labels))]
    if not all(map(is_part, parts)):
        return "interfaces/data holds a label that begins with U+10FFFF and is not that of a part"
    if np.count_nonzero(np.unique(content.arrays["filters/interface"]) >= first) < len(parts):
        return "filters/interface lacks a part of conditions"
    return None


def virtual_names_have_their_constraints(content: Content) -> Fault:
    """A virtual name has only constraints of its form."""
    kinds, offsets = content.arrays["constraints/kind"], content.arrays["constraints/name_offsets"]
    presences = content.arrays.get("presence/name_offsets", np.zeros_like(offsets))
    for virtual, start, stop in forms_of(strings_of("names/offsets", content)):
        allowed = {kind_of(*each) for each in virtual.kinds}
        if not set(np.unique(kinds[offsets[start] : offsets[stop]]).tolist()) <= allowed:
            return "constraints/kind holds an operator that its virtual name does not have"
        if presences[start] < presences[stop] and kind_of(Type.ANY, Op.EXISTS) not in allowed:
            return "presence/name_offsets has rows of a virtual name that is not asked for presence"
    return None


def counts_add_up(name: str, content: Content) -> Fault:
    """The numbers of constraints with a kind, and of those that only ask for presence, are those that the file states."""
    found = content.sizes["constraints"] + content.sizes.get("presences", 0)
    expected = content.sizes.get("all constraints", found)
    if found == expected:
        return None
    return f"has {found:,} rows with presence/name_offsets, expected {expected:,}, as the attribute n_constraints says"


def rows_are_objects(name: str, content: Content) -> Fault:
    """Each is enclosed in braces and is one line."""
    rows = strings_of(name, content)
    first, last = rows.offsets[:-1], rows.offsets[1:] - 1
    are_enclosed = (first < last).all() and (rows.data[first] == ord("{")).all() and (rows.data[last] == ord("}")).all()
    if are_enclosed and not (rows.data == LINE_FEED).any():
        return None
    return "and its data hold a string that is not a JSON object of one line"


def is_needed(name: str, content: Content) -> Fault:
    """A table without such rows can be written in one way only."""
    return None if content.sizes["presences"] else "has no rows, so it must not be there"


def filters_are_sorted(name: str, content: Content) -> Fault:
    """Within each name."""
    filters = content.arrays[name]
    sorted_ = ascends_within(content.arrays["presence/name_offsets"], filters[:-1] <= filters[1:])
    return None if sorted_ else "is not sorted within a name"


def numbers_are_plain(name: str, content: Content) -> Fault:
    """No NaN, and no negative zero."""
    values = content.arrays[name]
    if np.isnan(values).any() or np.signbit(values[values == 0]).any():
        return "holds NaN or -0.0"
    return None


def numbers_are_sorted(name: str, content: Content) -> Fault:
    """Sorted by their exact values, and distinct, within each name."""
    numbers, residue = content.arrays[name], content.arrays.get("numbers/residues")
    if residue is not None:
        numbers = exact(numbers, residue)
    if ascends_within(content.arrays["numbers/name_offsets"], numbers[:-1] < numbers[1:]):
        return None
    return "is not sorted, or not distinct, within the lists of numbers/name_offsets"


def residues_are_residues(name: str, content: Content) -> Fault:
    """Each is the residue of an integer that has the number as its nearest double; at least one is not 0."""
    residue = content.arrays[name]
    if not residue.any():
        return "holds no residue, so it must not be there"
    is_right = are_split(content.arrays["numbers/values"], residue)
    return None if is_right.all() else "has a number that is not the residue of an integer with the double numbers/values"


def atoms_are_sorted(name: str, content: Content) -> Fault:
    """Sorted by operator and string, and distinct, within each name; without a string if nulls satisfy them."""
    op = content.arrays["atoms/op"]
    if np.diff(content.arrays["atoms/offsets"])[np.isin(op, _OF_NULLS)].any():
        return "and its data hold a string for an atom that nulls satisfy"
    below = (op[:-1] < op[1:]) | (op[:-1] == op[1:]) & strings_of("atoms/offsets", content).is_below_next()
    return None if ascends_within(content.arrays["atoms/name_offsets"], below) else "and its strings are not sorted by name"


def circles_are_circles(name: str, content: Content) -> Fault:
    """Finite, with a radius of at least 0."""
    area = content.arrays[name]
    return None if bool(np.isfinite(area).all() and (area[:, 2] >= 0).all()) else "holds a circle that is none"


def rows_are_sorted(content: Content) -> Fault:
    """Constraints are sorted by name, type, operator, operand and filter."""
    arrays = content.arrays
    tied = ~first_rows(arrays["constraints/name_offsets"])[1:]  # row i and i + 1 are equal in the columns so far
    for column in ("kind", "lo", "hi", "filter"):
        a, b = arrays[f"constraints/{column}"][:-1], arrays[f"constraints/{column}"][1:]
        if np.any(tied & (a > b)):
            return "constraints are not sorted by name, type, operator, operand and filter"
        tied &= a == b
    return None


def sizes_add_up(content: Content) -> Fault:
    """Each filter's `size` is its number of constraints; counted in blocks, because `bincount` makes 64-bit copies, and many
    rows that only ask for presence, which ascend within a name, by all threads."""
    size = content.arrays["filters/size"]
    counts = np.zeros(len(size), np.int64)
    for column in ("constraints/filter", "presence/filter"):
        owner = content.arrays.get(column, np.zeros(0, np.uint32))
        if column == "presence/filter" and len(owner) >= MANY_ROWS:
            from mpi_match.table.row_counts import add_rows  # loads Numba

            add_rows(content.arrays["presence/name_offsets"], owner, counts)
            continue
        for at in range(0, len(owner), VALIDATED_AT_ONCE):
            np.add.at(counts, owner[at : at + VALIDATED_AT_ONCE], 1)
    return None if np.array_equal(counts, size) else "constraints do not add up to filters/size"


class _Codes:
    """The code spaces of the names of a table: the range of each type, and which codes are operands."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._string_offsets = arrays["strings/name_offsets"]
        n_numbers, n_strings = np.diff(arrays["numbers/name_offsets"]), np.diff(self._string_offsets)
        zero, first_string, last = 0 * n_numbers, 2 * n_numbers + 2, 2 * (n_numbers + n_strings) + 5
        self._first = np.array([zero, zero, first_string, last - 2])  # by type and name
        self._last = np.array([last, first_string - 2, last - 3, last - 1])
        self.strings = Strings(arrays["strings/data"], arrays["strings/offsets"])
        self._not_text = self.strings.not_text()

    def segment(self, type_: Array, name: Array) -> tuple[Array, Array]:
        """First and last code."""
        return self._first[type_, name], self._last[type_, name]

    def are_operands(self, code: Array, type_: Array, name: Array) -> Array:
        """Tells for each code whether it is an operand's: for booleans every code is, for other types every second one."""
        first, last = self.segment(type_, name)
        return np.asarray((first <= code) & (code <= last) & (((code - first) & 1 == 1) | (type_ == Type.BOOLEAN)))

    def are_texts(self, code: Array, type_: Array, name: Array) -> bool:
        """Tells for each operand whether it is UTF-8, if it is a string; only the bound of a prefix need not be."""
        if not len(self._not_text):
            return True
        strings = np.flatnonzero(type_ == Type.STRING)
        return not np.isin(self.string_at(code[strings], name[strings]), self._not_text).any()

    def string_at(self, code: Array, name: Array) -> Array:
        """The position of a string operand among those of all names."""
        return np.asarray(self._string_offsets[name] + (code - self._first[Type.STRING][name]) // 2)

    def are_bounds_of(self, bound: Array, prefix: Array) -> bool:
        """Tells for each string, by position, whether its bound is the least string above all that begin with the prefix."""
        pairs = np.unique(np.stack([prefix, bound], axis=1), axis=0)
        if np.any(pairs[1:, 0] == pairs[:-1, 0]):
            return False
        starts = [self.strings.offsets[places] for places in pairs.T]
        lengths = [self.strings.offsets[places + 1] - start for places, start in zip(pairs.T, starts, strict=True)]
        if np.any(lengths[0] != lengths[1]) or np.any(lengths[0] == 0):
            return False
        pieces = np.cumsum(lengths[0]) // CHECKED_BYTES  # pairs are compared in groups of about so many bytes
        for some in np.split(np.arange(len(pairs)), np.flatnonzero(np.diff(pieces)) + 1):
            low, high = (self.strings.data[take_ranges(start[some], lengths[0][some])] for start in starts)
            expected = low.copy()
            expected[np.cumsum(lengths[0][some]) - 1] += 1
            if not np.array_equal(high, expected):
                return False
        return True


def names_of(offsets: Array, rows: slice) -> Array:
    """i64: the name of each of some rows."""
    first, stop = np.searchsorted(offsets, (rows.start, rows.stop), side="right") - 1
    bounds = np.clip(offsets[first : stop + 2], rows.start, rows.stop)
    return np.repeat(np.arange(first, first + len(bounds) - 1), np.diff(bounds))


def _blocks(n: int) -> Iterator[slice]:
    return (slice(at, min(at + VALIDATED_AT_ONCE, n)) for at in range(0, n, VALIDATED_AT_ONCE))


def lists_are_operands(content: Content) -> Fault:
    """Lists consist of operands of one type; within a name they are sorted and distinct."""
    arrays = content.arrays
    bounds, values, offsets = arrays["sets/offsets"], arrays["sets/codes"], arrays["sets/name_offsets"]
    lengths = np.diff(bounds)
    if not lengths.all():
        return "sets/offsets holds a list of no operands"
    codes, type_of_list = _Codes(arrays), _types_of_lists(arrays)
    for lists in _blocks(len(lengths)):
        n = lengths[lists]
        code = values[bounds[lists.start] : bounds[lists.stop]].astype(np.int64)
        name, type_ = np.repeat(names_of(offsets, lists), n), np.repeat(type_of_list[lists], n)
        if not codes.are_operands(code, type_, name).all():
            return "sets/codes holds a list of codes that are not operands of one type"
        if not codes.are_texts(code, type_, name):
            return "sets/codes holds an operand that is not UTF-8"
    as_bytes = Strings(values.astype(">u4").view(np.uint8), 4 * bounds)  # they compare like the sequences of codes
    if not ascends_within(offsets, as_bytes.is_below_next()):
        return "sets/offsets holds lists that are not sorted, or not distinct, within a name"
    return None


def _types_of_lists(arrays: Mapping[str, Array]) -> Array:
    """u8: the type of the first operand of each list."""
    first = arrays["sets/codes"][arrays["sets/offsets"][:-1]]
    first_string = 2 * np.diff(arrays["numbers/name_offsets"]) + 2
    is_number = first < first_string[owners(arrays["sets/name_offsets"])]
    return np.where(is_number, np.uint8(Type.NUMBER), np.uint8(Type.STRING))


def rows_say_what_operators_can(content: Content) -> Fault:
    """The kind of every row exists, and its bounds are possible for its operator (docs/format.md, "Codes")."""
    arrays, codes = content.arrays, _Codes(content.arrays)
    type_of_list = _types_of_lists(arrays)
    for rows in _blocks(len(arrays["constraints/kind"])):
        kind, name = arrays["constraints/kind"][rows], names_of(arrays["constraints/name_offsets"], rows)
        lo, hi = (arrays[f"constraints/{column}"][rows].astype(np.int64) for column in ("lo", "hi"))
        if not _KNOWN[kind].all():
            unknown = int(kind[~_KNOWN[kind]][0])
            is_presence = unknown == kind_of(Type.ANY, Op.EXISTS)
            why = "whose rows belong to presence/filter" if is_presence else "which is not a type and operator"
            return f"constraints/kind holds {unknown}, {why}"
        if np.any(lo > hi) or np.any(_IS_ONE[kind] & (lo != hi)):
            return "constraints/lo and constraints/hi are not an interval of codes, a set or an atom"
        for which, check in ((_IS_INTERVAL, _interval_fault), (_PREFIX, _prefix_fault)):
            some = np.flatnonzero(which[kind])
            if len(some) and (fault := check(codes, kind[some], name[some], lo[some], hi[some])):
                return fault
        for which, pools in ((IS_LISTED, "sets"), (IS_ATOM, "atoms")):
            some = np.flatnonzero(which[kind])
            place, offsets = lo[some], arrays[f"{pools}/name_offsets"]
            if np.any(place >= np.diff(offsets)[name[some]]):
                return f"constraints/lo holds a number that is none of the {pools} of its name"
            place = place + offsets[name[some]]
            is_of = (
                (type_of_list[place], TYPE_OF_KIND[kind[some]])
                if pools == "sets"
                else (arrays["atoms/op"][place], OP_OF_KIND[kind[some]])
            )
            if not np.array_equal(*is_of):
                return f"constraints/lo holds the number of one of the {pools} that is not of this type and operator"
    return None


def _interval_fault(codes: _Codes, kind: Array, name: Array, lo: Array, hi: Array) -> Fault:
    """The fault in bounds that are codes: each must be adjacent to an operand, or an end of its type's range."""
    type_ = TYPE_OF_KIND[kind]
    ends = codes.segment(type_, name)
    for bound, end, has_operand in ((lo - _ABOVE[kind], ends[0], _HAS_LO), (hi + _BELOW[kind], ends[1], _HAS_HI)):
        has = has_operand[kind]
        if not np.where(has, codes.are_operands(bound, type_, name), bound == end).all():
            return "constraints/lo and constraints/hi are not an interval of codes that the operator can have"
        if not codes.are_texts(bound[has], type_[has], name[has]):
            return "constraints/lo and constraints/hi are of an operand that is not UTF-8"
    return None


def _prefix_fault(codes: _Codes, kind: Array, name: Array, lo: Array, hi: Array) -> Fault:
    """The fault in prefixes: they must reach from the prefix to just below its bound, or be all strings."""
    type_ = TYPE_OF_KIND[kind]
    first, last = codes.segment(type_, name)
    some = np.flatnonzero((lo != first) | (hi != last))
    lo, above, type_, name = lo[some], hi[some] + 1, type_[some], name[some]
    if not (codes.are_operands(lo, type_, name) & codes.are_operands(above, type_, name)).all():
        return "constraints/lo and constraints/hi are not an interval of a prefix"
    if not codes.are_texts(lo, type_, name):
        return "constraints/lo is that of a prefix that is not UTF-8"
    if not codes.are_bounds_of(codes.string_at(above, name), codes.string_at(lo, name)):
        return "constraints/hi is not just below the bound of the prefix"
    return None
