"""Turns JSON lines into attributes in code space, in compiled code, without a Python object for a line.

A line is read once, from left to right (`line_scanner`).  The bytes of names and strings are hashed while they are checked;
a hash finds the name's entry and the string's code (`codes.code_tables`).  Numbers become doubles (`codes.numbers`), then
codes.  The output is an event in the form of an `EventBatch`: packed attributes in ascending order, and location and id if
the `EventForm` names them.

The scanner never rejects a row.  It *flags* a line that it cannot judge with certainty, and `rows.judge` judges that line:
text that is not JSON or not UTF-8, lists or nulls in lists, literals such as NaN, lone surrogates, names that may stand
twice, numbers out of range or undecided, locations that are not two numbers, ids of another type, attributes with operators
that only Python evaluates, lists of several objects of which filters ask for one, and lines that exceed the scratch arrays.

Every line ends with a line feed, and no loop passes one: it is part of no name, string, number or literal.  Therefore no
function compares positions with the end of the data.  The functions take addresses and numbers, allocate nothing and raise
nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpi_match.compute.compile_cache import inlined, jit, nested
from mpi_match.compute.memory import (
    constant_i64,
    is_on_cpu,
    load_f64,
    load_i64,
    load_u8,
    load_u64,
    store_f64,
    store_i64,
    store_u8,
    store_u32,
    store_u64,
)
from mpi_match.ingest.codes.addresses import ADDRESS_DIGITS, IPV4, NOT_AN_ADDRESS, address_at
from mpi_match.ingest.codes.atoms import (
    ATOM_NAMES,
    ATOM_ROOTS,
    ATOMS_FOUND,
    NO_ATOM,
    NO_STATE,
    NULL_ATOMS,
    add_atom,
    begin_row,
    find_atoms,
    found_atom,
    found_code,
)
from mpi_match.ingest.codes.code_tables import (
    ALL_JUDGED,
    BOOLEAN_ELEMENT,
    CODE_BITS,
    ELEMENT_SEEDS,
    ELEMENTS,
    EVERY_STRING_ENTRY,
    FOLD_VIEW,
    HAS_IDS,
    HAS_MORE,
    HAS_PATTERNS,
    HAS_VIEWS,
    ID,
    IP_VIEW,
    IS_NAMED,
    IS_SCOPED,
    JOINED_ROOT,
    JUDGED,
    LOCATED,
    N_ELEMENT_TYPES,
    N_VIEW_WORDS,
    NAME_BYTES,
    NAME_IDS,
    NAME_ROLES,
    NAME_STEPS,
    NO_ENTRY,
    NO_ROLE,
    NODE_PARENTS,
    NODE_SHAPES,
    NOT_FOUND,
    NUMBER_ELEMENT,
    SCALARS,
    STEP_BEGINNINGS,
    STEP_MASK,
    STEP_SLOTS,
    TEXT_ELEMENT,
    TIME_VIEW,
    VIEW_ENTRIES,
    X,
    Y,
    code_of_boolean,
    code_of_number,
    code_of_text,
    find_element,
    hash_of,
    mixed,
)
from mpi_match.ingest.codes.element_atoms import NO_RECORD, RECORDS_OF_NAMES
from mpi_match.ingest.codes.elements import add_boolean_element, add_number_element, add_text_element
from mpi_match.ingest.codes.folding import FOLDING_TOO_LONG, fold_text
from mpi_match.ingest.codes.instants import instant_at
from mpi_match.ingest.codes.known_values import (
    KNOWN_VALUE,
    MOST_KNOWN_BYTES,
    NEW_VALUE,
    SEEN_VALUE,
    keep_value,
    put_known,
    slot_of_value,
)
from mpi_match.ingest.codes.name_steps import (
    MOST_POINTS,
    NAME_STEP_WORDS,
    NO_STEP,
    ROW_NODE,
    STEP_IS_DOTTED,
    STEP_TO,
    step_functions,
)
from mpi_match.ingest.codes.numbers import (
    HUGE_INTEGER,
    INTEGER,
    LARGE_INTEGER,
    NOT_READ,
    put_number_bytes,
    residue_at,
    scan_number,
)
from mpi_match.ingest.codes.patterns import FOLD_TABLE, find_patterns, literals_behind
from mpi_match.ingest.json.flat_cpu import NOT_FLAT, flat_line_scanner
from mpi_match.ingest.json.flat_gpu import PlainTables
from mpi_match.ingest.json.text import (
    FLAGGED_LINE,
    after_margin,
    copied,
    decode_string,
    literal,
    next_line,
    string_end_by_bytes,
    text_end_by_bytes,
)
from mpi_match.ingest.json.token_reader import BY_BYTES, BY_TOKENS, TokenReader
from mpi_match.ingest.json.unnamed import scalar_end
from mpi_match.model import RESIDUE_MASK
from mpi_match.texts.characters import (
    BACKSLASH,
    CLOSE_BRACE,
    CLOSE_BRACKET,
    COLON,
    COMMA,
    LINE_FEED,
    MINUS,
    NINE,
    OPEN_BRACE,
    OPEN_BRACKET,
    QUOTE,
    ZERO,
)

(
    SCAN_COUNTS,
    PACKED_ATTRIBUTES,
    ATTRIBUTE_ENDS,
    ROW_LOCATIONS,
    ID_BOUNDS,
    ID_DATA,
    ROW_ATOMS,
    FLAGGED,
    NODES_SEEN,
    FRAMES,
    NESTING,
    TOKENS,
    DECODED,
    VIEWED,
    FOLDED,
    FOLDED_STRINGS,
    KNOWN_VALUES,
    OTHER_ATOMS,
    DEFERRED,
    N_WORK_TABLES,
) = range(20)
"""Indices in the table of addresses of a thread: arrays for the rows of its lines, and scratch arrays for a line.

    SCAN_COUNTS                     i64[N_COUNTS]: the filled part of each array
    PACKED_ATTRIBUTES                 u64: packed, of row after row, ascending in each
    ATTRIBUTE_ENDS             i64: of each row, the end of its attributes
    ROW_LOCATIONS                   f64[2 ·]: x and y of each row, NaN for one without; not written when no location is named
    ID_BOUNDS                  i64[2 ·]: of each row, where its id begins and ends in the data, zeros for one without,
                               or ~ of where it begins and ends in ID_DATA; not written when no id is named
    ID_DATA                    u8: the ids that had escapes
    ROW_ATOMS                  i64: a set of atoms (`codes.atoms`), those of the row
    FLAGGED                    i64[4 ·]: flagged rows: row, line, start, end in the data, which is before the line feed
    NODES_SEEN                 i64[SEEN_ROOM]: the nodes that stand in the objects around, object after object
    FRAMES                     i64[FRAME_ROOM, FRAME_WORDS]: the objects and lists around
    NESTING                    i64: memory for depth (`unnamed`)
    TOKENS                     of the line, where they are found before (`line_tokens`)
    DECODED                    u8[SCRATCH_ROOM]: a string or a name without escapes
    VIEWED                     u8[SCRATCH_ROOM]: a view of a text (`model.View`), bytes of a number, or an expression's state
    FOLDED                     u8[SCRATCH_ROOM]: folded strings of the row, each followed by a byte that no text has, if all
                               strings are searched as one text (JOINED_ROOT); not on GPUs
    FOLDED_STRINGS             i64[FOLDED_HEADER + MOST_FOLDED]: FOLDED_BYTES, the filled part of FOLDED; LAST_FOLDED, bytes
                               of the text behind it, or -1; N_FOLDED, number of strings there, or whose atoms are known;
                               where each begins
    KNOWN_VALUES               `codes.known_values`; 0 on a GPU
    OTHER_ATOMS                i64: a small set of atoms, those of a string that becomes a known value
    DEFERRED                   i64[DEFERRED_HEADER + DEFERRED_WORDS * room]: DEFERRED_ROOM, 0 on a CPU, and N_DEFERRED; texts
                               of the row that other threads read later (`defer_text`)
