"""Mutants of all kinds of files: ours, with one or a few changes, and with corrected checksums.

    originals = Originals(directory)            one valid file of each kind, small, with one of everything
    case = mutant(seed, originals, directory)   the same seed gives the same file

Changes are made to values (also several that depend on each other), types, shapes, names and links of datasets, their
storage, attributes, checksums, the names and order of parts, and to the records and the identity of journals and manifests.
"""

from __future__ import annotations

import os
import random
import shutil
import zlib
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from hostile_datasets import Base, fix_digest, mutate, store
from hostile_journals import change_journal, change_manifest, change_records
from table_cases import example_filters

from mpi_match.arrays.strings import Strings
from mpi_match.changes.live_table import Refusal
from mpi_match.changes.log import ChangeLog
from mpi_match.events.event_table import event_counts, save_events
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import change_of_row
from mpi_match.journal.reader import (
    EventRange,
    JournalPart,
    Kind,
    Placed,
    RunIdentity,
    head_bytes,
    placed_bytes,
    record_bytes,
)
from mpi_match.matches import part_index
from mpi_match.matches.file import MatchesWriter
from mpi_match.matches.matches import Matches
from mpi_match.model import Event, Filter, make_event, make_filter, matches
from mpi_match.storage import FilePart, StoredRange, Writer, parts_directory, write_index
from mpi_match.table.table import Table

COMING = {"interface": "new", "constraints": [["temp", ">", 22], ["city", "prefix", "R"]], "id": "n", "area": [0, 0, 9]}
CHANGES: tuple[dict[str, Any], ...] = (
    {"before_event": 0, "move": "summer", "area": [1, 2, 3]},
    {"before_event": 2, "add": COMING},
    {"before_event": 2, "add": {"interface": "desk", "constraints": [["city", "in", ["Rome", "Bern"]]], "id": "m"}},
    {"before_event": 3, "move": "n", "area": [5, 5, 1]},
    {"before_event": 3, "remove": "m"},
    {"before_event": 5, "remove_interface": "mobile-7"},
)


def all_filters() -> list[Filter]:
    """Twelve filters: every type, nearly every operator, areas, ids, letters that are no ASCII."""
    return [
        *example_filters(),
        make_filter("caffè", [["città", "suffix", "ü"], ["temp", "not in", [20, -3.5]]], [0, 0, 5], "ü"),
        make_filter("caffè", [["alarm", "!=", False], ["city", "exists"]]),
        make_filter("desk", [["city", "not in", ["Rome", "Turin"]], ["temp", "!=", 25]]),
        make_filter("desk", [["città", "<=", "Zürich"], ["temp", ">=", 20]], [3, 4, 0]),
        make_filter("tower", [["city", "<", "Rome"], ["città", "contains", "x"], ["temp", "<", 25]]),
        make_filter("tower", [["temp", "between", [-3.5, 25]], ["temp", "<=", 30], ["città", ">", "Mü"]]),
        make_filter("tower", [["uid", "in", [2**53, 2**53 + 1, 2**64 - 1]], ["uid", "any =", 2**53 + 1]]),
        make_filter("desk", [["uid", ">", -(2**63) + 1], ["uid", "any between", [2**53 - 1, 2**64 - 1]]]),
    ]


def all_events() -> list[Event]:
    """Nine events: every type, NaN, integers that no double equals, an empty one, unknown names and strings, some places."""
    return [
        make_event({"city": "Milano", "temp": 25, "uid": 2**53 + 1}, [9, 45], "first"),
        make_event({"city": "Milan", "temp": 31, "alarm": True, "uid": [2**64 - 1, 7, -(2**63) + 1]}, [9.2, 45.5]),
        make_event({}),
        make_event({"città": "Mütür ü", "temp": 26.5, "other": "x"}, [3, 4], "ü"),
        make_event({"temp": float("nan"), "alarm": False, "city": "lala"}),
        make_event({"città": "Bexü", "city": "Bari", "temp": -3.5, "alarm": True}, [0, 5]),
        make_event({"temp": "20", "city": 20, "alarm": "true"}),
        make_event({"temp": 20, "città": "Zürich", "city": "Rome"}, [3, 4]),
        make_event({"other": 3, "another": False}, [1e308, -1e308], ""),
    ]


