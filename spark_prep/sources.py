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

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mpi_match.ingest.rows.judge import MAX_LINE_BYTES
from mpi_match.ingest.rows.row_files import COLUMNAR_ENDINGS, CSV_ENDINGS
from spark_prep import SparkPrepError
from spark_prep.java_errors import in_one_line

FORMATS = ("json", "parquet")
PLACE = ("file", "block", "position")
_NOT_OF_SPARK = (*CSV_ENDINGS, *(each for each in COLUMNAR_ENDINGS if each != ".parquet"))
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_PARQUET = b"PAR1"
"""First bytes of a Parquet file."""


@dataclass(frozen=True)
class RowSource:
    """Rows of one format ("json", "parquet" or "frame"): a DataFrame of content, file, block, position (see the module).

    `name` is its name in messages.  `columns` are those of the input; for JSON lines, which have none, None.  `blocks` are
    the blocks of lines where they are known: file, block, position of the first line, and number of lines `n`.  `number` is
    the column of a frame that positions are from.
    """

    rows: DataFrame
    format: str
    name: str
    columns: list[str] | None = None
    blocks: DataFrame | None = None
    number: str | None = None

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
    """Rows of files, directories and globs.

    JSON lines: directories are searched recursively, and `.gz` is decompressed.  Parquet: directories named `column=value`
    are columns, as everywhere in Spark.

    `format_` is "json" or "parquet"; by default Parquet for names that end in `.parquet`, local directories of such, and
    local files that begin like Parquet.  Raises SparkPrepError when an input is missing or the formats are mixed.
    """
    if not inputs:
        raise SparkPrepError("no input given: name at least one file, directory or glob")
    if format_ is not None and format_ not in FORMATS:
        raise SparkPrepError(f"unknown format {format_!r}; there are: {', '.join(FORMATS)}")
    found = {format_} if format_ is not None else {_guess(path) for path in inputs}
    if len(found) > 1:
        raise SparkPrepError("the inputs mix JSON lines and Parquet; compile one kind at a time, or convert one of them")
    with in_one_line(f"cannot read {', '.join(inputs)}: "):
        return _parquet(spark, inputs) if found == {"parquet"} else _json_lines(spark, inputs)


def refuse_other_forms(inputs: list[str]) -> None:
    """Raise SparkPrepError for events in a form that only one process reads; Spark would take them for JSON lines."""
    for name in inputs:
        local = Path(name.removeprefix("file://"))
        names = map(str, local.rglob("*")) if local.is_dir() else [name]
        for each in names:
            if each.lower().endswith(_NOT_OF_SPARK):
                raise SparkPrepError(f"{each}: is CSV or Arrow, which `compile events --local` reads; Spark does not")


def _json_lines(spark: SparkSession, inputs: list[str]) -> RowSource:
    lines = spark.read.option("lineSep", "\n").option("recursiveFileLookup", "true").text(inputs)
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
    table = spark.read.option("mergeSchema", "true").parquet(*inputs)
    rows = table.select(
        _all_columns(table),
        F.col("_metadata.file_path").alias("file"),
        F.lit(0).cast("bigint").alias("block"),
        F.col("_metadata.row_index").alias("position"),
    )
    return RowSource(rows, "parquet", ", ".join(inputs), table.columns)


def of_frame(frame: DataFrame, number: str | None = None) -> RowSource:
    """The rows of a DataFrame with the columns of a Parquet file.

    `number` is the column of their positions, which is then no column of the rows; without one, positions ascend along the
    partitions as Spark happens to have them.  Raises SparkPrepError if it is no column of integers, or the only column.
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


def _all_columns(frame: DataFrame) -> Column:
    return F.struct(*[frame[_quoted(name)] for name in frame.columns]).alias("row")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _guess(path: str) -> str:
    if path.rstrip("/").endswith(".parquet"):
        return "parquet"
    local = Path(path.removeprefix("file://"))
    if local.is_file():
        with local.open("rb") as handle:
            return "parquet" if handle.read(len(_PARQUET)) == _PARQUET else "json"
    return "parquet" if local.is_dir() and next(local.rglob("*.parquet"), None) is not None else "json"


def path_of(address: Column) -> Column:
    """A local file's path from its address (`file:///a%20b`); other addresses as they are."""
    path = F.when(address.startswith("file:///"), F.substr(address, F.lit(8))).otherwise(F.substr(address, F.lit(6)))
    decoded = F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))  # in a path, + is not a blank
    return F.when(address.startswith("file:"), decoded).otherwise(address)


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
    """What `in_order` sorts a file by; code points sort as their UTF-8 does."""
    return local_path(address).replace("/", "\0")


def local_path(address: str) -> str:
    """As `path_of`."""
    is_local, is_full = address.startswith("file:"), address.startswith("file:///")
    return unquote(address[7 if is_full else 5 :]) if is_local else address
