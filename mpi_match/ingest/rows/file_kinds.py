"""Recognizes files that do not hold rows as they are, by their first bytes and names, and says what to do with them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from mpi_match.ingest.rows.packed_files import is_packed
from mpi_match.model import ModelError


class FileKind(NamedTuple):
    """A kind of file: its name for people, how its first bytes begin, and what to do with such a file."""

    name: str
    starts: tuple[bytes, ...]
    advice: str


_BZIP2 = tuple(b"BZh%d%b" % (level, block) for level in range(1, 10) for block in (b"1AY&SY", b"\x17rE8P\x90"))
_ORC = tuple(b"ORC%c" % byte for byte in range(256) if byte < 9 or 14 <= byte < 32 or byte >= 128)
FILE_KINDS = (
    FileKind("packed by gzip", (b"\x1f\x8b",), "give it a name that ends in .gz"),
    FileKind("packed by Zstandard", (b"\x28\xb5\x2f\xfd",), "give it a name that ends in .zst"),
    FileKind("packed by bzip2", _BZIP2, "give it a name that ends in .bz2"),
    FileKind("packed by xz", (b"\xfd7zXZ\0",), "give it a name that ends in .xz"),
    FileKind("packed by LZ4", (b"\x04\x22\x4d\x18",), "unpack it, `lz4 -d`"),
    FileKind("a ZIP archive", (b"PK\x03\x04",), "unpack it"),
    FileKind("an Avro file", (b"Obj\x01",), "write Parquet or JSON lines"),
    FileKind("an ORC file", _ORC, "write Parquet"),
    FileKind("a SQLite database", (b"SQLite format 3\0",), "write JSON lines or CSV"),
    FileKind("a log of Windows events", (b"ElfFile\0",), "write JSON lines, `evtx_dump -o jsonl`"),
)
"""All kinds; a file that is packed, and says so by its name, is none of them."""
KIND_BYTES = 16
"""First bytes of a file that tell its kind."""
_ARCHIVES = re.compile(r"\.(tar|tar\.\w+|tgz|tbz2?|txz)$", re.IGNORECASE)


def _kind_of(start: bytes) -> FileKind | None:
    return next((kind for kind in FILE_KINDS if start.startswith(kind.starts)), None)


def kind_of_text(row: str) -> FileKind | None:
    """The kind of the bytes that a rejected row has been, in which U+FFFD stands for what is not UTF-8."""
    texts = ((kind, start.decode(errors="replace")) for kind in FILE_KINDS for start in kind.starts)
    return next((kind for kind, text in texts if row.startswith(text)), None)


def refuse_other_kinds(path: Path, start: bytes) -> None:
    """Raise ModelError for a file of rows or rules that is of one of the FILE_KINDS, or a tar archive by its name."""
    if _ARCHIVES.search(path.name):
        raise ModelError(f"{path}: is a tar archive; unpack it, and give its directory")
    kind = None if is_packed(path) else _kind_of(start)
    if kind is not None:
        raise ModelError(f"{path}: is {kind.name}; {kind.advice}")
