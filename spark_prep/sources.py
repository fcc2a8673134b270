r"""Sources of rows, each row with its file and position, without counting in Python.

A row is (content, file, block, position):

    content    `value`: the bytes of a line of JSON, or `row`: a struct of all the columns of a Parquet file
    file       address of the file, as Spark gives it
    block      offset of the piece of the file that one task reads, bytes; 0 for Parquet
    position   ascends along the rows of a block: a running number of Spark's for lines, the row in its file for Parquet

(file, block, position) is the order in which the rows were written, so sorting by it (`in_order`) undoes any shuffle.  The
line number in a file is computed only for bad rows: one native pass counts the lines of every block (`with_lines`).  That
pass uses the very rows that were parsed, because another reading might be split into other blocks.

A user's own DataFrame is a source too (`of_frame`): its rows have no file.  It has no order of its own, so a column may say
which row is which; its row 0 is line 1, and without such a column rows have no line.

Lines end in \n and in nothing else: a lone \r would end a line for Spark by itself, but not for other readers of JSON lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkFiles
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mpi_match.ingest.rows.formats import INPUT_FORMATS, JSON_LINES, endings_of
from mpi_match.ingest.rows.judge import MAX_LINE_BYTES
from mpi_match.ingest.rows.row_files import (
    NULL_PARTITION,
    PART_NAMES,
    TABLE_FORMATS,
    files_below,
    holds_rows,
    partition_values,
    refuse_table_format,
    table_format_text,
)
from mpi_match.model import ModelError
from spark_prep import SparkPrepError
from spark_prep.java_errors import in_one_line

FORMATS = ("json", "parquet")
PLACE = ("file", "block", "position")
_PACKED_OF_SPARK = (".deflate", ".lz4", ".snappy")
"""Endings of files that only Spark unpacks."""
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_PARQUET = b"PAR1"
"""First bytes of a Parquet file."""


@dataclass(frozen=True)
class RowSource:
    """Rows of one format ("json", "parquet" or "frame"): a DataFrame of content, file, block, position (see the module).

    `name` is its name in messages.  `columns` are those of the input; for JSON lines, which have none, None.  `blocks` are
    the blocks of lines where they are known: file, block, position of the first line, and number of lines `n`.  `number` is
    the column of a frame that positions are from.  `files` are Parquet files that tasks read by themselves, each with its
    own schema; `rows` are then none.
    """

    rows: DataFrame
    format: str
    name: str
    columns: list[str] | None = None
    blocks: DataFrame | None = None
    number: str | None = None
    files: tuple[Path, ...] | None = None

    def with_lines(self, places: DataFrame) -> DataFrame:
        """`places` (with file, block, position) with `line`, counted from 1 in each file, instead of block and position."""
        if self.format == "frame" and self.number is None:
            lines = places.withColumn("line", F.lit(0).cast("bigint"))
        elif self.format in ("frame", "parquet"):
            lines = places.withColumn("line", F.col("position") + 1)
        else:
            blocks = self.blocks
            if blocks is None:
                blocks = self.rows.groupBy("file", "block").agg(F.min("position").alias("first"), F.count("*").alias("n"))
            earlier = Window.partitionBy("file").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
            starts = blocks.withColumn("before", F.coalesce(F.sum("n").over(earlier), F.lit(0))).drop("n")
            lines = places.join(starts, ["file", "block"], "left").withColumn(
                "line", F.col("before") + F.col("position") - F.col("first") + 1
            )
        return lines.select(*[name for name in places.columns if name not in PLACE], "file", "line")


def read(spark: SparkSession, inputs: list[str], format_: str | None = None) -> RowSource:
    """Rows of files, directories and globs; directories as `row_files.files_below` lists them, at any depth.

    JSON lines: `.gz` is decompressed.  Parquet: directories named `column=value` are columns of strings.

    `format_` is "json" or "parquet"; by default Parquet for names that end in `.parquet`, local directories of such, and
    local files that begin like Parquet.  Raises SparkPrepError when an input is missing, a table of Delta, Hudi or Iceberg,
    or the formats are mixed.
    """
    form = _format(inputs, format_)
    with in_one_line(f"cannot read {', '.join(inputs)}: "):
        _refuse_table_formats(spark, inputs)
        return _parquet(spark, inputs) if form == "parquet" else _json_lines(spark, inputs)


def read_events(spark: SparkSession, inputs: list[str], format_: str | None = None) -> RowSource:
    """Does what `read` does, except that tasks read Parquet files of this machine, each with its own schema, as `run`
    does."""
    files = local_inputs(inputs) if _format(inputs, format_) == "parquet" else None
    if not files:
        return read(spark, inputs, format_)
    nothing = spark.range(0).select(F.struct("id").alias("row"))
    return RowSource(nothing, "parquet", ", ".join(inputs), files=tuple(sorted(set(files))))


def read_subscriptions(spark: SparkSession, inputs: list[str], format_: str | None = None) -> RowSource:
    """Does what `read_events` does.  Raises SparkPrepError for a file that is not Parquet."""
    source = read_events(spark, inputs, format_)
    if source.files is None:
        return source
    columns: dict[str, None] = {}
    for file in source.files:
        try:
            names = pq.read_schema(file).names
        except (pa.ArrowException, OSError) as error:
            reason = str(error).strip().splitlines()[0]
            raise SparkPrepError(f"cannot read {file}: is not a whole Parquet file: {reason}") from error
        columns |= dict.fromkeys([*names, *partition_values(file)])
    return replace(source, columns=list(columns))


def _format(inputs: list[str], format_: str | None) -> str:
    """The one format of inputs.  Raises SparkPrepError."""
    if not inputs:
        raise SparkPrepError("no input given: name at least one file, directory or glob")
    if format_ is not None:
        if format_ not in FORMATS:
            raise SparkPrepError(f"unknown format {format_!r}; there are: {', '.join(FORMATS)}")
        return format_
    files = local_inputs(inputs)
    found = set(map(_guess, inputs if files is None else map(str, files))) or {"json"}
    if len(found) > 1:
        raise SparkPrepError("the inputs mix JSON lines and Parquet; compile one kind at a time, or convert one of them")
    return found.pop()


def refuse_other_forms(inputs: list[str]) -> None:
    """Raise SparkPrepError for events in a form that only one process reads; Spark would take them for JSON lines."""
    files = local_inputs(inputs)
    for format_ in (each for each in INPUT_FORMATS.values() if not each.by_spark):
        for name in inputs if files is None else map(str, files):
            if name.lower().endswith(format_.names):
                raise SparkPrepError(f"{name}: is {format_.name}, which `compile events --local` reads; Spark does not")


def local_inputs(inputs: list[str]) -> list[Path] | None:
    """The files of the inputs; None if one is on another file system, or is a glob that only Spark understands.

    Raises SparkPrepError for directories of a table format.
    """
    files: list[Path] = []
    for name in inputs:
        path = Path(name.removeprefix("file://"))
        anchor = path.anchor
        try:
            found = [path] if path.exists() else sorted(Path(anchor or ".").glob(str(path).removeprefix(anchor)))
        except (NotImplementedError, ValueError):  # no glob of Python's
            found = []
        if not found:
            return None
        for each in found:
            try:
                if each.is_dir():
                    files += [file for file in files_below(each) if holds_rows(file.name, endings_of())]
                else:
                    refuse_table_format(each)
                    files.append(each)
            except ModelError as error:
                raise SparkPrepError(str(error)) from None
    return files


def _refuse_table_formats(spark: SparkSession, inputs: list[str]) -> None:
    """Raise SparkPrepError for an input, in any file system, that is a table of a format with a log, or lies in one."""
    if local_inputs(inputs) is not None:
        return
    jvm, settings = spark.sparkContext._jvm, spark.sparkContext._jsc.hadoopConfiguration()
    assert jvm is not None
    for name in inputs:
        place = jvm.org.apache.hadoop.fs.Path(name)
        system = place.getFileSystem(settings)
        while place is not None and place.getParent() is not None:
            for table, mark in TABLE_FORMATS.items():
                if system.globStatus(jvm.org.apache.hadoop.fs.Path(place, mark)):
                    raise SparkPrepError(table_format_text(name, table, str(place.toString())))
            place = place.getParent()


def paths(source: RowSource) -> list[Path]:
    """The paths of the files of a source; in other file systems those of their addresses."""
    return [Path(unquote(address)) for address in source.rows.inputFiles()]


def _names_of_rows(inputs: list[str]) -> str:
    """The glob of the names of the files to read: those that hold rows, and those that an input names."""
    endings = (*endings_of(), *(each + packed for each in JSON_LINES.endings for packed in _PACKED_OF_SPARK))
    any_case = ("*" + "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in ending) for ending in endings)
    named = [each.rstrip("/").rpartition("/")[2] for each in inputs]
    if any(set(name) & set("{}\\,") for name in named):
        return "*"
    return "{" + ",".join([*any_case, PART_NAMES, *named]) + "}"


def _json_lines(spark: SparkSession, inputs: list[str]) -> RowSource:
    reader = spark.read.option("lineSep", "\n").option("recursiveFileLookup", "true")
    lines = reader.option("pathGlobFilter", _names_of_rows(inputs)).text(inputs)
    rows = lines.select(
        F.when(F.octet_length("value") <= MAX_LINE_BYTES, F.col("value").cast("binary"))
        .otherwise(F.substring(F.col("value").cast("binary"), 1, MAX_LINE_BYTES + 1))  # long enough to be refused
        .alias("value"),
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("position"),
    )
    return RowSource(rows, "json", ", ".join(inputs))


def _parquet(spark: SparkSession, inputs: list[str]) -> RowSource:
    reader = spark.read.option("mergeSchema", "true").option("recursiveFileLookup", "true")
    table = reader.option("pathGlobFilter", _names_of_rows(inputs)).parquet(*inputs)
    own = {*table.columns, *_dotted(table.schema)}
    directories = {name: written for name, written in _partitions(table.inputFiles()).items() if name not in own}
    fields = [table[_quoted(name)] for name in table.columns]
    constant = [_partition(F.col("_metadata.file_path"), written).alias(name) for name, written in directories.items()]
    row = F.struct(*fields, *constant)
    rows = table.select(
        row.alias("row"),
        F.col("_metadata.file_path").alias("file"),
        F.lit(0).cast("bigint").alias("block"),
        F.col("_metadata.row_index").alias("position"),
    )
    return RowSource(rows, "parquet", ", ".join(inputs), [*table.columns, *directories])


def _partitions(addresses: Sequence[str]) -> dict[str, set[str]]:
    """The names in directories `name=value` of files, and how each is written there.  Raises ModelError."""
    found: dict[str, set[str]] = {}
    for path in {Path(unquote(address)) for address in addresses}:
        partition_values(path)  # refuses a name that occurs twice
        for part in path.parts[:-1]:
            written, equals, _ = part.partition("=")
            if written and equals:
                found.setdefault(unquote(written), set()).add(written)
    return dict(sorted(found.items()))


def _dotted(fields: T.StructType, prefix: str = "") -> Iterator[str]:
    """The dotted names of the columns of a schema and of the fields of structs."""
    for field in fields:
        yield prefix + field.name
        if isinstance(field.dataType, T.StructType):
            yield from _dotted(field.dataType, f"{prefix}{field.name}.")


def _partition(address: Column, written: set[str]) -> Column:
    """The value of the directory `name=value` in the address of a file, as `row_files.partition_values` gives it, or
    null."""
    path, pattern = _decoded(address), f"/(?:{'|'.join(map(_literal, sorted(written)))})=([^/]*)/"
    value = F.regexp_extract(path, pattern, 1)
    is_there = path.rlike(pattern) & (value != F.lit(NULL_PARTITION))
    return F.when(is_there, F.coalesce(F.try_url_decode(_plus_kept(value)), value))


def _literal(text: str) -> str:
    """A text as a regular expression of Java."""
    return "".join(each if each.isalnum() else f"\\x{{{ord(each):x}}}" for each in text)


def of_frame(frame: DataFrame, number: str | None = None) -> RowSource:
    """The rows of a DataFrame with the columns of a Parquet file.

    `number` is the column of their positions, which the rows then lack; without one, positions ascend along the
    partitions as Spark happens to have them.  Raises SparkPrepError if it is not a column of integers, or is the only
    column.
    """
    columns = [name for name in frame.columns if name != number]
    position = F.monotonically_increasing_id() if number is None else _numbers(frame, number)
    rows = frame.select(
        F.struct(*[frame[_quoted(name)] for name in columns]).alias("row"),
        F.lit("").alias("file"),
        F.lit(0).cast("bigint").alias("block"),
        position.alias("position"),
    )
    return RowSource(rows, "frame", "the DataFrame", columns, number=number)


def _numbers(frame: DataFrame, column: str) -> Column:
    """A column of integers.  Raises SparkPrepError."""
    if column not in frame.columns:
        has = ", ".join(map(repr, frame.columns))
        raise SparkPrepError(f"there is no column {column!r} to number the rows by; there are: {has}")
    if len(frame.columns) == 1:
        raise SparkPrepError(f"the DataFrame has no column but {column!r}, which only numbers its rows")
    dtype = frame.schema[column].dataType
    if not isinstance(dtype, _INTEGERS):
        raise SparkPrepError(
            f"the column {column!r} numbers the rows and must hold integers, found {dtype.simpleString()}; "
            f"cast it: F.col({column!r}).cast('bigint')"
        )
    return frame[_quoted(column)].cast("bigint")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _guess(path: str) -> str:
    if path.rstrip("/").endswith(".parquet"):
        return "parquet"
    local = Path(path.removeprefix("file://"))
    if local.is_file():
        with local.open("rb") as handle:
            return "parquet" if handle.read(len(_PARQUET)) == _PARQUET else "json"
    return "json"


def path_of(address: Column) -> Column:
    """A local file's path from its address (`file:///a%20b`); other addresses as they are."""
    path = F.when(address.startswith("file:///"), F.substr(address, F.lit(8))).otherwise(F.substr(address, F.lit(6)))
    return F.when(address.startswith("file:"), _decoded(path)).otherwise(address)


