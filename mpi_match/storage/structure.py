"""The structure of an HDF5 file, checked before any data is read.

HDF5 lets a file say that its data is elsewhere (soft and external links, raw external storage, virtual datasets), that there
is more of it than the file has (chunks that were never written read as fill values), and that reading it takes a library
that the file names (filters).  A digest covers none of that, a link may lead to a pipe that never answers, and the memory
for a billion declared rows is allocated before the first is found missing.  Our files have none of it (docs/format.md,
section 1), and files that do are refused here, by their declarations alone:

    objects      groups and datasets, each by one hard link
    datasets     of a plain type, every byte of them in this file, without filters but fletcher32, with `crc32` alone
    attributes   of the root: scalars, integers, floats and strings of fixed length

Sizes are then bounded by the file: reading it takes no more memory than the file has bytes.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from mpi_match.arrays.csr import DType
from mpi_match.storage.integrity import DAMAGE, StorageError, reason_of

MOST_OBJECTS, MOST_LEVELS, MOST_ATTRIBUTES, MOST_TEXT = 4096, 8, 256, 2**16
"""Largest numbers of groups and datasets of a file, levels of groups, root attributes, and bytes of one attribute."""

_PLAIN: dict[int, list[tuple[Any, DType]]] = {
    1: [(h5py.h5t.STD_U8LE, np.dtype(np.uint8))],
    2: [(h5py.h5t.STD_U16LE, np.dtype(np.uint16)), (h5py.h5t.STD_I16LE, np.dtype(np.int16))],
    4: [(h5py.h5t.STD_U32LE, np.dtype(np.uint32))],
    8: [
        (h5py.h5t.STD_I64LE, np.dtype(np.int64)),
        (h5py.h5t.IEEE_F64LE, np.dtype(np.float64)),
        (h5py.h5t.STD_U64LE, np.dtype(np.uint64)),
    ],
}
"""Types of datasets by their size."""
_HARD = h5py.h5l.TYPE_HARD
_LINKS = {h5py.h5l.TYPE_SOFT: "a soft link", h5py.h5l.TYPE_EXTERNAL: "a link to another file"}
_OF_ATTRIBUTES = (h5py.h5t.STD_I64LE, h5py.h5t.IEEE_F64LE)
_LAYOUTS = (h5py.h5d.CHUNKED, h5py.h5d.CONTIGUOUS)


class Stored(NamedTuple):
    """A dataset as its file declares it.

    crc          value of its attribute `crc32`
    contiguous   it is contiguous, without a filter, so that any range of it can be read
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    crc: int
    contiguous: bool
    n_bytes: int
    id: Any


def refuse_special(path: Path) -> None:
    """Raise StorageError for a path other than a regular file: opening a pipe may block for ever."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if isinstance(error, FileNotFoundError):
            raise StorageError(f"{path}: no such file") from None
        raise StorageError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from error
    if not stat.S_ISREG(mode):
        what = "Is a directory" if stat.S_ISDIR(mode) else "it is a device or a pipe"
        raise StorageError(f"{path}: is not a readable HDF5 file: {what}")


def attributes_of(path: Path, file: h5py.File) -> dict[str, Any]:
    """The root's attributes.  Raises StorageError."""
    found = {}
    try:
        n = h5py.h5a.get_num_attrs(file.id)
        if n > MOST_ATTRIBUTES:
            raise StorageError(f"{path}: has {n:,} root attributes, at most {MOST_ATTRIBUTES} are allowed")
        for i in range(n):
            name = h5py.h5a.open(file.id, index=i).name.decode()
            value = value_of(file, name)
            if value is None:
                raise StorageError(
                    f"{path}: the attribute {name!r} is not a scalar i8, f8 or text of fixed length; make it again"
                )
            found[name] = value
    except DAMAGE as error:
        raise StorageError(f"{path}: its attributes cannot be read: {reason_of(error)}") from error
    return found


def value_of(file: h5py.File, name: str) -> int | float | str | None:
    """A root attribute; None if it is missing or of another type.  Reading one of variable length may never end."""
    if not h5py.h5a.exists(file.id, name.encode()):
        return None
    attribute = h5py.h5a.open(file.id, name.encode())
    type_ = attribute.get_type()
    is_text = isinstance(type_, h5py.h5t.TypeStringID) and not type_.is_variable_str()
    is_plain = type_ == h5py.h5t.STD_U8LE if name == "complete" else is_text or type_ in _OF_ATTRIBUTES
    if type_.get_size() > MOST_TEXT or not is_plain or attribute.get_space().get_simple_extent_type() != h5py.h5s.SCALAR:
        return None
    value = np.empty((), attribute.dtype)
    attribute.read(value)
    return (value.item().decode() or None) if is_text else value.item()


