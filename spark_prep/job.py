"""The commands of the Spark stage: inputs to a table, to an event table, to a change log.

    mpi-match compile subscriptions subs/*.jsonl.gz -o table.h5
    spark-submit --master yarn ... spark_prep/job.py events s3a://bucket/events/ --table table.h5 -o events.h5

Both are the same command line (`mpi_match.cli.compile`), which calls the functions below, as does a program with a session
of its own.  Under spark-submit the package must be importable on the executors, and the output must be on a file system that
they share.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from mpi_match.api import form_of
from mpi_match.arrays.strings import Strings
from mpi_match.environment.addresses import KAFKA, address_of, no_local_file
from mpi_match.events.event_table import left_out_of
from mpi_match.ingest.batches.unnamed import named_as_id, none_named, unread_directories
from mpi_match.ingest.columns.python import needed_names
from mpi_match.ingest.rows.judge import PLAIN, EventForm, nothing_usable
from mpi_match.model import describe
from mpi_match.storage import StorageError, check_output, kind_of_file
from mpi_match.table.table import Table, load_vocabulary
from spark_prep import (
    CompileOptions,
    CompileSummary,
    SparkPrepError,
    changes,
    event_columns,
    events,
    metadata,
    parcels,
    rejects,
    sources,
    splits,
    subscriptions,
    table_writer,
)
from spark_prep.events import RowOrder
from spark_prep.java_errors import in_one_line
from spark_prep.parcels import RecordSummary
from spark_prep.part_files import PartSet, WrittenPart
from spark_prep.session import exact_names, session
from spark_prep.sources import RowSource

_DISK = StorageLevel.DISK_ONLY
"""Storage of results that are needed twice: the executors' disks, because they are as large as the input."""

DEFAULTS = CompileOptions()


def compile_subscriptions(
    inputs: list[str] | DataFrame,
    output: Path,
    options: CompileOptions = DEFAULTS,
    **columns: str,
) -> CompileSummary:
    """Compile subscriptions to a table: `output`, an index, and its parts in the directory beside it.

    `inputs` are files, directories, globs (JSON lines, also .gz, or Parquet), or a DataFrame with the columns of Parquet
    (`spark_prep.subscriptions`).  `columns` maps members of subscriptions to columns of the DataFrame that have other names:
    `interface="rule_id", where="condition"`; one may be several.  All others are carried along as metadata of the ids, which
    answers by filter show; the same id may not have two.
    Subscriptions have no numbers, so `options.number` is not for them.  Raises SparkPrepError, StorageError.
    """
    start = time.perf_counter()
    _check_options(options)
    inputs, output = _inputs(inputs), _path(output, "output")
    _check_files(output, inputs)
    _check_partitions(options.partitions)
    bad_rows = _RejectPath(output, options.rejects)
    if options.number is not None:
        raise SparkPrepError(f"subscriptions are not numbered by a column ({options.number!r}); events of a DataFrame are")
    if columns and not isinstance(inputs, DataFrame):
        raise SparkPrepError(f"files have columns with names of their own; {next(iter(columns))}= is for a DataFrame")
    spark = session(options.master, java_only_plans=True)
    with in_one_line(), exact_names(spark), PartSet(output, "table") as parts, _Held() as held:
        named = subscriptions.columns_of(inputs.schema, columns) if isinstance(inputs, DataFrame) else None
        rows = subscriptions.renamed(inputs, named) if named is not None and isinstance(inputs, DataFrame) else inputs
        source = _source(spark, rows, options, sources.read_subscriptions)
        subscriptions.check_columns(source.columns)
        records = held.keep(_parsed(spark, source))
        found = RecordSummary.of(records)
        table_writer.check_size(found.filters)
        bad_rows.settle(records, source, found.rows, found.bad, options.strict)
        if not found.filters:
            raise bad_rows.nothing_usable(records, source, found.bad, "subscription")
        n_filter_parts, n_constraint_parts = (
            options.partitions or table_writer.partitions_for(n, n_of_part, found.n_bytes, _cores(spark))
            for n, n_of_part in (
                (found.filters, table_writer.FILTERS_PER_PART),
                (found.constraints, table_writer.CONSTRAINTS_PER_PART),
            )
        )
        sorted_ = held.keep(
            parcels.in_ranges(records, found.first_keys(n_filter_parts), found.first_names(n_constraint_parts))
        )
        ranges, totals = parcels.ranges(sorted_)
        constrained = []
        if found.constraints:
            has = {"presence": found.presence > 0, "residues": found.residues > 0}
            constrained = table_writer.write_constraints(sorted_, ranges, n_constraint_parts, parts.files, **has)
        filed = table_writer.write_filters(sorted_, ranges, parts.files)
        written = [*constrained, *filed]
        if not constrained:
            written.insert(0, table_writer.write_empty(parts.files))
        if named is not None and named.metadata:
            written += metadata.write(records, named.metadata, n_filter_parts, parts.files)
        _agree(constrained, found.constraints, "constraints")
        _agree(filed, found.filters, "filters")
        counts = {
            "n_names": sum(item.distinct for item in constrained),
            "n_constraints": found.constraints,
            "n_filters": found.filters,
            "n_interfaces": totals.interfaces,
        }
        parts.commit(written, counts)
    return CompileSummary(
        found.rows,
        totals.visible_filters,
        found.constraints - found.hidden,
        totals.visible_interfaces,
        0,
        found.bad,
        bad_rows.path if found.bad else None,
        time.perf_counter() - start,
        doubts=table_writer.doubts_of(constrained),
        metadata=tuple(named.metadata if named is not None else ()),
    )


