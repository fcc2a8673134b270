"""Files that tasks read by themselves, in splits: no line or row of them passes through Spark's Java.

A split is a range of bytes of a file.  A task reads the lines of a plain file that begin in it, and the row groups of a
Parquet file that belong to it; packed files are one split.  A task takes consecutive splits, in the order of the paths,
so what it writes is one range of the rows, and nothing has to be sorted.

    files   │ a.jsonl                    │ b.jsonl.gz │ c.jsonl  │
    tasks   │ 0          │ 1             │ 2                     │

That needs paths that all executors see, as Spark does for addresses with `file:`.  For other addresses, and for what only
Spark can read, `local_files` finds no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mpi_match.ingest.files.blocks import read_blocks
from mpi_match.ingest.files.line_pass import count_line_feeds
from mpi_match.ingest.files.ranges import LineRange, RangeLines
from mpi_match.ingest.rows.formats import lines_format
from mpi_match.ingest.rows.packed_files import is_packed
from mpi_match.storage.range_read import ordinary_memory
from spark_prep.session import SPLIT_BYTES
from spark_prep.sources import RowSource, local_path

UNDIVIDED_BYTES = 2**20
"""Inputs of fewer bytes are not divided: starting a task would take longer than reading them."""
_BYTES_AT_ONCE = 2**22
_PACKED_TO = 6
"""Expected bytes of lines for each byte of a packed file."""
_OF_SPARK = (".deflate", ".lz4", ".snappy")
"""Endings of files of lines that Spark unpacks and `packed_files` does not."""


class Split(NamedTuple):
    """The bytes `start` to `stop` of a file of `n_bytes` bytes."""

    path: str
    start: int
    stop: int
    n_bytes: int

    def lines(self) -> Iterator[RangeLines]:
        """The lines that begin in the split, range by range.

        Raises ModelError for a packed file that is damaged, FileChanged for a file that has become shorter, OSError.
        """
        path = Path(self.path)
        if is_packed(path):
            for block in read_blocks([path]):
                n_lines = 1 if block.overlong else int(count_line_feeds(block.data))
                yield RangeLines([block._replace(first_line=0)], n_lines)
            return
        for start in range(self.start, self.stop, _BYTES_AT_ONCE):
            stop = min(start + _BYTES_AT_ONCE, self.stop)
            yield LineRange(path, start, stop, self.n_bytes).read(ordinary_memory)

    def pieces(self, n_pieces: int) -> range:
        """The row groups of the file that belong to the split: as many in proportion as it has bytes."""
        first, last = (-(-at * n_pieces // self.n_bytes) for at in (self.start, self.stop))
        return range(first, last)


def local_files(source: RowSource) -> list[Path] | None:
    """The files of a source, in the order of their paths; None if tasks cannot read all of them by themselves."""
    if source.files is not None:
        return list(source.files)
    if source.format != "json":
        return None
    addresses = source.rows.inputFiles()
    if not all(address.startswith("file:") for address in addresses):
        return None
    files = sorted(Path(local_path(address)) for address in addresses)
    return files if all(map(_is_read_directly, files)) else None


def _is_read_directly(file: Path) -> bool:
    return file.is_file() and not file.name.lower().endswith(_OF_SPARK) and lines_format(file).is_plain


def number_of_tasks(files: Sequence[Path], cores: int) -> int:
    """The number of tasks: one for little input, else at least one for each core."""
    n_bytes = sum(_weight(file, file.stat().st_size) for file in files)
    return max(1, min(-(-n_bytes // UNDIVIDED_BYTES), max(cores, -(-n_bytes // SPLIT_BYTES))))


def splits_of(files: Sequence[Path], n_tasks: int) -> list[list[Split]]:
    """The splits of `n_tasks` tasks or fewer, each with about the same number of bytes."""
    sizes = [file.stat().st_size for file in files]
    total = max(sum(map(_weight, files, sizes)), 1)
    bounds = [task * total // n_tasks for task in range(n_tasks + 1)]
    tasks: list[list[Split]] = [[] for _ in range(n_tasks)]
    before = task = 0
    for file, size in zip(files, sizes, strict=True):
        while bounds[task + 1] <= before and task + 1 < n_tasks:
            task += 1
        if is_packed(file):
            tasks[task].append(Split(str(file), 0, size, size))
        else:
            for to in range(task, n_tasks):
                start, stop = (min(max(at - before, 0), size) for at in bounds[to : to + 2])
                if start < stop:
                    tasks[to].append(Split(str(file), start, stop, size))
        before += _weight(file, size)
    return [splits for splits in tasks if splits]


def _weight(file: Path, n_bytes: int) -> int:
    return n_bytes * _PACKED_TO if is_packed(file) else n_bytes
