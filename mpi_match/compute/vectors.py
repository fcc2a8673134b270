"""Vectors and words of bytes for compiled code on CPUs, which tests 64 bytes of text, or 8, at once.

LLVM compiles each function to a few instructions of whatever vectors the processor has (two of 32 bytes with AVX2, four of
16 without).  A mask is a u64 with a bit for each of 64 bytes; the lowest bit is the first byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.cpu import CPUContext
from numba.extending import intrinsic

from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.llvm import BaseContext, Signature, Typed
from mpi_match.compute.memory import any_u64, load_u8

VECTOR_BYTES = 64
_PAGE = 4096
"""Bytes of the smallest page of any processor."""
_BYTE = ir.IntType(8)
_HALVES = tuple(
    (np.uint64(n), np.uint64(mask)) for n, mask in ((8, 0x00FF00FF00FF00FF), (16, 0x0000FFFF0000FFFF), (32, 2**32 - 1))
)
"""Halves of 2, 4 and 8 bytes that change places: the bits of a half, and the lower halves of a word."""


class _Bytes:
    """64 bytes in generated code."""

    def __init__(self, builder: ir.IRBuilder, loaded: ir.Value) -> None:
        self._builder, self._loaded = builder, loaded

    def _constant(self, byte: int) -> ir.Constant:
        return ir.Constant(ir.VectorType(_BYTE, VECTOR_BYTES), [byte] * VECTOR_BYTES)

    def are(self, *chars: str) -> ir.Value:
        """Mask of the bytes that are one of some characters."""
        found = [self._builder.icmp_unsigned("==", self._loaded, self._constant(ord(char))) for char in chars]
        return self.any(*found)

    def any(self, *found: ir.Value) -> ir.Value:
        """The union of masks."""
        whole = found[0]
        for each in found[1:]:
            whole = self._builder.or_(whole, each)
        return whole

    def below(self, byte: int) -> Any:
        """Mask of the bytes below `byte`, compared as signed numbers: bytes beyond ASCII are negative."""
        return self._builder.icmp_signed("<", self._loaded, self._constant(byte))

    def with_bit(self, bit: int) -> ir.Value:
        """Mask of the bytes that have a bit."""
        found = self._builder.and_(self._loaded, self._constant(bit))
        return self._builder.icmp_unsigned("!=", found, self._constant(0))

    def digits(self) -> ir.Value:
        """Mask of the digits."""
        from_zero = self._builder.sub(self._loaded, self._constant(ord("0")))
        return self._builder.icmp_unsigned("<", from_zero, self._constant(10))

    def lower_case(self) -> _Bytes:
        """The bytes with bit 5 set: `{` for `[`, `}` for `]`."""
        return _Bytes(self._builder, self._builder.or_(self._loaded, self._constant(32)))

    def folded(self) -> _Bytes:
        """The bytes with small letters of ASCII for capital ones."""
        letter = self._builder.sub(self._loaded, self._constant(ord("A")))
        is_capital = self._builder.icmp_unsigned("<", letter, self._constant(26))
        return _Bytes(self._builder, self._builder.select(is_capital, self.lower_case()._loaded, self._loaded))

    def store(self, pointer: ir.Value) -> None:
        """Write the bytes to any address."""
        self._builder.store(self._loaded, pointer, align=1)


def _masks(find: Callable[[_Bytes], list[Any]], n: int) -> Any:
    """Make the intrinsic `masks(address)`: the n masks that `find` makes of 64 bytes."""

    def masks(_: object, address: object) -> Typed:
        def generate(
            context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: Sequence[ir.Value]
        ) -> ir.Value:
            pointer = builder.inttoptr(values[0], ir.VectorType(_BYTE, VECTOR_BYTES).as_pointer())
            found = find(_Bytes(builder, builder.load(pointer, align=1)))
            words = [builder.bitcast(each, ir.IntType(VECTOR_BYTES)) for each in found]
            return context.make_tuple(builder, signature.return_type, words)

        return types.UniTuple(types.uint64, n)(types.int64), generate

    return intrinsic(masks)


class JsonMasks(NamedTuple):
    """Masks of the classes of bytes in JSON."""

    quotes: np.uint64
    backslashes: np.uint64
    openings: np.uint64
    closings: np.uint64
    braces: np.uint64
    colons: np.uint64
    commas: np.uint64
    blanks: np.uint64
    controls: np.uint64
    beyond_ascii: np.uint64
    line_feeds: np.uint64


class NumberMasks(NamedTuple):
    """Masks of the bytes of numbers in JSON."""

    digits: np.uint64
    zeros: np.uint64
    points: np.uint64
    exponents: np.uint64
    minuses: np.uint64
    pluses: np.uint64


def _json(text: _Bytes) -> list[ir.Value]:
    lower = text.lower_case()
    return [
        text.are('"'),
        text.are("\\"),
        lower.are("{"),
        lower.are("}"),
        text.with_bit(32),
        text.are(":"),
        text.are(","),
        text.are(" ", "\t", "\r"),
        text.below(32),
        text.below(0),
        text.are("\n"),
    ]


def _number(text: _Bytes) -> list[ir.Value]:
    return [text.digits(), text.are("0"), text.are("."), text.lower_case().are("e"), text.are("-"), text.are("+")]


def _mask_on_cpu(mask_of: Callable[[ir.IRBuilder, Sequence[ir.Value]], object]) -> Any:
    """Make the intrinsic `mask(address, number)`: the mask that `mask_of` generates from both.  On a GPU, where it never
    runs (`is_on_cpu`), it generates no code."""

    def mask(_: object, address: object, number: object) -> Typed:
        def generate(
            context: BaseContext, builder: ir.IRBuilder, _signature: Signature, values: Sequence[ir.Value]
        ) -> ir.Value:
            if not isinstance(context, CPUContext):
                return ir.Constant(ir.IntType(VECTOR_BYTES), 0)
            return builder.bitcast(mask_of(builder, values), ir.IntType(VECTOR_BYTES))

        return types.uint64(types.int64, types.int64), generate

    return intrinsic(mask)


def _rewritten(rewrite: Callable[[_Bytes], tuple[_Bytes, object]]) -> Any:
    """Make the intrinsic `rewritten(address, to)`: it writes to `to` the 64 bytes that `rewrite` makes of those at an
    address, and returns the mask that it finds."""

    def rewritten(builder: ir.IRBuilder, values: Sequence[ir.Value]) -> object:
        vector = ir.VectorType(_BYTE, VECTOR_BYTES).as_pointer()
        written, found = rewrite(_Bytes(builder, builder.load(builder.inttoptr(values[0], vector), align=1)))
        written.store(builder.inttoptr(values[1], vector))
        return found

    return _mask_on_cpu(rewritten)


def _text_ends(text: _Bytes) -> ir.Value:
    return text.any(text.are('"', "\\"), text.below(32))


_masks_of_json: Any = _masks(_json, 11)
_masks_of_numbers: Any = _masks(_number, 6)
_masks_of_escapes: Any = _masks(lambda text: [text.are(*'"\\/bfnrtu'), text.are("u")], 2)
_masks_of_quotes: Any = _masks(lambda text: [text.are('"')], 1)
_masks_of_line_feeds: Any = _masks(lambda text: [text.are("\n")], 1)
_masks_of_ends: Any = _masks(lambda text: [_text_ends(text)], 1)
_copied_text: Any = _rewritten(lambda text: (text, _text_ends(text)))
_folded_ascii: Any = _rewritten(lambda text: (text.folded(), text.below(0)))


@inlined
def json_masks(address: int) -> JsonMasks:
    """Masks of 64 bytes of JSON: quotes; backslashes; `{` and `[`; `}` and `]`; of these, and many others, the braces;
    colons; commas; blanks without line feeds; bytes below 32 and beyond ASCII; bytes beyond ASCII; line feeds."""
    found = _masks_of_json(address)
    return JsonMasks(
        found[0], found[1], found[2], found[3], found[4], found[5], found[6], found[7], found[8], found[9], found[10]
    )


@inlined
def number_masks(address: int) -> NumberMasks:
    """Masks of 64 bytes: digits; zeros; points; `e` and `E`; `-`; `+`."""
    digits, zeros, points, exponents, minuses, pluses = _masks_of_numbers(address)
    return NumberMasks(digits, zeros, points, exponents, minuses, pluses)


@inlined
def escape_masks(address: int) -> tuple[np.uint64, np.uint64]:
    """Masks of the bytes that may follow a backslash, and of those of them that are `u`."""
    return _masks_of_escapes(address)


@inlined
def text_ends(address: int) -> np.uint64:
    """Mask of the bytes that are not plain text in a JSON string: quotes, backslashes, control characters, and all beyond
    ASCII."""
    return _masks_of_ends(address)[0]


@inlined
def copy_text(address: int, to: int) -> np.uint64:
    """Copy 64 bytes to `to`.  Returns their `text_ends`."""
    return _copied_text(address, to)


@inlined
def fold_ascii(address: int, to: int) -> np.uint64:
    """Write 64 bytes to `to`, with small letters of ASCII for capital ones.  Returns the mask of the bytes beyond ASCII."""
    return _folded_ascii(address, to)


@intrinsic
def _prefetch(_: object, address: object) -> Typed:
    def generate(context: BaseContext, builder: ir.IRBuilder, _signature: Signature, values: Sequence[ir.Value]) -> ir.Value:
        number, pointer = ir.IntType(32), _BYTE.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        to_read, everywhere, data = (ir.Constant(number, n) for n in (0, 3, 1))
        builder.call(fetch, [builder.inttoptr(values[0], pointer), to_read, everywhere, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


_fetch_ahead: Any = _prefetch


@inlined
def fetch_ahead(address: int) -> None:
    """Let a CPU load the cache line of an address, which may be invalid, before it is read."""
    _fetch_ahead(address)


def _places_of(n_bytes: int) -> Any:
    """Make the intrinsic `places(address, word)`: the mask of the positions at which the first n bytes of a word begin."""

    def places(builder: ir.IRBuilder, values: Sequence[ir.Value]) -> object:
        vector, found = ir.VectorType(_BYTE, VECTOR_BYTES), None
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), VECTOR_BYTES), [0] * VECTOR_BYTES)
        for k in range(n_bytes):
            place = builder.add(values[0], ir.Constant(ir.IntType(64), k))
            text = builder.load(builder.inttoptr(place, vector.as_pointer()), align=1)
            byte = builder.trunc(builder.lshr(values[1], ir.Constant(ir.IntType(64), 8 * k)), _BYTE)
            one = builder.insert_element(ir.Constant(vector, ir.Undefined), byte, ir.Constant(ir.IntType(32), 0))
            same = builder.icmp_unsigned("==", text, builder.shuffle_vector(one, one, zeros))
            found = same if found is None else builder.and_(found, same)
        return found

    return _mask_on_cpu(places)


_word_places, _byte_places = _places_of(4), _places_of(1)


@inlined
def places_of_word(address: int, word: int) -> np.uint64:
    """Mask of the positions, among 64, at which the four bytes of a word begin, the lowest first; 67 bytes are read."""
    return _word_places(address, word)


@inlined
def places_of_byte(address: int, byte: int) -> np.uint64:
    """Mask of the positions, among 64, that have a byte."""
    return _byte_places(address, byte)


@inlined
def quotes(address: int) -> np.uint64:
    """Mask of the quotes."""
    return _masks_of_quotes(address)[0]


@inlined
def line_feeds(address: int) -> np.uint64:
    """Mask of the line feeds."""
    return _masks_of_line_feeds(address)[0]


def _zeros(instruction: str) -> Any:
    """`count(word)`: the number of zeros before the first set bit, as an instruction of LLVM counts them; 64 if no bit is
    set."""

    def count(_: object, word: object) -> Typed:
        def generate(
            _context: BaseContext, builder: ir.IRBuilder, _signature: Signature, values: Sequence[ir.Value]
        ) -> ir.Value:
            return getattr(builder, instruction)(values[0], ir.Constant(ir.IntType(1), 0))

        return types.uint64(types.uint64), generate

    return intrinsic(count)


_zeros_below, _zeros_above = _zeros("cttz"), _zeros("ctlz")


@inlined
def lowest_bit(word: np.uint64) -> np.int64:
    """Number of the lowest set bit, i64; 64 if there is none."""
    return np.int64(_zeros_below(np.uint64(word)))


@inlined
def highest_bit(word: np.uint64) -> np.int64:
    """Number of the highest set bit, i64; -1 if there is none."""
    return 63 - np.int64(_zeros_above(np.uint64(word)))


@inlined
def bits_below(word: np.uint64) -> np.uint64:
    """All bits below the lowest set bit; all bits if there is none."""
    return (word - np.uint64(1)) & ~word


@inlined
def inside(marks: np.uint64) -> np.uint64:
    """The bits from each odd mark up to the next even one, which is excluded."""
    for shift in (1, 2, 4, 8, 16, 32):
        marks ^= marks << np.uint64(shift)
    return marks


@inlined
def fits(address: int) -> bool:
    """Tells whether the 64 bytes from an address on lie on one page, so that they may be read wherever the first may."""
    return address & (_PAGE - 1) <= _PAGE - VECTOR_BYTES


@nested
def word_by_bytes(data: int, at: int, n: int) -> np.uint64:
    """The word of n bytes, at most 8, the first byte lowest; no byte after them is read."""
    word = np.uint64(0)
    for k in range(n):
        word |= np.uint64(load_u8(data, at + k)) << np.uint64(8 * k)
    return word


@inlined
def word_at(data: int, at: int, n: int) -> np.uint64:
    """Like `word_by_bytes`, but faster on a CPU; may read more bytes of the same page."""
    if fits(data + at):
        return any_u64(data + at) & (~np.uint64(0) >> np.uint64(64 - 8 * n)) if n > 0 else np.uint64(0)
    return word_by_bytes(data, at, n)


@nested
def same_bytes(first: int, second: int, n: int) -> bool:
    """Tells whether the n bytes from two addresses on are the same, on a CPU."""
    while n > 8:
        if any_u64(first) != any_u64(second):
            return False
        first += 8
        second += 8
        n -= 8
    return bool(word_at(first, 0, n) == word_at(second, 0, n))


@inlined
def reversed_bytes(word: np.uint64) -> np.uint64:
    """The word with its bytes in reverse order."""
    for shift, mask in _HALVES:
        word = word >> shift & mask | (word & mask) << shift
    return word
