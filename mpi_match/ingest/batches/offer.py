"""Files of rows as one rank offers them to others: their index, by which any rank reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from mpi_match.ingest.batches.column_files import ColumnFiles, ColumnIndex
from mpi_match.ingest.batches.line_files import LineFiles
from mpi_match.ingest.files.line_index import LineIndex
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.table.vocabulary import Vocabulary

if TYPE_CHECKING:
    from mpi_match.ingest.batches.scan_columns import ColumnScanner
    from mpi_match.ingest.batches.scan_lines import BatchScanner

Scanner: TypeAlias = "BatchScanner | ColumnScanner"


class RowsOffer(NamedTuple):
    """Files of rows, and the form of the rows."""

    content: LineIndex | ColumnIndex
    form: EventForm

    def open(self) -> LineFiles | ColumnFiles:
        """The opened files."""
        if isinstance(self.content, LineIndex):
            return LineFiles(self.content, self.form)
        return ColumnFiles(self.content, self.form)

    def scanner(self, vocabulary: Vocabulary, threads: int | None = None) -> Scanner:
        """A scanner of batches; compiles when it is made."""
        if isinstance(self.content, LineIndex):
            from mpi_match.ingest.batches.scan_lines import BatchScanner  # loads Numba

            return BatchScanner(vocabulary, self.form, self.content.files, threads)
        from mpi_match.ingest.batches.scan_columns import ColumnScanner

        return ColumnScanner(vocabulary, self.form, self.content.needed, self.content.files, threads, with_ids=False)
