"""Flat arrays in HDF5 files that can be trusted: the only door to h5py.

HDF5 by itself will hand back wrong numbers without a word: a flipped bit loads silently, a chunk never written reads as
zeros, a join over a missing source reads as fill values.  Four habits close that:

* Every dataset carries the CRC-32 of its bytes, and the root a SHA-256 over all of them, their types and shapes and every
  root attribute.  A reader checks both before anything is used.
* Files are written under a temporary name; `complete` is set last; then flush, fsync, rename.  A half-written file is never
  found under its final name, and would be refused if it were.
* `magic`, `kind` and `format_version` are checked first, so that the message names what was found and what was expected.
* Attributes are fixed-length and the library version is bounded to HDF5 1.10, so that any cluster's h5dump and h5ls read
  them.

A file may be an **index**: a list of part files (name, rows, digest), written by many processes, that reads as one file.
Part k's arrays follow part k-1's; arrays whose name ends in `offsets` are CSR bounds that start at 0 in every part and
are shifted by the running total when joined.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import h5py
import numpy as np

from mpi_match.arrays import Array

MAGIC = b"mpi-match"
FORMAT_VERSION = 1
CHUNK_BYTES = 2**20
SYNC_BYTES = 2**25
_RESERVED = {"magic", "kind", "format_version", "digest", "complete"}
_DAMAGE = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError)
"""What h5py raises, depending on the byte, when a file is damaged or is not what its names promise."""


class StorageError(Exception):
    """A file cannot be used or written; the text names the file, what was found and what to do."""


class Part(NamedTuple):
    """One part of an index: file name (beside the index, in its `.parts` directory), number of rows, digest."""

    name: str
    rows: int
    digest: str


def parts_directory(path: Path) -> Path:
    """Where the parts of an index live: `table.h5` has `table.h5.parts/`."""
    return path.with_name(path.name + ".parts")


def remove_half_written(path: Path) -> None:
    """Remove what writers of `path` have left that were killed; nobody else may be writing it."""
    mine = _temporary_of(path)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.writing"):
        if left != mine:
            left.unlink(missing_ok=True)


def _temporary_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.writing")


class Writer:
    """Writes one file, all or nothing: `with Writer(path, "table") as w: w.array("filters/size", size)`.

    `kind` says what the file holds.  On leaving without an exception the file appears under `path`; otherwise nothing does.
    `digest` is set after that.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str) -> None:
        self.path = Path(path)
        self.digest = ""
        self._temporary = _temporary_of(self.path)
        self._kind = kind
        self._attributes: dict[str, int | str | float] = {}
        self._crcs: dict[str, str] = {}
        self._open_columns: list[Column] = []
        self._unsynced = 0

    def __enter__(self) -> Writer:
        if not self.path.parent.is_dir():
            raise StorageError(f"{self.path}: the directory {self.path.parent} does not exist; create it first")
        if self.path.is_dir():
            raise StorageError(f"{self.path}: cannot be written: it is a directory; give the name of a file in it")
        try:
            with self._reported():
                self._file = _create(self._temporary)
        except StorageError:
            self._temporary.unlink(missing_ok=True)
            raise
        self._descriptor = self._file.id.get_vfd_handle()
        return self

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Errors of the file system, which HDF5 raises in two shapes, as StorageError."""
        try:
            yield
        except (OSError, RuntimeError) as error:
            raise StorageError(f"{self.path}: cannot be written: {_reason(error)}") from error

    def attribute(self, name: str, value: int | str | float) -> None:
        """A root attribute: an integer, a float or a short ASCII string."""
        if name in _RESERVED:
            raise ValueError(f"{name!r} is written by the storage layer")
        self._attributes[name] = value

    def array(self, name: str, values: Array, *, contiguous: bool = False) -> None:
        """A whole dataset.

        `contiguous` leaves out HDF5's own chunk checksums so that the bytes can be mapped from the file.
        """
        values = np.ascontiguousarray(values)
        self._need(values.nbytes)
        layout: dict[str, Any] = {}
        if values.size and not contiguous:
            rows = max(1, min(len(values), CHUNK_BYTES * len(values) // values.nbytes))
            layout = {"chunks": (rows, *values.shape[1:]), "fletcher32": True}
        with self._reported():
            self._file.create_dataset(name, data=values, **layout)
            self._seal(name, zlib.crc32(_bytes(values)))

    def column(self, name: str, dtype: np.dtype[Any]) -> Column:
        """A dataset that grows: `append` arrays to it until the writer closes."""
        with self._reported():
            column = Column(self, name, dtype)
        self._open_columns.append(column)
        return column

    def _need(self, n_bytes: int) -> None:
        with self._reported():
            free = shutil.disk_usage(self.path.parent).free
        if free < n_bytes + 2**16:
            raise StorageError(
                f"{self.path}: disk full: {n_bytes:,} bytes to write, {free:,} free; make room or write elsewhere"
            )

    def _written(self, n_bytes: int) -> None:
        """A column has written so much.  Now and then the disk gets it, so that the end does not have to wait for all."""
        self._unsynced += n_bytes
        if self._unsynced >= SYNC_BYTES:
            os.fdatasync(self._descriptor)
            self._unsynced = 0

    def _seal(self, name: str, crc: int) -> None:
        dataset = self._file[name]
        dataset.attrs.create("crc32", np.uint32(crc))
        self._crcs[name] = _line(name, dataset, crc)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                with self._reported():
                    self._finish()
        finally:
            self._abandon()

    def _finish(self) -> None:
        for column in self._open_columns:
            column.close()
        attributes = {"magic": MAGIC.decode(), "kind": self._kind, "format_version": FORMAT_VERSION, **self._attributes}
        self.digest = _digest(self._crcs.values(), attributes)
        for name, value in {**attributes, "digest": self.digest}.items():
            self._file.attrs.create(name, np.bytes_(value.encode()) if isinstance(value, str) else value)
        self._file.flush()
        self._file.attrs.create("complete", np.uint8(1))
        self._file.close()
        with self._temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        self._temporary.replace(self.path)

    def _abandon(self) -> None:
        """Close and remove the temporary file, unless it has become the final one.

        HDF5 cannot close a file that it cannot write, and crashes the process at its end if it was not closed.  So what it
        still wants to write to a file that nobody will read goes to the null device.
        """
        if self._file:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, self._descriptor)
            os.close(null)
            with suppress(OSError, RuntimeError):
                self._file.close()
        self._temporary.unlink(missing_ok=True)


class Column:
    """A growing dataset of a `Writer`.

    Full chunks go to the file as they come; the file's bytes depend only on the values, not on how they were split over
    calls of `append`.
    """

    def __init__(self, writer: Writer, name: str, dtype: np.dtype[Any]) -> None:
        self._writer, self._name = writer, name
        self._dtype = np.dtype(dtype)
        self._rows = CHUNK_BYTES // self._dtype.itemsize
        self._pending = np.empty(self._rows, self._dtype)
        self._n_pending = 0
        self._crc = 0
        self._dataset = writer._file.create_dataset(name, (0,), self._dtype, maxshape=(None,), chunks=(self._rows,))
        self.n_rows = 0

    def append(self, values: Array) -> None:
        """Add values at the end."""
        values = np.ascontiguousarray(values, self._dtype)
        self._crc = zlib.crc32(_bytes(values), self._crc)
        at = 0
        while at < len(values):
            take = min(len(values) - at, self._rows - self._n_pending)
            self._pending[self._n_pending : self._n_pending + take] = values[at : at + take]
            self._n_pending += take
            at += take
            if self._n_pending == self._rows:
                self._flush()

    def _flush(self) -> None:
        self._writer._need(self._n_pending * self._dtype.itemsize)
        self._pending[self._n_pending :] = 0
        with self._writer._reported():
            self._dataset.resize((self.n_rows + self._n_pending,))
            self._dataset.id.write_direct_chunk((self.n_rows,), _bytes(self._pending))
            self._writer._written(self._pending.nbytes)
        self.n_rows += self._n_pending
        self._n_pending = 0

    def close(self) -> None:
        """Write what is left; called by the writer."""
        if self._n_pending:
            self._flush()
        self._writer._seal(self._name, self._crc)


def write_index(path: Path, kind: str, parts: Iterable[Part], attributes: Mapping[str, int | str]) -> None:
    """Write the index that makes one file of `parts`, in this order; they must already lie in `parts_directory(path)`."""
    parts = list(parts)
    with Writer(path, kind) as writer:
        for name, value in attributes.items():
            writer.attribute(name, value)
        writer.array("parts/name", np.array([p.name.encode() for p in parts], "S"))
        writer.array("parts/rows", np.array([p.rows for p in parts], np.int64))
        writer.array("parts/digest", np.array([p.digest.encode() for p in parts], "S64"))


class Reader:
    """Reads what `Writer` or `write_index` wrote, and refuses everything else with a StorageError.

    `with Reader(path, "table") as r: size = r.array("filters/size")`.  `attributes` holds the root's attributes; `rows`
    the number of rows of each part when the file is an index, else None.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str) -> None:
        self.path = Path(path)
        self._file = _open(self.path, kind)
        self.attributes = _attributes(self._file)
        self.rows: list[int] | None = None
        self._parts: list[Reader] = []
        try:
            if "parts/name" in self._file:
                self._open_parts(kind)
        except BaseException:
            self.close()
            raise

    def _open_parts(self, kind: str) -> None:
        directory = parts_directory(self.path)
        columns = [self._read("parts/name"), self._read("parts/rows"), self._read("parts/digest")]
        self.rows = [int(rows) for rows in columns[1]]
        for name, rows, digest in zip(*columns, strict=True):
            file = directory / name.decode()
            if not file.is_file():
                raise StorageError(
                    f"{self.path}: its part {file} is missing; an index must travel with its directory {directory.name}"
                )
            part = Reader(file, f"{kind}-part")
            found = part.attributes["digest"]
            if found != digest.decode() or part.attributes.get("rows") != rows:
                raise StorageError(
                    f"{file}: is not the part that {self.path} names: found digest {found}, expected {digest.decode()}"
                )
            self._parts.append(part)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and its parts."""
        for part in self._parts:
            part.close()
        self._file.close()

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
        return any(name in source._file for source in self.sources)

    def array(self, name: str) -> Array:
        """A whole dataset, checked; the parts of an index joined."""
        pieces = [source._read(name) for source in self._sources_of(name)]
        if len(pieces) == 1:
            return pieces[0]
        if name.endswith("offsets"):
            totals = np.cumsum([0] + [int(piece[-1]) for piece in pieces])
            return np.concatenate([[0], *(piece[1:] + total for piece, total in zip(pieces, totals[:-1], strict=True))])
        return np.concatenate(pieces)

    def _sources_of(self, name: str) -> list[Reader]:
        found = [source for source in self.sources if name in source._file]
        if not found:
            raise StorageError(f"{self.path}: has no dataset {name!r}, which a file of {self.attributes['kind']} must have")
        return found

    def blocks(self, name: str, rows: int) -> Iterator[Array]:
        """The same dataset, `rows` rows at a time and fewer only in the last block, for what is too large to be held.

        Each block is the caller's own.  A CRC is that of a whole dataset, so what blocks say may only be relied on when the
        last has come: damage raises StorageError there at the latest.
        """
        block, n, total = np.empty(0), 0, 0
        for k, source in enumerate(self._sources_of(name)):
            dataset = source._dataset(name)
            at = crc = last = 0
            while at < len(dataset):
                if not n:
                    block = np.empty((rows, *dataset.shape[1:]), dataset.dtype)
                piece = block[n : n + min(rows - n, len(dataset) - at)]
                crc = source._read_piece(name, dataset, at, piece, crc)
                first, at, n = at == 0, at + len(piece), n + len(piece)
                if name.endswith("offsets"):
                    last = int(piece[-1])
                    piece += total
                    if k and first:  # the 0 that every part begins with
                        piece[:-1] = piece[1:].copy()
                        n -= 1
                if n == rows:
                    yield block
                    n = 0
            total += last
            source._compare_crc(name, dataset, crc)
        if n:
            yield block[:n]

    def length(self, name: str) -> int:
        """Rows of a dataset, those of all parts together."""
        lengths = [len(source._dataset(name)) for source in self._sources_of(name)]
        return sum(lengths) - (len(lengths) - 1 if name.endswith("offsets") else 0)

    def mapped(self, name: str) -> Array:
        """A contiguous dataset of this one file, mapped read-only from the file; its CRC is *not* checked here."""
        dataset = self._dataset(name)
        if dataset.size == 0:
            return np.empty(dataset.shape, dataset.dtype)
        offset = dataset.id.get_offset()
        if offset is None:
            raise StorageError(f"{self.path}: {name!r} is not contiguous")
        if offset + dataset.nbytes > self.path.stat().st_size:
            raise StorageError(
                f"{self.path}: truncated: {name!r} ends at byte {offset + dataset.nbytes:,}, the file has fewer"
            )
        return np.memmap(self.path, dataset.dtype, "r", offset, dataset.shape)

    def _dataset(self, name: str) -> Any:
        try:
            dataset = self._file[name]
            _ = dataset.shape, dataset.dtype  # a group has neither
        except _DAMAGE as error:
            raise StorageError(f"{self.path}: dataset {name!r} cannot be read: {_reason(error)}") from error
        return dataset

    def _read(self, name: str) -> Array:
        dataset = self._dataset(name)
        values = np.empty(dataset.shape, dataset.dtype)
        self._compare_crc(name, dataset, self._read_piece(name, dataset, 0, values, 0))
        return values

    def _read_piece(self, name: str, dataset: Any, at: int, piece: Array, crc: int) -> int:
        """Fill a contiguous array with the rows from `at`; the CRC of all up to there."""
        try:
            if piece.size:
                dataset.read_direct(piece, np.s_[at : at + len(piece)] if piece.ndim else None)
        except _DAMAGE as error:
            raise StorageError(f"{self.path}: {name!r} is damaged: {_reason(error)}; make the file again") from error
        return zlib.crc32(_bytes(piece), crc)

    def _compare_crc(self, name: str, dataset: Any, found: int) -> None:
        try:
            expected = int(dataset.attrs["crc32"])
        except _DAMAGE as error:
            raise StorageError(f"{self.path}: {name!r} is damaged: {_reason(error)}; make the file again") from error
        if found != expected:
            raise StorageError(
                f"{self.path}: {name!r} is damaged: CRC-32 found {found:08x}, expected {expected:08x}; make the file again"
            )


def kind_of_file(path: str | os.PathLike[str]) -> str | None:
    """What a file holds (`table`, `events`, `matches`, ...), or None when it is not a file of ours."""
    try:
        with h5py.File(path, "r") as file:
            kind = file.attrs.get("kind")
            return kind.decode() if file.attrs.get("magic") == MAGIC and isinstance(kind, bytes) else None
    except _DAMAGE:
        return None


def hdf5_versions() -> str:
    """Versions of h5py and of the HDF5 library it carries."""
    return f"h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}"


def _create(path: Path) -> h5py.File:
    """An empty file whose data is written when it is given, not when its dataset is closed.

    HDF5 reports a failed write in the first case and crashes in the second: hence neither a chunk cache nor a sieve buffer.
    """
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_V110)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    access.set_cache(0, 0, 0, 0.0)
    access.set_sieve_buf_size(0)
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)  # the same values are the same bytes, whenever they are written
    return h5py.File(h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_TRUNC, fcpl=creation, fapl=access))


def _open(path: Path, kind: str) -> h5py.File:
    if not path.exists():
        raise StorageError(f"{path}: no such file")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise StorageError(f"{path}: is not a readable HDF5 file (truncated?): {_reason(error)}") from error
    try:
        _check(path, file, kind)
    except BaseException:
        file.close()
        raise
    return file


def _check(path: Path, file: h5py.File, kind: str) -> None:
    try:
        attributes = _attributes(file)
    except _DAMAGE as error:
        raise StorageError(f"{path}: its attributes cannot be read: {_reason(error)}") from error
    if attributes.get("magic") != MAGIC.decode():
        raise StorageError(
            f"{path}: is HDF5 but not a file of mpi-match: "
            f"magic found {attributes.get('magic')!r}, expected {MAGIC.decode()!r}"
        )
    if attributes.get("format_version") != FORMAT_VERSION:
        found = attributes.get("format_version")
        raise StorageError(
            f"{path}: format_version found {found}, expected {FORMAT_VERSION}; compile it again with this version"
        )
    if attributes.get("kind") != kind:
        raise StorageError(f"{path}: holds {attributes.get('kind')!r}, expected {kind!r}; were two files exchanged?")
    if attributes.get("complete") != 1:
        raise StorageError(f"{path}: was not written to its end ('complete' is missing); make it again")
    lines: list[str] = []

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            lines.append(_line(name, item, int(item.attrs["crc32"])))

    try:
        file.visititems(visit)
    except _DAMAGE as error:
        raise StorageError(f"{path}: is damaged: {_reason(error)}; make it again") from error
    named = {key: value for key, value in attributes.items() if key not in ("digest", "complete")}
    found = _digest(lines, named)
    if found != attributes.get("digest"):
        raise StorageError(f"{path}: is damaged: digest found {found}, expected {attributes.get('digest')}; make it again")


def _attributes(file: h5py.File) -> dict[str, Any]:
    return {k: v.decode() if isinstance(v, bytes) else v.item() if hasattr(v, "item") else v for k, v in file.attrs.items()}


def _digest(lines: Iterable[str], attributes: Mapping[str, Any]) -> str:
    text = [*sorted(lines), *sorted(f"@{key}={value}" for key, value in attributes.items())]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()


def _line(name: str, dataset: Any, crc: int) -> str:
    return f"{name} {dataset.dtype.str} {tuple(dataset.shape)} {crc:08x}"


def _bytes(values: Array) -> memoryview:
    return values.reshape(-1).view(np.uint8).data if values.size else memoryview(b"")


def _reason(error: BaseException) -> str:
    """The system's own words where HDF5 quotes them among its own, else the first line."""
    quoted = re.search("error message = '([^']+)'", str(error))
    return quoted[1] if quoted else (str(error).splitlines() or [type(error).__name__])[0][:200]
