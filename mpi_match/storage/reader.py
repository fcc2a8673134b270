"""Reading what `writer` wrote, checked before it is used: datasets as a whole, in blocks, or mapped; parts joined."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array
from mpi_match.storage.integrity import (
    DAMAGE,
    FORMAT_VERSION,
    MAGIC,
    FileChanged,
    StorageError,
    bytes_of,
    digest_of,
    line_of,
    parts_directory,
    reason_of,
)


class Reader:
    """Reads what `Writer` or `write_index` wrote, and refuses everything else with a StorageError.

    `with Reader(path, "table") as r: size = r.array("filters/size")`.  `attributes` holds the root's attributes; `rows`
    the number of rows of each part when the file is an index, else None.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str) -> None:
        self.path = Path(path)
        self._name = os.fspath(path)  # by which the system finds it sooner than by a Path
        self._stamp = _stamp_of(self._name)
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

    def check_unchanged(self) -> None:
        """Raise FileChanged when the path no longer leads to the file as it was when it was opened.

        Compared are device, inode, size, and the times at which contents and inode changed last.  Parts are not looked at.
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
        except DAMAGE as error:
            raise StorageError(f"{self.path}: dataset {name!r} cannot be read: {reason_of(error)}") from error
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
        except DAMAGE as error:
            raise StorageError(f"{self.path}: {name!r} is damaged: {reason_of(error)}; make the file again") from error
        return crc32(bytes_of(piece), crc)

    def _compare_crc(self, name: str, dataset: Any, found: int) -> None:
        try:
            expected = int(dataset.attrs["crc32"])
        except DAMAGE as error:
            raise StorageError(f"{self.path}: {name!r} is damaged: {reason_of(error)}; make the file again") from error
        if found != expected:
            raise StorageError(
                f"{self.path}: {name!r} is damaged: CRC-32 found {found:08x}, expected {expected:08x}; make the file again"
            )


def _stamp_of(path: str) -> tuple[int, ...] | None:
    """What changes when a file does; None when there is no such file."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def kind_of_file(path: str | os.PathLike[str]) -> str | None:
    """What a file holds (`table`, `events`, `matches`, ...), or None when it is not a file of ours."""
    try:
        with h5py.File(path, "r") as file:
            kind = file.attrs.get("kind")
            return kind.decode() if file.attrs.get("magic") == MAGIC and isinstance(kind, bytes) else None
    except DAMAGE:
        return None


def _begins_as_rows(path: Path) -> bool:
    """Does a file begin as JSON lines, what gzip packs, or Parquet do?"""
    with path.open("rb") as handle:
        return handle.read(4).startswith((b"{", b"\x1f\x8b", b"PAR1"))


def _open(path: Path, kind: str) -> h5py.File:
    if not path.exists():
        raise StorageError(f"{path}: no such file")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        reason = reason_of(error)
        if reason == "file signature not found":
            rows = "; rows are for `mpi-match match`, or for `mpi-match compile` first" if _begins_as_rows(path) else ""
            reason = f"it does not begin as one{rows}"
        raise StorageError(f"{path}: is not a readable HDF5 file: {reason}") from error
    try:
        _check(path, file, kind)
    except BaseException:
        file.close()
        raise
    return file


def _check(path: Path, file: h5py.File, kind: str) -> None:
    try:
        attributes = _attributes(file)
    except DAMAGE as error:
        raise StorageError(f"{path}: its attributes cannot be read: {reason_of(error)}") from error
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
            lines.append(line_of(name, item, int(item.attrs["crc32"])))

    try:
        file.visititems(visit)
    except DAMAGE as error:
        raise StorageError(f"{path}: is damaged: {reason_of(error)}; make it again") from error
    named = {key: value for key, value in attributes.items() if key not in ("digest", "complete")}
    found = digest_of(lines, named)
    if found != attributes.get("digest"):
        raise StorageError(f"{path}: is damaged: digest found {found}, expected {attributes.get('digest')}; make it again")


def _attributes(file: h5py.File) -> dict[str, Any]:
    return {k: v.decode() if isinstance(v, bytes) else v.item() if hasattr(v, "item") else v for k, v in file.attrs.items()}


def hdf5_versions() -> str:
    """Versions of h5py and of the HDF5 library it carries."""
    return f"h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}"
