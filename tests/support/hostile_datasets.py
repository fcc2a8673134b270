"""Mutants of one HDF5 file of ours, with corrected checksums.

    base = Base.of(path)                  content of a valid file, read once
    told = mutate(base, rng, path)        writes a changed copy to `path`, and returns a description of the change

Changes of values are made to arrays, perhaps several that depend on each other, and only those are written.  All others are
made to the file: types, shapes, names and links of datasets, their storage, attributes and checksums.
"""

from __future__ import annotations

import hashlib
import os
import random
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

RANGED = ("encoded/offsets", "encoded/attributes", "encoded/location")
"""Datasets that must be contiguous."""
COUNTS = {
    "n_names": ("names/offsets", -1),
    "n_filters": ("filters/size", 0),
    "n_interfaces": ("interfaces/offsets", -1),
    "n_matches": ("matches/ids", 0),
    "n_changes": ("changes/kind", 0),
    "n_moves": ("changes/area", 0),
    "n_added": ("changes/interface", 0),
}
"""Attributes that state the number of rows of a dataset, with an offset."""
LISTS = {
    "numbers/name_offsets": "numbers/values",
    "constraints/name_offsets": "constraints/kind",
    "presence/name_offsets": "presence/filter",
    "names/offsets": "names/data",
    "strings/offsets": "strings/data",
    "sets/offsets": "sets/codes",
    "interfaces/offsets": "interfaces/data",
    "events/offsets": "events/name",
    "ids/offsets": "ids/data",
    "labels/offsets": "labels/data",
    "encoded/block_attributes": "encoded/attributes",
    "encoded/offsets": "encoded/attributes",
}
"""Offsets, and the arrays that they index."""
EDGES = (0, 1, 2, 3, 5, 10, 16, 17, 2**7, 2**8, 2**15, 2**16, 2**31, 2**32, 2**62, 2**63)
INTEGERS = (*EDGES, *(edge - 1 for edge in EDGES), -2, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 20.0, 25.0, 1e308, -1e308, 5e-324, np.nan, np.inf, -np.inf, 1e-200, 2.0**53)
NAMES = (b"", b".", b"..", b"\xff", b"a/b", b"../up", b"/etc/passwd", b"p0.h5")
ODD: tuple[Any, ...] = (
    *(0, 1, -1, 2**31, 2**40, 2**62, -(2**63), 3.5, float("nan"), float("inf"), float("-inf"), True),
    *(np.bytes_(text) for text in (b"x", b"\xff\xfe", b"matches", b"filter")),
    *(np.uint8(1), np.uint32(5), np.uint64(2**63), np.int32(4), np.float32(1)),
    *("of variable length", np.arange(3), np.zeros((2, 2)), np.array([], np.int64), np.array([1], np.int64)),
    *(h5py.Empty("i8"), h5py.Empty("S5")),
)
"""Values that no attribute should have."""


@dataclass(frozen=True)
class Base:
    """A valid file: its bytes, its arrays and attributes, and the line of its digest for each dataset."""

    content: bytes
    arrays: dict[str, Any]
    attributes: dict[str, Any]
    lines: dict[str, str]

    @classmethod
    def of(cls, path: Path) -> Base:
        """Read a file."""
        with h5py.File(path) as file:
            found = datasets_in(file)
            arrays = {name: file[name][()] for name in found}
            return cls(
                path.read_bytes(), arrays, dict(file.attrs), {name: line_of(name, each) for name, each in found.items()}
            )


def datasets_in(file: h5py.File) -> dict[str, Any]:
    """Identifiers of all datasets that hard links lead to, by name."""
    names: list[bytes] = []
    h5py.h5o.visit(file.id, names.append)
    found = {name.decode("utf-8", "replace"): h5py.h5o.open(file.id, name) for name in names}
    return {name: item for name, item in found.items() if isinstance(item, h5py.h5d.DatasetID)}


def line_of(name: str, dataset: Any) -> str:
    """The digest's line for any dataset."""
    return f"{name} {dataset.dtype.str} {dataset.shape} {int(h5py.Dataset(dataset).attrs['crc32']):08x}"


