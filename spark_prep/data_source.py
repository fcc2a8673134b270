"""The format `mpi-match` of `spark.read` and `df.write`: tables, event tables and files of answers as DataFrames.

    spark_prep.register(spark)
    spark.read.format("mpi-match").load("table.h5")                                        # subscription rows
    spark.read.format("mpi-match").option("id", "uuid").load("events.h5")                  # events
    rules.write.format("mpi-match").mode("overwrite").option("where", "condition").save("table.h5")
    events.write.format("mpi-match").mode("append").option("table", "table.h5").save("events.h5")

It is a data source in Python, which Spark plans, commits and aborts in Python workers of the driver's machine; so it works
under Spark Connect too.  `source_reading` reads, `source_writing` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter

from mpi_match.storage import StorageError, kind_of_file
from mpi_match.table.versions import newest_version
from spark_prep import SparkPrepError
from spark_prep.sources import absolute_path

NAME = "mpi-match"
"""The name of the format."""
_READ = {"table": frozenset[str](), "events": frozenset({"id", "location", "number"}), "matches": frozenset({"table"})}
"""Options of reading besides `path`, by the kind of the file."""
_OF_EVENTS = frozenset({"table", "id", "location", "rejects", "strict"})
_OF_BOTH = frozenset({"rejects", "strict"})
"""Options of writing events, and those of writing subscriptions beside the names of their columns."""


def register(spark: SparkSession) -> None:
    """Make the format known to a session: `spark.read.format("mpi-match")` and `df.write.format("mpi-match")`.

    Python workers have to find this package, as for all jobs here.
    """
    spark.dataSource.register(MpiMatchSource)


class MpiMatchSource(DataSource):
    """The format `mpi-match`; Spark makes it with the options of a reader or a writer."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> T.StructType:
        """The columns of the file.  Raises SparkPrepError, StorageError."""
        from spark_prep import source_reading

        kind, path = self._file()
        return source_reading.schema_of(kind, path, self._options(_READ[kind], f"reading {_SHOWN[kind]}"))

    def reader(self, schema: T.StructType) -> DataSourceReader:
        """Reads the columns of `schema`, which are those of the file or some of them."""
        from spark_prep import source_reading

        kind, path = self._file()
        options = self._options(_READ[kind], f"reading {_SHOWN[kind]}")
        there = source_reading.schema_of(kind, path, options)
        for field in schema:
            if field.name not in there.names:
                has = ", ".join(map(repr, there.names))
                raise SparkPrepError(f"{path}: has no column {field.name!r}; there are: {has}")
            if field.dataType != there[field.name].dataType:
                found = there[field.name].dataType.simpleString()
                raise SparkPrepError(
                    f"{path}: the column {field.name!r} is of type {found}, not {field.dataType.simpleString()}; cast it "
                    "after reading"
                )
        return source_reading.reader_of(kind, path, options, there, schema)

    def writer(self, schema: T.StructType, overwrite: bool) -> DataSourceWriter:
        """Writes events if the option `table` is given, else subscriptions.  An existing file is never appended to."""
        from spark_prep import source_writing
        from spark_prep.subscriptions import COLUMNS

        path = self._path()
        if not overwrite and path.exists():
            raise SparkPrepError(f"{path}: exists and cannot be appended to; mode('overwrite') replaces it")
        if "table" in self.options:
            return source_writing.EventWriter.of(schema, path, self._options(_OF_EVENTS, "writing events"))
        options = self._options(_OF_BOTH | COLUMNS, "writing subscriptions")
        return source_writing.SubscriptionWriter.of(schema, path, options)

    def simpleStreamReader(self, schema: T.StructType) -> NoReturn:
        """Refuses `readStream`."""
        raise SparkPrepError(
            f"the format {NAME!r} reads no stream; spark.read reads a file, and spark_prep.matched takes a directory of "
            "versions"
        )

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> NoReturn:
        """Refuses `writeStream`."""
        raise SparkPrepError(
            f"the format {NAME!r} writes no stream; write each batch of it: "
            f"frame.writeStream.foreachBatch(lambda batch, n: batch.write.format({NAME!r})...save(f'{{n}}.h5'))"
        )

    def _path(self) -> Path:
        if "path" not in self.options:
            raise SparkPrepError(f"the format {NAME!r} needs a path: load('table.h5'), save('table.h5')")
        return absolute_path(self.options["path"])

    def _file(self) -> tuple[str, Path]:
        """The kind of the file to read, and its path; of a directory of versions of a table, the newest."""
        path = self._path()
        path = newest_version(path) if path.is_dir() else path
        if not path.exists():
            raise StorageError(f"{path}: no such file")
        kind = kind_of_file(path)
        if kind not in _READ:
            found = f"a file of kind {kind!r}" if kind else "none of our files"
            raise StorageError(f"{path}: is {found}; the format {NAME!r} reads tables, event tables and answers")
        return kind, path

    def _options(self, known: frozenset[str], doing: str) -> Mapping[str, str]:
        """The options other than the path.  Raises SparkPrepError for an unknown option."""
        given = {name.lower(): value for name, value in self.options.items() if name.lower() != "path"}
        for name in given:
            if name not in known:
                there = ", ".join(map(repr, sorted(known))) or "none but the path"
                raise SparkPrepError(f"there is no option {name!r} for {doing}; there are: {there}")
        return given


_SHOWN = {"table": "a table", "events": "an event table", "matches": "answers"}
"""Kinds of files, for messages."""