def compile_events(
    inputs: list[str] | DataFrame,
    table: Path,
    output: Path,
    form: EventForm = PLAIN,
    options: CompileOptions = DEFAULTS,
    *,
    location: str | tuple[str, str] | None = None,
    id: str | None = None,
) -> CompileSummary:
    """Compile events to an event table, encoded for `table`: `output`, an index, and its parts in the directory beside it.

    `location` and `id`, or a `form` instead, name the attributes that hold an event's coordinates and its id, which is then
    no attribute; `inputs` as in `compile_subscriptions`.

    An event's number is its row's number in the input, rejected rows included.  A DataFrame has no order: name the column
    that numbers its rows, `options.number`, which is then no attribute.  Without one its events are numbered along its
    partitions as Spark has them in this run, and another run may number them otherwise; give them an id to know them by.
    Raises SparkPrepError, StorageError, ModelError.
    """
    start = time.perf_counter()
    form = _form(form, location, id)
    _check_options(options)
    inputs, output, table = _inputs(inputs), _path(output, "output"), _path(table, "table").absolute()
    _check_files(output, inputs, table)
    digest = events.table_digest(table)
    _check_partitions(options.partitions)
    bad_rows = _RejectPath(output, options.rejects)
    named = load_vocabulary(table).attribute_names
    needed = needed_names(named, form)
    _check_number(options.number, inputs, needed)
    if not isinstance(inputs, DataFrame) and options.format is None:
        sources.refuse_other_forms(inputs)
    spark = session(options.master, java_only_plans=True)
    with in_one_line(), exact_names(spark), PartSet(output, "events") as parts, _Held() as held:
        source, opaque = event_columns.usable(_source(spark, inputs, options, sources.read_events), needed, form)
        target = events.EventTarget(form, table, digest, parts.files, opaque, number=options.number)
        found, source = _written_events(spark, source, target, options.partitions, held)
        written, n_bad = events.WrittenEvents.of(found, options.number)
        n_rows = sum(item.rows for item in written)
        bad_rows.settle(found, source, n_rows, n_bad, options.strict)
        if n_bad == n_rows:
            raise bad_rows.nothing_usable(found, source, n_bad, "event")
        never_seen, left_out, names = _seen(parts, written, form)
        if options.strict and never_seen:
            raise SparkPrepError(f"no event has {' or '.join(map(repr, never_seen))}, and strict wants it")
        is_located = form.location is not None and form.location[0] not in never_seen
        is_named = not named or is_located or not named.isdisjoint(names)
        doubts = list(filter(None, (named_as_id(named, form.id), "" if is_named else none_named(named, names))))
        if source.format == "json" and (unread := unread_directories(named, sources.paths(source))):
            doubts.append(unread)
        if options.strict and doubts:
            raise SparkPrepError(f"{source.name}: {doubts[0]} (--strict)")
        parts.commit(written, parts.attributes(written[0]) | {"n_events": n_rows})
    rejected = bad_rows.path if n_bad else None
    wall_s = time.perf_counter() - start
    return CompileSummary(
        n_rows, 0, 0, 0, n_rows, n_bad, rejected, wall_s, never_seen=never_seen, left_out=left_out, doubts=tuple(doubts)
    )


