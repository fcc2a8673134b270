"""The files that hold rows: which are meant by a path, and what they are not."""

from __future__ import annotations

from pathlib import Path

from mpi_match.ingest.rows import ROW_ENDINGS
from mpi_match.model import ModelError

STDIN = Path("/dev/stdin")
"""Rows from standard input."""
_HDF5 = b"\x89HDF\r\n\x1a\n"
_HDF5_ENDINGS = (".h5", ".hdf5")


def is_compiled(path: Path) -> bool:
    """Is it an HDF5 file, by its beginning or, where that is damaged, by its name?  Raises OSError."""
    return path.is_file() and (_start_of(path) == _HDF5 or path.name.lower().endswith(_HDF5_ENDINGS))


def row_files(path: Path) -> list[Path]:
    """The JSON lines files that a path names: itself, or those of a directory.

    Raises ModelError when there are none, or when the file is compiled or Parquet, of which every line would be a bad row.
    """
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    if path.is_file():
        _check_lines(path)
    if not path.is_dir():
        return [path]
    found = sorted(item for item in path.iterdir() if item.name.endswith(ROW_ENDINGS) and item.is_file())
    if not found:
        raise ModelError(f"{path}: no JSON lines in this directory (files named {', '.join('*' + e for e in ROW_ENDINGS)})")
    return found


def _check_lines(path: Path) -> None:
    start = _start_of(path)
    if start == _HDF5:
        raise ModelError(f"{path}: is an HDF5 file, not JSON lines; `mpi-match run` matches what is compiled")
    if start[:4] == b"PAR1":
        raise ModelError(f"{path}: is a Parquet file, not JSON lines; `mpi-match compile` reads it, for `mpi-match run`")


def _start_of(path: Path) -> bytes:
    with path.open("rb") as handle:
        return handle.read(len(_HDF5))
