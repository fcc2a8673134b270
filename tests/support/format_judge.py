"""An independent reader of docs/format.md: is a file valid?  It uses nothing of the package, only h5py and plain Python.

It is slow and stops at the first objection.  Its verdict is the reference for the package's readers.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import json
import math
import re
import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

BLOCK_EVENTS = 65_536
TYPES = {"|u1", "<u2", "<u4", "<u8", "<i2", "<i8", "<f8"}
OPS_OF_TYPE = {0: (12, 13, 14), 1: range(9), 2: (*range(8), 9, 10, 11, 15, 16), 3: (0, 1)}
NUMBER, STRING, BOOLEAN, LIST, NULL, ANY = 1, 2, 3, 4, 5, 0
LETTERS = {b"n": NUMBER, b"s": STRING, b"b": BOOLEAN}
FORMS = {
    **{b"=": b"nsb", b"#": b"b", b"@": b"ns", b"~": b"ns", b"[": b"n", b"^": b"s", b"$": b"s", b"*": b"s"},
    **{b"?": b"s", b"%": b"s"},
    **{b"<": b"ns", b">": b"ns", b"!": b"ns"},
}
OPS_OF_FORM = {b"<": (2, 3), b">": (4, 5), b"!": (1,)}


class Objection(Exception):
    """Why a file is invalid."""


def demand(holds: object, what: str) -> None:
    """Object unless a condition holds."""
    if not holds:
        raise Objection(what)


class Content(NamedTuple):
    """Root attributes, and the datasets as NumPy arrays."""

    path: Path
    attributes: dict[str, Any]
    arrays: dict[str, Any]

    def column(self, name: str, dtype: str, *shape: int | None) -> list[Any]:
        """A required dataset of a type and shape (None: any length)."""
        demand(name in self.arrays, f"no dataset {name}")
        array = self.arrays[name]
        demand(array.dtype.str == dtype or (dtype == "S" and array.dtype.kind == "S"), f"{name} is {array.dtype.str}")
        demand(array.ndim == len(shape), f"{name} has {array.ndim} dimensions")
        demand(all(n is None or n == m for n, m in zip(shape, array.shape, strict=True)), f"{name} has shape {array.shape}")
        return array.tolist()  # type: ignore[no-any-return]

    def count(self, name: str) -> int:
        """A required integer."""
        value = self.attributes.get(name)
        demand(type(value) is int and 0 <= value <= 2**62, f"attribute {name} is {value!r}")
        return value  # type: ignore[return-value]

    def pool(self, name: str, n: int | None = None, *, text: bool = True) -> list[bytes]:
        """A string pool of n strings."""
        separator = "_" if name.startswith(("filters/", "metadata/")) else "/"
        data = self.arrays.get(f"{name}{separator}data")
        self.column(f"{name}{separator}data", "|u1", None)
        offsets = self.column(f"{name}{separator}offsets", "<i8", None if n is None else n + 1)
        csr(offsets, len(data), name)  # type: ignore[arg-type]
        whole = data.tobytes()  # type: ignore[union-attr]
        items = [whole[a:b] for a, b in pairwise(offsets)]
        if text:
            all_text(items, name)
        return items


def all_text(items: Iterable[bytes], what: str) -> None:
    """Object unless all are UTF-8."""
    for item in items:
        try:
            item.decode()
        except UnicodeDecodeError:
            raise Objection(f"{what} is no UTF-8") from None


def csr(offsets: Sequence[int], total: int, what: str) -> None:
    """Object unless these are the bounds of lists with `total` items."""
    demand(offsets and offsets[0] == 0 and offsets[-1] == total, f"the offsets of {what} do not fit")
    demand(all(a <= b for a, b in pairwise(offsets)), f"the offsets of {what} do not ascend")


def ascends(items: Sequence[Any], what: str, *, strictly: bool = True) -> None:
    """Object unless the items are sorted, and distinct."""
    demand(all(a < b or (a == b and not strictly) for a, b in pairwise(items)), f"{what} is not sorted")


# What every file has (section 1).


def content(path: Path, kind: str) -> Content:
    """A file's content; objects to everything that section 1 does not allow."""
    try:
        with h5py.File(path, "r") as file:
            return _content(path, file, kind)
    except Objection:
        raise
    except Exception as error:
        raise Objection(f"cannot be read: {error!r}"[:200]) from error


def _content(path: Path, file: h5py.File, kind: str) -> Content:
    attributes = {}
    demand(h5py.h5a.get_num_attrs(file.id) <= 256, "more root attributes than there may be")
    for i in range(h5py.h5a.get_num_attrs(file.id)):
        found = h5py.h5a.open(file.id, index=i)
        name, dtype = found.name.decode(), found.dtype
        demand(found.shape == (), f"attribute {name} is no scalar")
        is_text = dtype.kind == "S"
        demand(
            is_text or dtype.str in ("<i8", "<f8") or (name, dtype.str) == ("complete", "|u1"), f"attribute {name}: {dtype}"
        )
        value = np.empty((), dtype)
        found.read(value)
        attributes[name] = value.item().decode() if is_text else value.item()
        demand(attributes[name] != "", f"attribute {name} is empty")
        demand(name != "complete" or dtype.str == "|u1", "complete is no u1")
    demand(attributes.get("format_version") in (2, 3), "format_version")
    expected = {"magic": "mpi-match", "kind": kind, "format_version": int(attributes["format_version"]), "complete": 1}
    for name, wanted in expected.items():
        demand((type(attributes.get(name)), attributes.get(name)) == (type(wanted), wanted), name)
    arrays: dict[str, Any] = {}
    lines: list[str] = []
    seen: set[Any] = {h5py.h5o.get_info(file.id).addr}

    def visit(group: Any, prefix: str) -> None:
        names: list[bytes] = []
        group.links.iterate(names.append)
        for link in names:
            full = prefix + link.decode()
            demand(group.links.get_info(link).type == h5py.h5l.TYPE_HARD, f"{full} is no hard link")
            item = h5py.h5o.open(group, link)
            address = h5py.h5o.get_info(item).addr
            demand(address not in seen, f"{full} has another name")
            seen.add(address)
            demand(len(seen) <= 4096 and full.count("/") < 8, "more objects, or deeper groups, than there may be")
            if isinstance(item, h5py.h5g.GroupID):
                visit(item, full + "/")
            else:
                demand(isinstance(item, h5py.h5d.DatasetID), f"{full} is neither group nor dataset")
                arrays[full], crc = _array(full, item)
                lines.append(f"{full} {item.dtype.str} {item.shape} {crc:08x}")

    visit(file.id, "")
    named = [f"@{name}={value}" for name, value in attributes.items() if name not in ("digest", "complete")]
    text = "\n".join([*sorted(lines, key=str.encode), *sorted(named, key=str.encode)])
    demand(attributes.get("digest") == hashlib.sha256(text.encode()).hexdigest(), "digest")
    return Content(path, attributes, arrays)


