"""Reading what `writer` wrote, checked before it is used: datasets as a whole, in blocks, or in ranges; parts joined."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import h5py
import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array
from mpi_match.storage.integrity import (
    DAMAGE,
    MAGIC,
    READ_VERSIONS,
    FileChanged,
    StorageError,
    bytes_of,
    digest_of,
    line_of,
    parts_directory,
    reason_of,
)
from mpi_match.storage.large_dataset import LARGE_BYTES, read_large
from mpi_match.storage.range_read import StoredRows
from mpi_match.storage.schema import I8, TEXT, Dataset, Declared, Schema, are_file_names, attribute_faults, is_at_least
from mpi_match.storage.structure import Stored, attributes_of, datasets_of, refuse_special, value_of

MOST_ITEMS = 2**48
"""More items than a part can have, such that the sums over all parts fit in 64 bits."""

INDEX = Schema(
    "index",
    columns=(
        Dataset("parts/name", TEXT, ("p",), (are_file_names,)),
        Dataset("parts/rows", I8, ("p",), (is_at_least(0),)),
        Dataset("parts/digest", "|S64", ("p",)),
    ),
    rules=(lambda content: None if content.sizes["p"] else "it is an index without parts",),
)
"""The datasets of an index of any kind."""


class Reader:
    """Reads what `Writer` or `write_index` wrote, and refuses everything else with a StorageError.

    `with Reader(path, TABLE) as r: size = r.array("filters/size")`.  `schema` declares the content of the file; its types
    and shapes are compared when the file is opened.  Given only the name of a kind, the datasets are not checked.  Checking
    the values is up to the caller (`Schema.faults`, `refuse`).  `attributes` holds the root's attributes; `rows` the number
    of rows of each part when the file is an index, else None.
    """

    def __init__(self, path: str | os.PathLike[str], schema: Schema | str) -> None:
        self.path = Path(path)
        self.schema = Schema(schema, parts="pieces") if isinstance(schema, str) else schema
        self._name = os.fspath(path)  # a string: the system resolves it faster than a Path
        self._stamp = _stamp_of(self._name)
        self._file, self.attributes = _open(self.path, self.schema.kind)
        self.rows: list[int] | None = None
        self._parts: list[Reader] = []
        try:
            self._datasets = datasets_of(self.path, self._file)
            self._check_digest()
            self.schema = self.schema.of(self._datasets)
            if "parts/name" in self._datasets and self.schema.parts:
                self._open_parts()
            self._check_shapes()
        except BaseException:
            self.close()
            raise

    def _check_digest(self) -> None:
        named = {key: value for key, value in self.attributes.items() if key not in ("digest", "complete")}
        lines = (line_of(each.name, each.dtype, each.shape, each.crc) for each in self._datasets.values())
        found, expected = digest_of(lines, named), self.attributes.get("digest")
        if found != expected:
            raise StorageError(f"{self.path}: is damaged: digest found {found}, expected {expected}; make it again")

    def _open_parts(self) -> None:
        names = ("parts/name", "parts/rows", "parts/digest")
        for fault in INDEX.misfits(self._datasets):
            self.refuse(fault)
        columns = {name: self._read(name) for name in names}
        for fault in INDEX.faults(columns):
            self.refuse(fault)
        self.rows = columns["parts/rows"].tolist()
        directory = parts_directory(self.path)
        for name, rows, digest in zip(*(columns[name].tolist() for name in names), strict=True):
            file = directory / name.decode()
            if not file.is_file():
                raise StorageError(
                    f"{self.path}: its part {file} is missing; an index must travel with its directory {directory.name}"
                )
            part = Reader(file, self.schema.of_part)
            self._parts.append(part)
            found, expected = part.attributes["digest"], digest.decode("latin1")
            if found != expected or part.attributes["rows"] != rows:
                raise StorageError(
                    f"{file}: is not the part that {self.path} names: found digest {found}, expected {expected}"
                )

    def _check_shapes(self) -> None:
        """Compare the declared types and shapes with the schema, before any data is read."""
        if self.rows is None or self.schema.parts == "pieces":
            faults = self.schema.misfits(self.declared, self.attributes)
        else:
            faults = attribute_faults(self.schema.attributes, self.attributes)
        for fault in faults:
            self.refuse(fault)
        for column in self.schema.columns:
            if column.ranged and column.name in self._datasets and not self._datasets[column.name].contiguous:
                self.refuse(f"{column.name} is not contiguous")

    @property
    def declared(self) -> Mapping[str, Declared]:
        """Types and shapes of datasets; for an index, those that the schema names, joined over the parts."""
        if self.rows is None:
            return self._datasets
        found = {}
        for name in (column.name for column in self.schema.columns):
            pieces = [part._datasets[name] for part in self._parts if name in part._datasets]
            if len({(piece.dtype.str, piece.shape[1:]) for piece in pieces}) > 1:
                self.refuse(f"the parts differ in type or shape of {name}")
            if pieces:
                found[name] = pieces[0]._replace(shape=(self.length(name), *pieces[0].shape[1:]))
        return found

    def refuse(self, fault: str) -> NoReturn:
        """Raise StorageError for an invalid file, with what to do about it."""
        raise StorageError(f"{self.path}: is not a valid {self.schema.noun}: {fault}; {self.schema.remedy}")

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and its parts."""
        for part in self._parts:
            part.close()
        self._file.close()

    def check_unchanged(self) -> None:
        """Raise FileChanged when the path no longer leads to the file as it was when it was opened.

        Device, inode, size, and the times of the last changes of content and inode are compared.  Parts are not.
        """
        if _stamp_of(self._name) != self._stamp:
            raise FileChanged(
                f"{self.path}: changed while it was read; put the old file back and go on, or start anew with the new one"
            )

    def attribute(self, name: str) -> Any:
        """A root attribute that a file of this kind must have.  Raises StorageError."""
        if name not in self.attributes:
            raise StorageError(
                f"{self.path}: has no attribute {name!r}, which a file of {self.attributes['kind']} must have"
            )
        return self.attributes[name]

    @property
    def sources(self) -> list[Reader]:
        """The files that hold the arrays: the parts of an index, or this file."""
        return self._parts or [self]

    def __contains__(self, name: str) -> bool:
        return any(name in source._datasets for source in self.sources)

    def array(self, name: str) -> Array:
        """A whole dataset, checked; the parts of an index joined."""
        pieces = [source._read(name) for source in self._sources_of(name)]
        if len(pieces) == 1:
            return pieces[0]
        if name.endswith("offsets"):
            for source, piece in zip(self._sources_of(name), pieces, strict=True):
                source._check_ends(name, *((int(piece[0]), int(piece[-1])) if len(piece) else (-1, -1)))
            totals = np.cumsum([0] + [int(piece[-1]) for piece in pieces])
            return np.concatenate([[0], *(piece[1:] + total for piece, total in zip(pieces, totals[:-1], strict=True))])
        return np.concatenate(pieces)

    def _check_ends(self, name: str, first: int, last: int) -> None:
        """Refuse a part if the offsets of the next one cannot continue its own."""
        if first != 0 or not 0 <= last <= MOST_ITEMS:
            self.refuse(f"{name} does not begin with 0, or does not end with a number of items")

    def _sources_of(self, name: str) -> list[Reader]:
        found = [source for source in self.sources if name in source._datasets]
        if not found:
            raise StorageError(f"{self.path}: has no dataset {name!r}, which a file of {self.attributes['kind']} must have")
        return found

    def blocks(self, name: str, rows: int) -> Iterator[Array]:
        """The same dataset in blocks of `rows` rows (the last may be shorter), for data that does not fit in memory.

        Each block is the caller's own.  The CRC is that of the whole dataset, so blocks are verified only when the last has
        been read: damage raises StorageError there at the latest.
        """
        block, n, total = np.empty(0), 0, 0
        for k, source in enumerate(self._sources_of(name)):
            stored = source._datasets[name]
            at = crc = begin = last = 0
            while at < stored.shape[0]:
                if not n:
                    block = np.empty((rows, *stored.shape[1:]), stored.dtype)
                piece = block[n : n + min(rows - n, stored.shape[0] - at)]
                crc = source._read_piece(stored, at, piece, crc)
                first, at, n = at == 0, at + len(piece), n + len(piece)
                if name.endswith("offsets"):
                    begin, last = int(piece[0]) if first else begin, int(piece[-1])
                    piece += total
                    if k and first:  # the 0 that begins every part
                        piece[:-1] = piece[1:].copy()
                        n -= 1
                if n == rows:
                    yield block
                    n = 0
            source._compare_crc(stored, crc)
            source._check_ends(name, begin, last)
            total += last
        if n:
            yield block[:n]

    def rows_of(self, name: str, start: int, stop: int) -> Array:
        """Some rows of a dataset of this one file; the CRC, which covers the whole dataset, is *not* checked here."""
        stored = self._datasets[name]
        values = np.empty((stop - start, *stored.shape[1:]), stored.dtype)
        self._read_piece(stored, start, values, 0)
        return values

    def length(self, name: str) -> int:
        """Rows of a dataset, those of all parts together."""
        lengths = [source._datasets[name].shape[0] for source in self._sources_of(name)]
        return sum(lengths) - (len(lengths) - 1 if name.endswith("offsets") else 0)

    def n_bytes(self, name: str) -> int:
        """Size of a dataset in memory, bytes."""
        found = [source._datasets[name] for source in self._sources_of(name)]
        return sum(math.prod(stored.shape) * stored.dtype.itemsize for stored in found)

    def stored_rows(self, name: str) -> StoredRows:
        """A contiguous dataset of this one file, whose ranges can be read past HDF5; its CRC is *not* checked here.

        It can be read as long as this file is open, by any thread.
        """
        stored = self._only(name)
        if not stored.contiguous:
            raise StorageError(f"{self.path}: {name!r} is not contiguous")
        at = stored.id.get_offset() if stored.n_bytes else 0
        return StoredRows(str(self.path), self._file.id.get_vfd_handle(), at, stored.dtype, stored.shape)

    def _only(self, name: str) -> Stored:
        """The dataset, which must be in this one file."""
        if name not in self._datasets:
            raise StorageError(f"{self.path}: has no dataset {name!r}, which a file of {self.attributes['kind']} must have")
        return self._datasets[name]

    def _read(self, name: str) -> Array:
        stored = self._only(name)
        values = np.empty(stored.shape, stored.dtype)
        self._compare_crc(stored, self._read_piece(stored, 0, values, 0))
        return values

    def _read_piece(self, stored: Stored, at: int, piece: Array, crc: int) -> int:
        """Fill a contiguous array with the rows from `at`; returns the CRC of everything up to there."""
        try:
            if piece.nbytes >= LARGE_BYTES and piece.shape == stored.shape:
                found = read_large(stored, self._file.id.get_vfd_handle(), piece)
                if found is not None:
                    return found
            if piece.size and piece.shape == stored.shape:
                stored.id.read(h5py.h5s.ALL, h5py.h5s.ALL, piece)
            elif piece.size:
                h5py.Dataset(stored.id).read_direct(piece, np.s_[at : at + len(piece)])
        except DAMAGE as error:
            raise StorageError(
                f"{self.path}: {stored.name!r} is damaged: {reason_of(error)}; make the file again"
            ) from error
        return crc32(bytes_of(piece), crc)

    def _compare_crc(self, stored: Stored, found: int) -> None:
        if found != stored.crc:
            raise StorageError(
                f"{self.path}: {stored.name!r} is damaged: CRC-32 found {found:08x}, expected {stored.crc:08x}; "
                "make the file again"
            )