"""
DEFERRED_ROOM, N_DEFERRED, DEFERRED_HEADER = range(3)
DEFERRED_START, DEFERRED_LENGTH, DEFERRED_ENTRY, DEFERRED_AS, DEFERRED_WORDS = range(5)
"""Words of a deferred text: where it begins in the data, its bytes, with escapes, and the last two arguments of
`put_text`."""
FOLDED_BYTES, LAST_FOLDED, N_FOLDED, FOLDED_HEADER = range(4)
MOST_FOLDED = 2**12
_NO_TEXT = 0xFF
(
    ROWS,
    LINES,
    N_ATTRIBUTES,
    ID_BYTES,
    N_FLAGGED,
    N_IDENTIFIED,
    N_LOCATED,
    N_ATOMS,
    MOST_ATOMS,
    ATTRIBUTE_ROOM,
    SEEN_ROOM,
    FRAME_ROOM,
    SCRATCH_ROOM,
    ID_ROOM,
    N_COUNTS,
) = range(15)
"""Columns of the counts: rows; lines, blank ones included; attributes; bytes of ids with escapes; flagged rows; rows with an
id, with a location; attributes for atoms.  The last six are given.  MOST_ATOMS: the room for attributes for atoms; if
N_ATOMS exceeds it in the end, the lines must be scanned again with more room.  ATTRIBUTE_ROOM: other attributes of a row.
The others are the sizes of NODES_SEEN, FRAMES, DECODED and VIEWED, and ID_DATA. A line that needs more is flagged."""
FRAME_NODE, FRAME_IS_LIST, FRAME_LISTS, FRAME_SEEN, FRAME_MASK, FRAME_WORDS = range(6)
"""Words of a frame: the node of an object or list; 1 for a list; the number of lists around it; the index where its nodes in
NODES_SEEN begin; a bit for each of these."""
MOST_SEEN, MOST_FRAMES, NESTING_LEVELS = 2**16, 2**12, 2**20
"""Sizes on a CPU: SEEN_ROOM, FRAME_ROOM, and levels of values that are not needed."""
FLAT_IN_VAIN, NOT_TRIED_AS_FLAT = 4, 128
"""Number of lines that were not flat, without a flat one between them, and of the lines that are then not tried as flat
ones: see `scan_lines`."""
AS_VALUE, AS_LIST, AS_ELEMENT = range(3)
"""The ways in which a value belongs to its attribute: as the value; as an element of a list through which its name goes; as
an element of a list that has been written (`put_list`)."""
MOST_OF_A_VALUE, MOST_OF_VIEWS = 2, 6
"""Most attributes of a value without its views, and of all its views."""
_INTERMEDIATE = 2**62
_OF_ALL_STRINGS = 2**40
"""In place of an entry, for known values of `*`."""
_LEAST_KNOWN = 16
"""Bytes of the shortest known value of an attribute without views: reading a shorter one takes less time than finding it."""


@nested
def count(counts: int, which: int, n: int) -> None:
    """Add to a count."""
    store_i64(counts, which, load_i64(counts, which) + n)


@nested
def keep_id(source: int, start: int, stop: int, data: int, work: int) -> bool:
    """Write the id of the next row, source[start:stop]; `source` may be `data`.  Returns False without room."""
    counts = load_i64(work, SCAN_COUNTS)
    if source != data:
        filled = load_i64(counts, ID_BYTES)
        if filled + stop - start > load_i64(counts, ID_ROOM):
            return False
        end = copied(source, start, stop, load_i64(work, ID_DATA), filled)
        store_i64(counts, ID_BYTES, end)
        start, stop = ~filled, ~end
    at = 2 * load_i64(counts, ROWS)
    store_i64(load_i64(work, ID_BOUNDS), at, start)
    store_i64(load_i64(work, ID_BOUNDS), at + 1, stop)
    count(counts, N_IDENTIFIED, 1)
    return True


@nested
def name_of_number(number: tuple[float, float], type_: int, entry: int, tables: int, work: int) -> int:
    """The name of `any =` with this number or boolean as operand, of the attribute with this entry, or NOT_FOUND."""
    source = load_i64(work, VIEWED)
    n = put_number_bytes(source, 0, number[0], int(number[1]) & RESIDUE_MASK)
    hash_ = hash_of(source, 0, n, load_u64(constant_i64(tables, ELEMENT_SEEDS), N_ELEMENT_TYPES * entry + type_))
    return find_element(source, 0, n, mixed(hash_), N_ELEMENT_TYPES * entry + type_, tables)


@nested
def put(to: int, n: int, name: int, code: int, tables: int) -> int:
    """Write an attribute after n others, unless the name is NOT_FOUND. Returns the new number of attributes."""
    if name == NOT_FOUND:
        return n
    store_u64(to, n, np.uint64(name) << load_u64(constant_i64(tables, SCALARS), CODE_BITS) | np.uint64(code))
    return n + 1


@nested
def put_list(entry: int, to: int, n: int, tables: int) -> int:
    """Write that the attribute with this entry is a list, unless no constraint uses its name."""
    name = load_i64(constant_i64(tables, NAME_IDS), entry)
    return put(to, n, name, code_of_boolean(name, 2, tables), tables) if name != NOT_FOUND else n


@nested
def _put_itself(text: tuple[int, int, int], entry: int, as_: int, to: int, n: int, tables: int, work: int) -> int:
    """`put_text` without the views of the attribute."""
    source, start, stop = text
    name, found = load_i64(constant_i64(tables, NAME_IDS), entry), load_i64(work, ROW_ATOMS)
    scratch = (load_i64(work, VIEWED), load_i64(load_i64(work, SCAN_COUNTS), SCRATCH_ROOM))
    if as_ == AS_LIST:
        n = put_list(entry, to, n, tables)
    elif as_ == AS_VALUE and name != NOT_FOUND:
        root = load_i64(constant_i64(tables, ATOM_ROOTS), name)
        if root != NO_STATE:
            first, searched = load_i64(found, ATOMS_FOUND), text
            has_patterns = load_i64(constant_i64(tables, HAS_PATTERNS), name) != 0
            while root != NO_STATE:
                find_atoms(root, searched[0], searched[1], searched[2], tables, found)
                if not has_patterns:
                    break
                root, length = literals_behind(root, text, scratch, tables)
                if length == FOLDING_TOO_LONG:
                    return FLAGGED_LINE
                searched = scratch[0], 0, length
            if has_patterns and not find_patterns(first, text, scratch, tables, found):
                return FLAGGED_LINE
        n = put(to, n, name, code_of_text(name, source, start, stop, tables), tables)
    if load_i64(constant_i64(tables, NAME_ROLES), entry) == ELEMENTS:
        owner = N_ELEMENT_TYPES * entry + TEXT_ELEMENT
        seed = load_u64(constant_i64(tables, ELEMENT_SEEDS), owner)
        if seed != np.uint64(0):
            hash_ = mixed(hash_of(source, start, stop, seed))
            n = put(to, n, find_element(source, start, stop, hash_, owner, tables), 0, tables)
        record = load_i64(constant_i64(tables, RECORDS_OF_NAMES), entry)
        if record != NO_RECORD and not add_text_element(text, record, scratch, tables, found):
            return FLAGGED_LINE
    return n


@nested
def put_number(
    number: tuple[float, float], type_: int, entry: int, as_: int, to: int, n: int, tables: int, work: int
) -> int:
    """Write the attributes of a number, not NaN, or boolean (`type_`: NUMBER_ELEMENT, BOOLEAN_ELEMENT), given as the nearest
    double and the residue (`model.split`), as a value of the attribute with this entry; see `put_text`."""
    name = load_i64(constant_i64(tables, NAME_IDS), entry)
    if as_ == AS_LIST:
        n = put_list(entry, to, n, tables)
    elif as_ == AS_VALUE and name != NOT_FOUND and type_ == BOOLEAN_ELEMENT:
        n = put(to, n, name, code_of_boolean(name, int(number[0]), tables), tables)
    elif as_ == AS_VALUE and name != NOT_FOUND:
        n = put(to, n, name, code_of_number(name, number, tables), tables)
    if load_i64(constant_i64(tables, NAME_ROLES), entry) == ELEMENTS:
        if load_u64(constant_i64(tables, ELEMENT_SEEDS), N_ELEMENT_TYPES * entry + type_) != np.uint64(0):
            n = put(to, n, name_of_number(number, type_, entry, tables, work), 0, tables)
        record = load_i64(constant_i64(tables, RECORDS_OF_NAMES), entry)
        if record != NO_RECORD and type_ == NUMBER_ELEMENT:
            add_number_element(number, record, tables, load_i64(work, ROW_ATOMS))
        elif record != NO_RECORD:
            add_boolean_element(int(number[0]), record, tables, load_i64(work, ROW_ATOMS))
    return n


@inlined
def joins_strings(tables: int) -> bool:
    """Tells whether all strings of a row are searched as one text."""
    return is_on_cpu() and load_u64(constant_i64(tables, SCALARS), JOINED_ROOT) != NO_ENTRY


@nested
def _fold_behind(source: int, start: int, stop: int, tables: int, work: int) -> tuple[int, int]:
    """Write the folding of a text behind the filled part of FOLDED, with room for a byte more.  Returns its address and
    number of bytes, which is FOLDING_TOO_LONG without room."""
    filled = load_i64(load_i64(work, FOLDED_STRINGS), FOLDED_BYTES)
    room, to = load_i64(load_i64(work, SCAN_COUNTS), SCRATCH_ROOM) - filled - 1, load_i64(work, FOLDED) + filled
    return to, fold_text(source, start, stop, to, room, constant_i64(tables, FOLD_TABLE))


@nested
def _keep_folded(work: int) -> None:
    """Count the text behind the filled part of FOLDED as part of it."""
    strings = load_i64(work, FOLDED_STRINGS)
    end = load_i64(strings, FOLDED_BYTES) + load_i64(strings, LAST_FOLDED)
    store_u8(load_i64(work, FOLDED), end, _NO_TEXT)
    store_i64(strings, FOLDED_BYTES, end + 1)


@nested
def _note_found(at: int, work: int) -> bool:
    """Note that the string at byte `at` need not be searched again.  Returns False without room for that."""
    strings = load_i64(work, FOLDED_STRINGS)
    n = load_i64(strings, N_FOLDED)
    if n == MOST_FOLDED:
        return False
    store_i64(strings, FOLDED_HEADER + n, at)
    store_i64(strings, N_FOLDED, n + 1)
    return True


@nested
def _note_folded(at: int, work: int) -> None:
    """Keep the folding of the string at byte `at` if it is behind the filled part of FOLDED."""
    if load_i64(load_i64(work, FOLDED_STRINGS), LAST_FOLDED) >= 0 and _note_found(at, work):
        _keep_folded(work)


@nested
def _search_folded(tables: int, work: int) -> None:
    """Add the atoms of all strings in FOLDED, and empty it."""
    strings, root = load_i64(work, FOLDED_STRINGS), load_i64(constant_i64(tables, SCALARS), JOINED_ROOT)
    find_atoms(root, load_i64(work, FOLDED), 0, load_i64(strings, FOLDED_BYTES), tables, load_i64(work, ROW_ATOMS))
    store_i64(strings, FOLDED_BYTES, 0)


@nested
def _join_folded(text: tuple[int, int, int], tables: int, work: int) -> bool:
    """Append the folding of a text to FOLDED, which is searched and emptied first if there is no room.  Returns False if it
    is longer than that."""
    source, start, stop = text
    _, length = _fold_behind(source, start, stop, tables, work)
    if length == FOLDING_TOO_LONG:
        _search_folded(tables, work)
        _, length = _fold_behind(source, start, stop, tables, work)
        if length == FOLDING_TOO_LONG:
            return False
    store_i64(load_i64(work, FOLDED_STRINGS), LAST_FOLDED, length)
    _keep_folded(work)
    return True


@nested
def _put_views(text: tuple[int, int, int], entry: int, as_: int, to: int, n: int, tables: int, work: int) -> int:
    """Write the views of a text that the attribute with this entry has; arguments and result are those of `put_text`."""
    source, start, stop = text
    counts, made = load_i64(work, SCAN_COUNTS), load_i64(work, VIEWED)
    if n + MOST_OF_A_VALUE + MOST_OF_VIEWS >= load_i64(counts, ATTRIBUTE_ROOM):
        return FLAGGED_LINE
    entries = constant_i64(tables, VIEW_ENTRIES) + 8 * N_VIEW_WORDS * entry
    own = as_ if as_ == AS_VALUE else AS_LIST  # a list of those elements that have the view
    of = load_i64(entries, FOLD_VIEW)
    if of != NOT_FOUND:
        folded, length = made, FOLDING_TOO_LONG
        if joins_strings(tables):
            folded, length = _fold_behind(source, start, stop, tables, work)
            store_i64(load_i64(work, FOLDED_STRINGS), LAST_FOLDED, length)
        if length == FOLDING_TOO_LONG:
            folded = made
            length = fold_text(source, start, stop, made, load_i64(counts, SCRATCH_ROOM), constant_i64(tables, FOLD_TABLE))
        if length == FOLDING_TOO_LONG:
            return FLAGGED_LINE
        n = _put_itself((folded, 0, length), of, own, to, n, tables, work)
        if n == FLAGGED_LINE:
            return n
    of = load_i64(entries, IP_VIEW)
    if of != NOT_FOUND:
        kind, number = address_at(source, start, stop, made)
        if kind == IPV4:
            n = put_number((np.float64(number), 0.0), NUMBER_ELEMENT, of, own, to, n, tables, work)
        elif kind != NOT_AN_ADDRESS:
            n = _put_itself((made, 0, ADDRESS_DIGITS), of, own, to, n, tables, work)
        if n == FLAGGED_LINE:
            return n
    of = load_i64(entries, TIME_VIEW)
    if of != NOT_FOUND:
        is_instant, nearest, residue = instant_at(source, start, stop)
        if is_instant:
            n = put_number((nearest, np.float64(residue)), NUMBER_ELEMENT, of, own, to, n, tables, work)
    return n


@nested
def put_text(text: tuple[int, int, int], entry: int, as_: int, to: int, n: int, tables: int, work: int) -> int:
    """Write the attributes of a text, source[start:stop], as a value of the attribute with this entry; `as_` is AS_VALUE,
    AS_LIST or AS_ELEMENT. Returns the new number of attributes, or FLAGGED_LINE without room for its views or for the state
    of an expression.

    `source` may be DECODED, not VIEWED.
    """
    n = _put_itself(text, entry, as_, to, n, tables, work)
    if n == FLAGGED_LINE or load_i64(constant_i64(tables, NAME_ROLES), entry) != ELEMENTS:
        return n
    if load_i64(constant_i64(tables, VIEW_ENTRIES), N_VIEW_WORDS * entry + HAS_VIEWS) == 0:
        return n
    return _put_views(text, entry, as_, to, n, tables, work)


@nested
def _has_automata(entry: int, tables: int) -> bool:
    """Tells whether texts of the attribute with this entry are read by automata or have views."""
    name = load_i64(constant_i64(tables, NAME_IDS), entry)
    if name != NOT_FOUND and load_i64(constant_i64(tables, ATOM_ROOTS), name) != NO_STATE:
        return True
    is_list = load_i64(constant_i64(tables, NAME_ROLES), entry) == ELEMENTS
    return is_list and load_i64(constant_i64(tables, VIEW_ENTRIES), N_VIEW_WORDS * entry + HAS_VIEWS) != 0


@nested
def _has_attribute(entry: int, to: int, n: int, tables: int) -> bool:
    """Tells whether one of n attributes has the name of this entry."""
    name, code_bits = load_i64(constant_i64(tables, NAME_IDS), entry), load_u64(constant_i64(tables, SCALARS), CODE_BITS)
    n_same = 0
    for k in range(n):
        n_same += 1 if np.int64(load_u64(to, k) >> code_bits) == name else 0
    return n_same > 0


@nested
def _keep_value(
    slot: int, text: tuple[int, int, int], entry: int, attributes: tuple[int, int, int], first: int, tables: int, work: int
) -> None:
    """Keep the attributes and atoms of a value, the latter in the row's set from the first-th on, as those of a known
    value; also its atoms as one of all strings, if these are searched as one text."""
    others = load_i64(work, OTHER_ATOMS)
    begin_row(others)
    if joins_strings(tables):
        folded, length = _fold_behind(text[0], text[1], text[2], tables, work)
        if length == FOLDING_TOO_LONG:
            return
        find_atoms(load_i64(constant_i64(tables, SCALARS), JOINED_ROOT), folded, 0, length, tables, others)
    where = (slot, load_i64(work, KNOWN_VALUES))
    keep_value(where, text, entry, attributes, (load_i64(work, ROW_ATOMS), first, others))


@nested
def _put_value(text: tuple[int, int, int], begin: int, entry: int, to: int, n: int, tables: int, work: int) -> int:
    """`put_text` of the value at byte `begin`, which may be a known one, AS_VALUE on a CPU; notes it in FOLDED_STRINGS.

    A flat line is read to its end before it is flagged for a name that stands twice.  The second value of such a name is not
    kept, because the row's set has some of its atoms already.
    """
    found, state, slot = load_i64(work, ROW_ATOMS), NEW_VALUE, 0
    if text[2] - text[1] <= MOST_KNOWN_BYTES and _has_automata(entry, tables):
        slot, state = slot_of_value(text, entry, load_i64(work, KNOWN_VALUES))
    is_room = n + MOST_OF_A_VALUE + MOST_OF_VIEWS < load_i64(load_i64(work, SCAN_COUNTS), ATTRIBUTE_ROOM)
    if state == KNOWN_VALUE and is_room and (not joins_strings(tables) or _note_found(begin, work)):
        return put_known(slot, load_i64(work, KNOWN_VALUES), to, n, found)
    first, n_before = load_i64(found, ATOMS_FOUND), n
    store_i64(load_i64(work, FOLDED_STRINGS), LAST_FOLDED, -1)
    n = put_text(text, entry, AS_VALUE, to, n, tables, work)
    if joins_strings(tables):
        _note_folded(begin, work)
    if state == SEEN_VALUE and n != FLAGGED_LINE and not _has_attribute(entry, to, n_before, tables):
        _keep_value(slot, text, entry, (to, n_before, n), first, tables, work)
    return n


@inlined
def defers_texts(work: int) -> bool:
    """Tells whether texts that are read by automata, or have escapes, are left to other threads."""
    return load_i64(load_i64(work, DEFERRED), DEFERRED_ROOM) != 0


@nested
def _is_worth_deferring(role: int, byte: int, entry: int, tables: int) -> bool:
    """Tells whether a text that is plain up to this byte is left to another thread, as a value of the attribute with this
    entry and role."""
    is_read = role == ELEMENTS or byte == BACKSLASH or _has_automata(entry, tables)
    return is_read and (role == ELEMENTS or role == NO_ROLE)


@nested
def defer_text(start: int, stop: int, entry: int, as_: int, work: int) -> bool:
    """Leave the text data[start:stop] to another thread.  Returns False without room for it."""
    deferred = load_i64(work, DEFERRED)
    n = load_i64(deferred, N_DEFERRED)
    if n == load_i64(deferred, DEFERRED_ROOM):
        return False
    to = deferred + 8 * (DEFERRED_HEADER + DEFERRED_WORDS * n)
    store_i64(to, DEFERRED_START, start)
    store_i64(to, DEFERRED_LENGTH, stop - start)
    store_i64(to, DEFERRED_ENTRY, entry)
    store_i64(to, DEFERRED_AS, as_)
    store_i64(deferred, N_DEFERRED, n + 1)
    return True


@nested
def put_null(entry: int, as_: int, tables: int, work: int) -> None:
    """Add the atom of a null of the attribute with this entry, which the row does not have then, to the row's atoms; as an
    element of a list (`as_`) a null adds nothing."""
    name = load_i64(constant_i64(tables, NAME_IDS), entry)
    if name != NOT_FOUND and as_ == AS_VALUE:
        atom = load_i64(constant_i64(tables, NULL_ATOMS), name)
        if atom != NO_ATOM:
            add_atom(load_i64(work, ROW_ATOMS), atom)


def named_value_scanner(  # noqa: C901  one branch a type
    reader: TokenReader,
) -> Callable[[int, int, int, int, int, int, int, int], tuple[int, int]]:
    """The function that scans a named value other than a list or object.

    `scan_named(data, at, entry, as_, to, n, tables, work)` writes to u64, after n others, the attributes of the value at
    `at` of the attribute with this entry; `as_` is AS_VALUE, AS_LIST or AS_ELEMENT. It returns where the value ends
    (FLAGGED_LINE if it is not certain), and the new number of attributes.
    """
    text_end, may_defer = reader.text_end, reader.defers

    @nested
    def scan_named(  # noqa: C901
        data: int, at: int, entry: int, as_: int, to: int, n: int, tables: int, work: int
    ) -> tuple[int, int]:
        begin, byte, role = at, load_u8(data, at), load_i64(constant_i64(tables, NAME_ROLES), entry)
        if role != NO_ROLE and role != ELEMENTS and (as_ != AS_VALUE or role == JUDGED):
            return FLAGGED_LINE, n
        if byte == QUOTE:
            start, source = at + 1, data
            at = text_end(data, start)
            stop = at
            if may_defer and defers_texts(work) and _is_worth_deferring(role, load_u8(data, at), entry, tables):
                at = string_end_by_bytes(data, at - 1)
                is_kept = at != FLAGGED_LINE and defer_text(start, at - 1, entry, as_, work)
                return (at if is_kept else FLAGGED_LINE), n
            if load_u8(data, at) == QUOTE:
                at += 1
            elif load_u8(data, at) == BACKSLASH:
                source = load_i64(work, DECODED)
                at, stop = decode_string(data, start, source, 0, load_i64(load_i64(work, SCAN_COUNTS), SCRATCH_ROOM))
                start = 0
                if at == FLAGGED_LINE:
                    return FLAGGED_LINE, n
            else:
                return FLAGGED_LINE, n
            if role in (X, Y):
                return FLAGGED_LINE, n
            if role == ID:
                return (at if keep_id(source, start, stop, data, work) else FLAGGED_LINE), n
            is_worth = is_on_cpu() and as_ == AS_VALUE and (role == ELEMENTS or stop - start >= _LEAST_KNOWN)
            if is_worth and load_i64(work, KNOWN_VALUES) != 0:
                n = _put_value((source, start, stop), begin, entry, to, n, tables, work)
            else:
                if joins_strings(tables):
                    store_i64(load_i64(work, FOLDED_STRINGS), LAST_FOLDED, -1)
                n = put_text((source, start, stop), entry, as_, to, n, tables, work)
                if joins_strings(tables):
                    _note_folded(begin, work)
            return (FLAGGED_LINE if n == FLAGGED_LINE else at), n
        if byte == MINUS or ZERO <= byte <= NINE:
            start = at
            at, kind, value = scan_number(data, at, tables)
            if role == ID:
                if kind != INTEGER and kind != LARGE_INTEGER and kind != HUGE_INTEGER:
                    return FLAGGED_LINE, n
                is_zero = kind == INTEGER and value == 0.0  # also as -0
                keep_id(data, at - 1 if is_zero else start, at, data, work)
                return at, n
            if kind in (NOT_READ, HUGE_INTEGER):
                return FLAGGED_LINE, n
            residue = residue_at(data, start, at, value) if kind == LARGE_INTEGER else 0.0
            if role in (X, Y):
                if residue != 0.0:
                    return FLAGGED_LINE, n
                row = load_i64(load_i64(work, SCAN_COUNTS), ROWS)
                store_f64(load_i64(work, ROW_LOCATIONS), 2 * row + (0 if role == X else 1), value)
            return at, put_number((value, residue), NUMBER_ELEMENT, entry, as_, to, n, tables, work)
        found, at = literal(data, at)
        if found == 2:
            put_null(entry, as_, tables, work)
            return at, n
        if found < 0 or (role != NO_ROLE and role != ELEMENTS):
            return FLAGGED_LINE, n
        return at, put_number((np.float64(found), 0.0), BOOLEAN_ELEMENT, entry, as_, to, n, tables, work)

    return scan_named


@nested
def _is_new(node: int, first: int, n: int, mask: np.uint64, nodes: int) -> bool:
    """Tells whether a node is missing among those from `first` to the n-th; `mask` has a bit for each of these."""
    if mask >> np.uint64(node & 63) & np.uint64(1):
        for k in range(first, n):
            if load_i64(nodes, k) == node:
                return False
    return True


def line_scanner(reader: TokenReader) -> Callable[[int, int, int, int], tuple[int, int]]:  # noqa: C901  one pass over a line
    """The function that scans a line, `scan_line(data, at, tables, work)`, which begins at `at` and is not blank.

    It returns where the line ends, at its line feed (FLAGGED_LINE if it is not certain), and the number of attributes
    written after those that are counted.
    """
    first, following, after, after_value = reader.first, reader.following, reader.after, reader.after_value
    text_end, may_be_step = reader.text_end, reader.begins_step
    _, find_step = step_functions(reader.word)
    scan_named = named_value_scanner(reader)

    @nested
    def see(step: int, parent: int, first: int, n: int, mask: np.uint64, tables: int, work: int) -> tuple[int, np.uint64]:
        """Note the node of a step in an object; the nodes of the object begin at `first`.  Returns the new number of nodes
        and their mask; FLAGGED_LINE if an attribute of its name, or of a name in it, may stand twice.

        For a step with points in it the nodes on the way are noted, too: `a` for `a.b`; two such ways do not meet.
        """
        nodes, found = load_i64(work, NODES_SEEN), constant_i64(tables, NAME_STEPS) + 8 * NAME_STEP_WORDS * step
        node = load_i64(found, STEP_TO)
        if n + MOST_POINTS >= load_i64(load_i64(work, SCAN_COUNTS), SEEN_ROOM):
            return FLAGGED_LINE, mask
        if not (_is_new(node, first, n, mask, nodes) and _is_new(node | _INTERMEDIATE, first, n, mask, nodes)):
            return FLAGGED_LINE, mask
        store_i64(nodes, n, node)
        mask |= np.uint64(1) << np.uint64(node & 63)
        n += 1
        if load_i64(found, STEP_IS_DOTTED) != 0:
            node = load_i64(constant_i64(tables, NODE_PARENTS), node)
            while node != parent:
                if not _is_new(node, first, n, mask, nodes):
                    return FLAGGED_LINE, mask
                if _is_new(node | _INTERMEDIATE, first, n, mask, nodes):
                    store_i64(nodes, n, node | _INTERMEDIATE)
                    mask |= np.uint64(1) << np.uint64(node & 63)
                    n += 1
                node = load_i64(constant_i64(tables, NODE_PARENTS), node)
        return n, mask

    @nested
    def step_at(data: int, at: int, parent: int, tables: int, work: int) -> tuple[int, int]:
        """The step of the name at a quote, or NO_STEP; and the position where the name ends, or FLAGGED_LINE."""
        start, stop, source = at + 1, text_end(data, at + 1), data
        end = stop + 1
        if load_u8(data, stop) == BACKSLASH:
            source = load_i64(work, DECODED)
            end, stop = decode_string(data, start, source, 0, load_i64(load_i64(work, SCAN_COUNTS), SCRATCH_ROOM))
            start = 0
        elif load_u8(data, stop) != QUOTE:
            end = FLAGGED_LINE
        if end == FLAGGED_LINE:
            return NO_STEP, FLAGGED_LINE
        slots, steps = constant_i64(tables, STEP_SLOTS), constant_i64(tables, NAME_STEPS)
        mask = load_u64(constant_i64(tables, SCALARS), STEP_MASK)
        return find_step(source, start, stop, parent, slots, steps, mask, constant_i64(tables, NAME_BYTES)), end

    @nested
    def scan_line(data: int, at: int, tables: int, work: int) -> tuple[int, int]:  # noqa: C901
        tokens, nesting = load_i64(work, TOKENS), load_i64(work, NESTING)
        if load_u8(data, at) != OPEN_BRACE or first(data, at, tokens, nesting) == FLAGGED_LINE:
            return FLAGGED_LINE, 0
        counts, frames = load_i64(work, SCAN_COUNTS), load_i64(work, FRAMES)
        to = load_i64(work, PACKED_ATTRIBUTES) + 8 * load_i64(counts, N_ATTRIBUTES)
        shapes, steps = constant_i64(tables, NODE_SHAPES), constant_i64(tables, NAME_STEPS)
        beginnings = constant_i64(tables, STEP_BEGINNINGS)
        room, frame_room = load_i64(counts, ATTRIBUTE_ROOM), load_i64(counts, FRAME_ROOM)
        n, depth = 0, 0
        node, is_list, n_lists = ROW_NODE, False, 0  # of the object or list that is open; the lists that it is or is in
        first_seen, n_seen, mask = 0, 0, np.uint64(0)
        at = following(data, at, tokens)
        closing = load_u8(data, at) == CLOSE_BRACE
        while True:
            while closing:
                if depth == 0:
                    at = after_margin(data, at + 1)
                    return (at if load_u8(data, at) == LINE_FEED else FLAGGED_LINE), n
                depth -= 1
                frame = frames + 8 * FRAME_WORDS * depth
                if not is_list:
                    n_seen = first_seen
                    mask, first_seen = load_u64(frame, FRAME_MASK), load_i64(frame, FRAME_SEEN)
                node, is_list = load_i64(frame, FRAME_NODE), load_i64(frame, FRAME_IS_LIST) != 0
                n_lists = load_i64(frame, FRAME_LISTS)
                at = following(data, at, tokens)
                byte = load_u8(data, at)
                closing = byte == (CLOSE_BRACKET if is_list else CLOSE_BRACE)
                if not closing:
                    if byte != COMMA or (is_list and load_i64(shapes, node) & IS_SCOPED):
                        return FLAGGED_LINE, 0
                    at = following(data, at, tokens)
            inner, shape = node, load_i64(shapes, node) if is_list else 0
            if not is_list:
                if load_u8(data, at) != QUOTE:
                    return FLAGGED_LINE, 0
                step, end = NO_STEP, at
                if may_be_step(data, at + 1, beginnings):
                    step, end = step_at(data, at, node, tables, work)
                if end == FLAGGED_LINE:
                    return FLAGGED_LINE, 0
                at = after(data, at, end, tokens) if end != at else after_value(data, at, tokens, nesting)
                if at == FLAGGED_LINE or load_u8(data, at) != COLON:
                    return FLAGGED_LINE, 0
                at = following(data, at, tokens)
                if step != NO_STEP:
                    n_seen, mask = see(step, node, first_seen, n_seen, mask, tables, work)
                    if n_seen == FLAGGED_LINE:
                        return FLAGGED_LINE, 0
                    inner = load_i64(steps + 8 * NAME_STEP_WORDS * step, STEP_TO)
                    shape = load_i64(shapes, inner)
            byte = load_u8(data, at)
            if (byte == OPEN_BRACKET and shape != 0) or (byte == OPEN_BRACE and shape & HAS_MORE):
                if depth == frame_room or n + MOST_OF_A_VALUE >= room:
                    return FLAGGED_LINE, 0
                frame = frames + 8 * FRAME_WORDS * depth
                depth += 1
                store_i64(frame, FRAME_NODE, node)
                store_i64(frame, FRAME_IS_LIST, 1 if is_list else 0)
                store_i64(frame, FRAME_LISTS, n_lists)
                at = following(data, at, tokens)
                closing = load_u8(data, at) == byte + 2
                node, is_list = inner, byte == OPEN_BRACKET
                if is_list:
                    n_lists += 1
                    role = load_i64(constant_i64(tables, NAME_ROLES), node)
                    if role != NO_ROLE and role != ELEMENTS:
                        return FLAGGED_LINE, 0
                    n = put_list(node, to, n, tables)
                else:
                    store_i64(frame, FRAME_SEEN, first_seen)
                    store_u64(frame, FRAME_MASK, mask)
                    first_seen, mask = n_seen, np.uint64(0)
                continue
            if shape & IS_NAMED and byte != OPEN_BRACE:
                if n + MOST_OF_A_VALUE >= room:
                    return FLAGGED_LINE, 0
                as_ = AS_VALUE if n_lists == 0 else AS_ELEMENT if is_list else AS_LIST
                end, n = scan_named(data, at, inner, as_, to, n, tables, work)
                at = after(data, at, end, tokens) if end != FLAGGED_LINE else FLAGGED_LINE
            else:
                at = after_value(data, at, tokens, nesting)
            if at == FLAGGED_LINE:
                return FLAGGED_LINE, 0
            byte = load_u8(data, at)
            if byte == COMMA:
                at = following(data, at, tokens)
            elif byte == (CLOSE_BRACKET if is_list else CLOSE_BRACE):
                closing = True
            else:
                return FLAGGED_LINE, 0

    return scan_line


@nested
def _join_value(text: tuple[int, int, int], tables: int, work: int) -> bool:
    """`_join_folded`, or the atoms of the text if it is a known value, of all strings."""
    found, state, slot = load_i64(work, ROW_ATOMS), NEW_VALUE, 0
    if text[2] - text[1] <= MOST_KNOWN_BYTES:
        slot, state = slot_of_value(text, _OF_ALL_STRINGS, load_i64(work, KNOWN_VALUES))
    if state == KNOWN_VALUE:
        put_known(slot, load_i64(work, KNOWN_VALUES), 0, 0, found)
        return True
    if state == SEEN_VALUE:
        _keep_value(slot, text, _OF_ALL_STRINGS, (0, 0, 0), load_i64(found, ATOMS_FOUND), tables, work)
    return _join_folded(text, tables, work)


def every_string_scanner(reader: TokenReader) -> Callable[[int, int, int, int, int], int]:
    """The function that scans all strings of a line as elements of the list `*`: those that `rows.flatten.strings_of` finds.

    `scan_strings(data, at, n, tables, work)` writes the attributes of the strings of the line at `at`, which has been
    scanned, after n others. It returns the new number of attributes, or FLAGGED_LINE.
    """
    following, after_value, after_string, text_end = reader.following, reader.after_value, reader.after, reader.text_end
    may_defer = reader.defers

    @nested
    def scan_strings(data: int, at: int, n: int, tables: int, work: int) -> int:
        counts, tokens, nesting = load_i64(work, SCAN_COUNTS), load_i64(work, TOKENS), load_i64(work, NESTING)
        to = load_i64(work, PACKED_ATTRIBUTES) + 8 * load_i64(counts, N_ATTRIBUTES)
        entry, n_kept = load_i64(constant_i64(tables, SCALARS), EVERY_STRING_ENTRY), 0
        kept = load_i64(work, FOLDED_STRINGS) if joins_strings(tables) else 0
        while load_u8(data, at) != LINE_FEED:
            byte = load_u8(data, at)
            if byte in (OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET, COLON, COMMA):
                at = following(data, at, tokens)
                continue
            string_end = string_end_by_bytes(data, at) if may_defer and byte == QUOTE else at
            after = after_string(data, at, string_end, tokens) if string_end > at else after_value(data, at, tokens, nesting)
            if after == FLAGGED_LINE:
                return FLAGGED_LINE  # at a byte that `after_margin` passes over
            is_text = byte == QUOTE and load_u8(data, after) != COLON  # no name
            if kept and is_text and n_kept < load_i64(kept, N_FOLDED) and load_i64(kept, FOLDED_HEADER + n_kept) == at:
                n_kept, is_text = n_kept + 1, False
            if may_defer and is_text and defers_texts(work):
                if not defer_text(at + 1, string_end - 1, entry, AS_ELEMENT, work):
                    return FLAGGED_LINE
            elif is_text:
                start, stop, source = at + 1, text_end(data, at + 1), data
                if load_u8(data, stop) == BACKSLASH:
                    source = load_i64(work, DECODED)
                    end, stop = decode_string(data, start, source, 0, load_i64(counts, SCRATCH_ROOM))
                    start = 0
                    if end == FLAGGED_LINE:
                        return FLAGGED_LINE
                if kept:
                    n = n if _join_value((source, start, stop), tables, work) else FLAGGED_LINE
                else:
                    if n + MOST_OF_A_VALUE >= load_i64(counts, ATTRIBUTE_ROOM):
                        return FLAGGED_LINE
                    n = put_text((source, start, stop), entry, AS_ELEMENT, to, n, tables, work)
                if n == FLAGGED_LINE:
                    return FLAGGED_LINE
            at = after
        if kept:
            _search_folded(tables, work)
        return n

    return scan_strings


_scan_named = named_value_scanner(BY_TOKENS)


@nested
def _scan_flat_value(data: int, at: int, entry: int, to: int, n: int, tables: int, work: int) -> tuple[int, int]:
    """Scan the value of a flat line's named attribute (`flat_cpu`)."""
    return _scan_named(data, at, entry, AS_VALUE, to, n, tables, work)