def compile_changes(
    inputs: list[str],
    table: Path,
    output: Path,
    *,
    rejects: Path | None = None,
    strict: bool = False,
    master: str | None = None,
) -> CompileSummary:
    """Compile changes (JSON lines) to a change log for `table`: one file, `output`.

    Changes that cannot be applied when their turn comes, such as the removal of an unknown id, are bad rows too.  `rejects`,
    `strict` and `master` as in `CompileOptions`.  Raises SparkPrepError, StorageError.
    """
    start = time.perf_counter()
    inputs, output, table = _inputs(inputs), _path(output, "output"), _path(table, "table")
    _check_files(output, inputs, table)
    bad_rows = _RejectPath(output, rejects)
    changing = Table.load(table)
    spark = session(master)
    with in_one_line(), _Held() as held:
        source = sources.read(spark, inputs, "json")
        parsed = held.keep(changes.parse(_spread(spark, source)))
        row = parsed.agg(F.sum("rows"), F.count("reason")).first()
        n_rows, n_bad = (row[0] or 0, row[1]) if row is not None else (0, 0)
        log, refused = changes.number(parsed, changing)
        n_bad += len(refused)
        bad = changes.with_refused(parsed, refused)
        bad_rows.settle(bad, source, n_rows, n_bad, strict)
        if not len(log):
            raise bad_rows.nothing_usable(bad, source, n_bad, "change")
        log.save(output)
    return CompileSummary(
        n_rows,
        log.added.n_filters,
        log.added.n_constraints,
        len(log.labels),
        0,
        n_bad,
        bad_rows.path if n_bad else None,
        time.perf_counter() - start,
        len(log),
    )


def _written_events(
    spark: SparkSession, source: RowSource, target: events.EventTarget, partitions: int | None, held: _Held
) -> tuple[DataFrame, RowSource]:
    """The records of written parts of events, held, and the source that knows the lines of their bad rows."""
    cores, files = _cores(spark), splits.local_files(source)
    if files is not None:
        tasks = splits.splits_of(files, partitions or splits.number_of_tasks(files, cores))
        found = held.keep(events.write_splits(spark, tasks, source.format == "json", target))
        return found, replace(source, blocks=events.blocks(found))
    if source.number is not None:
        return held.keep(_written_numbered(source.rows, target, partitions, cores)), source
    rows, as_they_are = source.rows, partitions is None
    in_ranges = as_they_are and events.are_in_ranges(rows, cores)
    if not in_ranges:
        rows = events.ordered(rows, partitions or max(cores, rows.rdd.getNumPartitions()))
    return held.keep(events.write_parts(rows, target, RowOrder.RANGES if in_ranges else RowOrder.SORTED)), source