def digest_of(lines: list[str], attributes: dict[str, Any]) -> str:
    """The digest that a file has."""
    named = []
    for name, value in attributes.items():
        if name not in ("digest", "complete"):
            text = value.decode("latin1") if isinstance(value, bytes) else value.item() if hasattr(value, "item") else value
            named.append(f"@{name}={text}")
    return hashlib.sha256("\n".join([*sorted(lines), *sorted(named)]).encode("utf-8", "replace")).hexdigest()


def fix_digest(path: Path) -> None:
    """Write the correct digest, as far as the file can have one."""
    with suppress(Exception), h5py.File(path, "r+") as file:
        lines = []
        for name, dataset in datasets_in(file).items():
            with suppress(Exception):
                lines.append(line_of(name, dataset))
        digest = np.bytes_(digest_of(lines, dict(file.attrs)))
        if "digest" in file.attrs and file.attrs["digest"] != digest:
            file.attrs.create("digest", digest)


def store(file: Any, name: str, values: Any, **how: Any) -> str:
    """Replace a dataset, with its checksum; returns its line of the digest."""
    if name in file:
        del file[name]
    if not how and values.size and values.ndim and name not in RANGED:
        how = {"chunks": values.shape, "fletcher32": True}
    crc = zlib.crc32(np.ascontiguousarray(values).tobytes())
    file.create_dataset(name, data=values, **how).attrs.create("crc32", np.uint32(crc))
    return f"{name} {values.dtype.str} {values.shape} {crc:08x}"


def mutate(base: Base, rng: random.Random, path: Path) -> str:
    """Write a mutant; returns a description."""
    path.write_bytes(base.content)
    if rng.random() < 0.55:
        return _rewrite(base, rng, path)
    how = rng.choices(OF_FILES, (10, 6, 12, 8, 8, 2))[0]
    with h5py.File(path, "r+") as file:
        told = how(file, rng, rng.choice(sorted(base.arrays)))
    fix_digest(path)
    return f"{how.__name__}: {told}"


# Values.


def _rewrite(base: Base, rng: random.Random, path: Path) -> str:
    arrays = Arrays(base.arrays, dict(base.attributes), rng)
    how = rng.choices((values, row, text), (38, 10, 6))[0]
    told = how(arrays)
    lines = dict(base.lines)
    with h5py.File(path, "r+") as file:
        for name in arrays.changed:
            lines[name] = store(file, name, arrays[name])
        attributes = {name: value for name, value in arrays.attributes.items() if value is not base.attributes[name]}
        digest = digest_of(list(lines.values()), arrays.attributes)
        for name, value in {**attributes, "digest": np.bytes_(digest)}.items():
            file.attrs.create(name, value)
    return f"{how.__name__}: {told}"


class Arrays(dict[str, Any]):
    """The arrays of a file, and the names of the changed ones."""

    def __init__(self, arrays: dict[str, Any], attributes: dict[str, Any], rng: random.Random) -> None:
        super().__init__(arrays)
        self.attributes, self.rng = attributes, rng
        self.changed: set[str] = set()

    def __setitem__(self, name: str, values: Any) -> None:
        super().__setitem__(name, values)
        self.changed.add(name)

    def pick(self) -> str:
        """The name of an array that is not empty."""
        return self.rng.choice(sorted(name for name, values in self.items() if values.size))

    def fit(self) -> None:
        """Correct the counts of changed arrays, and the ends of offsets."""
        for name, (dataset, more) in COUNTS.items():
            if name in self.attributes and dataset in self.changed:
                self.attributes[name] = np.int64(max(len(self[dataset]) + more, 0))
        if "n_constraints" in self.attributes:
            rows = [len(self[name]) for name in ("constraints/kind", "presence/filter") if name in self]
            self.attributes["n_constraints"] = np.int64(sum(rows))
        for offsets, items in LISTS.items():
            if {offsets, items} & self.changed and len(self[offsets]) and self[offsets][-1] != len(self[items]):
                self[offsets] = np.append(self[offsets][:-1], self[offsets].dtype.type(len(self[items])))
        owners = ("constraints/filter", "presence/filter")
        if {"filters/size", *owners} & self.changed and self.rng.random() < 0.5 and "filters/size" in self:
            n, owner = len(self["filters/size"]), np.concatenate([self.get(name, np.zeros(0, np.uint32)) for name in owners])
            self["filters/size"] = np.bincount(owner % 2**20, minlength=n)[:n].astype(np.uint32)

    def fix_block_checksums(self) -> None:
        """The checksum of the one block of encoded columns."""
        if any(name in self.changed for name in RANGED) and len(self["encoded/offsets"]) > 1:
            crc = 0
            for name in RANGED:
                crc = zlib.crc32(self[name].tobytes() if name in self else b"", crc)
            self["encoded/block_crc32"] = np.array([crc], np.uint32)