@nested
def _sort(items: int, n: int) -> None:
    """Sort u64 in place by Shell's method: insertion sort for few, decreasing gaps for many."""
    gap = 1
    while 9 * gap < n:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            item, k = load_u64(items, i), i
            while k >= gap and load_u64(items, k - gap) > item:
                store_u64(items, k, load_u64(items, k - gap))
                k -= gap
            store_u64(items, k, item)
        gap //= 3


@nested
def _distinct(items: int, n: int) -> int:
    """Remove duplicates, such as elements of a list, from sorted u64. Returns the number of items that are left."""
    kept = 0
    for i in range(n):
        item = load_u64(items, i)
        if kept == 0 or item != load_u64(items, kept - 1):
            store_u64(items, kept, item)
            kept += 1
    return kept


@nested
def _add_atoms(attributes: int, n_attributes: int, tables: int, work: int) -> int:
    """Append the row's atoms to its attributes if there is room for them; returns the number of attributes."""
    counts, found = load_i64(work, SCAN_COUNTS), load_i64(work, ROW_ATOMS)
    scalars = constant_i64(tables, SCALARS)
    n_found, n_before = load_i64(found, ATOMS_FOUND), load_i64(counts, N_ATOMS)
    store_i64(counts, N_ATOMS, n_before + n_found)
    if n_before + n_found > load_i64(counts, MOST_ATOMS):
        return n_attributes
    for k in range(n_found):
        name = np.uint64(load_i64(constant_i64(tables, ATOM_NAMES), found_atom(found, k)))
        code = np.uint64(found_code(found, k))
        store_u64(attributes, n_attributes + k, name << load_u64(scalars, CODE_BITS) | code)
    return n_attributes + n_found


