"""Many byte strings in two flat arrays.

    data      u8[total]     b"Milan" b"Rome" b"Turin", concatenated
    offsets   i64[n + 1]    0, 5, 9, 14: string i is data[offsets[i]:offsets[i + 1]]

Nothing is padded or terminated, so every byte string is preserved, including empty strings and strings that end in NUL.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mpi_match.arrays.csr import Array, ArraySource, offsets_of, sums, take_ranges

_BLOCK = 2**15
"""Strings compared together, so that intermediate results stay in the processor's cache."""

_DECODED = 2**20
"""Bytes decoded together."""
_LAST_DIGITS = 4
"""Digits of numbers that are written for a block of strings at once."""
_NOT_ASCII = 0x80
"""The least byte of a multi-byte character."""
_ALL_BYTES = np.uint64(2**64 - 1)
_WORDS = 8
"""Words of eight bytes that are compared before two strings are compared directly, which takes about as long."""

_FEW = 256
"""Strings that are sorted and copied in the plain way, which takes the least time for few."""
_MOST_LENGTHS, _LONG = 8, 1024
"""Strings whose length at least one in `_MOST_LENGTHS` has are copied as items of that length, and not byte by byte; strings
of `_LONG` bytes are copied byte by byte."""


@dataclass(frozen=True)
class Strings:
    """Byte strings in flat arrays: `data` u8[total], `offsets` i64[n + 1]; `strings[i]` is bytes."""

    data: Array
    offsets: Array

    @classmethod
    def of(cls, items: Iterable[bytes]) -> Strings:
        """Pack byte strings in the given order."""
        items = list(items)
        lengths = np.fromiter(map(len, items), np.int64, len(items))
        return cls(np.frombuffer(b"".join(items), np.uint8), offsets_of(lengths))

    @classmethod
    def numbered(cls, prefix: bytes, n: int) -> Strings:
        """The prefix with each number below n, padded to the width of the last: they sort as the numbers do."""
        digits = len(str(n - 1))
        width, last = len(prefix) + digits, min(digits, _LAST_DIGITS)
        data = np.empty((n, width), np.uint8)
        block = np.empty((10**last, width), np.uint8)
        block[:, width - last :] = np.frombuffer(b"".join(b"%0*d" % (last, i) for i in range(10**last)), np.uint8).reshape(
            -1, last
        )
        for first in range(0, n, len(block)):  # blocks differ only before their last digits
            begin = (prefix + b"%0*d" % (digits, first))[: width - last]
            block[:, : width - last] = np.frombuffer(begin, np.uint8)
            data[first : first + len(block)] = block[: n - first]
        return cls(data.reshape(-1), np.arange(n + 1) * width)

    @classmethod
    def read(cls, source: ArraySource, name: str) -> Strings:
        """The inverse of `named`: the strings with the given name."""
        return cls(source.array(f"{name}/data"), source.array(f"{name}/offsets"))

    def named(self, name: str) -> Iterator[tuple[str, Array]]:
        """The arrays and the names of their datasets."""
        yield f"{name}/data", self.data
        yield f"{name}/offsets", self.offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> bytes:
        if not 0 <= i < len(self):
            raise IndexError(f"string {i} of {len(self)}")
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.slice(0, len(self)))

    def slice(self, start: int, stop: int) -> list[bytes]:
        """Strings `start` to `stop` as Python bytes: one copy of the pool, then cheap slices of it."""
        base = int(self.offsets[start])
        pool = self.data[base : self.offsets[stop]].tobytes()
        bounds = (self.offsets[start : stop + 1] - base).tolist()
        return [pool[a:b] for a, b in pairwise(bounds)]

    def between(self, start: int, stop: int) -> Strings:
        """Strings `start` to `stop`, sharing the pool."""
        base, end = int(self.offsets[start]), int(self.offsets[stop])
        return Strings(self.data[base:end], self.offsets[start : stop + 1] - base)

    def take(self, index: Array) -> Strings:
        """The strings at `index` i64[k], in that order."""
        starts, lengths = self.offsets[index], self.offsets[np.asarray(index) + 1] - self.offsets[index]
        bounds = offsets_of(lengths)
        if len(lengths) <= _FEW:
            return Strings(self.data[take_ranges(starts, lengths)], bounds)
        data, is_rare = np.empty(bounds[-1], np.uint8), np.ones(len(lengths), bool)
        counts = np.bincount(lengths[(lengths > 0) & (lengths < _LONG)])
        for length in np.flatnonzero(counts * _MOST_LENGTHS > len(lengths)).tolist():
            at = np.flatnonzero(lengths == length)
            _pieces(data, length)[bounds[at]] = _pieces(self.data, length)[starts[at]]
            is_rare[at] = False
        at = np.flatnonzero(is_rare)
        data[take_ranges(bounds[at], lengths[at])] = self.data[take_ranges(starts[at], lengths[at])]
        return Strings(data, bounds)

    def equal(self, rows: Array, other: Strings, places: Array) -> Array:
        """bool[k]: marks the strings `rows` i64[k] that equal string `places` i64[k] of `other`."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        same = lengths == other.offsets[places + 1] - other.offsets[places]
        both = np.flatnonzero(same)
        differs = (
            self.data[take_ranges(self.offsets[rows[both]], lengths[both])]
            != other.data[take_ranges(other.offsets[places[both]], lengths[both])]
        )
        same[both[sums(differs.astype(np.int64), offsets_of(lengths[both])) > 0]] = False
        equal: Array = same
        return equal

    def repeats(self) -> Array:
        """bool[n]: marks the strings that equal the one before."""
        found = np.zeros(len(self), bool)
        for first in range(1, len(self), _BLOCK):
            rows = np.arange(first, min(first + _BLOCK, len(self)))
            found[rows] = self.equal(rows, self, rows - 1)
        return found

    def is_sorted(self) -> bool:
        """Tells whether the strings strictly increase by bytes, and hence are distinct."""
        starts = range(0, len(self) - 1, _BLOCK)
        return all(bool(self.between(at, min(at + _BLOCK + 1, len(self))).is_below_next().all()) for at in starts)

    def not_text(self) -> Array:
        """i64, ascending: the strings that are not UTF-8.

        All strings are UTF-8 if and only if their concatenation is and none begins in the middle of a character.
        """
        if not len(self.data) or int(self.data.max()) < _NOT_ASCII:
            return np.zeros(0, np.int64)
        starts = self.offsets[:-1][np.diff(self.offsets) > 0]
        if is_utf8(self.data.data) and not np.any(self.data[starts] & 0xC0 == 0x80):
            return np.zeros(0, np.int64)
        return np.array([i for i, item in enumerate(self) if not is_utf8(item)], np.int64)

    def is_below_next(self) -> Array:
        """bool[n - 1]: marks the strings i that are less than string i + 1.

        Each string's next eight bytes are compared as one big-endian word, padded with zeros; only the few pairs that are
        equal so far go on to the next word.  The first words that differ decide; if all words are equal, the shorter string
        is the lesser.  Pairs that share _WORDS words are compared directly: continuing word by word for a few long strings
        would cost a NumPy pass for every eight bytes.  Strings of equal length, such as numbered ones, are compared as
        NumPy's own strings.
        """
        lengths = np.diff(self.offsets)
        if len(lengths) and lengths[0] and bool((lengths == lengths[0]).all()):
            items = np.ascontiguousarray(self.data[self.offsets[0] : self.offsets[-1]]).view(f"S{lengths[0]}")
            return np.asarray(items[:-1] < items[1:])
        below = np.zeros(max(len(self) - 1, 0), bool)
        for first in range(0, len(below), _BLOCK):
            self._compare(np.arange(first, min(first + _BLOCK, len(below))), below)
        return below

    def order(self) -> Array:
        """i64[n]: the strings in ascending order; equal strings keep their order.

        They are sorted by words, as in `is_below_next`.  Only those that have equal words so far go on to the next word;
        those that share _WORDS words are sorted as Python's own.
        """
        lengths = np.diff(self.offsets)
        order = np.argsort(self._words(self.offsets[:-1], lengths))
        word = self._words(self.offsets[order], lengths[order])
        tied, group, at = np.arange(len(order)), np.zeros(len(order), np.int64), 8
        while True:
            is_new = np.append(True, (group[1:] != group[:-1]) | (word[1:] != word[:-1]))
            group = np.cumsum(is_new[: len(group)])
            among = np.flatnonzero(np.bincount(group, minlength=1)[group] > 1)
            tied, group = tied[among], group[among]
            items = order[tied]
            longest = int(lengths[items].max(initial=0))
            if at >= min(longest, 8 * _WORDS):
                break
            word = self._words(self.offsets[items] + at, lengths[items] - at)
            by_word = np.lexsort((word, group))
            order[tied], word, at = items[by_word], word[by_word], at + 8
        if longest > at:
            kept = [self[i] for i in items.tolist()]
            order[tied] = items[sorted(range(len(items)), key=lambda i: (group[i], kept[i], items[i]))]
        elif len(tied):
            order[tied] = items[np.lexsort((items, lengths[items], group))]
        return order

    def _compare(self, tied: Array, below: Array) -> None:
        """Fill `below` at the positions `tied`."""
        at = 0
        while len(tied) and at < 8 * _WORDS:
            starts = self.offsets[tied], self.offsets[tied + 1]
            lengths = starts[1] - starts[0], self.offsets[tied + 2] - starts[1]
            a, b = (self._words(start + at, length - at) for start, length in zip(starts, lengths, strict=True))
            below[tied] = np.where(a == b, lengths[0] < lengths[1], a < b)
            at += 8
            tied = tied[(a == b) & (np.maximum(*lengths) > at)]
        for i in tied.tolist():
            below[i] = self[i] < self[i + 1]

    def _words(self, starts: Array, lengths: Array) -> Array:
        """u64: eight bytes from `starts`; bytes beyond the first `lengths` count as 0."""
        words, n_whole = np.zeros(len(starts), np.uint64), max(len(self.data) - 7, 0)
        whole = np.flatnonzero(starts < n_whole)
        if len(whole):
            every = np.ndarray((n_whole,), ">u8", np.ascontiguousarray(self.data), strides=(1,))
            words[whole] = every[starts[whole]]
        for i in np.flatnonzero(starts >= n_whole).tolist():
            end = min(int(starts[i]) + 8, len(self.data))
            words[i] = int.from_bytes(self.data[int(starts[i]) : end].tobytes().ljust(8, b"\0"), "big")
        kept = np.clip(lengths, 0, 8).astype(np.uint64)
        return words & ~(_ALL_BYTES >> (kept << np.uint64(3)))

    @staticmethod
    def concat(parts: Sequence[Strings]) -> Strings:
        """Concatenate the strings of all parts."""
        lengths = [np.diff(p.offsets) for p in parts]
        empty = [np.zeros(0, np.uint8)]
        return Strings(np.concatenate([p.data for p in parts] or empty), offsets_of(np.concatenate(lengths or empty)))


def _pieces(data: Array, length: int) -> Array:
    """Every `length` consecutive bytes of `data`, as items that share its memory."""
    return np.ndarray((len(data) - length + 1,), f"V{length}", np.ascontiguousarray(data), strides=(1,))


def is_utf8(data: bytes | memoryview) -> bool:
    """Tells whether bytes are UTF-8. They are decoded in pieces, because decoded text may take four bytes of memory per
    byte."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(data), _DECODED):
            decoder.decode(data[at : at + _DECODED])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def sort_distinct(items: Strings) -> tuple[Strings, Array]:
    """Sorted distinct strings, and the position of each item among them (i64[len(items)])."""
    if len(items) <= _FEW:
        found = list(items)
        distinct = sorted(set(found))
        place = {item: at for at, item in enumerate(distinct)}
        return Strings.of(distinct), np.array([place[item] for item in found], np.int64)
    if items.is_sorted():
        return items, np.arange(len(items))
    order = items.order()
    ordered = items.take(order)
    is_new = np.append(True, ordered.is_below_next())
    position = np.empty(len(items), np.int64)
    position[order] = np.cumsum(is_new) - 1
    return ordered if is_new.all() else ordered.take(np.flatnonzero(is_new)), position