def values(arrays: Arrays) -> str:
    """One to three edits, in one or several datasets."""
    told = []
    for _ in range(arrays.rng.choice((1, 1, 1, 1, 2, 2, 3))):
        name = arrays.pick()
        arrays[name], how = _edited(arrays.rng, arrays[name])
        told.append(f"{name} {how}")
    if arrays.rng.random() < 0.6:
        arrays.fit()
    if arrays.rng.random() < 0.9:
        arrays.fix_block_checksums()
    return ", ".join(told)


def _edited(rng: random.Random, array: Any) -> tuple[Any, str]:
    """A changed array, and a description."""
    i, j = rng.randrange(len(array)), rng.randrange(len(array))
    how = rng.choice(("set",) * 8 + ("swap", "double", "drop", "insert", "reverse", "empty", "copy", "shift", "tail"))
    changed = array.copy()
    if how == "set" and array.dtype.kind == "S":
        found = array.tolist()
        found[i] = rng.choice((*NAMES, found[i] + b"x", found[i][:-1]))
        changed = np.array(found, "S" if any(found) else "S1")
    elif how == "set":
        flat = changed.reshape(-1)
        at = rng.randrange(len(flat))
        flat[at] = _some_value(rng, array.dtype, flat[at])
    elif how == "swap":
        changed[[i, j]] = changed[[j, i]]
    elif how == "shift" and array.dtype.kind in "iu":
        changed[i:] += array.dtype.type(rng.choice((1, 2)))
    elif how == "copy":
        changed[i] = changed[j]
    else:
        changed = {
            "double": lambda: np.insert(array, i, array[i], axis=0),
            "insert": lambda: np.insert(array, i, array[j], axis=0),
            "drop": lambda: np.delete(array, i, axis=0),
            "reverse": lambda: array[::-1].copy(),
            "empty": lambda: array[:0],
            "tail": lambda: np.concatenate([array, array[i:]]),
        }.get(how, array.copy)()
    return changed, f"{how} {i}"


def _some_value(rng: random.Random, dtype: Any, near: Any) -> Any:
    """A value of a type: an extreme, a neighbour, or any."""
    if dtype.kind == "f":
        return rng.choice((*FLOATS, float(near) + 1, float(near) - 1, rng.uniform(-50, 50)))
    value = rng.choice((*INTEGERS, *([int(near) + step for step in (-2, -1, 1, 2, 3)] * 5), rng.randrange(2**16)))
    return np.array(value % 2 ** (8 * dtype.itemsize), np.uint64).astype(dtype)


def row(arrays: Arrays) -> str:
    """One row of all datasets of a group with equal lengths, which remain consistent."""
    name, rng = arrays.pick(), arrays.rng
    i, j = rng.randrange(len(arrays[name])), rng.randrange(len(arrays[name]))
    group = [each for each in sorted(arrays) if each.split("/")[0] == name.split("/")[0]]
    group = [each for each in group if len(arrays[each]) == len(arrays[name])]
    how = rng.choice(("drop", "double", "swap"))
    for each in group:
        array = arrays[each].copy()
        if how == "swap":
            array[[i, j]] = array[[j, i]]
        else:
            array = np.delete(array, i, axis=0) if how == "drop" else np.insert(array, i, array[i], axis=0)
        arrays[each] = array
    arrays.fit()
    arrays.fix_block_checksums()
    return f"{how} {i} of {', '.join(group)}"