@nested
def end_attributes(n_attributes: int, tables: int, work: int) -> None:
    """Add the next row's atoms to its attributes, put them in order and count them."""
    attributes = load_i64(work, PACKED_ATTRIBUTES) + 8 * load_i64(load_i64(work, SCAN_COUNTS), N_ATTRIBUTES)
    n_attributes = _add_atoms(attributes, n_attributes, tables, work)
    _sort(attributes, n_attributes)
    count(load_i64(work, SCAN_COUNTS), N_ATTRIBUTES, _distinct(attributes, n_attributes))


@nested
def clear_row(tables: int, work: int) -> None:
    """Begin a row without location and id, if the form names these."""
    scalars, at = constant_i64(tables, SCALARS), 2 * load_i64(load_i64(work, SCAN_COUNTS), ROWS)
    if load_u64(scalars, LOCATED) != np.uint64(0):
        store_f64(load_i64(work, ROW_LOCATIONS), at, np.nan)
        store_f64(load_i64(work, ROW_LOCATIONS), at + 1, np.nan)
    if load_u64(scalars, HAS_IDS) != np.uint64(0):
        store_i64(load_i64(work, ID_BOUNDS), at, 0)
        store_i64(load_i64(work, ID_BOUNDS), at + 1, 0)


@nested
def location_is_whole(work: int) -> bool:
    """Count the location of the next row.  Returns False if it has one coordinate alone."""
    counts = load_i64(work, SCAN_COUNTS)
    place = load_i64(work, ROW_LOCATIONS) + 16 * load_i64(counts, ROWS)
    x_absent, y_absent = np.isnan(load_f64(place, 0)), np.isnan(load_f64(place, 1))
    if not x_absent and not y_absent:
        count(counts, N_LOCATED, 1)
    return bool(x_absent == y_absent)


