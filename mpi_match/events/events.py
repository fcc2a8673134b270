"""Events as flat arrays, as published, and their encoding (`Events.encode`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, place_of, take_ranges
from mpi_match.arrays.strings import Strings
from mpi_match.events.batch import REJECTED, EventBatch, within
from mpi_match.events.elements import element_attributes, elements_of
from mpi_match.events.lists import ListColumns, ListsBuilder, Values, exact_numbers, value_of
from mpi_match.events.views import with_views
from mpi_match.humanize import plural
from mpi_match.model import EVERY_STRING, Attribute, Event, ModelError, Time, Type, only_of_rows
from mpi_match.table.virtual_names import EVERY_NAME, SCOPE_MARK, VIEW_MARK
from mpi_match.table.vocabulary import Vocabulary

_NOTHING = Event({})
_NAMED_LIKE_IT = EVERY_STRING.encode()
"""An attribute that has the name by which filters ask for all strings; none can name it."""


def _bytes_of(key: str | bytes) -> bytes:
    """The name of an attribute of an event in the form of tables; that of a view or a scope is bytes already."""
    if isinstance(key, bytes):
        return key
    return EVERY_NAME if key == EVERY_STRING else key.encode()


@dataclass(frozen=True, eq=False, repr=False)
class Events:
    """n events with m attributes, as published.

    offsets         i64[n + 1]  attributes of each event
    name            u32[m]      index into `names`
    type            u8[m]       a `model.Type`; NULL for a null, whose name the event does not have
    number          f64[m]      value of a number, or the double nearest to it; 0 or 1 for a boolean; else 0
    string          u32[m]      index into `strings` for a string, into `lists` for a list; of a number the residue modulo
                                2^16 (`model.split`), 0 for all that are doubles; else 0
    names, strings  Strings     distinct, in any order
    location        f64[n, 2]   x and y; NaN for an event without one; None when no event has one
    ids             Strings[n]  the publisher's own name for each event; None when events have none
    rejected        i64[r]      which are rejected rows, ascending: without attributes, location and id; None when none is
    lists           ListColumns       None when no attribute is a list
    left_out        names of attributes that events have and that cannot be read, with the number of those events
    """

    offsets: Array
    name: Array
    type: Array
    number: Array
    string: Array
    names: Strings
    strings: Strings
    location: Array | None = None
    ids: Strings | None = None
    rejected: Array | None = None
    lists: ListColumns | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<{plural(self.n_events, 'event')} with {plural(len(self.name), 'attribute')}>"

    @property
    def n_events(self) -> int:
        return len(self.offsets) - 1

    def __len__(self) -> int:
        return self.n_events

    @classmethod
    def of(cls, events: Iterable[Event | None]) -> Events:
        """Flatten checked events (`model.make_event`); None stands for a rejected row."""
        names: dict[str | bytes, int] = {}
        strings: dict[str, int] = {}
        sizes: list[int] = []
        name: list[int] = []
        flat, lists = Values(strings), ListsBuilder(strings)
        location, ids, rejected = [], [], []
        left_out: Counter[str] = Counter()
        for event in events:
            if event is None:
                rejected.append(len(sizes))
                event = _NOTHING
            sizes.append(len(event.attributes))
            location.append(event.location or (np.nan, np.nan))
            ids.append(event.id)
            left_out.update(list(event.left_out or ()))
            for key, value in event.attributes.items():
                if isinstance(value, Time):
                    left_out[key] += 1
                    sizes[-1] -= 1
                    continue
                name.append(names.setdefault(key, len(names)))
                if value is None:
                    flat.append(Type.NULL, 0.0, 0)
                elif isinstance(value, tuple):
                    flat.append(Type.LIST, 0.0, lists.add(value))
                else:
                    flat.add(value)
        where = np.array(location, np.float64).reshape(-1, 2)
        return cls(
            offsets=offsets_of(np.array(sizes, np.int64)),
            name=np.array(name, np.uint32),
            **flat.columns(),
            names=Strings.of(_bytes_of(key) for key in names),
            strings=Strings.of(text.encode() for text in strings),
            location=None if np.isnan(where).all() else where,
            ids=Strings.of((i or "").encode() for i in ids) if any(i is not None for i in ids) else None,
            rejected=np.array(rejected, np.int64) if rejected else None,
            lists=lists.build(),
            left_out=dict(left_out),
        )

    def event(self, i: int) -> Event | None:
        """One event as an object of the model, counted from the end if `i` is negative; None for a rejected row.

        Raises IndexError.
        """
        i = place_of(i, self.n_events, "event")
        if self.rejected is not None and within(self.rejected, i, i + 1) is not None:
            return None
        values: dict[str, Attribute] = {}
        for k in range(int(self.offsets[i]), int(self.offsets[i + 1])):
            if self.type[k] == Type.LIST and self.lists is not None:
                at, of = int(self.string[k]), self.lists
                rows = range(int(of.offsets[at]), int(of.offsets[at + 1]))
                value: Attribute = tuple(value_of(of, j, self.strings) for j in rows)
            elif self.type[k] == Type.NULL:
                value = None
            else:
                value = value_of(self, k, self.strings)
            name = self.names[int(self.name[k])]
            if name == EVERY_NAME:
                values[EVERY_STRING] = value
            elif name[:1] != VIEW_MARK and name != _NAMED_LIKE_IT:
                values[name.decode()] = value
        located = self.location is not None and not np.isnan(self.location[i, 0])
        point = (float(self.location[i, 0]), float(self.location[i, 1])) if located and self.location is not None else None
        return Event(values, point, self.ids[i].decode() if self.ids is not None and self.ids[i] else None)

    def __getitem__(self, events: slice) -> Events:
        """Events `start` to `stop`, sharing names, strings and lists."""
        start, stop, step = events.indices(self.n_events)
        if step != 1:
            raise ValueError("events can only be sliced into consecutive ones")
        first, last = int(self.offsets[start]), int(self.offsets[max(start, stop)])
        return Events(
            offsets=self.offsets[start : max(start, stop) + 1] - first,
            name=self.name[first:last],
            type=self.type[first:last],
            number=self.number[first:last],
            string=self.string[first:last],
            names=self.names,
            strings=self.strings,
            location=None if self.location is None else self.location[start:stop],
            ids=None if self.ids is None else self.ids.take(np.arange(start, stop)),
            rejected=None if self.rejected is None else within(self.rejected, start, max(start, stop)),
            lists=self.lists,
            left_out=self.left_out,
        )

    def take(self, events: Array) -> Events:
        """The events at `events` i64[k], ascending, sharing names, strings and lists."""
        sizes = np.diff(self.offsets)[events]
        rows = take_ranges(self.offsets[events], sizes)
        rejected = None if self.rejected is None else np.flatnonzero(np.isin(events, self.rejected))
        return Events(
            offsets=offsets_of(sizes),
            name=self.name[rows],
            type=self.type[rows],
            number=self.number[rows],
            string=self.string[rows],
            names=self.names,
            strings=self.strings,
            location=None if self.location is None else self.location[events],
            ids=None if self.ids is None else self.ids.take(events),
            rejected=rejected if rejected is not None and len(rejected) else None,
            lists=self.lists,
            left_out=self.left_out,
        )

    def encode(self, vocabulary: Vocabulary) -> EventBatch:
        """The events in the code space of `vocabulary`, with the views that it asks for.

        String work is done once per distinct (name, string) pair.  `location` is None in the batch when no event has one.
        Raises ModelError if the vocabulary names an attribute that was left out.
        """
        if unread := sorted(vocabulary.attributes_among(self.left_out)):
            count = plural(self.left_out[unread[0]], "event")
            raise ModelError(
                f"the attribute {unread[0]!r}, which filters name, cannot be read in {count}; if it is a native time, "
                "match the rows, or send texts of RFC 3339"
            )
        if vocabulary.asks_every_string and not self._have_every_string():
            raise only_of_rows()
        if vocabulary.scopes and SCOPE_MARK not in self.names and (name := self._in_scopes(vocabulary)):
            raise ModelError(f"filters ask for one object of a list, and those of {name!r} are not known; match the rows")
        return with_views(self, vocabulary)._encoded(vocabulary)

    def _have_every_string(self) -> bool:
        """Tells whether all events have the list of their strings, apart from rejected rows."""
        n_events = self.n_events - (0 if self.rejected is None else len(self.rejected))
        named = [at for at, name in enumerate(self.names) if name == EVERY_NAME]
        return n_events == (np.count_nonzero(self.name == named[0]) if named else 0)

    def _in_scopes(self, vocabulary: Vocabulary) -> str:
        """A name of lists that goes through a list of objects for which filters ask consistently, or ""."""
        for name in np.unique(self.name[self.type == Type.LIST]).tolist():
            text = self.names[name]
            if text[:1] != VIEW_MARK and vocabulary.scopes.are_below(text.decode()):
                return text.decode()
        return ""

    def _encoded(self, vocabulary: Vocabulary) -> EventBatch:
        """The events in the code space of `vocabulary`, without further views."""
        known = vocabulary.name_ids(self.names) if len(self.names) else np.array([-1])
        name, type_, string = known[self.name], self.type, self.string
        number = exact_numbers(type_, self.number, string)
        event: Array = np.repeat(np.arange(self.n_events, dtype=np.uint32), np.diff(self.offsets))
        of_elements, virtual = self._encode_elements(vocabulary, event)
        nulls = np.flatnonzero((type_ == Type.NULL) & (name >= 0))
        if len(nulls):
            null_atom = vocabulary.null_atoms[name[nulls]]
            asked = null_atom >= 0
            of_elements = np.append(of_elements, event[nulls[asked]])
            atoms_of_nulls = vocabulary.n_names + null_atom[asked]
            virtual = np.append(virtual, vocabulary.pack(atoms_of_nulls, np.zeros(len(atoms_of_nulls), np.int64)))
        if known.min() < 0 or len(nulls):
            keep = np.flatnonzero((name >= 0) & (type_ != Type.NULL))
            name, type_, number, string, event = (column[keep] for column in (name, type_, number, string, event))
        code = vocabulary.number_codes(name, number)
        boolean = np.flatnonzero(type_ == Type.BOOLEAN)
        code[boolean] = vocabulary.segment(Type.BOOLEAN)[0][name[boolean]] + number[boolean].real.astype(np.int64)
        textual = np.flatnonzero(type_ == Type.STRING)
        codes, atoms, pair = self._encode_strings(vocabulary, name[textual], string[textual])
        code[textual] = codes[pair]
        listed = np.flatnonzero(type_ == Type.LIST)
        code[listed] = vocabulary.segment(Type.LIST)[0][name[listed]]

        packed = np.append(vocabulary.pack(name, code), virtual)
        n_atoms = np.fromiter(map(len, atoms), np.int64, len(atoms))
        if n_atoms.any():
            flat = np.fromiter((atom for found in atoms for atom in found), np.int64, int(n_atoms.sum()))
            extra = flat[take_ranges(offsets_of(n_atoms)[pair], n_atoms[pair])]
            packed = np.append(packed, vocabulary.pack(vocabulary.n_names + extra, np.zeros(len(extra), np.int64)))
            event = np.concatenate([event, of_elements, np.repeat(event[textual], n_atoms[pair])])
        elif len(virtual):
            event = np.append(event, of_elements)
        offsets = np.zeros(self.n_events + 1, np.uint32)
        np.cumsum(np.bincount(event, minlength=self.n_events), out=offsets[1:], dtype=np.uint32)
        attributes = _by_event(event, packed, vocabulary.shift)
        rejected = None if self.rejected is None else self.rejected.astype(REJECTED)
        return EventBatch(offsets, attributes, self.location, vocabulary.fingerprint, rejected)

    def _encode_elements(self, vocabulary: Vocabulary, event: Array) -> tuple[Array, Array]:
        """The virtual names that the attributes have, packed, and the event of each."""
        bases = {base: i for i, base in enumerate(vocabulary.element_names)}
        base = np.array([bases.get(name, -1) for name in self.names] or [-1], np.int64)[self.name] if bases else None
        if base is not None:
            base = np.where(self.type == Type.NULL, -1, base)
        if base is None or not np.any(base >= 0):
            return event[:0], np.zeros(0, vocabulary.packed_dtype)
        elements = elements_of(base, self.type, exact_numbers(self.type, self.number, self.string), self.string, self.lists)
        attribute, name, code = element_attributes(vocabulary, elements, self.strings)
        return event[attribute], vocabulary.pack(name, code)

    def _encode_strings(self, vocabulary: Vocabulary, name: Array, string: Array) -> tuple[Array, list[list[int]], Array]:
        """Code and satisfied atoms of each distinct (name, string) pair, and the pair of each attribute."""
        pairs, pair = np.unique(name << 32 | string.astype(np.int64), return_inverse=True)
        texts = [self.strings[int(p & 0xFFFFFFFF)] for p in pairs]
        ids = (pairs >> 32).tolist()
        codes = np.fromiter((vocabulary.string_code(n, s) for n, s in zip(ids, texts, strict=True)), np.int64, len(ids))
        return codes, [vocabulary.satisfied_atoms(n, s) for n, s in zip(ids, texts, strict=True)], pair

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Every raw column with the name of its dataset in the file."""
        yield from (("events/offsets", self.offsets), ("events/name", self.name), ("events/type", self.type))
        yield from (("events/number", self.number), ("events/string", self.string))
        yield from self.names.named("names")
        yield from self.strings.named("strings")
        if self.location is not None:
            yield "events/location", self.location
        if self.ids is not None:
            yield from self.ids.named("ids")
        if self.rejected is not None:
            yield "events/rejected", self.rejected.astype(np.int64)
        if self.lists is not None:
            yield from self.lists.arrays()


def _by_event(event: Array, packed: Array, shift: int) -> Array:
    """Packed attributes, events end to end, ascending within each.

    Names are distinct in an event, so (event, name) decides; both fit one 64-bit word, and NumPy sorts words fastest.
    """
    high = event.astype(np.uint64) << np.uint64(32)
    if packed.dtype == np.uint32:
        return np.sort(high | packed).astype(np.uint32)
    return packed[np.argsort(high | packed >> np.uint64(shift))]
