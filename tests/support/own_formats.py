"""Two input formats of our own, of lines and of columns, by the recipe of docs/contributing.md, "An input format".

logfmt    temp=31 city="Milan"      values are JSON
ORC       stripes of columns, read by pyarrow
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from mpi_match.ingest.rows.formats import InputFormat
from mpi_match.ingest.rows.judge import EventForm, set_aside

if TYPE_CHECKING:
    import pyarrow as pa

_PAIR = re.compile(rb'([^\s=]+)=("(?:[^"\\]|\\.)*"|\[.*\]|\S+)\s*')
OWN_FORMATS = {
    "logfmt": InputFormat("logfmt", (".logfmt",), lines="own_formats:LogfmtLines", subscriptions=True),
    "orc": InputFormat("ORC", (".orc",), columns="own_formats:OrcPieces", starts=(b"ORC",)),
}


class LogfmtLines(io.RawIOBase):
    """The JSON lines of a file of logfmt; a line that is none becomes a row that is set aside."""

    def __init__(self, file: BinaryIO, path: Path, form: EventForm) -> None:
        self._file, self._made = file, b""

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        while not self._made and (line := self._file.readline()):
            self._made = _json_line(line) + b"\n"
        taken = self._made[: len(buffer)]
        buffer[: len(taken)] = taken
        self._made = self._made[len(taken) :]
        return len(taken)


def _json_line(line: bytes) -> bytes:
    pairs = _PAIR.findall(line)
    if _PAIR.sub(b"", line).strip():
        return set_aside("is no line of logfmt", line.strip())
    return b"{" + b", ".join(json.dumps(name.decode()).encode() + b": " + value for name, value in pairs) + b"}"


class OrcPieces:
    """The stripes of an ORC file; see `formats.Pieces`."""

    def __init__(self, file: BinaryIO) -> None:
        import pyarrow as pa
        import pyarrow.orc

        self._pa, self._columns = pa, list[str]()
        self._file = pyarrow.orc.ORCFile(pa.PythonFile(file, mode="r"))
        self.schema: pa.Schema = self._file.schema
        self.n_pieces: int = self._file.nstripes

    def select(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)

    def n_rows(self, piece: int) -> int:
        return int(self._file.read_stripe(piece, columns=self.schema.names[:1]).num_rows)

    def read(self, piece: int) -> pa.Table:
        return self._pa.Table.from_batches([self._file.read_stripe(piece, columns=self._columns)])


def logfmt_of(rows: list[dict[str, Any]]) -> bytes:
    """Rows as lines."""
    return "".join(" ".join(f"{k}={json.dumps(v)}" for k, v in row.items()) + "\n" for row in rows).encode()


def orc_of(rows: list[dict[str, Any]]) -> bytes:
    """Rows in two stripes at least, where there are some thousand."""
    import pyarrow as pa
    import pyarrow.orc

    sink = io.BytesIO()
    with pyarrow.orc.ORCWriter(sink, stripe_size=2**10, batch_size=1024) as writer:
        writer.write(pa.Table.from_pylist(rows))
    return sink.getvalue()