@nested
def row_begin(data: int, at: int) -> int:
    """The position after the byte order mark and the blanks at the beginning of a line: that of the row, or of the line feed
    of a blank line."""
    if load_u8(data, at) == 0xEF and load_u8(data, at + 1) == 0xBB and load_u8(data, at + 2) == 0xBF:
        at += 3
    return after_margin(data, at)


def row_scanner(reader: TokenReader) -> Callable[[int, int, int, int], int]:
    """The function that scans a line as the next row, with the steps of a reader.

    `scan_row(data, at, tables, work)` puts the row's attributes in order and counts them.  It returns where the line ends;
    FLAGGED_LINE, and then no count has changed, if it is not certain.
    """
    scan_line, scan_strings, may_defer = line_scanner(reader), every_string_scanner(reader), reader.defers

    @nested
    def scan_row(data: int, at: int, tables: int, work: int) -> int:
        counts, scalars = load_i64(work, SCAN_COUNTS), constant_i64(tables, SCALARS)
        id_bytes, identified = load_i64(counts, ID_BYTES), load_i64(counts, N_IDENTIFIED)
        begin_row(load_i64(work, ROW_ATOMS))
        clear_row(tables, work)
        if may_defer and defers_texts(work):
            store_i64(load_i64(work, DEFERRED), N_DEFERRED, 0)
        if joins_strings(tables):
            store_i64(load_i64(work, FOLDED_STRINGS), FOLDED_BYTES, 0)
            store_i64(load_i64(work, FOLDED_STRINGS), N_FOLDED, 0)
        end, n_attributes = FLAGGED_LINE, 0
        if load_u64(scalars, ALL_JUDGED) == np.uint64(0):
            end, n_attributes = scan_line(data, at, tables, work)
        if load_u64(scalars, EVERY_STRING_ENTRY) != NO_ENTRY and end != FLAGGED_LINE:
            n_attributes = scan_strings(data, at, n_attributes, tables, work)
            end = FLAGGED_LINE if n_attributes == FLAGGED_LINE else end
        if load_u64(scalars, LOCATED) != np.uint64(0) and end != FLAGGED_LINE and not location_is_whole(work):
            end = FLAGGED_LINE
        if end == FLAGGED_LINE:
            clear_row(tables, work)
            store_i64(counts, ID_BYTES, id_bytes)
            store_i64(counts, N_IDENTIFIED, identified)
            return FLAGGED_LINE
        end_attributes(n_attributes, tables, work)
        return end

    return scan_row