def probes() -> list[Event]:
    """Events that tell the filters of a table apart: operands, what lies between them, and other types."""
    texts = ("", "A", "Bern", "Mi", "Milan", "Mj", "Mü", "Rome", "Turin", "Zürich", "la", "xü", "ü", "z")
    values = (
        *texts,
        -4,
        -3.5,
        0,
        20,
        22,
        24.5,
        25,
        30,
        31,
        2**53,
        2**53 + 1,
        2**64 - 1,
        float("nan"),
        float("inf"),
        True,
        False,
    )
    places = ([0, 0], [9.2, 45.5], [3, 4], None)
    names = ("alarm", "city", "città", "temp", "uid")
    return [
        make_event(
            {name: values[(5 * i + 7 * k) % len(values)] for k, name in enumerate(names) if (i + k) % 5}, places[i % 4]
        )
        for i in range(len(values))
    ] + [make_event({name: value}) for name in ("city", "temp", "uid") for value in values[::3]]


class Originals:
    """One valid file of each kind in a directory; `kinds` says which, by the name of its file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.table = Table.from_filters(all_filters())
        self.events = Events.of(all_events())
        self.answers = self._answers()
        self.table.save(directory / "table.h5")
        self._table_in_parts(directory / "tables.h5")
        save_events(self.events, directory / "events.h5", self.table.vocabulary)
        self._events_in_parts(directory / "parted.h5")
        refused: list[Refusal] = []
        log = ChangeLog.of(self.table, [change_of_row(row, stamped=True) for row in CHANGES], refused)
        assert not refused
        log.save(directory / "changes.h5")
        self.identity = RunIdentity("filter", self.table.n_filters, self.events.n_events, self.table.digest, "e" * 64, "")
        self._matches(directory / "matches.h5")
        self._answers_in_parts(directory / "answers.h5")
        self._journal(directory / "run.h5.journal")
        self.bases = {path.name: Base.of(path) for path in directory.glob("*.h5")}
        for path in directory.glob("*.h5.parts/*.h5"):
            self.bases[f"{path.parent.stem}/{path.name}"] = Base.of(path)

    def _answers(self) -> Matches:
        filters = list(self.table.iter_filters())
        found = [[i for i, item in enumerate(filters) if matches(item, event)] for event in all_events()]
        return Matches.of(found, len(filters))

    def _table_in_parts(self, path: Path) -> None:
        """Two ranges of names, two of filters."""
        arrays = dict(self.table.arrays())
        n_names, n_filters = self.table.vocabulary.n_names, self.table.n_filters
        of_names = [
            name
            for name in arrays
            if name.split("/")[0] in ("names", "numbers", "strings", "atoms", "constraints", "presence", "sets")
        ]
        of_filters = [name for name in arrays if name.split("/")[0] == "filters"]
        pieces = [({name: _range_of_names(arrays, name, *r) for name in of_names}) for r in pairwise((0, 2, n_names))]
        pieces += [{name: _range_of_filters(arrays, name, *r) for name in of_filters} for r in pairwise((0, 4, n_filters))]
        pieces[-1] |= dict(self.table.labels.named("interfaces"))
        path.with_name(path.name + ".parts").mkdir()
        parts = []
        for i, piece in enumerate(pieces):
            with Writer(path.with_name(path.name + ".parts") / f"p{i}.h5", "table-part") as writer:
                writer.attribute("rows", i)
                for name, array in piece.items():
                    writer.array(name, array)
            parts.append(FilePart(f"p{i}.h5", i, writer.digest))
        write_index(path, "table", parts, self.table.counts())

    def _events_in_parts(self, path: Path) -> None:
        path.with_name(path.name + ".parts").mkdir()
        parts, found = [], all_events()
        for i, (first, last) in enumerate(((0, 5), (5, 5), (5, 9))):
            part = path.with_name(path.name + ".parts") / f"p{i}.h5"
            digest = save_events(Events.of(found[first:last]), part, self.table.vocabulary, "events-part")
            parts.append(FilePart(part.name, last - first, digest))
        write_index(path, "events", parts, event_counts(len(found), self.table.vocabulary))

    def _matches(self, path: Path) -> None:
        labels = Strings.of(f"filter {i}".encode() for i in range(self.table.n_filters))
        with MatchesWriter(path, self.table.n_filters, labels, "interface", table_digest=self.table.digest) as writer:
            writer.append(self.answers)

    def _pieces(self, *bounds: int) -> list[tuple[EventRange, Any, Any]]:
        counts, offsets = self.answers.counts, self.answers.offsets
        ranges = [EventRange(*each) for each in pairwise(bounds)]
        return [(s, counts[s.start : s.stop], self.answers.ids[offsets[s.start] : offsets[s.stop]]) for s in ranges]

    def _answers_in_parts(self, path: Path) -> None:
        directory = path.with_name(path.name + ".parts")
        directory.mkdir()
        sizes = {}
        for name, pieces in (("1-rank-1.answers", self._pieces(0, 3, 5)), ("1-rank-2.answers", self._pieces(5, 9))):
            with part_index.PartWriter(directory / name, self.identity) as part:
                for piece in pieces:
                    part.append(*piece)
                part.sync()
                sizes[name] = part.end
        part_index.write_index(path, "matches", self.identity, Strings.of(()), self.answers.n_matches, sizes)

    def _journal(self, path: Path) -> None:
        """Answers in it, answers in another file, events that are set aside, and two that are missing."""
        (one, n_one, ids_one), (two, n_two, ids_two) = self._pieces(0, 3, 5)
        other = b"HDF5" + n_two.tobytes() + ids_two.tobytes()[:2]
        path.with_name(path.name + ".1").write_bytes(other)
        counts = JournalPart(
            StoredRange([(4, n_two.nbytes)], b""), zlib.crc32(b"before"), zlib.crc32(b"before" + n_two.tobytes())
        )
        ids = JournalPart(StoredRange([(4 + n_two.nbytes, 2)], ids_two.tobytes()[2:]), 0, zlib.crc32(ids_two.tobytes()))
        late, n_late, ids_late = self._pieces(5, 7)[0]
        records = [
            record_bytes(Kind.ANSWERS, one, len(ids_one), [n_one.tobytes(), ids_one.tobytes()]),
            record_bytes(Kind.SET_ASIDE, EventRange(7, 8), 0, []),
            placed_bytes(1, Placed(two, len(ids_two), counts, ids)),
            record_bytes(Kind.ANSWERS, late, len(ids_late), [n_late.tobytes(), ids_late.tobytes()]),
        ]
        path.write_bytes(head_bytes(self.identity) + b"".join(bytes(each) for record in records for each in record))


def _range_of_names(arrays: dict[str, Any], name: str, first: int, last: int) -> Any:
    """What a part with the names `first` to `last` has of a dataset."""
    group, column = name.split("/")
    if name in ("names/offsets", "names/data"):
        return _cut_pool(arrays, "names", column, first, last)
    own = arrays[f"{group}/name_offsets"]
    if column == "name_offsets":
        return own[first : last + 1] - own[first]
    first, last = int(own[first]), int(own[last])
    if group in ("strings", "atoms") and column in ("offsets", "data"):
        return _cut_pool(arrays, group, column, first, last)
    if name == "sets/offsets":
        return arrays[name][first : last + 1] - arrays[name][first]
    if name == "sets/codes":
        first, last = int(arrays["sets/offsets"][first]), int(arrays["sets/offsets"][last])
    return arrays[name][first:last]


def _cut_pool(arrays: dict[str, Any], pool: str, column: str, first: int, last: int) -> Any:
    offsets = arrays[f"{pool}/offsets"]
    if column == "offsets":
        return offsets[first : last + 1] - offsets[first]
    return arrays[f"{pool}/data"][offsets[first] : offsets[last]]


def _range_of_filters(arrays: dict[str, Any], name: str, first: int, last: int) -> Any:
    if name in ("filters/size", "filters/interface"):
        return arrays[name][first:last]
    owner = arrays["filters/area_filter" if "area" in name else "filters/id_filter"]
    first, last = np.searchsorted(owner, (first, last)).tolist()
    if name == "filters/id_offsets":
        return arrays[name][first : last + 1] - arrays[name][first]
    if name == "filters/id_data":
        first, last = arrays["filters/id_offsets"][[first, last]].tolist()
    return arrays[name][first:last]


# Cases.


class Case(NamedTuple):
    """A file to be read: what it pretends to be, where it lies, what was done to it."""

    kind: str
    path: Path
    what: str


KINDS = {
    "table.h5": ("table", 26),
    "tables.h5": ("table", 5),
    "events.h5": ("events", 24),
    "parted.h5": ("events", 7),
    "changes.h5": ("changes", 12),
    "matches.h5": ("matches", 6),
    "answers.h5": ("matches", 5),
    "run.h5.journal": ("journal", 8),
    "run.h5.run.json": ("manifest", 1),
}
"""What the originals are, and how often each is changed."""


def mutant(seed: int, originals: Originals, directory: Path) -> Case:
    """The case of a seed, in an empty directory."""
    rng = random.Random(seed)
    name = rng.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
    kind, path = KINDS[name][0], directory / name
    if kind == "manifest":
        return Case(kind, path, change_manifest(path, rng))
    if kind == "journal":
        for file in (path, path.with_name(path.name + ".1")):
            shutil.copy(originals.directory / file.name, file)
        return Case(kind, path, change_journal(path, rng))
    parts = parts_directory(originals.directory / name)
    if not parts.is_dir():
        return Case(kind, path, mutate(originals.bases[path.name], rng, path))
    shutil.copytree(parts, parts_directory(path))
    return Case(kind, path, _in_parts(path, rng, originals))


def _in_parts(path: Path, rng: random.Random, originals: Originals) -> str:
    """A mutant of an index, of one of its parts, or of their relation."""
    base, file = originals.bases[path.name], rng.choice(sorted(parts_directory(path).iterdir()))
    how = rng.choice(("part", "part", "part", "index", "belonging"))
    if how == "index":
        return f"index: {mutate(base, rng, path)}"
    path.write_bytes(base.content)
    names, first, *others = _columns_of(base)
    at = base.arrays[names].tolist().index(file.name.encode())
    if how == "belonging":
        return _belonging(path, base, file, at, rng)
    columns = {name: base.arrays[name].copy() for name in (first, *others)}
    if file.suffix == ".answers":
        told = change_records(file, rng)
        columns[first][at] = file.stat().st_size + rng.choice((0, 0, 0, 0, 1, -1))
    else:
        told = mutate(originals.bases[f"{path.name}/{file.name}"], rng, file)
        with suppress(Exception), h5py.File(file) as part:  # what has no such attributes has not
            columns[first][at], columns[others[0]][at] = part.attrs["rows"], part.attrs["digest"]
    with h5py.File(path, "r+") as index:
        for name, values in columns.items():
            store(index, name, values)
        if "n_events" in base.attributes and first == "parts/rows" and rng.random() < 0.5:
            index.attrs.create("n_events", columns[first].sum())
    fix_digest(path)
    return f"{file.name}: {told}"


def _columns_of(index: Base) -> tuple[str, ...]:
    """The datasets of an index: the names of its parts, and their other columns."""
    return (
        ("answers/part", "answers/bytes") if "answers/part" in index.arrays else ("parts/name", "parts/rows", "parts/digest")
    )


def _belonging(path: Path, base: Base, file: Path, at: int, rng: random.Random) -> str:
    """A part that is missing or in the wrong place; other names, numbers and order of parts."""
    names, first, *_ = columns = _columns_of(base)
    arrays = {name: base.arrays[name].tolist() for name in columns}
    how = rng.choice(
        ("missing", "pipe", "directory", "link", "name", "up", "absolute", "itself", "rows", "none", "twice", "order")
    )
    if how in ("missing", "pipe", "directory"):
        file.unlink()
    match how:
        case "pipe":
            os.mkfifo(file)
        case "directory":
            file.mkdir()
        case "link":
            file.rename(path.parent / "moved")
            file.symlink_to("../moved")
        case "name":
            odd = (
                b"",
                b".",
                b"..",
                b"nothing",
                b"\xff",
                b"a\0b",
                b"x" * 5000,
                file.name.encode() + b"/",
                b"./" + file.name.encode(),
            )
            arrays[names][at] = rng.choice(odd)
        case "up":
            shutil.copy(file, path.parent / "stolen")
            arrays[names][at] = b"../stolen"
        case "absolute":
            arrays[names][at] = bytes(file)
        case "itself":
            arrays[names][at] = b"../" + path.name.encode()
        case "rows":
            arrays[first][at] = rng.choice((-1, -5, 0, 2**62, 10**9, arrays[first][at] + 1))
        case "none":
            arrays = {name: [] for name in columns}
        case "twice":
            arrays = {name: [*values, values[at]] for name, values in arrays.items()}
        case "order":
            order = rng.sample(range(len(arrays[names])), len(arrays[names]))
            arrays = {name: [values[i] for i in order] for name, values in arrays.items()}
    with h5py.File(path, "r+") as index:
        for name, values in arrays.items():
            kind = base.arrays[name].dtype if name != names or not any(values) else "S"
            store(index, name, np.array(values, kind))
        if how in ("rows", "twice") and first == "parts/rows" and "n_events" in base.attributes:
            index.attrs.create("n_events", np.int64(sum(arrays[first]) % 2**62))
    fix_digest(path)
    return f"{how} {file.name}"
