"""Parts of a file, written by tasks that may run twice, and committed by the driver once.

Spark may run a task again: after a failure, after an executor is lost, or beside a slow one.  Therefore

* every attempt writes under a name of its own (run, kind, partition, attempt, and a random word);
* a task answers with one manifest row for each part that it wrote, and Spark takes the answer of one attempt only;
* the driver checks that it sees those parts with those digests, writes the index, which is the moment at which the new file
  exists, and only then removes what the index does not name: losing attempts, and the parts of an earlier compile.

Until that moment an earlier file of the same name stays whole.  A compile that fails removes what it wrote.
The directory of the output must be one that the driver and all executors see under the same path.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from mpi_match.arrays.csr import Array
from mpi_match.storage import FilePart, Reader, StorageError, Writer, check_output, parts_directory, write_index
from spark_prep import SparkPrepError
from spark_prep.tasks import in_task

MANIFEST_SCHEMA = "part string, partition int, rows bigint, digest string, distinct bigint, slow_patterns bigint"
MANIFEST_ARROW = pa.schema(
    [
        ("part", pa.string()),
        ("partition", pa.int32()),
        ("rows", pa.int64()),
        ("digest", pa.string()),
        ("distinct", pa.int64()),
        ("slow_patterns", pa.int64()),
    ]
)


class WrittenPart(NamedTuple):
    """The description of a part by the task that wrote it.

    `partition` is the number of its task, `rows` the number of rows in the index, `distinct` the number of names or
    interfaces, `slow_patterns` that of patterns without literals (`codes.patterns`).
    """

    part: str
    partition: int
    rows: int
    digest: str
    distinct: int
    slow_patterns: int = 0


Write = Callable[[Iterator[pa.RecordBatch], "PartFiles"], Iterator[WrittenPart]]
"""Handles a partition in a task: consumes the batches, writes parts, yields their descriptions."""


class PartFiles(NamedTuple):
    """The names of the parts of one run."""

    directory: str
    run: str
    kind: str

    def attempt(self, what: str) -> Path:
        """A path that is unique to this attempt of this task.  Runs on executors."""
        context = TaskContext.get()
        partition, attempt = (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
        return Path(self.directory) / f"{self.run}-{what}-{partition:05d}-{attempt}-{uuid.uuid4().hex[:8]}.h5"

    def write(self, what: str, rows: int, distinct: int, arrays: Iterable[tuple[str, Array]]) -> WrittenPart:
        """Write one part; returns its description."""
        path = self.attempt(what)
        with Writer(path, f"{self.kind}-part") as writer:
            writer.attribute("rows", rows)
            for name, array in arrays:
                writer.array(name, array)
        return WrittenPart(path.name, partition_id(), rows, writer.digest, distinct)


def partition_id() -> int:
    """Number of the current task's partition."""
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def write_parts(rows: DataFrame, write: Write, files: PartFiles) -> list[WrittenPart]:
    """Run `write` on every partition; the written parts, in the order of the partitions."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for written in write(batches, files):
            yield pa.RecordBatch.from_pylist([written._asdict()], schema=MANIFEST_ARROW)

    found = [WrittenPart(*row) for row in rows.mapInArrow(in_task(run), MANIFEST_SCHEMA).collect()]
    return sorted(found, key=lambda written: written.partition)  # stable: a task's parts keep their order


class PartSet:
    """The parts of one output file: `with PartSet(output, "table") as parts: ... parts.commit(written, counts)`.

    Leaving without `commit` removes everything that this run wrote.
    """

    def __init__(self, output: Path, kind: str) -> None:
        self.output = output.absolute()
        self._directory = parts_directory(self.output)
        self._committed = False
        self.files = PartFiles(str(self._directory), uuid.uuid4().hex[:12], kind)

    def __enter__(self) -> PartSet:
        check_output(self.output)
        self._directory.mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        if not self._committed:
            self._remove(lambda name: self.files.run in name)
        if not any(self._directory.iterdir()):
            self._directory.rmdir()

    def commit(self, written: list[WrittenPart], attributes: Mapping[str, int | str]) -> None:
        """Join the parts, in this order, into the output; then remove what it does not name.  Raises SparkPrepError."""
        for item in written:
            self._check(item)
        write_index(self.output, self.files.kind, [FilePart(w.part, w.rows, w.digest) for w in written], attributes)
        self._committed = True
        winners = {item.part for item in written}
        self._remove(lambda name: name not in winners)

    def commit_whole(self, save: Callable[[Path], object]) -> None:
        """Write the output as one file by `save`; then remove all parts."""
        save(self.output)
        self._committed = True
        self._remove(lambda name: True)

    def reader(self, item: WrittenPart) -> Reader:
        """Open a part.  Raises StorageError."""
        return Reader(self._directory / item.part, f"{self.files.kind}-part")

    def attributes(self, item: WrittenPart) -> dict[str, int | str]:
        """The attributes of a part, without those common to all files."""
        with self.reader(item) as reader:
            every_file = {"magic", "kind", "format_version", "digest", "complete", "rows"}
            return {name: value for name, value in reader.attributes.items() if name not in every_file}

    def _check(self, item: WrittenPart) -> None:
        file = self._directory / item.part
        try:
            with self.reader(item) as reader:
                found = reader.attributes["digest"]
        except StorageError as error:
            raise SparkPrepError(
                f"{error}: an executor says it wrote this part; give an output on a file system that the driver and all "
                "executors share under one path"
            ) from error
        if found != item.digest:
            raise SparkPrepError(f"{file}: digest found {found}, expected {item.digest}; compile again")

    def _remove(self, unwanted: Callable[[str], bool]) -> None:
        for file in self._directory.iterdir():
            if unwanted(file.name):
                file.unlink(missing_ok=True)