def text(arrays: Arrays) -> str:
    """Bytes of a pool, with unchanged lengths."""
    pools = [data for data in LISTS.values() if data.endswith("data") and data in arrays and arrays[data].size]
    if not pools:
        return values(arrays)
    name = arrays.rng.choice(pools)
    data = arrays[name].copy()
    for _ in range(arrays.rng.choice((1, 1, 2))):
        byte = arrays.rng.choice((0, 0x41, 0x61, 0x7A, 0x80, 0xC3, 0xFF, arrays.rng.randrange(256)))
        data[arrays.rng.randrange(len(data))] = byte
    arrays[name] = data
    return name


# Types and shapes.


def _own(file: h5py.File, name: str, dtype: Any, shape: Any, plist: Any = None) -> Any:
    """A dataset with properties that h5py does not offer, without data."""
    group, _, last = name.rpartition("/")
    parent = file.require_group(group) if group else file
    space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    kind = dtype if isinstance(dtype, h5py.h5t.TypeID) else h5py.h5t.py_create(dtype, logical=True)
    return h5py.Dataset(h5py.h5d.create(parent.id, last.encode(), kind, space, plist))


def _checked(dataset: Any) -> None:
    """Write the checksum of a dataset's content."""
    dataset.attrs.create("crc32", np.uint32(zlib.crc32(np.ascontiguousarray(dataset[()]).tobytes())))


PLAIN = (*("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"), *(">u4", ">i8", ">f8", "c16", "?", "S3", "V8"))
ODD_TYPES: dict[str, Any] = {
    "text": h5py.string_dtype(),
    "list": h5py.vlen_dtype(np.int32),
    "reference": h5py.ref_dtype,
    "region": h5py.regionref_dtype,
    "enum": h5py.enum_dtype({"A": 0, "B": 1}, basetype="u4"),
    "compound": np.dtype([("a", "u4"), ("b", "f8")]),
    "array": np.dtype(("u4", (2,))),
}


def type_(file: h5py.File, rng: random.Random, name: str) -> str:
    """The same values in another type, or values of a type without numbers."""
    array = file[name][()]
    kind = rng.choice((*PLAIN, *ODD_TYPES, "bits"))
    with suppress(TypeError, ValueError), np.errstate(all="ignore"):
        if kind in PLAIN:
            store(file, name, array.astype(kind))
            return f"{name} as {kind}"
        del file[name]
        if kind == "bits":
            bits = h5py.h5t.STD_U32LE.copy()
            bits.set_precision(7)
            _checked(_own(file, name, bits, array.shape))
        else:
            made = file.create_dataset(name, array.shape, ODD_TYPES[kind])
            made.attrs.create("crc32", np.uint32(0))
            if array.size and kind in ("text", "reference"):
                made[0] = "text" if kind == "text" else file.ref
    return f"{name} as {kind}"


def shape(file: h5py.File, rng: random.Random, name: str) -> str:
    """The same values in another shape."""
    array = file[name][()]
    flat = array.reshape(-1)
    how = rng.choice(("scalar", "column", "row", "flat", "null", "wide", "zero wide", "deep"))
    if how == "null":
        del file[name]
        file.create_dataset(name, data=h5py.Empty(array.dtype)).attrs.create("crc32", np.uint32(0))
        return f"{name} null"
    shapes: dict[str, Callable[[], Any]] = {
        "scalar": lambda: flat[0] if flat.size else array.dtype.type(0),
        "column": lambda: flat.reshape(-1, 1),
        "row": lambda: flat.reshape(1, -1),
        "flat": lambda: flat,
        "wide": lambda: np.stack([flat, flat], axis=1),
        "zero wide": lambda: np.zeros((len(array), 0), array.dtype),
        "deep": lambda: flat.reshape((1,) * 30 + (-1,)),
    }
    store(file, name, np.asarray(shapes[how]()))
    return f"{name} {how}"


# Names and links.


STRUCTURES = (
    *("missing", "bare", "attribute", "group", "soft", "external", "fifo", "dangling", "alias", "type", "extra", "text"),
    *("circle", "root", "index", "half an index", "empty group", "exchange", "odd name", "more names", "deep", "many"),
)


