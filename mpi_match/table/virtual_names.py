"""Virtual names: constraints on some element of a list (`any OP`) as constraints on names that no attribute can have.

An event has the virtual names that its attribute "tags" satisfies beside "tags" itself, so no engine knows lists.  The bytes
of a virtual name are 0xff, the attribute's name, 0xff, a form, a type (n, s or b), and an operand: UTF-8 has no byte 0xff,
so a tag never collides with an attribute, and all virtual names of an attribute are next to each other.

    form            stands for      the event has it, with code, if                                    constraint
    =  @  ~  [      any = in        some element satisfies the operator with the operand               exists
    ^  $  *  #      not in between                (atoms: the operand is part of the name)
                    prefix suffix
                    contains, != of
                    a boolean
    <  >            any < <= > >=   some element is of the type; the code of the least, greatest one   < <= > >=
    !               any !=          likewise; the code of the one value, or of no operand if there     !=
                                    are two different ones

A view of an attribute (`model.View`) is a name too: 0xfe, the letter of the view, and the attribute's name.  An event has it
if the value has the view, and constraints on it are ordinary ones; in virtual names it stands where the attribute's name
does.  The name 0xfe, `*` stands for all strings of an event, 0xfe, `&`, 32 hexadecimal digits is the name of a part of
conditions (`conditions`), which an event has that satisfies the part, and 0xfe, `[` and a condition is the name of a scope
(`scopes`).

NaN counts as no element.  An operand is text, or numbers as big-endian doubles (booleans 0 or 1); in a list of texts
each has its length, four bytes big-endian, before it.  An integer that no double equals is the nearest double and, behind
it, a NaN with the residue (`model.split`) in its lowest 16 bits.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.exact import LARGEST_SPLIT
from mpi_match.arrays.strings import Strings
from mpi_match.model import (
    EVERY_STRING,
    RESERVED,
    RESIDUE_MASK,
    Constraint,
    ModelError,
    Op,
    Operand,
    Type,
    Value,
    View,
    constraint,
    joined,
    split,
)
from mpi_match.operators import OPERATORS, Form, Takes

MARK = b"\xff"
VIEW_MARK = b"\xfe"
"""The first byte of the names of views, of all strings, and of parts."""
EVERY_NAME = VIEW_MARK + EVERY_STRING.encode()
"""The name of all strings of an event."""
PART_MARK, SCOPE_MARK = VIEW_MARK + b"&", VIEW_MARK + b"["
PART_DIGITS = 32
_VIEWS = {view.value: view for view in View if view is not View.NONE}
TYPE_LETTERS = {Type.NUMBER: b"n", Type.STRING: b"s", Type.BOOLEAN: b"b"}
ATOM_FORMS = {op: record.element for op, record in OPERATORS.items() if record.element}
"""Forms with an operand, by operator; those with the form UNEQUAL are among them only for booleans."""
LEAST_FORM, GREATEST_FORM, SOLE_FORM = b"<", b">", b"!"
_OF_FORM = {Form.BELOW: LEAST_FORM, Form.ABOVE: GREATEST_FORM, Form.UNEQUAL: SOLE_FORM}
_EXTREMES = {op: _OF_FORM[record.form] for op, record in OPERATORS.items() if record.form in _OF_FORM}
_SEVERAL = (Takes.LIST, Takes.BOUNDS)
_TYPES = {letter: type_ for type_, letter in TYPE_LETTERS.items()}
_OF_BOOLEANS = {ATOM_FORMS[op] for op in _EXTREMES if op in ATOM_FORMS}
"""Forms with an operand that other types than booleans do not have."""
_ATOMS = {form: op for op, form in ATOM_FORMS.items()}
RESIDUE_WORD = 0x7FF80000_00000000
"""The NaN behind a double, to which the residue modulo 2^16 is added."""


class VirtualName(NamedTuple):
    """The parts of a virtual name: the attribute's name, a form, the type of the elements, and what follows."""

    base: bytes
    form: bytes
    type: Type
    rest: bytes

    @property
    def head(self) -> bytes:
        """The name without `rest`."""
        return prefix_of(self.base) + self.form + TYPE_LETTERS[self.type]

    @property
    def kinds(self) -> list[tuple[Type, Op]]:
        """Type and operator of the constraints on the name."""
        if self.op is not None:
            return [(Type.ANY, Op.EXISTS)]
        return [(self.type, op) for op, form in _EXTREMES.items() if form == self.form]

    @property
    def op(self) -> Op | None:
        """The operator of an atom; None for the other forms."""
        return _ATOMS.get(self.form)

    def operand(self) -> Operand:
        """The operand of an atom.  Raises ModelError when it has none that `constraint` would make."""
        assert self.op is not None
        takes = self.op.record.takes
        values = _values(self.type, self.rest, takes in _SEVERAL)
        if takes not in _SEVERAL and len(values) != 1:
            raise ModelError("a virtual name has one operand")
        found: Operand = values if takes in _SEVERAL else values[0]
        name, view = attribute_of(self.base)
        if view is View.NONE or view is View.FOLD:
            again = constraint("a", self.op, found)._replace(any_element=True)
        else:  # operands of other views are not as subscriptions write them
            again = Constraint("a", self.type, self.op, found, any_element=True)
        again = again._replace(name=name, view=view)
        if of_constraint(again)[0] != self.head + self.rest:
            raise ModelError("the operand of a virtual name is not in canonical form")
        return found