def _decoded(path: Column) -> Column:
    return F.url_decode(_plus_kept(path))


def _plus_kept(path: Column) -> Column:
    """Decodes addresses; in a path, + does not stand for a blank."""
    return F.replace(path, F.lit("+"), F.lit("%2B"))


def in_order(addresses: Sequence[str] | None = None) -> list[Column]:
    """Sort keys that put rows in the order in which they were written, files by their paths, as `pathlib` sorts them.

    `addresses` are those of all files, where they are known.  Decoding the address of every row takes longer than sorting
    the rows, and most addresses sort as their paths do.
    """
    file = F.col("file")
    if addresses is None or sorted(addresses) != sorted(addresses, key=path_key):
        file = F.translate(path_of(file), "/", "\0")
    return [file, F.col("block"), F.col("position")]


def path_key(address: str) -> str:
    """The key by which `in_order` sorts a file; code points sort as their UTF-8 does."""
    return local_path(address).replace("/", "\0")


def local_path(address: str) -> str:
    """As `path_of`."""
    is_local, is_full = address.startswith("file:"), address.startswith("file:///")
    return unquote(address[7 if is_full else 5 :]) if is_local else address


def absolute_path(text: str) -> Path:
    """The absolute path of an option.  Raises SparkPrepError for a relative one under Spark Connect.

    There Python workers are in a directory of the session, which is removed with it.
    """
    path = Path(text.removeprefix("file://") if text.startswith("file:///") else text.removeprefix("file:"))
    if not path.is_absolute() and SparkFiles._is_running_on_worker and Path.cwd() == Path(SparkFiles.getRootDirectory()):
        raise SparkPrepError(f"{text}: under Spark Connect a path has to be absolute, as the server's machine sees it")
    return path.absolute()