def structure(file: h5py.File, rng: random.Random, name: str) -> str:
    """Names, links and other objects."""
    other = rng.choice(sorted(datasets_in(file)))
    elsewhere = Path(file.filename).with_name("elsewhere.h5")
    how = rng.choice(STRUCTURES)
    if how in ("missing", "group", "soft", "fifo", "dangling", "type") or (how == "alias" and name != other):
        del file[name]
    _altered_object(file, rng, name, other, how)
    _linked(file, name, other, elsewhere, how)
    _added(file, rng, how)
    return f"{how} {name} {other}"


def _altered_object(file: h5py.File, rng: random.Random, name: str, other: str, how: str) -> None:
    """The dataset itself, or another object under its name."""
    match how:
        case "bare":
            del file[name].attrs["crc32"]
        case "attribute":
            file[name].attrs["units"] = rng.choice(("m", 3.0, [1, 2]))
        case "group":
            file.create_group(name)
        case "type":
            file[name] = np.dtype("u4")
        case "exchange" if name != other:
            for old, new in ((name, "moved"), (other, name), ("moved", other)):
                file.move(old, new)


def _linked(file: h5py.File, name: str, other: str, elsewhere: Path, how: str) -> None:
    """Soft, hard and external links in the dataset's place or beside it."""
    match how:
        case "soft":
            file[name] = h5py.SoftLink("/" + other)
        case "external":
            with h5py.File(elsewhere, "w") as there:
                file.copy(name, there, "x")
            del file[name]
            file[name] = h5py.ExternalLink(elsewhere.name, "/x")
        case "fifo":
            os.mkfifo(elsewhere)
            file[name] = h5py.ExternalLink(elsewhere.name, "/x")
        case "dangling":
            file[name] = h5py.ExternalLink("nowhere.h5", "/x")
        case "alias" if name != other:
            file[name] = file[other]
        case "more names":
            file["another"] = file[name]
        case "circle":
            file[name.split("/")[0] + "/again"] = file["/"]
        case "root":
            file["again"] = file["/"]
        case "odd name":
            file["odd name \x01"] = h5py.SoftLink("/" + name)


def _added(file: h5py.File, rng: random.Random, how: str) -> None:
    """Datasets, groups and attributes that the format does not have."""
    match how:
        case "extra":
            store(file, "more/values", np.arange(3))
        case "text":
            file.create_dataset("more", data="text").attrs.create("crc32", np.uint32(0))
        case "index":
            store(file, "parts/name", np.array([b"p0.h5"]))
            store(file, "parts/rows", np.array([9]))
            store(file, "parts/digest", np.array([b"0" * 64]))
        case "half an index":
            store(file, "parts/" + rng.choice(("name", "rows", "digest")), np.array([b"p0.h5"]))
        case "empty group":
            file.create_group("nothing/in/here")
        case "deep":
            file.create_group("/".join("deeper" * 20))
        case "many":
            for i in range(300):
                file.attrs[f"a{i}"] = i


# Storage.


STORAGES = (
    *("gzip", "shuffle", "plain", "chunks", "unlimited", "unwritten", "half", "fill", "compact", "raw", "virtual"),
    *("huge", "huge contiguous", "huge offsets", "huge chunk"),
)


def storage(file: h5py.File, rng: random.Random, name: str) -> str:
    """The layout of a dataset, and how much of it is stored."""
    array = file[name][()]
    rest, n_rows = array.shape[1:], len(array)
    how = rng.choice(STORAGES)
    if how == "plain" or not array.size:
        store(file, name, array, chunks=None)
        return f"plain {name}"
    made: dict[str, dict[str, Any]] = {
        "gzip": {"compression": "gzip", "chunks": array.shape},
        "shuffle": {"shuffle": True, "chunks": array.shape},
        "chunks": {"chunks": (1, *rest), "fletcher32": rng.random() < 0.5},
        "unlimited": {"maxshape": (None, *rest), "chunks": (2, *rest)},
    }
    if how in made:
        store(file, name, array, **made[how])
        return f"{how} {name}"
    if how == "huge offsets":
        name = rng.choice(sorted(each for each in LISTS if each in file))
        store(file, name, np.append(file[name][:-1], file[name].dtype.type(rng.choice((10**9, 2**31, 2**62)) % 2**32)))
        return f"{how} {name}"
    del file[name]
    with suppress(ValueError, OverflowError):
        _stored_oddly(file, rng, name, array, how)
    if how.startswith("huge") and rng.random() < 0.7:
        for attribute, (dataset, more) in {**COUNTS, "n_events": ("matches/counts", 0)}.items():
            if attribute in file.attrs and dataset in file:
                file.attrs.create(attribute, np.int64(max(file[dataset].shape[0] + more, 0)))
    return f"{how} {name}, {n_rows} rows"