def prefix_of(base: bytes) -> bytes:
    """The beginning of all virtual names of an attribute, or of a view of it."""
    return MARK + base + MARK


def name_of(attribute: str, view: View = View.NONE) -> bytes:
    """The name of a view of an attribute, of all strings, of a part, or of a scope: the inverse of `attribute_of`."""
    if attribute.startswith(RESERVED):
        return VIEW_MARK + attribute[1:].encode()
    base = EVERY_NAME if attribute == EVERY_STRING else attribute.encode()
    return base if view is View.NONE else view_name(base, view)


def view_name(base: bytes, view: View) -> bytes:
    """The name of a view of an attribute with the name `base`."""
    return VIEW_MARK + view.value + base


def attribute_of(name: bytes) -> tuple[str, View]:
    """The attribute and the view of a name that is not virtual; for a part or a scope, its name in the model.

    Raises ModelError.
    """
    view = View.NONE
    if name[:1] == VIEW_MARK and name[1:2] in _VIEWS:
        view, name = _VIEWS[name[1:2]], name[2:]
    try:
        if name[:1] != VIEW_MARK:
            return name.decode(), view
        if name == EVERY_NAME:
            return EVERY_STRING, view
        if view is View.NONE and (is_part(name) or name.startswith(SCOPE_MARK)):
            return RESERVED + name[1:].decode(), view
    except UnicodeDecodeError:
        pass
    raise ModelError(f"{name[:60]!r} is neither text nor the name of a view")


def is_part(name: bytes) -> bool:
    """Tells whether a name is that of a part of conditions."""
    digits = name[len(PART_MARK) :]
    return name.startswith(PART_MARK) and len(digits) == PART_DIGITS and not digits.strip(b"0123456789abcdef")


def part_places(names: Strings) -> Array:
    """i64, ascending: the names that begin as those of parts do, among names that subscriptions can have."""
    length = len(PART_MARK) + PART_DIGITS
    found = np.flatnonzero(np.diff(names.offsets) == length)
    for at, byte in enumerate(PART_MARK):
        found = found[names.data[names.offsets[found] + at] == byte]
    return found


def strings_of_digests(mark: bytes, digests: Array) -> Strings:
    """The names or the labels of parts, which begin with `mark`, from their digests u64[n, 2], the lowest byte first."""
    made = np.empty((len(digests), len(mark) + PART_DIGITS), np.uint8)
    made[:, : len(mark)] = np.frombuffer(mark, np.uint8)
    made[:, len(mark) :] = _DIGITS[digests.astype("<u8").view(np.uint8)].view(np.uint8)
    return Strings(made.reshape(-1), np.arange(len(made) + 1) * made.shape[1])


def digests_of(names: Strings) -> Array:
    """u64[n, 2]: the inverse of `strings_of_digests`, for the names of parts."""
    digits = np.ascontiguousarray(names.data.reshape(-1, len(PART_MARK) + PART_DIGITS)[:, len(PART_MARK) :])
    return _BYTE_OF_DIGITS[digits.view(np.uint16)].view("<u8").astype(np.uint64)


_DIGITS = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)
"""u16, by byte: its two hexadecimal digits."""
_BYTE_OF_DIGITS = np.zeros(2**16, np.uint8)
_BYTE_OF_DIGITS[_DIGITS] = np.arange(256)


def views_of(names: Iterable[bytes]) -> dict[bytes, list[View]]:
    """The views in names, virtual names included, by the attribute's name.  An attribute that constraints use only without a
    view is not among them."""
    found: dict[bytes, dict[View, None]] = {}
    for name in names:
        base = parse(name).base if name.startswith(MARK) else name
        if base[:1] == VIEW_MARK and base[1:2] in _VIEWS:
            found.setdefault(base[2:], {})[_VIEWS[base[1:2]]] = None
    return {base: list(views) for base, views in found.items()}


def of_constraint(wanted: Constraint) -> tuple[bytes, Type, Op, Operand]:
    """Name, type, operator and operand of the plain constraint that a constraint is stored as."""
    name = name_of(wanted.name, wanted.view)
    if not wanted.any_element:
        return name, wanted.type, wanted.op, wanted.operand
    head, letter = prefix_of(name), TYPE_LETTERS[wanted.type]
    if form := extreme_form(wanted.op, wanted.type):
        return head + form + letter, wanted.type, wanted.op, wanted.operand
    values = wanted.operand if isinstance(wanted.operand, tuple) else (wanted.operand,)
    packed = [operand_bytes(value) for value in values]  # type: ignore[arg-type]
    if wanted.op.record.takes in _SEVERAL and wanted.type is Type.STRING:
        packed = [struct.pack(">I", len(each)) + each for each in packed]
    return head + ATOM_FORMS[wanted.op] + letter + b"".join(packed), Type.ANY, Op.EXISTS, None