_scan_row = row_scanner(BY_TOKENS)
_scan_row_by_bytes = row_scanner(BY_BYTES)


@nested
def flag(line: int, start: int, stop: int, work: int) -> None:
    """Flag the next row, data[start:stop]."""
    counts = load_i64(work, SCAN_COUNTS)
    flagged = load_i64(work, FLAGGED) + 32 * load_i64(counts, N_FLAGGED)
    store_i64(flagged, 0, load_i64(counts, ROWS))
    store_i64(flagged, 1, line)
    store_i64(flagged, 2, start)
    store_i64(flagged, 3, stop)
    count(counts, N_FLAGGED, 1)


_scan_flat_line = flat_line_scanner(_scan_flat_value, scalar_end)


@nested
def _take_flat(data: int, at: int, stop: int, tables: int, flat: PlainTables, work: int) -> int:
    """Scan a line as `_scan_row` does, if it is flat; FLAGGED_LINE, and then no count has changed, if it is not."""
    counts, found = load_i64(work, SCAN_COUNTS), load_i64(work, ROW_ATOMS)
    begin_row(found)
    attributes = load_i64(work, PACKED_ATTRIBUTES) + 8 * load_i64(counts, N_ATTRIBUTES)
    end, n = _scan_flat_line(data, at, stop, attributes, flat, tables, work)
    if end == NOT_FLAT:
        return FLAGGED_LINE
    clear_row(tables, work)
    if load_i64(found, ATOMS_FOUND) > 0:
        end_attributes(n, tables, work)
    else:
        count(counts, N_ATTRIBUTES, n)
    return end