def _stored_oddly(file: h5py.File, rng: random.Random, name: str, array: Any, how: str) -> None:
    elsewhere, rest = Path(file.filename).with_name("elsewhere"), array.shape[1:]
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    match how:
        case "unwritten" | "half" | "fill":
            fill = 1 if how == "fill" and array.dtype.kind != "S" else None
            made = file.create_dataset(name, array.shape, array.dtype, chunks=(1, *rest), fillvalue=fill)
            if how == "half":
                made[0] = array[0]
            _checked(made)
        case "huge" | "huge contiguous":
            chunks = None if how == "huge contiguous" else (2**18, *rest)
            made = file.create_dataset(name, (rng.choice((10**9, 2**33, 2**60)), *rest), array.dtype, chunks=chunks)
            made.attrs.create("crc32", np.uint32(0))
        case "huge chunk":
            made = file.create_dataset(name, array.shape, array.dtype, maxshape=(None, *rest), chunks=(2**28, *rest))
            made.attrs.create("crc32", np.uint32(zlib.crc32(bytes(array.nbytes))))
        case "raw":
            elsewhere.write_bytes(array.tobytes())
            plist.set_external(str(elsewhere).encode(), 0, h5py.h5f.UNLIMITED)
            _checked(_own(file, name, array.dtype, array.shape, plist))
        case "virtual":
            with h5py.File(elsewhere, "w") as there:
                there["x"] = array
            layout = h5py.VirtualLayout(array.shape, array.dtype)
            layout[...] = h5py.VirtualSource(elsewhere, "x", array.shape)
            _checked(file.create_virtual_dataset(name, layout))
        case "compact":
            plist.set_layout(h5py.h5d.COMPACT)
            made = _own(file, name, array.dtype, array.shape, plist)
            made[...] = array
            _checked(made)


# Attributes.


def attribute(file: h5py.File, rng: random.Random, name: str) -> str:
    """A root attribute."""
    key = rng.choice([*sorted(file.attrs), "more"])
    how = rng.choice(("odd", "odd", "odd", "near", "missing", "reference", "list", "compound"))
    old = file.attrs.get(key)
    if how == "missing":
        file.attrs.pop(key, None)
    elif how == "reference":
        file.attrs.create(key, file.ref, dtype=h5py.ref_dtype)
    elif how == "list":
        file.attrs.create(key, np.array(["a", "b"], object), dtype=h5py.string_dtype())
    elif how == "compound":
        file.attrs.create(key, np.zeros((), [("a", "u4")]))
    elif how == "near" and isinstance(old, np.integer):
        _put(file, key, int(old) + rng.choice((-2, -1, 1, 2)))
    else:
        _put(file, key, rng.choice(ODD))
    return f"{key} {how}"


def checksum(file: h5py.File, rng: random.Random, name: str) -> str:
    """An invalid or wrong checksum."""
    value = rng.choice((*ODD, np.uint64(2**40), np.int64(-5)))
    _put(file[name], "crc32", value)
    return f"{name}: {value!r}"


def _put(owner: Any, name: str, value: Any) -> None:
    owner.attrs.create(name, np.int64(value) if type(value) is int else value)


OF_FILES: tuple[Callable[[h5py.File, random.Random, str], str], ...] = (
    type_,
    shape,
    structure,
    storage,
    attribute,
    checksum,
)
