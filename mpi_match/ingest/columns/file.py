"""A file of columns as pieces of rows: row groups, or record batches; only the needed columns are read.

Directories named `name=value` are columns of strings, see `row_files.partition_values`.  A column of the file takes
precedence over a directory of the same name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from mpi_match.ingest.rows.formats import ARROW_STREAM_START, INPUT_FORMATS, START_BYTES, columns_format, format_names
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.ingest.rows.row_files import partition_values
from mpi_match.model import ModelError
from mpi_match.storage import StorageError

if TYPE_CHECKING:
    import pyarrow as pa

    from mpi_match.ingest.columns.arrow import NeededColumns

_FEATHER_1_START = b"FEA1"


class ColumnFile:
    """The file of the path `name`, which `handle` reads; a context manager that closes it.  `schema` is all of it, with the
    columns that its directories are.

    `needed` are the names of the needed columns; None: all, of whatever type.  Raises ModelError for any other file, for a
    needed column of a type that attributes do not have, and without pyarrow.
    """

    needed: NeededColumns
    schema: pa.Schema

    def __init__(self, handle: BinaryIO, name: str, needed: frozenset[str] | None, form: EventForm) -> None:
        try:
            import pyarrow as pa
        except ImportError:
            handle.close()
            raise ModelError(f"{name}: needs pyarrow: {sys.executable} -m pip install pyarrow") from None
        from mpi_match.ingest.columns.arrow import NeededColumns
        from mpi_match.ingest.columns.arrow_lists import leaves

        self._handle, self._name, self._pa, self._format = handle, name, pa, INPUT_FORMATS["parquet"]
        try:
            with self._reported():
                start = handle.read(START_BYTES)
                handle.seek(0)
                if not start:
                    raise ModelError(f"is empty, and no {format_names(lambda each: each.is_columnar)} file")
                self._format = columns_format(start, name) or self._format
                self._pieces = self._format.pieces(handle)
            schema, self.n_pieces = self._pieces.schema, self._pieces.n_pieces
            own = {*schema.names, *(".".join(path) for path, _ in leaves(schema))}
            found = partition_values(Path(name))
            self._constant = {each: value for each, value in found.items() if each not in own}
            for each in self._constant:
                schema = schema.append(pa.field(each, pa.dictionary(pa.int32(), pa.string())))
            self.schema = schema
            with self._reported():
                if needed is None:
                    self.needed = NeededColumns.every(schema, form)
                else:
                    self.needed = NeededColumns.of(schema, needed, form)
            self._own = [column for column in self.needed.top if column not in self._constant]
            if self._own:
                with self._reported():
                    self._pieces.select(self._own)
        except BaseException:
            handle.close()
            raise

    def __enter__(self) -> ColumnFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()

    def n_rows(self, piece: int) -> int:
        """Number of rows of a piece.  Raises ModelError when it is damaged."""
        with self._reported():
            return self._pieces.n_rows(piece)

    def read(self, piece: int) -> pa.Table:
        """The columns of a piece that are needed or contain needed ones; a column of nulls if none is.

        Raises ModelError when it is damaged, FileChanged.
        """
        pa = self._pa
        constant = [column for column in self.needed.top if column in self._constant]
        if not self._own:
            n_rows = self.n_rows(piece)
            return pa.table({column: self._repeated(column, n_rows) for column in constant} or {"": pa.nulls(n_rows)})
        with self._reported():
            found = self._pieces.read(piece)
        for column in constant:
            found = found.append_column(column, self._repeated(column, found.num_rows))
        return found

    def _repeated(self, column: str, n_rows: int) -> pa.Array:
        """The value of a directory, once for each of a number of rows."""
        pa, value = self._pa, self._constant[column]
        index = pa.nulls(n_rows, pa.int32()) if value is None else pa.repeat(pa.scalar(0, pa.int32()), n_rows)
        return pa.DictionaryArray.from_arrays(index, pa.array([] if value is None else [value], pa.string()))

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turns errors that do not name the file, including those of pyarrow, into one line with its name."""
        try:
            yield
        except ModelError as error:
            raise ModelError(f"{self._name}: {error}") from None
        except StorageError:  # of a file that has changed
            raise
        except (self._pa.ArrowException, OSError) as error:
            text = str(error).strip().partition("\n")[0]
            raise ModelError(f"{self._name}: is not a readable {self._format.name} file: {text}") from error


class ParquetPieces:
    """The row groups of a Parquet file; see `formats.Pieces`."""

    def __init__(self, file: BinaryIO) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._file, self._columns = pq.ParquetFile(pa.PythonFile(file, mode="r")), list[str]()
        self.schema: pa.Schema = self._file.schema_arrow
        self.n_pieces: int = self._file.metadata.num_row_groups

    def select(self, columns: Sequence[str]) -> None:
        """See `formats.Pieces.select`."""
        self._columns = list(columns)

    def n_rows(self, piece: int) -> int:
        """See `formats.Pieces.n_rows`."""
        return int(self._file.metadata.row_group(piece).num_rows)

    def read(self, piece: int) -> pa.Table:
        """See `formats.Pieces.read`."""
        return self._file.read_row_group(piece, columns=self._columns)


class ArrowPieces:
    """The record batches of an Arrow or Feather file; see `formats.Pieces`."""

    def __init__(self, file: BinaryIO) -> None:
        import pyarrow as pa

        start = file.read(START_BYTES)
        if start.startswith(_FEATHER_1_START):
            raise ModelError("is Feather of version 1; write version 2")
        if start.startswith(ARROW_STREAM_START):
            raise ModelError("is a stream of Arrow; write a file, as `pyarrow.ipc.new_file` does")
        file.seek(0)
        self._handle, self._pa = file, pa
        self._file = pa.ipc.open_file(pa.PythonFile(file, mode="r"))
        self.schema: pa.Schema = self._file.schema
        self.n_pieces: int = self._file.num_record_batches

    def select(self, columns: Sequence[str]) -> None:
        """See `formats.Pieces.select`."""
        fields = [self.schema.get_field_index(column) for column in columns]
        options = self._pa.ipc.IpcReadOptions(included_fields=fields)
        self._file = self._pa.ipc.open_file(self._pa.PythonFile(self._handle, mode="r"), options=options)

    def n_rows(self, piece: int) -> int:
        """See `formats.Pieces.n_rows`."""
        return int(self._file.get_batch(piece).num_rows)

    def read(self, piece: int) -> pa.Table:
        """See `formats.Pieces.read`."""
        return self._pa.Table.from_batches([self._file.get_batch(piece)])
