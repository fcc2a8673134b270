"""Bad rows of inputs, counted, shown and kept in a file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from mpi_match.ingest.rows.judge import Reject, nothing_usable
from mpi_match.ingest.rows.rejects import RejectedLines, json_line
from mpi_match.model import ModelError
from mpi_match.storage import reported, streamed_write


class RejectLog:
    """Counts rejects, keeps the first few for display, and writes all of them to a file if one is named.

    `begin` starts the next input; `nothing_usable` is the error of an input without a good row.

    A line of the file is `{"reason": ..., "file": ..., "line": ..., "row": ...}`, see `Reject`.  The file is created when
    the log is entered, so an empty file means that nothing was rejected.  Under `strict` the first reject is an error.
    """

    def __init__(self, path: Path | None, strict: bool = False, keep: int = 5) -> None:
        self._path, self._strict, self._keep = path, strict, keep
        self._file: BinaryIO | None = None
        self.first: list[Reject] = []
        self.count = 0
        self._input, self._count_before, self._example = Path(), 0, Reject("", "", 0, "")

    def __enter__(self) -> RejectLog:
        if self._path is not None:
            self._file = os.fdopen(streamed_write(self._path), "wb")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None and self._path is not None:
            with reported(self._path):
                self._file.close()

    @property
    def keeps(self) -> bool:
        """Tells whether every reject is needed, because rejects have a file, or because the first is an error."""
        return self._path is not None or self._strict

    def begin(self, path: Path) -> None:
        """Begin the rejects of this input."""
        self._input, self._count_before = path, self.count

    def nothing_usable(self, what: str, hint: str = "") -> ModelError:
        """The error of an input without a single good `what`."""
        n_bad = self.count - self._count_before
        return ModelError(nothing_usable(str(self._input), what, n_bad, self._example if n_bad else None) + hint)

    def all_bad(self, n_rows: int) -> bool:
        """Tells whether all `n_rows` rows of this input are bad."""
        return self.count - self._count_before == n_rows

    def append(self, reject: Reject) -> None:
        """Record a reject.  Raises ModelError under `strict`, WriteError."""
        self._count([reject], 1)
        if self._file is not None:
            self._write(json_line(reject))
        if self._strict:
            raise ModelError(f"{reject.place}: {reject.reason} (--strict)")

    def extend(self, rejects: Iterable[Reject]) -> None:
        """Record rejects; raises as `append` does."""
        if not isinstance(rejects, RejectedLines) or self._strict:
            for reject in rejects:
                self.append(reject)
            return
        self._count(rejects, len(rejects))
        if self._file is not None:
            self._write(rejects.to_json())

    def _count(self, rejects: Iterable[Reject], n: int) -> None:
        """Count n rejects, and keep those that are to be displayed."""
        first = list(islice(rejects, max(1, self._keep - len(self.first))))
        if n and self.count == self._count_before:
            self._example = first[0]
        self.count += n
        self.first += first[: self._keep - len(self.first)]

    def _write(self, lines: bytes) -> None:
        if self._file is not None and self._path is not None:
            with reported(self._path):
                self._file.write(lines)