def extreme_form(op: Op, type_: Type) -> bytes:
    """The form of `any OP` on the least, the greatest or the only element; empty if the operand is part of the name."""
    return _EXTREMES.get(op, b"") if type_ is not Type.BOOLEAN else b""


def to_constraint(name: bytes, type_: Type, op: Op, operand: Operand) -> Constraint:
    """The inverse of `of_constraint`.  Raises ModelError for anything that it does not make."""
    if not name.startswith(MARK):
        attribute, view = attribute_of(name)
        return Constraint(attribute, type_, op, operand, view=view)
    found = parse(name)
    attribute, view = attribute_of(found.base)
    if found.op is not None and op is Op.EXISTS:
        return Constraint(attribute, found.type, found.op, found.operand(), any_element=True, view=view)
    if found.op is not None or type_ is not found.type or _EXTREMES.get(op) != found.form:
        raise ModelError(f"{op.symbol!r} is not a constraint on a virtual name of the form {found.form.decode()}")
    return Constraint(attribute, type_, op, operand, any_element=True, view=view)


def parse(name: bytes) -> VirtualName:
    """The parts of a virtual name.  Raises ModelError for other bytes."""
    base, mark, tail = name[1:].partition(MARK)
    form, letter, rest = tail[:1], tail[1:2], tail[2:]
    known = form in _ATOMS or (form in (LEAST_FORM, GREATEST_FORM, SOLE_FORM) and letter != b"b" and not rest)
    if name[:1] != MARK or not mark or not known or letter not in _TYPES or (form in _OF_BOOLEANS and letter != b"b"):
        raise ModelError(f"{name[:60]!r} is neither text nor a virtual name")
    try:
        attribute_of(base)
    except ModelError:
        raise ModelError(f"{name[:60]!r} is a virtual name without a text") from None
    return VirtualName(base, form, _TYPES[letter], rest)


def forms_of(names: Strings) -> Iterator[tuple[VirtualName, int, int]]:
    """The virtual names among sorted names: the first of each attribute, form and type, and the range of those like it.

    Raises ModelError.
    """
    at = bisect_left(names, MARK)
    while at < len(names):
        first = parse(names[at])
        stop = bisect_left(names, first.head[:-1] + bytes([first.head[-1] + 1]), at)
        yield first, at, stop
        at = stop


def shown(name: bytes) -> str:
    """A name in readable form: that of an attribute, or the meaning of a virtual name."""
    if not name.startswith(MARK):
        attribute, view = attribute_of(name)
        return _shown(attribute, view)
    found = parse(name)
    attribute, view = attribute_of(found.base)
    if found.op is not None:
        return str(Constraint(attribute, found.type, found.op, found.operand(), any_element=True, view=view))
    which = {LEAST_FORM: "least", GREATEST_FORM: "greatest", SOLE_FORM: "only"}[found.form]
    return f"{which} {found.type.name.lower()} of {_shown(attribute, view)}"


def _shown(attribute: str, view: View) -> str:
    if attribute.startswith(RESERVED):
        return f"part {attribute[2:10]}" if is_part(name_of(attribute)) else "one object of a list"
    return f"{attribute} ({_WORDS[view]})" if view is not View.NONE else attribute


_WORDS = {View.FOLD: "without case", View.IP: "as an address", View.TIME: "as an instant"}


def operand_bytes(value: Value) -> bytes:
    """The text of an operand, or of an element of a list, in an atom's name."""
    if isinstance(value, str):
        return value.encode()
    nearest, residue = split(value)
    return struct.pack(">d", nearest) + (struct.pack(">Q", RESIDUE_WORD | residue & RESIDUE_MASK) if residue else b"")


def _values(type_: Type, rest: bytes, listed: bool) -> tuple[Value, ...]:
    """The operands in the rest of a name.  Raises ModelError."""
    try:
        if type_ is Type.STRING:
            return tuple(each.decode() for each in (_texts(rest) if listed else [rest]))
        numbers = _numbers(rest)
    except (struct.error, UnicodeDecodeError) as error:
        raise ModelError(f"the operand of a virtual name cannot be read: {error}") from None
    if type_ is Type.BOOLEAN and not set(numbers) <= {0.0, 1.0}:
        raise ModelError("a boolean in a virtual name is 0 or 1")
    return tuple(bool(number) if type_ is Type.BOOLEAN else number for number in numbers)


def _numbers(rest: bytes) -> list[float]:
    found: list[float] = []
    for (word,) in struct.iter_unpack(">Q", rest):
        if word & ~RESIDUE_MASK == RESIDUE_WORD and found and abs(found[-1]) <= LARGEST_SPLIT:
            found[-1] = joined(found[-1], word)
        else:
            found += struct.unpack(">d", word.to_bytes(8))
    return found


def _texts(rest: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(rest):
        (length,) = struct.unpack_from(">I", rest, at)
        found.append(rest[at + 4 : at + 4 + length])
        at += 4 + length
    if at != len(rest):
        raise ModelError("a list in a virtual name is cut off")
    return found