def _array(name: str, item: Any) -> tuple[Any, int]:
    kind, plist, dtype = item.get_type(), item.get_create_plist(), item.dtype
    demand(item.get_space().get_simple_extent_type() != h5py.h5s.NULL, f"{name} has no shape")
    plain = kind.get_class() in (h5py.h5t.INTEGER, h5py.h5t.FLOAT) and dtype.str in TYPES
    demand(plain or dtype.kind == "S", f"{name} is {dtype}")
    demand(not plain or kind.get_precision() == 8 * dtype.itemsize, f"{name} has bits that do not count")
    demand(plist.get_external_count() == 0, f"{name} lies in other files")
    demand(plist.get_layout() in (h5py.h5d.CHUNKED, h5py.h5d.CONTIGUOUS), f"{name} is neither chunked nor contiguous")
    filters = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
    demand(set(filters) <= {h5py.h5z.FILTER_FLETCHER32}, f"{name} has filters {filters}")
    n_bytes = math.prod(item.shape) * dtype.itemsize
    if plist.get_layout() == h5py.h5d.CHUNKED:
        n_chunks = math.prod(-(-n // m) for n, m in zip(item.shape, plist.get_chunk(), strict=True))
        demand(item.get_num_chunks() == n_chunks, f"{name} has chunks that were never written")
    else:
        demand(item.get_storage_size() == n_bytes, f"{name} was never written")
    if name in ("encoded/offsets", "encoded/attributes", "encoded/location"):
        demand(plist.get_layout() == h5py.h5d.CONTIGUOUS and not filters, f"{name} is not contiguous")
    demand(h5py.h5a.get_num_attrs(item) == 1, f"{name} has other attributes")
    found = h5py.h5a.open(item, b"crc32")
    demand(found.shape == () and found.dtype.str == "<u4", f"the crc32 of {name} is {found.dtype} {found.shape}")
    crc = np.empty((), np.uint32)
    found.read(crc)
    values = np.empty(item.shape, dtype)
    if values.size:
        item.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
    demand(zlib.crc32(values.tobytes()) == crc, f"the crc32 of {name} is another")
    return values, int(crc)


def index_of(whole: Content) -> list[tuple[Path, int, str]]:
    """The parts that an index names."""
    n = len(whole.column("parts/name", "S", None))
    demand(n >= 1, "an index without parts")
    rows, digests = whole.column("parts/rows", "<i8", n), whole.column("parts/digest", "|S64", n)
    found = []
    for name, count, digest in zip(whole.column("parts/name", "S", n), rows, digests, strict=True):
        all_text([name], "parts/name")
        plain = name and b"/" not in name and b"\0" not in name and name not in (b".", b"..")
        demand(plain, f"{name!r} is no name of a file")
        demand(count >= 0, "a part has a negative number of rows")
        found.append((whole.path.with_name(whole.path.name + ".parts") / name.decode(), count, digest.decode("latin1")))
    return found


def parts_of(whole: Content) -> list[Content]:
    """The parts of an index."""
    parts = []
    for path, rows, digest in index_of(whole):
        demand(path.is_file(), f"no part {path.name}")
        part = content(path, f"{whole.attributes['kind']}-part")
        demand(part.attributes["digest"] == digest and part.count("rows") == rows, "another part")
        parts.append(part)
    return parts


# Tables (section 2).


class Vocabulary(NamedTuple):
    """Names, and of each name its operands and atoms."""

    names: list[bytes]
    numbers: list[list[float]]
    strings: list[list[bytes]]
    atoms: list[list[tuple[int, bytes]]]
    digest: str

    def segment(self, name: int, type_: int) -> tuple[int, int]:
        """First and last code of a type."""
        n, s = len(self.numbers[name]), len(self.strings[name])
        return {
            NUMBER: (0, 2 * n),
            STRING: (2 * n + 2, 2 * n + 2 * s + 2),
            BOOLEAN: (2 * n + 2 * s + 3, 2 * n + 2 * s + 4),
            LIST: (2 * n + 2 * s + 5, 2 * n + 2 * s + 5),
            ANY: (0, 2 * n + 2 * s + 5),
        }[type_]


class TableContent(NamedTuple):
    """The properties of a table that other files refer to."""

    vocabulary: Vocabulary
    n_filters: int
    n_interfaces: int
    areas: set[int]
    interface: list[int]
    labels: list[bytes]
    digest: str


TABLE_DATASETS = (
    *("names/data", "names/offsets", "numbers/name_offsets", "numbers/values", "numbers/residues"),
    *("strings/name_offsets", "strings/data", "strings/offsets"),
    *("atoms/name_offsets", "atoms/op", "atoms/data", "atoms/offsets"),
    *("constraints/name_offsets", "constraints/kind", "constraints/lo", "constraints/hi", "constraints/filter"),
    *("presence/name_offsets", "presence/filter"),
    *("sets/name_offsets", "sets/offsets", "sets/codes"),
    *("filters/size", "filters/interface", "filters/area_filter", "filters/area"),
    *("filters/id_filter", "filters/id_data", "filters/id_offsets", "interfaces/data", "interfaces/offsets"),
    *("metadata/name_data", "metadata/name_offsets", "metadata/type"),
    *("metadata/id_data", "metadata/id_offsets", "metadata/row_data", "metadata/row_offsets"),
)
METADATA_TYPES = {1: (int, float), 2: (str,), 3: (bool,), 4: (int,)}


def table(path: Path) -> TableContent:
    """A table, one file or in parts."""
    whole = content(path, "table")
    if "parts/name" in whole.arrays:
        parts = parts_of(whole)
        joined = {}
        for name in TABLE_DATASETS:
            pieces = [part.arrays[name] for part in parts if name in part.arrays]
            if not pieces and name.startswith(("presence/", "numbers/residues", "metadata/")):
                continue
            demand(pieces, f"no dataset {name}")
            demand(len({(piece.dtype.str, piece.shape[1:]) for piece in pieces}) == 1, f"the parts of {name} differ")
            demand(all(piece.ndim for piece in pieces), f"{name} has no dimension")
            if name.endswith("offsets"):
                demand(all(len(piece) and piece[0] == 0 for piece in pieces), f"{name} does not begin with 0")
                total, found = 0, [0]
                for piece in pieces:
                    found += [total + int(i) for i in piece[1:]]
                    total += int(piece[-1])
                demand(pieces[0].dtype.str == "<i8", f"{name} is {pieces[0].dtype}")
                demand(all(-(2**63) <= i < 2**63 for i in found), f"{name} is too large")
                joined[name] = np.array(found, np.int64)
            else:
                joined[name] = np.concatenate(pieces)
        whole = Content(path, whole.attributes, joined)
    stated = [whole.count(name) for name in ("n_names", "n_constraints", "n_filters", "n_interfaces")]
    return _table(whole, stated)


def _table(whole: Content, stated: Sequence[int] | None) -> TableContent:
    names = whole.pool("names", text=False)
    n_names = len(names)
    ascends(names, "names")
    virtual = {i: _virtual(name) for i, name in enumerate(names) if name[:1] == b"\xff"}
    demand(all(is_text(name) or i in virtual or _is_special(name) for i, name in enumerate(names)), "a name")

    def per_name(what: str, total: int) -> list[tuple[int, int]]:
        offsets = whole.column(f"{what}/name_offsets", "<i8", n_names + 1)
        csr(offsets, total, f"{what} of names")
        return list(pairwise(offsets))

    values = _numbers(whole)
    numbers = [values[a:b] for a, b in per_name("numbers", len(values))]
    operands = whole.pool("strings", text=False)
    strings = [operands[a:b] for a, b in per_name("strings", len(operands))]
    op = whole.column("atoms/op", "|u1", None)
    texts = whole.pool("atoms", len(op))
    keys = list(zip(op, texts, strict=True))
    atoms = [keys[a:b] for a, b in per_name("atoms", len(op))]
    for some in numbers:
        demand(not any(math.isnan(x) or (x == 0 and math.copysign(1, x) < 0) for x in some), "numbers/values")
        ascends(some, "numbers/values")
    sorted_lists: list[Any] = [*strings, *atoms]
    for each in sorted_lists:
        ascends(each, "operands")
    demand(set(op) <= {10, 11, 14, 15, 16}, "atoms/op")
    demand(not any(text for of, text in keys if of == 14), "the text of an atom of nulls")
    digest = _digest(whole, ("names", "strings", "atoms"))
    vocabulary = Vocabulary(names, numbers, strings, atoms, digest)

    kind = whole.column("constraints/kind", "|u1", None)
    rows = len(kind)
    lo, hi, owner = (whole.column(f"constraints/{column}", "<u4", rows) for column in ("lo", "hi", "filter"))
    codes = whole.column("sets/codes", "<u4", None)
    bounds = whole.column("sets/offsets", "<i8", None)
    csr(bounds, len(codes), "sets")
    lists = [tuple(codes[a:b]) for a, b in pairwise(bounds)]
    sets = [lists[a:b] for a, b in per_name("sets", len(lists))]
    for name, some in enumerate(sets):
        ascends(some, "sets")
        for each in some:
            ascends(each, "sets/codes")
            ok = any(each and all(_is_operand(vocabulary, name, type_, code) for code in each) for type_ in (NUMBER, STRING))
            demand(ok, "a set is not one of operands of one type")

    size = whole.column("filters/size", "<u4", None)
    n_filters = len(size)
    interface = whole.column("filters/interface", "<u4", n_filters)
    labels = whole.pool("interfaces")
    ascends(labels, "interfaces")
    demand(all(i < len(labels) for i in interface), "filters/interface")
    ascends(interface, "filters/interface", strictly=False)
    _reserved(labels, interface)
    area_filter = whole.column("filters/area_filter", "<u4", None)
    areas = whole.column("filters/area", "<f8", len(area_filter), 3)
    id_filter = whole.column("filters/id_filter", "<u4", None)
    whole.pool("filters/id", len(id_filter))
    for owners in (area_filter, id_filter):
        ascends(owners, "filters of areas, ids")
        demand(all(i < n_filters for i in owners), "an unknown filter has an area or id")
    demand(all(all(map(math.isfinite, area)) and area[2] >= 0 for area in areas), "filters/area")

    counts = [0] * n_filters
    presences: list[int] = []
    if "presence/name_offsets" in whole.arrays or "presence/filter" in whole.arrays:
        presences = whole.column("presence/filter", "<u4", None)
        demand(presences, "presence/filter without rows")
        for name, (first, last) in enumerate(per_name("presence", len(presences))):
            ascends(presences[first:last], "presence/filter", strictly=False)
            demand(first == last or name not in virtual or virtual[name][1] not in OPS_OF_FORM, "presence of a virtual name")
        for filter_id in presences:
            demand(filter_id < n_filters, "presence/filter")
            counts[filter_id] += 1
    for name, (first, last) in enumerate(per_name("constraints", rows)):
        ascends(list(zip(kind, lo, hi, owner, strict=True))[first:last], "constraints", strictly=False)
        for row in range(first, last):
            demand(owner[row] < n_filters, "constraints/filter")
            counts[owner[row]] += 1
            demand(kind[row] != 12, "a row that only asks for presence")
            _interval(vocabulary, sets, name, kind[row], lo[row], hi[row])
            if name in virtual:
                _, form, type_, _ = virtual[name]
                allowed = [type_ * 16 + op for op in OPS_OF_FORM.get(form, ())]
                demand(kind[row] in allowed, "an operator that its virtual name does not have")
    demand(counts == size, "filters/size")
    if stated is not None:
        demand(
            list(stated) == [n_names, rows + len(presences), n_filters, len(labels)],
            "the attributes n_... are not those of the arrays",
        )
    _metadata(whole)
    sha = hashlib.sha256()
    for dataset in (name for name in TABLE_DATASETS if name in whole.arrays):
        sha.update(f"{dataset} {len(whole.arrays[dataset])};".encode() + whole.arrays[dataset].tobytes())
    return TableContent(vocabulary, n_filters, len(labels), set(area_filter), interface, labels, sha.hexdigest())


def _metadata(whole: Content) -> None:
    """Object unless each id has a JSON object of the columns, if there is any."""
    if not any(name.startswith("metadata/") for name in TABLE_DATASETS if name in whole.arrays):
        return
    names = whole.pool("metadata/name")
    demand(len(set(names)) == len(names), "metadata/name twice")
    types = dict(zip([name.decode() for name in names], whole.column("metadata/type", "|u1", len(names)), strict=True))
    demand(all(type_ % 16 in METADATA_TYPES and type_ < 32 for type_ in types.values()), "metadata/type")
    ids = whole.pool("metadata/id")
    ascends(ids, "metadata/id")
    for text in whole.pool("metadata/row", len(ids)):
        demand(text[:1] + text[-1:] == b"{}" and b"\n" not in text, "metadata/row")
        for name, value in json.loads(text).items():
            demand(name in types and isinstance(value, list) == (types[name] >= 16), "metadata/row")
            values = [each for each in value if each is not None] if isinstance(value, list) else [value]
            demand(all(type(each) in METADATA_TYPES[types[name] % 16] for each in values), "metadata/row")


def _numbers(whole: Content) -> list[Any]:
    """The numeric operands."""
    values: list[Any] = whole.column("numbers/values", "<f8", None)
    if "numbers/residues" not in whole.arrays:
        return values
    residues = whole.column("numbers/residues", "<i2", len(values))
    demand(any(residues), "numbers/residues without one")
    return [_number(nearest, residue) for nearest, residue in zip(values, residues, strict=True)]


Virtual = tuple[bytes, bytes, int, list[Any]]
"""The parts of a virtual name: the attribute's name, form, type, and operands."""


def _reserved(labels: Sequence[bytes], interface: Sequence[int]) -> None:
    """Object unless reserved labels are those of parts with filters."""
    own = [i for i, label in enumerate(labels) if label.startswith("\U0010ffff".encode())]
    demand(all(re.fullmatch(rb"&[0-9a-f]{32}", labels[i][4:]) for i in own), "a reserved label")
    demand(set(own) <= set(interface), "a part without a filter")


def _is_special(name: bytes) -> bool:
    """Is it the name of a view, of all strings or of a part?"""
    if re.fullmatch(rb"\xfe&[0-9a-f]{32}", name) or name == b"\xfe*":
        return True
    return name[:1] == b"\xfe" and name[1:2] in (b"f", b"i", b"t") and (is_text(name[2:]) or name[2:] == b"\xfe*")


def _virtual(name: bytes) -> Virtual:
    """The parts of a virtual name."""
    parts = name.split(b"\xff", 2)
    demand(len(parts) == 3 and not parts[0], "a name is neither text nor virtual")
    demand(is_text(parts[1]) or _is_special(parts[1]), "a name is neither text nor virtual")
    form, letter, rest = parts[2][:1], parts[2][1:2], parts[2][2:]
    demand(letter and letter in FORMS.get(form, b""), "the form of a virtual name")
    several, values = form in (b"@", b"~"), list[Any]()
    while letter == b"s" and several and rest:
        demand(len(rest) >= 4, "a list in a virtual name")
        end = 4 + int.from_bytes(rest[:4], "big")
        demand(end <= len(rest), "a list in a virtual name")
        values, rest = [*values, rest[4:end]], rest[end:]
    if letter == b"s" and not several and form not in OPS_OF_FORM:
        values, rest = [rest], b""
    if letter != b"s":
        demand(len(rest) % 8 == 0, "the numbers of a virtual name")
        for word, bits in zip(struct.iter_unpack(">d", rest), struct.iter_unpack(">Q", rest), strict=True):
            if bits[0] >> 16 == 0x7FF800000000 and letter == b"n":
                demand(values, "a residue without a number")
                values[-1] = _number(values[-1], _signed(bits[0] & 0xFFFF), is_residue=True)
            else:
                values.append(word[0])
        rest = b""
        demand(all(x == x and (x or math.copysign(1, x) > 0) for x in values), "a number of a virtual name")
    demand(not rest and all(is_text(text) for text in values if letter == b"s"), "the operand of a virtual name")
    demand(letter != b"b" or set(values) <= {0, 1}, "a boolean of a virtual name")
    wanted = (2,) if form == b"[" else (0,) if form in OPS_OF_FORM else (1,)
    demand(len(values) in wanted or (several and values), "the operands of a virtual name")
    ascends(values, "the operands of a virtual name", strictly=several)
    return parts[1], form, LETTERS[letter], values


def _number(nearest: float, residue: int, *, is_residue: bool = False) -> float:
    """The number of a double and a residue: a double, or an integer that no double equals."""
    if not residue and not is_residue:
        return nearest
    demand(residue and isinstance(nearest, float) and math.isfinite(nearest) and nearest == int(nearest), "a residue")
    found = int(nearest) + residue
    demand(-(2**63) <= found < 2**64 and float(found) == nearest, "a residue that is none")
    return found


def _signed(residue: int) -> int:
    return residue - 2**16 if residue >= 2**15 else residue


def _digest(whole: Content, pools: Sequence[str]) -> str:
    sha = hashlib.sha256()
    residues = [name for name in ("numbers/residues",) if name in whole.arrays]
    numbers = ("numbers/name_offsets", "numbers/values", *residues, "strings/name_offsets", "atoms/name_offsets", "atoms/op")
    for name in (*(f"{pool}/{part}" for pool in pools for part in ("offsets", "data")), *numbers):
        sha.update(whole.arrays[name].tobytes() + f"{len(whole.arrays[name])};".encode())
    return sha.hexdigest()


def _is_operand(vocabulary: Vocabulary, name: int, type_: int, code: int) -> bool:
    first, last = vocabulary.segment(name, type_)
    return first < code < last and (code - first) % 2 == 1


def _interval(vocabulary: Vocabulary, sets: list[list[tuple[int, ...]]], name: int, kind: int, lo: int, hi: int) -> None:
    """Object unless a row's bounds are possible for its operator."""
    type_, op = (kind & 3, 16 + (kind - 96) // 4) if kind >= 96 else (kind >> 4, kind & 15)
    demand(op in OPS_OF_TYPE.get(type_, ()), f"kind {kind}")
    first, last = vocabulary.segment(name, type_)

    def operand(code: int) -> bool:
        if type_ == BOOLEAN:
            return first <= code <= last
        return _is_operand(vocabulary, name, type_, code) and (type_ == NUMBER or is_text(string(code)))

    def string(code: int) -> bytes:
        return vocabulary.strings[name][(code - first) // 2]

    def prefix() -> bool:
        if (lo, hi) == (first, last):
            return True
        if not operand(lo) or not _is_operand(vocabulary, name, type_, hi + 1) or not string(lo):
            return False
        return string(hi + 1) == string(lo)[:-1] + bytes([string(lo)[-1] + 1])

    def listed() -> bool:
        return lo == hi < len(sets[name]) and all(operand(code) for code in sets[name][lo])

    def atom() -> bool:
        return lo == hi < len(vocabulary.atoms[name]) and vocabulary.atoms[name][lo][0] == op

    ok: dict[int, Callable[[], bool]] = {
        0: lambda: lo == hi and operand(lo),
        1: lambda: lo == hi and operand(lo),
        2: lambda: lo == first and operand(hi + 1),
        3: lambda: lo == first and operand(hi),
        4: lambda: hi == last and lo > 0 and operand(lo - 1),
        5: lambda: hi == last and operand(lo),
        6: listed,
        7: listed,
        8: lambda: lo <= hi and operand(lo) and operand(hi),
        9: prefix,
        12: lambda: (lo, hi) == (first, last),
        13: lambda: (lo, hi) == (first, last),
        **dict.fromkeys((10, 11, 14, 15, 16), atom),
    }
    demand(ok[op](), f"the interval of an operator {op}")


def is_digest(value: object) -> bool:
    """Is it a digest in hexadecimal?"""
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def is_text(item: bytes) -> bool:
    """Is it UTF-8?"""
    try:
        item.decode()
    except UnicodeDecodeError:
        return False
    return True


# Event tables (section 3).


def events(path: Path, vocabulary: Vocabulary) -> None:
    """An event table; its encoded columns must agree with the raw ones if they are of this vocabulary."""
    whole = content(path, "events")
    n_events = whole.count("n_events")
    if "parts/name" in whole.arrays:
        parts = parts_of(whole)
        demand(sum(part.count("rows") for part in parts) == n_events, "the parts hold another number of events")
        for part in parts:
            demand(part.attributes.get("vocabulary") == whole.attributes.get("vocabulary"), "a part of another vocabulary")
            demand(part.count("n_events") == part.count("rows"), "a part has another number of events")
            _events(part, part.count("n_events"), vocabulary)
        _vocabulary_of(whole)
        return
    _events(whole, n_events, vocabulary)


def _vocabulary_of(whole: Content) -> str:
    found = whole.attributes.get("vocabulary")
    demand(is_digest(found), "no vocabulary")
    return str(found)


def _events(whole: Content, n: int, vocabulary: Vocabulary) -> None:
    offsets = whole.column("events/offsets", "<i8", n + 1)
    names, strings = whole.pool("names"), whole.pool("strings")
    demand(len(set(names)) == len(names) and len(set(strings)) == len(strings), "names or strings are not distinct")
    name = whole.column("events/name", "<u4", None)
    m = len(name)
    csr(offsets, m, "events")
    type_, number, string = (
        whole.column(f"events/{c}", t, m) for c, t in (("type", "|u1"), ("number", "<f8"), ("string", "<u4"))
    )
    demand(all(i < len(names) for i in name), "events/name")
    for a, b in pairwise(offsets):
        demand(len(set(name[a:b])) == b - a, "a name occurs twice in an event")
    lists: list[list[tuple[int, float, bytes]]] = []
    if any(each.startswith("lists/") for each in whole.arrays):
        of_lists = [whole.column(f"lists/{c}", t, None) for c, t in (("type", "|u1"), ("number", "<f8"), ("string", "<u4"))]
        demand(len(set(map(len, of_lists))) == 1, "the columns of lists")
        bounds = whole.column("lists/offsets", "<i8", None)
        csr(bounds, len(of_lists[0]), "lists")
        for kind, value, index in zip(*of_lists, strict=True):
            _is_value(kind, value, index, len(strings), None)
        elements = [(k, _exact(k, v, i), strings[i] if k == STRING else b"") for k, v, i in zip(*of_lists, strict=True)]
        lists = [elements[a:b] for a, b in pairwise(bounds)]
    for kind, value, index in zip(type_, number, string, strict=True):
        _is_value(kind, value, index, len(strings), len(lists))
    location = whole.column("events/location", "<f8", n, 2) if "events/location" in whole.arrays else None
    for point in location or ():
        demand(all(map(math.isfinite, point)) or all(map(math.isnan, point)), "events/location")
    ids = whole.pool("ids", n) if "ids/data" in whole.arrays or "ids/offsets" in whole.arrays else [b""] * n
    rejected = whole.column("events/rejected", "<i8", None) if "events/rejected" in whole.arrays else []
    ascends([-1, *rejected], "events/rejected")
    for row in rejected:
        demand(row < n and offsets[row] == offsets[row + 1] and not ids[row], "a rejected row that is an event")
        demand(location is None or all(map(math.isnan, location[row])), "a rejected row with a location")
    if "left_out/data" in whole.arrays or "left_out/offsets" in whole.arrays:
        whole.pool("left_out")
    is_coded = _vocabulary_of(whole) == vocabulary.digest
    values = [
        (
            names[of],
            kind,
            _exact(kind, value, index),
            strings[index] if kind == STRING else lists[index] if kind == LIST else b"",
        )
        for of, kind, value, index in zip(name, type_, number, string, strict=True)
    ]
    codes = [_encoded(vocabulary, values[a:b]) for a, b in pairwise(offsets)]
    _columns(whole, n, codes if is_coded else None, vocabulary)


def _is_value(kind: int, value: float, index: int, n_strings: int, n_lists: int | None) -> None:
    """Object unless these are the columns of a value; of an element of a list without `n_lists`."""
    demand(
        kind in (NUMBER, STRING, BOOLEAN) or (kind == LIST and n_lists) or (kind == NULL and n_lists is not None),
        f"type {kind}",
    )
    demand(index < {STRING: n_strings, LIST: n_lists or 0, NUMBER: 2**16}.get(kind, 1), "a string or list that there is not")
    _exact(kind, value, index)
    demand(value == 0 or kind == NUMBER or (kind == BOOLEAN and value == 1), "a number that its type does not have")


def _exact(kind: int, value: float, index: int) -> float:
    """The value of a number, 0 or 1 of a boolean."""
    return _number(value, _signed(index)) if kind == NUMBER else value


def _columns(whole: Content, n: int, codes: list[list[tuple[int, int]]] | None, vocabulary: Vocabulary) -> None:
    """The encoded columns."""
    offsets = whole.column("encoded/offsets", "<u4", n + 1)
    wide = whole.arrays.get("encoded/attributes")
    demand(wide is not None and wide.dtype.str in ("<u4", "<u8"), "encoded/attributes")
    packed = whole.column("encoded/attributes", wide.dtype.str, None)  # type: ignore[union-attr]
    blocks = -(-n // BLOCK_EVENTS)
    starts = whole.column("encoded/block_attributes", "<i8", blocks + 1)
    crcs = whole.column("encoded/block_crc32", "<u4", blocks)
    csr(starts, len(packed), "blocks")
    demand(("encoded/location" in whole.arrays) == ("events/location" in whole.arrays), "encoded/location")
    location = whole.arrays.get("encoded/location")
    if location is not None:
        whole.column("encoded/location", "<f8", n, 2)
        demand(location.tobytes() == whole.arrays["events/location"].tobytes(), "encoded/location is not events/location")
    for k in range(blocks):
        first, last = k * BLOCK_EVENTS, min((k + 1) * BLOCK_EVENTS, n)
        crc = zlib.crc32(whole.arrays["encoded/offsets"][first : last + 1].tobytes())
        crc = zlib.crc32(whole.arrays["encoded/attributes"][starts[k] : starts[k + 1]].tobytes(), crc)
        crc = zlib.crc32(b"" if location is None else location[first:last].tobytes(), crc)
        demand(crc == crcs[k], "encoded/block_crc32")
    if codes is None:
        return
    largest = max((vocabulary.segment(i, ANY)[1] + 1 for i in range(len(vocabulary.names))), default=0)
    narrow = len(vocabulary.names) + sum(map(len, vocabulary.atoms)) < 65_536 and largest <= 65_536
    demand(wide.dtype.str == ("<u4" if narrow else "<u8"), "the width of encoded/attributes")  # type: ignore[union-attr]
    shift = 16 if narrow else 32
    at = 0
    for event, found in enumerate(codes):
        block = event // BLOCK_EVENTS
        start = starts[block] + (offsets[event] - offsets[block * BLOCK_EVENTS]) % 2**32
        demand(start == at, "encoded/offsets")
        demand(packed[at : at + len(found)] == [a << shift | c for a, c in found], "the encoded columns say something else")
        at += len(found)
    demand(at == len(packed) and (offsets[-1] - offsets[0]) % 2**32 == at % 2**32, "encoded/attributes holds more")


def _code(vocabulary: Vocabulary, i: int, type_: int, number: float, string: bytes) -> int:
    """The code of a value on name i."""
    if type_ in (BOOLEAN, LIST):
        return vocabulary.segment(i, type_)[0] + int(number)
    if type_ == NUMBER and math.isnan(number):
        return vocabulary.segment(i, NUMBER)[1] + 1
    operands: Sequence[Any] = vocabulary.numbers[i] if type_ == NUMBER else vocabulary.strings[i]
    value = number if type_ == NUMBER else string
    at = bisect_left(operands, value)
    return vocabulary.segment(i, type_)[0] + 2 * at + (at < len(operands) and operands[at] == value)


def _is_wildcard(text: bytes, operand: bytes) -> bool:
    tokens = re.findall(r"(?s)\\[*?\\]|.", operand.decode())
    shown = {"*": ".*", "?": "."}
    return re.fullmatch("(?s)" + "".join(shown.get(each, re.escape(each[-1])) for each in tokens), text.decode()) is not None


def _has_regexp(text: bytes, operand: bytes) -> bool:
    return re.search(operand.decode(), text.decode(), re.ASCII if b"(?i)" not in operand else 0) is not None


def _on_elements(
    vocabulary: Vocabulary, i: int, virtual: Virtual, elements: Iterable[tuple[int, float, bytes]]
) -> list[int]:
    """The code of virtual name i, if the elements have it."""
    _, form, wanted, operand = virtual
    values: Any = [string if kind == STRING else number for kind, number, string in elements if kind == wanted]
    values = sorted(value for value in values if value == value)
    if form in OPS_OF_FORM and values:
        value = values[-1 if form == b">" else 0]
        code = _code(vocabulary, i, wanted, value if wanted != STRING else 0.0, value if wanted == STRING else b"")
        gap = vocabulary.segment(i, wanted)[0]
        is_operand = (code - gap) % 2 == 1
        return [gap if form == b"!" and (values[0] != values[-1] or not is_operand) else code]
    holds: dict[bytes, Callable[[Any], bool]] = {
        **{b"=": lambda v: v == operand[0], b"#": lambda v: v != operand[0], b"[": lambda v: operand[0] <= v <= operand[1]},
        **{b"@": lambda v: v in operand, b"~": lambda v: v not in operand, b"*": lambda v: operand[0] in v},
        **{b"^": lambda v: v.startswith(operand[0]), b"$": lambda v: v.endswith(operand[0])},
        **{b"?": lambda v: _is_wildcard(v, operand[0]), b"%": lambda v: _has_regexp(v, operand[0])},
    }
    return [0] if form in holds and any(map(holds[form], values)) else []


ATOMS: dict[int, Callable[[bytes, bytes], bool]] = {
    10: lambda string, text: string.endswith(text),
    11: lambda string, text: text in string,
    15: _is_wildcard,
    16: _has_regexp,
}


def _folded(text: str) -> bytes:
    """Unicode simple case folding: of a character whose full folding is longer, its lower case if that is one character."""
    folds = ((each, each.casefold(), each.lower()) for each in text)
    return "".join(full if len(full) == 1 else lower if len(lower) == 1 else each for each, full, lower in folds).encode()


def _address(text: str) -> float | bytes | None:
    try:
        found = ipaddress.ip_address("" if "%" in text else text)
    except ValueError:
        return None
    return float(int(found)) if found.version == 4 else f"{int(found):0128b}".encode()


def _instant(text: str) -> float | None:
    """Nanoseconds since 1970 by way of a year that Python's calendar has: 400 years are 146,097 days."""
    parts = re.fullmatch(r"(?a)(\d{4})(-\d\d-\d\d)(?:[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})0*)?([Zz]|[+-]\d\d:\d\d))?", text)
    if parts is None:
        return None
    year, day, time, fraction, offset = parts.groups()
    offset = "+00:00" if offset in (None, "Z", "z") else offset
    try:
        there = datetime.datetime.fromisoformat(f"{2000 + int(year) % 400:04d}{day}T{time or '00:00:00'}+00:00")
        minutes = datetime.time.fromisoformat(offset[1:])
    except ValueError:
        return None
    days = there.toordinal() - 719_163 + 146_097 * (int(year) // 400 - 5)
    away = (60 * minutes.hour + minutes.minute) * (1 if offset[0] == "+" else -1)
    seconds = 86_400 * days + 3600 * there.hour + 60 * (there.minute - away) + there.second
    nanoseconds = seconds * 10**9 + int((fraction or "").ljust(9, "0"))
    return float(nanoseconds) if float(nanoseconds) == nanoseconds else nanoseconds


VIEWS: dict[bytes, Callable[[str], Any]] = {b"f": _folded, b"i": _address, b"t": _instant}


def _views(vocabulary: Vocabulary, attribute: tuple[bytes, int, float, Any]) -> list[tuple[bytes, int, float, Any]]:
    """The views of an attribute that the vocabulary asks for, as attributes."""
    name, type_, _, string = attribute
    bases = {each.split(b"\xff")[1] if each[:1] == b"\xff" else each for each in vocabulary.names}
    found: list[tuple[bytes, int, float, Any]] = []
    for letter, view in VIEWS.items():
        if b"\xfe" + letter + name not in bases:
            continue
        texts = [each for kind, _, each in string if kind == STRING] if type_ == LIST else [string] * (type_ == STRING)
        seen = [value for text in texts if (value := view(text.decode())) is not None]
        values = [(STRING, 0.0, each) if isinstance(each, bytes) else (NUMBER, each, b"") for each in seen]
        if type_ == LIST and values:
            found.append((b"\xfe" + letter + name, LIST, 0.0, values))
        elif values:
            found.append((b"\xfe" + letter + name, *values[0]))
    return found


def _encoded(vocabulary: Vocabulary, attributes: Iterable[tuple[bytes, int, float, Any]]) -> list[tuple[int, int]]:
    """(name, code) of an event's attributes, views, satisfied atoms and virtual names, ascending."""
    found = []
    virtual = [(i, _virtual(name)) for i, name in enumerate(vocabulary.names) if name[:1] == b"\xff"]
    own = list(attributes)
    for name, type_, number, string in [*own, *(view for each in own for view in _views(vocabulary, each))]:
        elements = string if type_ == LIST else [(type_, number, string)]
        for i, parts in virtual:
            if parts[0] == name:
                found += [(i, code) for code in _on_elements(vocabulary, i, parts, elements)]
        if name not in vocabulary.names:
            continue
        i = vocabulary.names.index(name)
        first = len(vocabulary.names) + sum(map(len, vocabulary.atoms[:i]))
        if type_ == NULL:
            found += [(first + k, 0) for k, (op, _) in enumerate(vocabulary.atoms[i]) if op == 14]
            continue
        found.append((i, _code(vocabulary, i, type_, number, string)))
        if type_ == STRING:
            for k, (op, text) in enumerate(vocabulary.atoms[i]):
                if op != 14 and ATOMS[op](string, text):
                    found.append((first + k, 0))
    return sorted(found)


# Matches (section 4), changes (section 5), journals (section 9).


def narrowest(largest: int) -> str:
    """The narrowest type that holds a number."""
    return "|u1" if largest < 2**8 else "<u2" if largest < 2**16 else "<u4"


def _answers(n_ids: int, counts: Sequence[int], ids: Sequence[int]) -> None:
    demand(sum(counts) == len(ids), "counts and ids do not fit")
    demand(all(i < n_ids for i in ids), "an id is too large")
    at = 0
    for count in counts:
        ascends(ids[at : at + count], "the ids of an event")
        at += count


def matches(path: Path) -> None:
    """A file of matches, or an index of answers in parts."""
    whole = content(path, "matches")
    n_ids, n_events, n_matches = (whole.count(name) for name in ("n_ids", "n_events", "n_matches"))
    demand(n_ids < 2**32, "n_ids")
    demand(whole.attributes.get("unit") in ("interface", "filter"), "unit")
    for name in ("table_digest", "events_digest", "changes_digest"):
        demand(name not in whole.attributes or is_digest(whole.attributes[name]), name)
    labels = whole.pool("labels")
    if "ids/data" in whole.arrays or "ids/offsets" in whole.arrays:
        whole.pool("ids", n_events)
    demand(len(labels) in (0, n_ids), "labels")
    if "answers/part" not in whole.arrays:
        counts = whole.column("matches/counts", narrowest(n_ids), n_events)
        ids = whole.column("matches/ids", narrowest(max(n_ids - 1, 0)), n_matches)
        return _answers(n_ids, counts, ids)
    demand("matches/counts" not in whole.arrays and "matches/ids" not in whole.arrays, "both answers and parts")
    names = whole.column("answers/part", "S", None)
    sizes = whole.column("answers/bytes", "<i8", len(names))
    all_text(names, "answers/part")
    plain = all(name and b"/" not in name and b"\0" not in name and name not in (b".", b"..") for name in names)
    demand(plain and len(set(names)) == len(names), "answers/part")
    identity = {name: whole.attributes.get(name, "") for name in IDENTITY}
    answered: dict[int, list[int]] = {}
    for name, size in zip(names, sizes, strict=True):
        part = path.with_name(path.name + ".parts") / name.decode()
        demand(part.is_file() and size >= 0, "no part")
        found = journal(part, size)
        demand(found.identity == identity and found.end >= size, "another part")
        answered |= found.answers
    demand(sorted(answered) == list(range(n_events)), "an event has no answer")
    demand(sum(map(len, answered.values())) == n_matches, "n_matches")
    return None


IDENTITY = {"unit": str, "n_ids": int, "n_events": int, "table_digest": str, "events_digest": str, "changes_digest": str}


class JournalContent(NamedTuple):
    """The identity, the number of valid bytes, and the ids of the events."""

    identity: dict[str, Any]
    end: int
    answers: dict[int, list[int]]


def journal(path: Path, most_bytes: int | None = None) -> JournalContent:
    """The valid part of a journal."""

    data = path.read_bytes()[:most_bytes]
    magic = b"mpi-match journal\n"
    demand(data.startswith(magic) and len(data) >= len(magic) + 12, "no journal")
    version, length, crc = struct.unpack_from("<III", data, len(magic))
    at = len(magic) + 12
    text = data[at : at + length]
    demand(version == 1 and length and len(text) == length and zlib.crc32(text) == crc, "the head of a journal")
    try:
        identity = json.loads(text)
    except (ValueError, RecursionError):
        raise Objection("the identity is no JSON") from None
    demand(isinstance(identity, dict) and identity.keys() == IDENTITY.keys(), "the identity")
    demand(all(type(identity[key]) is kind for key, kind in IDENTITY.items()), "the identity")
    n_ids, n_events = identity["n_ids"], identity["n_events"]
    demand(identity["unit"] in ("interface", "filter"), "unit")
    demand(0 <= n_ids < 2**32 and 0 <= n_events <= 2**62, "the identity")
    demand(is_digest(identity["table_digest"]) and is_digest(identity["events_digest"]), "the identity")
    demand(not identity["changes_digest"] or is_digest(identity["changes_digest"]), "the identity")
    at += length
    answers: dict[int, list[int]] = {}
    while (record := _record(path, data, at, identity, answers)) is not None:
        at, found = record
        answers |= found
    return JournalContent(identity, at, answers)


def _record(
    path: Path, data: bytes, at: int, identity: Mapping[str, Any], answered: Mapping[int, Any]
) -> tuple[int, dict[int, list[int]]] | None:
    """The end of a record and its answers; None for an invalid one."""
    if at + 32 > len(data):
        return None
    crc, kind, start, n_events, n_ids = struct.unpack_from("<Iiqqq", data, at)
    if kind not in (1, 2, 3) or min(start, n_events, n_ids) < 0 or start + n_events > identity["n_events"]:
        return None
    count_type, id_type = np.dtype(narrowest(identity["n_ids"])), np.dtype(narrowest(max(identity["n_ids"] - 1, 0)))
    sizes = n_events * count_type.itemsize, n_ids * id_type.itemsize
    body = at + 32
    if kind == 2:
        end = body
    elif kind == 1:
        end = body + sum(sizes)
    else:
        if body + 44 > len(data):
            return None
        number, *crcs, a, b, rest_counts, rest_ids = struct.unpack_from("<I4I2I2q", data, body)
        end = body + 44 + 16 * (a + b) + max(rest_counts, 0) + max(rest_ids, 0)
    if end > len(data) or zlib.crc32(data[at + 4 : end]) != crc:
        return None
    if kind == 2:
        return end, {}
    if kind == 1:
        counts, ids = data[body : body + sizes[0]], data[body + sizes[0] : end]
    else:
        if min(rest_counts, rest_ids) < 0:
            return None
        other = path.with_name(f"{path.name}.{number}")
        demand(other.is_file() or not other.exists(), "what has the name of a file of answers is none")
        there = other.read_bytes() if other.is_file() else b""
        extents = list(struct.iter_unpack("<qq", data[body + 44 : body + 44 + 16 * (a + b)]))
        if any(first < 0 or n < 0 or first + n > len(there) for first, n in extents):
            return None
        rest = data[body + 44 + 16 * (a + b) : end]
        counts = b"".join(there[first : first + n] for first, n in extents[:a]) + rest[:rest_counts]
        ids = b"".join(there[first : first + n] for first, n in extents[a:]) + rest[rest_counts:]
        if (len(counts), len(ids)) != sizes or zlib.crc32(counts, crcs[0]) != crcs[1] or zlib.crc32(ids, crcs[2]) != crcs[3]:
            return None
    n, flat = np.frombuffer(counts, count_type).tolist(), np.frombuffer(ids, id_type).tolist()
    try:
        _answers(identity["n_ids"], n, flat)
    except Objection:
        return None
    if any(event in answered for event in range(start, start + n_events)):
        return None
    found, i = {}, 0
    for event, count in enumerate(n, start):
        found[event] = flat[i : i + count]
        i += count
    return end, found


def changes(path: Path, of: TableContent | None) -> None:
    """A file of changes, for this table if it is of one."""
    whole = content(path, "changes")
    n, n_moves, n_added = (whole.count(name) for name in ("n_changes", "n_moves", "n_added"))
    demand(is_digest(whole.attributes.get("table")), "table")
    before = whole.column("changes/before_event", "<i8", n)
    ascends([0, *before], "changes/before_event", strictly=False)
    kind, target = whole.column("changes/kind", "|u1", n), whole.column("changes/target", "<u4", n)
    demand(all(k <= 4 for k in kind) and kind.count(0) == n_moves and kind.count(1) == n_added, "changes/kind")
    areas = whole.column("changes/area", "<f8", n_moves, 3)
    demand(all(all(map(math.isfinite, area)) and area[2] >= 0 for area in areas), "changes/area")
    interface = whole.column("changes/interface", "<u4", n_added)
    labels = whole.pool("interfaces")
    own = {name.removeprefix("added/"): array for name, array in whole.arrays.items() if name.startswith("added/")}
    added = _table(Content(path, whole.attributes, own), None)
    demand(added.n_filters == n_added and added.n_interfaces == (n_added > 0), "the added filters")
    if n_added:
        demand(len(own["interfaces/data"]) == 0, "the label of added filters")
    demand(len(set(labels)) == len(labels), "the labels of interfaces are not distinct")
    if of is None or whole.attributes["table"] != of.digest:
        return
    demand(not set(labels) & set(of.labels), "an interface that comes is there")
    n_interfaces = of.n_interfaces + len(labels)
    there = dict(enumerate(of.interface))
    circles = of.areas | {of.n_filters + i for i in added.areas}
    came = 0
    demand(all(i < n_interfaces for i in interface), "changes/interface")
    for k, to in zip(kind, target, strict=True):
        if k == 1:
            demand(to == of.n_filters + came, "the id of an added filter")
            there[to] = interface[came]
            came += 1
        elif k == 4:
            demand(to == 0, "a consolidation with a target")
        elif k == 3:
            demand(to < n_interfaces, "an unknown interface")
            there = {f: i for f, i in there.items() if i != to}
        else:
            demand(to in there, "a filter that is not there")
            demand(k != 0 or to in circles, "a filter without an area moves")
            if k == 2:
                del there[to]
