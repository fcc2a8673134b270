"""Files that may be packed, by gzip or Zstandard, as streams of their content."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

from mpi_match.model import ModelError

PACKED_ENDINGS = (".gz", ".zst")
DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)
"""Errors of reading a packed file that is damaged or truncated."""
_NAMES = {".gz": "gzip", ".zst": "Zstandard"}


def is_packed(path: Path) -> bool:
    """Does the name of a file say that it is packed?"""
    return path.suffix.lower() in PACKED_ENDINGS


def open_bytes(path: Path) -> io.BufferedReader:
    """The content of a file, unpacked; reading it raises one of `DAMAGED`.  Raises ModelError without pyarrow, OSError."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return cast(io.BufferedReader, gzip.open(path, "rb"))
    if suffix == ".zst":
        return io.BufferedReader(_Zstandard(path))
    return path.open("rb")


def damaged(path: Path, error: Exception) -> ModelError:
    """The error of a packed file that is damaged or truncated."""
    found = ModelError(f"{path}: is not a whole {_NAMES.get(path.suffix.lower(), 'packed')} file: {error}")
    found.__cause__ = error
    return found


class _Zstandard(io.RawIOBase):
    """The content of a .zst file, of any number of frames."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow as pa
        except ImportError:
            raise ModelError(f"{path}: .zst needs pyarrow: {sys.executable} -m pip install pyarrow") from None
        self._file: BinaryIO = path.open("rb")  # pyarrow's own errors name neither reason nor file as Python's do
        self._stream: Any = pa.CompressedInputStream(self._file, "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            found = self._stream.read(len(buffer))
        except OSError as error:
            raise EOFError(str(error)) from error
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        self._file.close()
        super().close()