def datasets_of(path: Path, file: h5py.File) -> dict[str, Stored]:
    """All datasets of a file, by their names.  Raises StorageError for one with a structure that our files do not have."""
    n_bytes, found, total = path.stat().st_size, {}, 0
    try:
        for name, dataset in _datasets(path, file):
            stored = _stored(path, name, dataset, n_bytes)
            found[name] = stored
            total += stored.n_bytes
    except DAMAGE as error:
        raise StorageError(f"{path}: is damaged: {reason_of(error)}; make it again") from error
    if total > n_bytes:
        raise StorageError(f"{path}: its datasets say that they take {total:,} bytes, the file has {n_bytes:,}")
    return found


def _datasets(path: Path, file: h5py.File) -> Iterator[tuple[str, h5py.h5d.DatasetID]]:
    """Names and ids of all datasets, group by group; the walk ends because each object has one name."""
    seen = {h5py.h5o.get_info(file.id).addr}
    groups = [("", file.id)]
    while groups:
        prefix, group = groups.pop()
        links: list[tuple[bytes, int, int]] = []
        group.links.iterate(lambda name, info: links.append((name, info.type, info.u)), info=True)  # noqa: B023
        for link, type_, address in links:
            name = prefix + link.decode()
            if type_ != _HARD:
                raise StorageError(
                    f"{path}: {name!r} is {_LINKS.get(type_, 'a link of another kind')}; copy what it leads to"
                )
            if address in seen:
                raise StorageError(f"{path}: {name!r} is another name of an object that has one; copy it")
            seen.add(address)
            if len(seen) > MOST_OBJECTS or name.count("/") >= MOST_LEVELS:
                raise StorageError(f"{path}: has more than {MOST_OBJECTS:,} objects, or groups deeper than {MOST_LEVELS}")
            item = h5py.h5o.open(group, link)
            if isinstance(item, h5py.h5g.GroupID):
                groups.append((name + "/", item))
            elif isinstance(item, h5py.h5d.DatasetID):
                yield name, item
            else:
                raise StorageError(f"{path}: {name!r} is neither a group nor a dataset")


def _stored(path: Path, name: str, dataset: h5py.h5d.DatasetID, n_bytes: int) -> Stored:
    def refuse(fault: str) -> StorageError:
        return StorageError(f"{path}: {name!r} {fault}; make the file again")

    dtype, space = _dtype_of(dataset.get_type()), dataset.get_space()
    if dtype is None or space.get_simple_extent_type() == h5py.h5s.NULL:
        raise refuse(f"is {dataset.dtype if dtype is None else 'without a shape'}, which datasets never are")
    creation = dataset.get_create_plist()
    layout = creation.get_layout()
    if creation.get_external_count():
        raise refuse("lies in other files")
    if layout not in _LAYOUTS:
        raise refuse("is neither chunked nor contiguous")
    filters = [creation.get_filter(i)[0] for i in range(creation.get_nfilters())]
    if any(each != h5py.h5z.FILTER_FLETCHER32 for each in filters):
        raise refuse("has a filter that is not fletcher32")
    shape, contiguous = space.get_simple_extent_dims(), layout == h5py.h5d.CONTIGUOUS
    declared, stored = math.prod(shape) * dtype.itemsize, dataset.get_storage_size()
    if contiguous:
        if stored != declared or (declared and not 0 < (dataset.get_offset() or 0) <= n_bytes - declared):
            raise refuse(f"is incomplete: {declared:,} bytes are declared, {stored:,} stored")
    else:
        chunk = creation.get_chunk()
        n_chunks = math.prod(-(-rows // step) for rows, step in zip(shape, chunk, strict=True))
        if math.prod(chunk) * dtype.itemsize > n_bytes and n_chunks:
            raise refuse(f"has chunks of {math.prod(chunk) * dtype.itemsize:,} bytes, the file has {n_bytes:,}")
        if dataset.get_num_chunks() != n_chunks or stored < declared:
            raise refuse(f"has chunks that were never written: {declared:,} bytes are declared, {stored:,} stored")
    return Stored(name, dtype, shape, _crc(refuse, dataset), contiguous and not filters, stored, dataset)


def _dtype_of(type_: h5py.h5t.TypeID) -> DType | None:
    """The type of a dataset; None for a type that our files do not use."""
    if isinstance(type_, h5py.h5t.TypeStringID):
        return None if type_.is_variable_str() else np.dtype(f"S{type_.get_size()}")
    return next((dtype for each, dtype in _PLAIN.get(type_.get_size(), ()) if type_ == each), None)


def _crc(refuse: Callable[[str], StorageError], dataset: h5py.h5d.DatasetID) -> int:
    """The value of the attribute `crc32`, which must be the only one."""
    if h5py.h5a.get_num_attrs(dataset) == 1:
        attribute = h5py.h5a.open(dataset, index=0)
        if attribute.name == b"crc32" and attribute.shape == () and attribute.get_type() == h5py.h5t.STD_U32LE:
            value = np.empty((), np.uint32)
            attribute.read(value)
            return int(value)
    raise refuse("has not the attribute crc32, a scalar of u4, alone")