def _written_numbered(rows: DataFrame, target: events.EventTarget, partitions: int | None, cores: int) -> DataFrame:
    """Does what `events.write_parts` does, for rows that a column numbers."""
    found, n_partitions = events.numbering(rows), rows.rdd.getNumPartitions()
    is_spread = partitions is None and (n_partitions >= cores or found.n <= events.LEAST_RUN)
    if found.is_dense and is_spread and found.runs <= max(n_partitions, found.n // events.LEAST_RUN):
        return events.write_parts(rows, target, RowOrder.RUNS)
    cut = partitions or max(cores, -(-found.n // events.SORTED_AT_ONCE))
    if found.is_dense and found.n <= cut * events.SORTED_AT_ONCE:
        return events.write_parts(events.dealt_out(rows, found.n, cut), target, RowOrder.NONE)
    return events.write_parts(events.ordered(rows, cut), target, RowOrder.SORTED)


_Inputs = TypeVar("_Inputs", list[str], list[str] | DataFrame)


def _inputs(given: _Inputs) -> _Inputs:
    """The inputs as a list of texts, or a DataFrame unchanged.  Raises SparkPrepError for anything else."""
    if isinstance(given, DataFrame):
        if is_remote():
            raise SparkPrepError(
                "a DataFrame of Spark Connect cannot be compiled, since parts are written through Spark's Java; "
                "use a session without SPARK_REMOTE, or write the rows as Parquet and give their directory"
            )
        if given.isStreaming:
            raise SparkPrepError(
                "a DataFrame of a stream has no end, and a table or an event table does; compile each batch of it: "
                "frame.writeStream.foreachBatch(lambda batch, number: compile_events(batch, table, f'{number}.h5'))"
            )
        return given
    files = [given] if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(files, (list, tuple)) or not all(isinstance(each, (str, os.PathLike)) for each in files):
        raise SparkPrepError(
            f"inputs are paths of files, or a DataFrame of Spark, found {' '.join(describe(given).split())}; "
            "spark.createDataFrame makes one of rows and of a frame of pandas"
        )
    found = [os.fspath(each) for each in files]
    for topic in (each for each in found if each.startswith(KAFKA)):
        raise SparkPrepError(no_local_file(topic))
    return found


def _check_options(options: object) -> None:
    if not isinstance(options, CompileOptions):
        raise SparkPrepError(f"options are spark_prep.CompileOptions(...), found {describe(options)}")


def _form(form: object, location: str | tuple[str, str] | None, id_: str | None) -> EventForm:
    """The form of events, given or of its parts.  Raises SparkPrepError, and ModelError for a wrong part."""
    if not isinstance(form, EventForm):
        raise SparkPrepError(f"form is an EventForm, found {describe(form)}; give options by name: options=..., id=...")
    return form if location is None and id_ is None else form_of(location, id_)


def _path(given: object, what: str) -> Path:
    if not isinstance(given, (str, os.PathLike)):
        raise SparkPrepError(f"{what} is the path of a file, found {describe(given)}")
    if (address := address_of(given)) is not None:
        raise SparkPrepError(f"{what} {no_local_file(address)}")
    return Path(given)


def _source(
    spark: SparkSession,
    inputs: list[str] | DataFrame,
    options: CompileOptions,
    read: Callable[[SparkSession, list[str], str | None], RowSource],
) -> RowSource:
    if isinstance(inputs, DataFrame):
        return sources.of_frame(inputs, options.number)
    return read(spark, inputs, options.format)


def _check_number(column: str | None, inputs: list[str] | DataFrame, needed: frozenset[str]) -> None:
    """Refuse a column of numbers that is not of a DataFrame, or wanted as an attribute too.  Raises SparkPrepError."""
    if column is not None and not isinstance(inputs, DataFrame):
        raise SparkPrepError(
            f"events in files are numbered by their rows; a column ({column!r}) numbers those of a DataFrame"
        )
    if column in needed:
        raise SparkPrepError(
            f"the column {column!r} numbers the events and is not an attribute, but a filter, the location or the id names "
            f"it; number by a copy of it: withColumn('number', F.col({column!r}))"
        )


def _check_files(output: Path, inputs: list[str] | DataFrame, *read: Path) -> None:
    """Refuse inputs that hold no rows, and an output in the place of what is read.  Raises StorageError.

    Globs and addresses of other file systems are names that no file of this machine has.
    """
    local = [] if isinstance(inputs, DataFrame) else [Path(each.removeprefix("file://")) for each in inputs]
    check_output(output, [*local, *read])
    for path in local:
        kind = kind_of_file(path)
        if kind is not None:
            raise StorageError(f"{path}: holds {kind!r}, which is compiled already; rows are expected here")


def _check_partitions(partitions: int | None) -> None:
    if partitions is not None and partitions < 1:
        raise SparkPrepError(f"the number of partitions must be at least 1, found {partitions}")


def _partition(written: WrittenPart) -> int:
    return written.partition


def _cores(spark: SparkSession) -> int:
    return spark.sparkContext.defaultParallelism


def _parsed(spark: SparkSession, source: RowSource) -> DataFrame:
    """The records of subscriptions."""
    if source.files is None:
        return subscriptions.parse(_spread(spark, source))
    tasks = splits.splits_of(source.files, splits.number_of_tasks(source.files, _cores(spark)))
    return subscriptions.parse_files(spark, tasks)


def _spread(spark: SparkSession, source: RowSource) -> DataFrame:
    """The rows, dealt out anew when too few tasks read them (one large .gz) to keep all cores parsing."""
    cores = _cores(spark)
    return source.rows.repartition(4 * cores) if source.rows.rdd.getNumPartitions() < cores else source.rows


def _agree(written: list[WrittenPart], expected: int, what: str) -> None:
    found = sum(item.rows for item in written)
    if found != expected:
        raise SparkPrepError(
            f"the parts hold {found:,} {what}, expected {expected:,}; did the input change meanwhile? compile again"
        )


def _seen(parts: PartSet, written: list[WrittenPart], form: EventForm) -> tuple[tuple[str, ...], Counter[str], set[str]]:
    """The names of location and id that no event has; the names that were left out, with the number of events; the names of
    all attributes."""
    located = identified = False
    left_out: Counter[str] = Counter()
    names: set[str] = set()
    for item in written:
        with parts.reader(item) as reader:
            located, identified = located or "events/location" in reader, identified or "ids/data" in reader
            names.update(name.decode() for name in Strings.read(reader, "names"))
            left_out.update(left_out_of(reader))
    return form.never_seen(located, identified), left_out, names


class _Held:
    """Results that wait on disk until the job ends."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def __enter__(self) -> _Held:
        return self

    def __exit__(self, *_: object) -> None:
        for frame in self._frames:
            frame.unpersist()

    def keep(self, frame: DataFrame) -> DataFrame:
        self._frames.append(frame)
        return frame.persist(_DISK)


class _RejectPath:
    """The place of bad rows, which is checked before any work is done, and their handling."""

    def __init__(self, output: Path, path: Path | None) -> None:
        self.path = path if path is not None else output.with_name(output.name + ".rejects")
        rejects.check_path(self.path)

    def settle(self, records: DataFrame, source: RowSource, n_rows: int, n_bad: int, strict: bool) -> None:
        """Write the bad rows, or refuse to go on.  If there are none, remove those of an earlier compile."""
        if not n_bad:
            rejects.clear(self.path)
            return
        found = rejects.rejects(records, source)
        if strict:
            raise rejects.refusal(found, n_bad, n_rows)
        rejects.write(found, self.path)

    def nothing_usable(self, records: DataFrame, source: RowSource, n_bad: int, what: str) -> SparkPrepError:
        """The error of an input without a single good `what`."""
        example = rejects.first(rejects.rejects(records, source), 1) if n_bad else [None]
        text = nothing_usable(source.name, what, n_bad, example[0])
        return SparkPrepError(f"{text}; all of them are in {self.path}" if n_bad else text)


if __name__ == "__main__":
    from mpi_match.cli.compile import main

    main()