@jit
def scan_lines(data: int, start: int, stop: int, tables: int, flat: PlainTables, work: int) -> None:
    """Scan the lines of data[start:stop] u8, whose last byte is a line feed.

    `data` is an address; `tables` and `work` are the tables of `codes.code_tables.hashed` and of a thread, `flat` those of
    `flat_cpu`.  Blanks around a line and a byte order mark before it are left out as `rows.trimmed` does; a blank line is
    not a row.  After `FLAT_IN_VAIN` lines that were read and not flat, with no flat one between them, `NOT_TRIED_AS_FLAT`
    lines are not tried as such; flagged lines do not count.
    """
    counts = load_i64(work, SCAN_COUNTS)
    for i in range(MOST_ATOMS):
        store_i64(counts, i, 0)
    at, line, in_vain = start, 0, 0
    not_tried = 0 if flat.names != 0 else stop  # more than there are lines
    while at < stop:
        begin, end, is_tried = at, FLAGGED_LINE, not_tried == 0
        if is_tried:
            end = _take_flat(data, at, stop, tables, flat, work)
            in_vain = in_vain if end == FLAGGED_LINE else 0  # a flagged line says nothing of the others
        else:
            not_tried -= 1
        if end == FLAGGED_LINE:
            at = row_begin(data, at)
        if end != FLAGGED_LINE or load_u8(data, at) != LINE_FEED:
            row = load_i64(counts, ROWS)
            if end == FLAGGED_LINE:
                end = _scan_row(data, at, tables, work)
                in_vain += 1 if is_tried and end != FLAGGED_LINE else 0
                if in_vain == FLAT_IN_VAIN:
                    not_tried, in_vain = NOT_TRIED_AS_FLAT, 0
            if end == FLAGGED_LINE:
                end = next_line(data, at) - 1
                flag(line, begin, end, work)
            store_i64(load_i64(work, ATTRIBUTE_ENDS), row, load_i64(counts, N_ATTRIBUTES))
            store_i64(counts, ROWS, row + 1)
            at = end
        line += 1
        at += 1
    store_i64(counts, LINES, line)


