"""Writing a file of flat arrays atomically: whole datasets, growing columns, and indexes over parts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array, DType
from mpi_match.storage.atomic_file import check_output, temporary_of
from mpi_match.storage.column import CHUNK_BYTES, Column
from mpi_match.storage.disk import Disk
from mpi_match.storage.integrity import FORMAT_VERSION, MAGIC, FilePart, bytes_of, digest_of, line_of

_RESERVED = {"magic", "kind", "format_version", "digest", "complete"}


class Writer:
    """Writes one file atomically: `with Writer(path, "table") as w: w.array("filters/size", size)`.

    `kind` is the kind of the file.  On leaving without an exception the file appears under `path`; otherwise nothing does.
    `digest` is set after that.  Until then the file is called `temporary`; a temporary name that the caller gave remains
    after a failure, one that the writer chose does not.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str, temporary: Path | None = None) -> None:
        self.path = Path(path)
        self.digest = ""
        self._temporary, self._given = temporary or temporary_of(self.path), temporary is not None
        self._kind = kind
        self._attributes: dict[str, int | str | float] = {}
        self._crcs: dict[str, str] = {}
        self._open_columns: dict[str, Column] = {}
        self._columns_exist = False
        self._disk = Disk(self.path)

    def __enter__(self) -> Writer:
        check_output(self.path)
        try:
            with self._disk.reported():
                self._file = _create(self._temporary)
            self._disk.descriptor = self._file.id.get_vfd_handle()
        except BaseException:  # an interrupt, too
            self._remove_own()
            raise
        return self

    def attribute(self, name: str, value: int | str | float) -> None:
        """A root attribute: an integer, a float or a short ASCII string."""
        if name in _RESERVED:
            raise ValueError(f"{name!r} is written by the storage layer")
        self._attributes[name] = value

    def array(self, name: str, values: Array, *, contiguous: bool = False) -> None:
        """A whole dataset.

        `contiguous` leaves out HDF5's own chunk checksums so that any range of it can be read.
        """
        values = np.ascontiguousarray(values)
        self._disk.need(values.nbytes)
        layout: dict[str, Any] = {}
        if values.size and not contiguous:
            rows = max(1, min(len(values), CHUNK_BYTES * len(values) // values.nbytes))
            layout = {"chunks": (rows, *values.shape[1:]), "fletcher32": True}
        with self._disk.reported():
            self._file.create_dataset(name, data=values, **layout)
            self._write_crc(name, crc32(bytes_of(values)))

    def column(self, name: str, dtype: DType) -> Column:
        """A dataset that grows: `append` arrays to it until the writer closes."""
        column = self._open_columns[name] = Column(dtype, self._create_columns, self._disk)
        return column

    def _create_columns(self, *, whole: bool = True) -> None:
        """Create the datasets of all columns, in order, so that the bytes of a file follow from its values alone."""
        self._columns_exist = True
        for name, column in self._open_columns.items():

            def make(rows: int, name: str = name, dtype: DType = column.dtype) -> h5py.Dataset:
                return self._file.create_dataset(name, (0,), dtype, maxshape=(None,), chunks=(rows,))

            with self._disk.reported():
                column.create(make, whole=whole)

    def sync(self) -> None:
        """Write everything to the disk."""
        self._disk.sync()

    def _write_crc(self, name: str, crc: int) -> None:
        dataset = self._file[name]
        dataset.attrs.create("crc32", np.uint32(crc))
        self._crcs[name] = line_of(name, dataset.dtype, dataset.shape, crc)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                with self._disk.reported():
                    self._finish()
        finally:
            self._disk.leave()
            self._abandon()

    def _finish(self) -> None:
        if not self._columns_exist:
            self._create_columns(whole=False)
        for name, column in self._open_columns.items():
            column.close()
            self._write_crc(name, column.crc)
        self._disk.end_sync()
        attributes = {"magic": MAGIC.decode(), "kind": self._kind, "format_version": FORMAT_VERSION, **self._attributes}
        self.digest = digest_of(self._crcs.values(), attributes)
        for name, value in {**attributes, "digest": self.digest}.items():
            self._file.attrs.create(name, np.bytes_(value.encode()) if isinstance(value, str) else value)
        self._file.flush()
        self._file.attrs.create("complete", np.uint8(1))
        self._file.close()
        with self._temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        self._temporary.replace(self.path)

    def _abandon(self) -> None:
        """Close the temporary file, unless it has become the final one, and remove it.

        HDF5 cannot close a file that it cannot write, and crashes the process at exit if it was not closed.  So its
        remaining writes to a file that will be removed go to the null device.
        """
        if self._file:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, self._disk.descriptor)
            os.close(null)
            with suppress(OSError, RuntimeError):
                self._file.close()
        self._remove_own()

    def _remove_own(self) -> None:
        """Remove the temporary file, unless the caller named it."""
        if not self._given:
            with suppress(OSError):
                self._temporary.unlink(missing_ok=True)


def write_index(path: Path, kind: str, parts: Iterable[FilePart], attributes: Mapping[str, int | str]) -> None:
    """Write the index that joins `parts` into one file, in this order; they must already be in `parts_directory(path)`."""
    parts = list(parts)
    with Writer(path, kind) as writer:
        for name, value in attributes.items():
            writer.attribute(name, value)
        writer.array("parts/name", np.array([p.name.encode() for p in parts], "S"))
        writer.array("parts/rows", np.array([p.rows for p in parts], np.int64))
        writer.array("parts/digest", np.array([p.digest.encode() for p in parts], "S64"))


def _create(path: Path) -> h5py.File:
    """Create a file that writes data immediately, not when its dataset is closed.

    HDF5 reports a failed write in the first case and crashes in the second: hence neither a chunk cache nor a sieve buffer.
    An existing file or link of that name is an error.
    """
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_V110)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    access.set_cache(0, 0, 0, 0.0)
    access.set_sieve_buf_size(0)
    access.set_file_locking(False, False)  # no other process knows the name, and not every file system has locks
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)  # the same values give the same bytes, whenever they are written
    return h5py.File(h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_EXCL, fcpl=creation, fapl=access))
