"""Flat arrays in HDF5 files that are verified before use; the only package that imports h5py.

HDF5 by itself returns wrong numbers without an error: a flipped bit loads silently, a chunk never written reads as zeros, a
join over a missing source reads as fill values.  Four measures prevent that:

* Every dataset carries the CRC-32 of its bytes, and the root a SHA-256 over all of them, their types and shapes and every
  root attribute.  A reader checks both before anything is used.
* Files are written under a temporary name; `complete` is set last; then flush, fsync, rename.  A half-written file is never
  found under its final name, and would be refused if it were.
* `magic`, `kind` and `format_version` are checked first, so that the message names what was found and what was expected.
* Attributes are fixed-length and the library version is bounded to HDF5 1.10, so that any cluster's h5dump and h5ls read
  them.

A file may be an **index**: a list of part files (name, rows, digest), written by many processes, that reads as one file.
Part k's arrays follow part k-1's; arrays with names ending in `offsets` are CSR bounds that start at 0 in every part and are
shifted by the running total when joined.

`integrity` defines checksums and completeness for both sides, `writer` and `reader` are the sides, a `column` is a dataset
that grows; `atomic_file` writes all other files.
"""

from mpi_match.storage.atomic_file import (
    append_to,
    atomic_write,
    check_output,
    descriptor_of,
    remove_half_written,
    reported,
    streamed_write,
    sync_directory,
    temporary_of,
)
from mpi_match.storage.column import Column, StoredRange
from mpi_match.storage.integrity import (
    FORMAT_VERSION,
    MAGIC,
    FileChanged,
    FilePart,
    StorageError,
    WriteError,
    parts_directory,
)
from mpi_match.storage.reader import Reader, hdf5_versions, kind_of_file
from mpi_match.storage.writer import Writer, write_index

__all__ = [
    "FORMAT_VERSION",
    "MAGIC",
    "Column",
    "FileChanged",
    "FilePart",
    "Reader",
    "StorageError",
    "StoredRange",
    "WriteError",
    "Writer",
    "append_to",
    "atomic_write",
    "check_output",
    "descriptor_of",
    "hdf5_versions",
    "kind_of_file",
    "parts_directory",
    "remove_half_written",
    "reported",
    "streamed_write",
    "sync_directory",
    "temporary_of",
    "write_index",
]
