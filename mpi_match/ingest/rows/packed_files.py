"""Opens files that may be packed, by gzip, bzip2, xz or Zstandard, as streams of their content."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from mpi_match.model import ModelError

PACKED_ENDINGS = (".gz", ".zst", ".bz2", ".xz")
DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)
"""Errors of reading a packed file that is damaged or truncated."""
_NAMES = {".gz": "gzip", ".zst": "Zstandard", ".bz2": "bzip2", ".xz": "xz"}


def is_packed(path: Path) -> bool:
    """Tells whether a file is packed, according to its name."""
    return path.suffix.lower() in PACKED_ENDINGS


def unpacked_name(path: Path) -> str:
    """The name of a file in lower case, without the ending of packed files."""
    name = path.name.lower()
    return next((name.removesuffix(ending) for ending in PACKED_ENDINGS if name.endswith(ending)), name)


def open_bytes(path: Path) -> io.BufferedReader:
    """The content of a file, unpacked; reading it raises one of `DAMAGED`.  Raises ModelError without pyarrow, OSError."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return cast(io.BufferedReader, gzip.open(path, "rb"))
    if suffix == ".bz2":
        return io.BufferedReader(_Unpacked(path, bz2.BZ2File))
    if suffix == ".xz":
        return io.BufferedReader(_Unpacked(path, lzma.LZMAFile))
    if suffix == ".zst":
        return io.BufferedReader(_Unpacked(path, _zstandard(path)))
    return path.open("rb")


def damaged(path: Path, error: Exception) -> ModelError:
    """The error of a packed file that is damaged or truncated."""
    found = ModelError(f"{path}: is not a whole {_NAMES.get(path.suffix.lower(), 'packed')} file: {error}")
    found.__cause__ = error
    return found


def _zstandard(path: Path) -> Callable[[BinaryIO], Any]:
    try:
        import pyarrow as pa
    except ImportError:
        raise ModelError(f"{path}: .zst needs pyarrow: {sys.executable} -m pip install pyarrow") from None
    return lambda file: pa.CompressedInputStream(file, "zstd")


class _Unpacked(io.RawIOBase):
    """The content of a packed file, of any number of frames, that `unpack` reads; reading raises one of `DAMAGED`."""

    def __init__(self, path: Path, unpack: Callable[[BinaryIO], object]) -> None:
        self._file: BinaryIO = path.open("rb")  # the libraries' own errors name neither reason nor file as Python's do
        self._stream: Any = unpack(self._file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            found = self._stream.read(len(buffer))
        except (OSError, lzma.LZMAError) as error:
            if getattr(error, "errno", None):
                raise
            raise EOFError(str(error)) from error
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        self._file.close()
        super().close()