@jit
def scan_single_row(data: int, at: int, tables: int, work: int) -> int:
    """Scan the first row from the line at `at` on, as the only one in the arrays of `work`.  Returns its number of
    attributes, or FLAGGED_LINE if it is not certain or has more atoms than fit."""
    counts = load_i64(work, SCAN_COUNTS)
    for i in range(MOST_ATOMS):
        store_i64(counts, i, 0)
    at = row_begin(data, at)
    while load_u8(data, at) == LINE_FEED:
        at = row_begin(data, at + 1)
    if _scan_row_by_bytes(data, at, tables, work) == FLAGGED_LINE or load_i64(counts, N_ATOMS) > load_i64(
        counts, MOST_ATOMS
    ):
        return FLAGGED_LINE
    return load_i64(counts, N_ATTRIBUTES)


@jit
def read_deferred(data: int, text: int, tables: int, work: int) -> int:
    """The attributes of a deferred text, ascending, as those of a row that is the only one in the arrays of `work`.  Returns
    their number, or FLAGGED_LINE if they are not certain or more than fit.

    Parameters: `text` is the address of the text's words; `data` is what it is in.
    """
    counts = load_i64(work, SCAN_COUNTS)
    for i in range(MOST_ATOMS):
        store_i64(counts, i, 0)
    source, start = data, load_i64(text, DEFERRED_START)
    stop = start + load_i64(text, DEFERRED_LENGTH)
    if text_end_by_bytes(data, start) < stop:  # at an escape
        source = load_i64(work, DECODED)
        end, stop = decode_string(data, start, source, 0, load_i64(counts, SCRATCH_ROOM))
        start = 0
        if end == FLAGGED_LINE:
            return FLAGGED_LINE
    begin_row(load_i64(work, ROW_ATOMS))
    where = load_i64(text, DEFERRED_ENTRY), load_i64(text, DEFERRED_AS)
    n = put_text((source, start, stop), where[0], where[1], load_i64(work, PACKED_ATTRIBUTES), 0, tables, work)
    if n == FLAGGED_LINE:
        return FLAGGED_LINE
    end_attributes(n, tables, work)
    if load_i64(counts, N_ATOMS) > load_i64(counts, MOST_ATOMS):
        return FLAGGED_LINE
    return load_i64(counts, N_ATTRIBUTES)


@jit
def copy_ids(first: int, last: int, data: int, decoded: int, bounds: int, offsets: int, to: int) -> None:
    """Copy the ids of rows first to last, that of row r to u8 `to` from offsets[r] on, i64.

    Their `bounds` (ID_BOUNDS) are positions in `data`, or in `decoded` (ID_DATA).
    """
    for row in range(first, last):
        start, stop, filled = load_i64(bounds, 2 * row), load_i64(bounds, 2 * row + 1), load_i64(offsets, row)
        if start >= 0:
            copied(data, start, stop, to, filled)
        else:
            copied(decoded, ~start, ~stop, to, filled)


@jit
def collect(work: int, first_row: int, first_attribute: int, to: int, is_narrow: bool) -> None:
    """Copy the output of a thread after the rows and attributes of the threads before it.

    `to` is an `AddressTable` of offsets u32[n + 1], attributes u32 or, unless `is_narrow`, u64, and f64[n, 2] for locations,
    which may be without rows if the thread found none.
    """
    counts = load_i64(work, SCAN_COUNTS)
    ends, packed = load_i64(work, ATTRIBUTE_ENDS), load_i64(work, PACKED_ATTRIBUTES)
    offsets, attributes, location = load_i64(to, 0), load_i64(to, 1), load_i64(to, 2)
    n_rows = load_i64(counts, ROWS)
    for row in range(n_rows):
        store_u32(offsets, first_row + row + 1, first_attribute + load_i64(ends, row))
    for k in range(load_i64(counts, N_ATTRIBUTES)):
        if is_narrow:
            store_u32(attributes, first_attribute + k, load_i64(packed, k))
        else:
            store_u64(attributes, first_attribute + k, load_u64(packed, k))
    if load_i64(counts, N_LOCATED):
        for k in range(2 * n_rows):
            store_f64(location, 2 * first_row + k, load_f64(load_i64(work, ROW_LOCATIONS), k))
