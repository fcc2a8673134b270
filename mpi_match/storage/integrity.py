"""Checksums and completeness of a file, for the writer and the reader.

    dataset     crc32            of its bytes
    root        digest           SHA-256 of a line for each dataset, `name dtype shape crc32`, and one for each root
                                 attribute, `@name=value`, each kind sorted
                complete         1, written last

docs/format.md, section 1, specifies them.
"""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, DType
from mpi_match.errors import MpiMatchError
from mpi_match.exit_codes import ExitCode

MAGIC = b"mpi-match"
FORMAT_VERSION = 3
"""The version of the files that are written."""
READ_VERSIONS = (2, FORMAT_VERSION)
"""The versions of the files that are read."""
DAMAGE = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError)
"""The errors that h5py raises, depending on the byte, for a file that is damaged or lacks the objects that its names
suggest.
"""


DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk without room: it is full, a quota is used up, or the file has the greatest size."""


class StorageError(MpiMatchError):
    """A file cannot be used or written; the text names the file, what was found and what to do."""

    exit_code = ExitCode.BAD_INPUT


class WriteError(StorageError):
    """An output cannot be written, such as on a full disk (`disk_full`); the text names the file and the reason.

    Its exit code is 1, or 3 for a name that can never be written, such as one in a missing directory.
    """

    exit_code = ExitCode.FAILURE

    @classmethod
    def of(cls, path: Path, error: BaseException, reason: object) -> WriteError:
        """Make the error of writing `path` from an error of the file system or of HDF5 and its reason in words."""
        found = cls(f"{path}: cannot be written: {reason}")
        number = re.search(r"errno = (\d+)", str(error))
        found.disk_full = (getattr(error, "errno", None) or int(number[1] if number else 0)) in DISK_FULL
        return found


class FileChanged(StorageError):
    """A file was changed after it was opened; its data must be discarded."""

    exit_code = ExitCode.INCOMPLETE


class FilePart(NamedTuple):
    """One part of an index: file name (beside the index, in its `.parts` directory), number of rows, digest."""

    name: str
    rows: int
    digest: str


def parts_directory(path: Path) -> Path:
    """The directory of the parts of an index: `table.h5` has `table.h5.parts/`."""
    return path.with_name(path.name + ".parts")


def digest_of(lines: Iterable[str], attributes: Mapping[str, object]) -> str:
    """The root's `digest` (64 hexadecimal digits) from the lines of its datasets and its attributes, in any order."""
    text = [*sorted(lines), *sorted(f"@{key}={value}" for key, value in attributes.items())]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()


def line_of(name: str, dtype: DType, shape: tuple[int, ...], crc: int) -> str:
    """The digest's line for one dataset: its name, type, shape and CRC-32."""
    return f"{name} {dtype.str} {tuple(shape)} {crc:08x}"


def bytes_of(values: Array) -> memoryview:
    """The bytes of a contiguous array, not copied."""
    return values.reshape(-1).view(np.uint8).data if values.size else memoryview(b"")


def reason_of(error: BaseException) -> str:
    """The operating system's message where HDF5 quotes it, else the cause that HDF5 names, else the first line."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    cause = re.search("error message = '([^']+)'", str(error)) or re.search(r"synchronously [^(]*\((.*)\)$", line)
    return (cause[1] if cause else line)[:200]