def _stamp_of(path: str) -> tuple[int, ...] | None:
    """Identity and times of a file, which differ after a change; None when the file does not exist."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def kind_of_file(path: str | os.PathLike[str]) -> str | None:
    """The kind of a file (`table`, `events`, `matches`, ...), or None for a file of another program."""
    try:
        refuse_special(Path(path))
        with h5py.File(path, "r", locking=False) as file:
            kind = value_of(file, "kind")
            return kind if value_of(file, "magic") == MAGIC.decode() and isinstance(kind, str) else None
    except (StorageError, *DAMAGE):
        return None


def _begins_as_rows(path: Path) -> bool:
    """Tells whether a file begins like JSON lines, gzip or Parquet."""
    with path.open("rb") as handle:
        return handle.read(4).startswith((b"{", b"\x1f\x8b", b"PAR1"))


def _open(path: Path, kind: str) -> tuple[h5py.File, dict[str, Any]]:
    """Open a file of this kind, check the attributes common to all files, and return all of them."""
    refuse_special(path)
    try:
        file = h5py.File(path, "r", locking=False)  # a file has its name when it is complete, and some have no locks
    except OSError as error:
        reason = reason_of(error)
        if reason == "file signature not found":
            rows = "; rows are for `mpi-match match`, or for `mpi-match compile` first" if _begins_as_rows(path) else ""
            reason = f"it does not begin as one{rows}"
        raise StorageError(f"{path}: is not a readable HDF5 file: {reason}") from error
    try:
        return file, _checked_attributes(path, file, kind)
    except BaseException:
        file.close()
        raise


def _checked_attributes(path: Path, file: h5py.File, kind: str) -> dict[str, Any]:
    try:
        found = value_of(file, "magic")
    except DAMAGE as error:
        raise StorageError(f"{path}: its attributes cannot be read: {reason_of(error)}") from error
    if found != MAGIC.decode():
        raise StorageError(
            f"{path}: is HDF5 but not a file of mpi-match: magic found {found!r}, expected {MAGIC.decode()!r}"
        )
    attributes = attributes_of(path, file)
    version = attributes.get("format_version")
    if version not in READ_VERSIONS:
        expected = " or ".join(map(str, READ_VERSIONS))
        raise StorageError(
            f"{path}: format_version found {version}, expected {expected}; compile it again with this version"
        )
    if attributes.get("kind") != kind:
        raise StorageError(f"{path}: holds {attributes.get('kind')!r}, expected {kind!r}; were two files exchanged?")
    if attributes.get("complete") != 1:
        raise StorageError(f"{path}: was not written to its end ('complete' is missing); make it again")
    return attributes


def hdf5_versions() -> str:
    """Versions of h5py and of the HDF5 library it carries."""
    return f"h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}"
