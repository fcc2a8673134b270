"""Recognizes files that do not hold rows as they are, by their first bytes and names, and says what to do with them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from mpi_match.ingest.rows.packed_files import is_packed
from mpi_match.model import ModelError


class FileKind(NamedTuple):
    """A kind of file: its name for people, an expression for its first bytes, and what to do with such a file."""

    name: str
    start: re.Pattern[bytes]
    advice: str


def _packed(name: str, start: bytes, ending: str) -> FileKind:
    return FileKind(f"packed by {name}", re.compile(start, re.DOTALL), f"give it a name that ends in {ending}")


FILE_KINDS = (
    _packed("gzip", rb"\x1f\x8b", ".gz"),
    _packed("Zstandard", rb"\x28\xb5\x2f\xfd", ".zst"),
    _packed("bzip2", rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", ".bz2"),
    _packed("xz", rb"\xfd7zXZ\x00", ".xz"),
    FileKind("packed by LZ4", re.compile(rb"\x04\x22\x4d\x18"), "unpack it, `lz4 -d`"),
    FileKind("a ZIP archive", re.compile(rb"PK\x03\x04"), "unpack it"),
    FileKind("an Avro file", re.compile(rb"Obj\x01"), "write Parquet or JSON lines"),
    FileKind("an ORC file", re.compile(rb"ORC[\x00-\x08\x0e-\x1f\x80-\xff]"), "write Parquet"),
    FileKind("a SQLite database", re.compile(rb"SQLite format 3\x00"), "write JSON lines or CSV"),
    FileKind("a log of Windows events", re.compile(rb"ElfFile\x00"), "write JSON lines, `evtx_dump -o jsonl`"),
)
"""All kinds; a file that is packed, and says so by its name, is none of them."""
KIND_BYTES = 16
"""First bytes of a file that tell its kind."""
_ARCHIVES = re.compile(r"\.(tar|tar\.\w+|tgz|tbz2?|txz)$", re.IGNORECASE)


def kind_of_bytes(start: bytes) -> FileKind | None:
    """The kind of a file that begins with `start`; None for any other file."""
    return next((kind for kind in FILE_KINDS if kind.start.match(start)), None)


def refuse_other_kinds(path: Path, start: bytes) -> None:
    """Raise ModelError for a file of rows or rules that is of one of the FILE_KINDS, or a tar archive by its name."""
    if _ARCHIVES.search(path.name):
        raise ModelError(f"{path}: is a tar archive; unpack it, and give its directory")
    kind = None if is_packed(path) else kind_of_bytes(start)
    if kind is not None:
        raise ModelError(f"{path}: is {kind.name}; {kind.advice}")
