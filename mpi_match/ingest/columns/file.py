"""A Parquet or Arrow file as pieces of rows: row groups, or record batches, of which only the needed columns are read.

Directories named `name=value` are columns of strings, see `row_files.partition_values`.  A column of the file itself counts,
and a directory of its name does not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from mpi_match.ingest.rows.judge import EventForm
from mpi_match.ingest.rows.row_files import ARROW_START, FEATHER_1_START, partition_values
from mpi_match.model import ModelError
from mpi_match.storage import StorageError

if TYPE_CHECKING:
    import pyarrow as pa

    from mpi_match.ingest.columns.arrow import NeededColumns


class ColumnFile:
    """The file of the path `name`, which `handle` reads; a context manager that closes it.  `schema` is all of it, with the
    columns that its directories are.

    Raises ModelError when it is none, for a needed column of a type that attributes do not have, and without pyarrow.
    """

    needed: NeededColumns
    schema: pa.Schema

    def __init__(self, handle: BinaryIO, name: str, needed: frozenset[str], form: EventForm) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            handle.close()
            raise ModelError(f"{name}: needs pyarrow: {sys.executable} -m pip install pyarrow") from None
        from mpi_match.ingest.columns.arrow import NeededColumns
        from mpi_match.ingest.columns.arrow_lists import leaves

        self._handle, self._name, self._pa = handle, name, pa
        self._parquet: Any = None
        try:
            with self._reported():
                start = handle.read(len(ARROW_START))
                handle.seek(0)
                if not start:
                    raise ModelError(f"{name}: is empty, and no Parquet or Arrow file")
                if start[:4] == FEATHER_1_START:
                    raise ModelError(f"{name}: is Feather of version 1; write version 2")
                source = pa.PythonFile(handle, mode="r")
                if start == ARROW_START:
                    self._arrow = pa.ipc.open_file(source)
                    schema, self.n_pieces = self._arrow.schema, self._arrow.num_record_batches
                else:
                    self._parquet = pq.ParquetFile(source)
                    schema, self.n_pieces = self._parquet.schema_arrow, self._parquet.metadata.num_row_groups
            own = {*schema.names, *(".".join(path) for path, _ in leaves(schema))}
            found = partition_values(Path(name))
            self._constant = {each: value for each, value in found.items() if each not in own}
            for each in self._constant:
                schema = schema.append(pa.field(each, pa.dictionary(pa.int32(), pa.string())))
            self.schema = schema
            try:
                self.needed = NeededColumns.of(schema, needed, form)
            except ModelError as error:
                raise ModelError(f"{name}: {error}") from None
            self._own = [column for column in self.needed.top if column not in self._constant]
            if start == ARROW_START and self._own:
                fields = [schema.get_field_index(column) for column in self._own]
                with self._reported():
                    options = pa.ipc.IpcReadOptions(included_fields=fields)
                    self._arrow = pa.ipc.open_file(pa.PythonFile(handle, mode="r"), options=options)
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
            if self._parquet is not None:
                return int(self._parquet.metadata.row_group(piece).num_rows)
            return int(self._arrow.get_batch(piece).num_rows)

    def read(self, piece: int) -> pa.Table:
        """The columns of a piece that the needed ones are, or are in; one of nulls if there are none.

        Raises ModelError when it is damaged, FileChanged.
        """
        pa = self._pa
        constant = [column for column in self.needed.top if column in self._constant]
        if not self._own:
            n_rows = self.n_rows(piece)
            return pa.table({column: self._repeated(column, n_rows) for column in constant} or {"": pa.nulls(n_rows)})
        with self._reported():
            if self._parquet is not None:
                found = self._parquet.read_row_group(piece, columns=self._own)
            else:
                found = pa.Table.from_batches([self._arrow.get_batch(piece)])
        for column in constant:
            found = found.append_column(column, self._repeated(column, found.num_rows))
        return found

    def _repeated(self, column: str, n_rows: int) -> pa.Array:
        """The value of a directory for so many rows."""
        pa, value = self._pa, self._constant[column]
        index = pa.nulls(n_rows, pa.int32()) if value is None else pa.repeat(pa.scalar(0, pa.int32()), n_rows)
        return pa.DictionaryArray.from_arrays(index, pa.array([] if value is None else [value], pa.string()))

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turns errors of pyarrow, which do not name the file, into one line."""
        try:
            yield
        except StorageError:  # of a file that has changed
            raise
        except (self._pa.ArrowException, OSError) as error:
            form = "Arrow" if self._parquet is None and not self._name.lower().endswith(".parquet") else "Parquet"
            text = str(error).strip().partition("\n")[0]
            raise ModelError(f"{self._name}: is not a readable {form} file: {text}") from error
