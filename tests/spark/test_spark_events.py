"""Events through the Spark stage against the encoding in memory: the same order, codes, locations and ids."""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lasting import lasting
from random_rows import random_event

from mpi_match.events.event_table import EventTable
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import PLAIN, EventForm, event_of_row
from mpi_match.model import ModelError
from mpi_match.storage import StorageError
from mpi_match.table.table import load_vocabulary
from spark_prep import CompileOptions, SparkPrepError

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytestmark = pytest.mark.spark

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402
from spark_inputs import assert_same_events, in_memory, names_in, read_rejects, write_lines  # noqa: E402

from spark_prep import events as spark_events  # noqa: E402
from spark_prep import job, sources, splits  # noqa: E402
from spark_prep.part_files import PartSet  # noqa: E402
from spark_prep.splits import Split  # noqa: E402


@pytest.fixture(scope="module")
def table(spark: SparkSession, rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "table.h5"
    in_memory(rows).save(path)
    return path


@pytest.mark.parametrize(
    ("by_spark", "partitions"), [(False, 3), (True, 3), (True, None)], ids=["splits", "sorted", "ranges"]
)
def test_the_event_table_keeps_order_and_equals_the_encoding_in_memory(
    spark: SparkSession,
    table: Path,
    tmp_path: Path,
    small_blocks: None,
    monkeypatch: pytest.MonkeyPatch,
    by_spark: bool,
    partitions: int | None,
) -> None:
    if by_spark:
        monkeypatch.setattr(splits, "local_files", lambda _: None)
    generator = random.Random(5)
    published = [random_event(generator) for _ in range(400)]
    write_lines(tmp_path / "in" / "a b.jsonl", published[:150])  # in the order of the paths, not of their addresses
    write_lines(tmp_path / "in" / "a!.jsonl.gz", published[150:300])
    third = [json.dumps(row) for row in published[300:]]
    third[50:50] = ["", '{"x": 1}', '{"x": 1, "y": 2, "y": 3}', '{"x": [null], "y": 2}']
    (tmp_path / "in" / "é.jsonl").write_text("\n".join(third))
    summary = job.compile_events(
        [str(tmp_path / "in")],
        table,
        tmp_path / "events.h5",
        EventForm.of("x,y", "id"),
        CompileOptions(partitions=partitions),
    )
    form = EventForm(("x", "y"), "id")
    expected = [event_of_row(row, form) for row in published]
    assert_same_events(tmp_path / "events.h5", table, Events.of([*expected[:350], None, None, None, *expected[350:]]))
    assert (summary.rows, summary.events, summary.rejected) == (403, 403, 3)
    found = read_rejects(summary.rejects)
    assert [(Path(row["file"]).name, row["line"]) for row in found] == [("é.jsonl", n) for n in (52, 53, 54)]
    assert "the location needs both" in found[0]["reason"]


@pytest.mark.parametrize("by_spark", [False, True], ids=["splits", "ranges"])
def test_row_groups_are_read_in_their_order(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_spark: bool
) -> None:
    in_memory([{"interface": "i", "constraints": [["n", ">", 5]]}]).save(tmp_path / "table.h5")
    rows = [{"n": Decimal(2**64 if i in (70, 330) else i), "on": None if i % 3 else True} for i in range(350)]
    for name, part in (("a", rows[:240]), ("b", rows[240:])):
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(part), tmp_path / "in" / f"{name}.parquet", row_group_size=40)
    if by_spark:
        monkeypatch.setattr(sources, "local_inputs", lambda _: None)  # files of another file system
    monkeypatch.setattr(splits, "UNDIVIDED_BYTES", 1000)
    how = CompileOptions(format="parquet")
    summary = job.compile_events([str(tmp_path / "in")], tmp_path / "table.h5", tmp_path / "events.h5", options=how)
    with EventTable(tmp_path / "events.h5", load_vocabulary(tmp_path / "table.h5")) as made:
        assert made.n_parts == 2
    good = [None if i in (70, 330) else event_of_row(row) for i, row in enumerate(rows)]
    assert_same_events(tmp_path / "events.h5", tmp_path / "table.h5", Events.of(good))
    found = [(Path(row["file"]).name, row["line"]) for row in read_rejects(summary.rejects)]
    assert found == [("a.parquet", 71), ("b.parquet", 91)]


def test_splits_share_files_by_their_bytes(tmp_path: Path) -> None:
    """Consecutive ranges of bytes, each in one task; a packed file is whole, and weighs more."""
    sizes = {"a.jsonl": 1000, "b.jsonl.gz": 100, "c.jsonl": 0, "d.jsonl": 400}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"\n" * size)
    files = [tmp_path / name for name in sizes]
    found = [[(Path(each.path).name, each.start, each.stop) for each in task] for task in splits.splits_of(files, 4)]
    assert found == [
        [("a.jsonl", 0, 500)],
        [("a.jsonl", 500, 1000)],
        [("b.jsonl.gz", 0, 100)],
        [("d.jsonl", 0, 400)],
    ]
    assert splits.splits_of(files[2:3], 3) == []
    assert (splits.number_of_tasks(files, 2), splits.number_of_tasks(files[:0], 2)) == (1, 1)
    pieces = [list(Split("x", start, stop, 10).pieces(3)) for start, stop in ((0, 3), (3, 4), (4, 6), (6, 10))]
    assert pieces == [[0], [1], [], [2]]


@pytest.mark.parametrize(
    ("format_", "address", "is_found"),
    [
        ("json", "file://{}/a%20b.jsonl", True),
        ("json", "hdfs://there/{}/a%20b.jsonl", False),
        ("json", "file://{}/c.jsonl.lz4", False),
        ("json", "file://{}/absent.jsonl", False),
        ("parquet", "file://{}/a%20b.jsonl", False),
        ("frame", "file://{}/a%20b.jsonl", False),
    ],
)
def test_tasks_read_files_that_they_see_and_understand(tmp_path: Path, format_: str, address: str, is_found: bool) -> None:
    for name in ("a b.jsonl", "c.jsonl.lz4"):
        (tmp_path / name).touch()
    rows = SimpleNamespace(inputFiles=lambda: [address.format(tmp_path)])
    found = splits.local_files(sources.RowSource(cast(DataFrame, rows), format_, "it"))
    assert found == ([tmp_path / "a b.jsonl"] if is_found else None)


def test_a_damaged_file_of_events_is_one_line(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    whole = write_lines(tmp_path / "in.gz", [{"temp": i} for i in range(500)]).read_bytes()
    (tmp_path / "in.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SparkPrepError, match=r"^/\S+/in\.jsonl\.gz: is not a whole gzip file: ") as caught:
        job.compile_events([str(tmp_path / "in.jsonl.gz")], table, tmp_path / "events.h5")
    assert (caught.value.exit_code, "\n" in str(caught.value)) == (3, False)
    assert names_in(tmp_path / "any") == {"in.gz", "in.jsonl.gz"}


@pytest.mark.parametrize(
    ("names", "is_plain"),
    [(["a.jsonl", "b/c.jsonl", "b/d.jsonl"], True), (["a b.jsonl", "a!.jsonl"], False), (["b", "b+/a"], True)],
)
def test_addresses_are_decoded_only_where_they_do_not_sort_as_paths(
    spark: SparkSession, tmp_path: Path, names: list[str], is_plain: bool
) -> None:
    """By path, `a b` comes before `a!`; by address, `a%20b` after it."""
    paths = [write_lines(tmp_path / "in" / name, [{}]) for name in names]
    source = sources.read(spark, list(map(str, paths)), "json")
    keys = [str(key) for key in sources.in_order(source.rows.inputFiles())]
    assert (keys == [str(F.col(name)) for name in ("file", "block", "position")]) == is_plain
    found = spark_events.ordered(source.rows, 1).select(sources.path_of(F.col("file"))).collect()
    assert [Path(row[0]) for row in found] == sorted(paths)


def test_parts_of_events_are_bounded(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    published = [{"temp": i, "city": "Milan"} for i in range(100)]
    source = sources.read(spark, [str(write_lines(tmp_path / "in.jsonl", published))])
    with PartSet(tmp_path / "events.h5", "events") as parts:
        ordered = spark_events.ordered(source.rows, 1)
        digest = spark_events.table_digest(table)
        target = spark_events.EventTarget(EventForm(), table, digest, parts.files, events_per_part=30)
        found = spark_events.write_parts(ordered, target, spark_events.RowOrder.SORTED)
        assert [row["rows"] for row in found.where("part is not null").collect()] == [30, 30, 30, 10]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "in.jsonl: holds no event$"),
        ("\n[]\n1\n", "no usable event, all 2 rows are rejected; .*line 2: an event"),
    ],
    ids=["no rows", "all rows bad"],
)
def test_no_events_are_an_error_and_no_output(
    spark: SparkSession, table: Path, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "in.jsonl").write_text(text)
    with pytest.raises(SparkPrepError, match=said):
        job.compile_events([str(tmp_path / "in.jsonl")], table, tmp_path / "events.h5")
    assert names_in(tmp_path / "any") == {"in.jsonl"} | ({"events.h5.rejects"} if text else set())


def test_a_location_or_id_that_no_event_has_is_said(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", [{"temp": 25}, {"temp": 26}])
    form = EventForm.of("lon,lat", "uuid")
    assert job.compile_events([str(path)], table, tmp_path / "e.h5", form).never_seen == ("lon", "lat", "uuid")
    with pytest.raises(SparkPrepError, match="no event has 'lon' or 'lat' or 'uuid', and strict wants it"):
        job.compile_events([str(path)], table, tmp_path / "strict.h5", form, CompileOptions(strict=True))
    assert not (tmp_path / "strict.h5").exists()
    path = write_lines(tmp_path / "in.jsonl", [{"temp": 25}, {"temp": 26, "lon": 1, "lat": 2, "uuid": "e2"}])
    assert job.compile_events([str(path)], table, tmp_path / "e.h5", form).never_seen == ()


NOW = datetime.datetime(2024, 5, 1, 12, 30)
ODD_COLUMNS = {
    "when": pa.array([NOW, NOW]),
    "day": pa.array([NOW.date(), None]),
    "tags": pa.array([["a", "b"], None]),
    "nested": pa.array([[["a"]], None]),
    "labels": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    "blob": pa.array([b"x", b"y"]),
    "uid": pa.array([Decimal(10**20), Decimal(7)]),
    "meta": pa.array([{"at": NOW, "seat": 3}, None]),
    "trace": pa.array([{"at": NOW}, {"at": None}]),
}
LEFT_OUT = {"blob": 2, "day": 1, "labels": 1, "labels.": 1, "meta.at": 1, "trace.at": 1, "uid": 1, "when": 2}
"""Events with such a value."""


def test_columns_that_no_filter_names_are_not_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    rules = [["temp", ">", 20], ["price", "=", 19.99], ["n", "<", 5], ["meta.seat", "=", 3], ["tags", "has", "a"]]
    in_memory([{"interface": "i", "constraints": rules}]).save(tmp_path / "table.h5")
    decimals = {"price": pa.array([Decimal("19.99"), Decimal("20.00")]), "n": pa.array([Decimal(3), Decimal(2**53 + 1)])}
    pq.write_table(pa.table({"temp": [25.5, 26.0], **decimals, **ODD_COLUMNS}), tmp_path / "in.parquet")
    summary = job.compile_events([str(tmp_path / "in.parquet")], tmp_path / "table.h5", tmp_path / "events.h5")
    assert (summary.events, summary.rejected, summary.left_out) == (2, 0, LEFT_OUT)
    good = [
        {"temp": 25.5, "price": 19.99, "n": 3, "tags": ["a", "b"], "nested": ["a"], "meta": {"seat": 3}},
        {"temp": 26, "price": 20, "n": 2**53 + 1}
        | {"day": None, "tags": None, "nested": None, "labels": None, "uid": 7, "meta": None, "trace": {"at": None}},
    ]
    assert_same_events(tmp_path / "events.h5", tmp_path / "table.h5", Events.of(event_of_row(row) for row in good))
    for name in ("uid", "when"):  # a table that names it would silently find nothing
        other = in_memory([{"interface": "i", "constraints": [[name, "exists"]]}]).vocabulary
        with pytest.raises(StorageError, match=f"was compiled without '{name}', which no filter named"):
            EventTable(tmp_path / "events.h5", other)


def test_what_a_frame_leaves_out_has_the_counts_of_a_file(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    """Columns of frames counted every event, and their nulls and empty lists were lost."""
    rows = [(25.5, b"x", [b"y"], {"k": 1.5}, (NOW.date(),)), (26.0, None, [], None, None), (27.0, None, None, {}, (None,))]
    types = "temp double, blob binary, blobs array<binary>, labels map<string, double>, s struct<day date>"
    frame = spark.createDataFrame(rows * 100, types).coalesce(1)
    frame.write.parquet(str(tmp_path / "frame.parquet"))
    names = {"blob": 100, "blobs": 100, "labels": 100, "labels.": 100, "s.day": 100}
    of_frame = job.compile_events(frame, table, tmp_path / "frame.h5")
    of_file = job.compile_events([str(tmp_path / "frame.parquet")], table, tmp_path / "file.h5")
    assert of_file.left_out == names
    assert of_frame.left_out == names | {"blobs.": 100}
    vocabulary = load_vocabulary(table)
    with EventTable(tmp_path / "frame.h5", vocabulary) as a, EventTable(tmp_path / "file.h5", vocabulary) as b:
        for i in range(3):
            assert a.event(i) == b.event(i)


@pytest.mark.parametrize(
    ("rule", "form", "said"),
    [
        ("when", PLAIN, "the column 'when' is of type timestamp.*, and filters, --location or --id name it"),
        ("meta.at", PLAIN, "the column 'meta.at' is of type timestamp"),
        ("labels.k", PLAIN, "the column 'labels' is of type map<string, int64"),
        ("temp", EventForm.of("temp,tags", None), "the column 'tags' is of type list<element: string>"),
        ("temp", EventForm.of(None, "blob"), "the column 'blob' is of type binary"),
        (
            "temp",
            EventForm.of(None, "uuid"),
            "there is no column 'uuid'; there are: 'temp', ",
        ),
    ],
)
def test_a_column_that_is_named_and_no_attribute_is_refused_before_the_job(
    spark: SparkSession, tmp_path: Path, rule: str, form: EventForm, said: str
) -> None:
    in_memory([{"interface": "i", "constraints": [[rule, "exists"]]}]).save(tmp_path / "table.h5")
    pq.write_table(pa.table({"temp": [25.5, 26.0], **ODD_COLUMNS}), tmp_path / "in.parquet")
    with pytest.raises(SparkPrepError, match=said):
        job.compile_events([str(tmp_path / "in.parquet")], tmp_path / "table.h5", tmp_path / "events.h5", form)
    assert names_in(tmp_path / "any") == {"table.h5", "in.parquet"}


def test_values_of_named_columns_that_are_none_are_bad_rows(spark: SparkSession, tmp_path: Path) -> None:
    in_memory([{"interface": "i", "constraints": [["n", ">", 1]]}]).save(tmp_path / "table.h5")
    found = pa.table({"n": pa.array([Decimal(2**64), Decimal(7)], pa.decimal128(20, 0))})
    pq.write_table(found, tmp_path / "in.parquet")
    summary = job.compile_events([str(tmp_path / "in.parquet")], tmp_path / "table.h5", tmp_path / "events.h5")
    (reject,) = read_rejects(summary.rejects)
    assert (summary.events, summary.rejected, reject["line"]) == (2, 1, 1)
    assert "attribute 'n': the integer 18446744073709551616 is not between" in reject["reason"]


def test_a_frame_without_a_usable_column_is_refused(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    frame = spark.createDataFrame([([b"x"],)], "flags array<binary>")
    with pytest.raises(SparkPrepError, match=r"no column is a number, .* there are: 'flags' of type array<binary>"):
        job.compile_events(frame, table, tmp_path / "events.h5")


@pytest.mark.parametrize(("shuffled", "partitions"), [(True, 3), (True, None), (False, None)])
def test_a_column_numbers_the_events_of_a_frame(
    spark: SparkSession, table: Path, tmp_path: Path, shuffled: bool, partitions: int | None
) -> None:
    temps = [Decimal(25), None, Decimal(2**64), *map(Decimal, range(300))]
    rows = [(number, temp, "Milan") for number, temp in enumerate(temps)]
    if shuffled:
        random.Random(3).shuffle(rows)
    frame = spark.createDataFrame(rows, "n long, temp decimal(20, 0), city string")
    options = CompileOptions(number="n", partitions=partitions)
    given = frame.repartition(4) if shuffled else frame
    numbering = spark_events.numbering(sources.of_frame(given, "n").rows)
    assert numbering[::2] == (len(rows), True)
    assert (numbering.runs > 100) == shuffled
    summary = job.compile_events(given, table, tmp_path / "events.h5", options=options)
    published = [{"temp": temp, "city": "Milan"} for temp in temps]
    expected = Events.of(None if number == 2 else event_of_row(row) for number, row in enumerate(published))
    assert_same_events(tmp_path / "events.h5", table, expected)
    (reject,) = read_rejects(summary.rejects)
    assert (reject["file"], reject["line"], json.loads(reject["row"])["city"]) == ("", 3, "Milan")


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([0, 1, None], "is null in a row"),
        ([2, 1, 0, 1], "1 occurs twice"),
        ([1, 2], r"0 is missing \(next is 1\)"),
        ([0.0, 1.0], "must hold integers, found double"),
        *lasting(  # the task that fails is tried four times, each time in a new process
            ([0, 1, -1], "from 0 on; it holds -1"),
            ([3, 0, 1, 1], "1 occurs twice"),
            ([0, 1, 3], r"2 is missing \(next is 3\)"),
        ),
    ],
)
def test_numbers_of_events_that_are_none_are_refused(
    spark: SparkSession, table: Path, tmp_path: Path, numbers: list[Any], said: str
) -> None:
    of = "double" if isinstance(numbers[0], float) else "int"
    frame = spark.createDataFrame([(number, 3) for number in numbers], f"n {of}, temp int").coalesce(1)
    with pytest.raises(SparkPrepError, match=f"^the column 'n' numbers the (events|rows).*{said}[^\n]*$"):
        job.compile_events(frame, table, tmp_path / "events.h5", options=CompileOptions(number="n", partitions=1))
    assert names_in(tmp_path / "any") == set()


def test_a_column_of_numbers_is_of_a_frame_and_no_attribute(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(0, 3.0)], "n int, temp double")
    path = str(write_lines(tmp_path / "in.jsonl", [{"temp": 1}]))
    for inputs, number, said in (
        (frame, "m", "there is no column 'm' to number the rows by; there are: 'n', 'temp'"),
        (frame, "temp", "the column 'temp' numbers the events and is not an attribute, but a filter"),
        (frame.select("n"), "n", "no column but 'n'"),
        ([path], "n", "events in files are numbered by their rows"),
    ):
        with pytest.raises(SparkPrepError, match=said):
            job.compile_events(inputs, table, tmp_path / "events.h5", options=CompileOptions(number=number))
    with pytest.raises(SparkPrepError, match="subscriptions are not numbered by a column"):
        job.compile_subscriptions([path], tmp_path / "table.h5", CompileOptions(number="n"))


def test_events_from_parquet_flatten_structs_and_leave_out_nulls(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    published = [
        {"temp": Decimal(25), "position": {"x": 1.5, "y": None}, "city": "Milan", "on": True},
        {"temp": None, "position": None, "city": None, "on": None},
        {"temp": Decimal(2**64), "position": None, "city": None, "on": None},
        {"temp": Decimal(-3), "position": {"x": 0.5, "y": 2.5}, "city": "", "on": False},
    ]
    pq.write_table(pa.Table.from_pylist(published), tmp_path / "in.parquet")
    summary = job.compile_events([str(tmp_path / "in.parquet")], table, tmp_path / "events.h5")
    expected = [None if i == 2 else event_of_row(row) for i, row in enumerate(published)]
    assert_same_events(tmp_path / "events.h5", table, Events.of(expected))
    (reject,) = read_rejects(summary.rejects)
    assert (reject["line"], json.loads(reject["row"])["temp"]) == (3, 2**64)


def test_a_table_compiled_again_under_the_same_name_is_not_confused_with_the_old(
    spark: SparkSession, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "in.jsonl", [{"temp": 25, "city": "Milan"}])
    for constraints in ([["temp", ">", 20]], [["city", "=", "Milan"], ["temp", "<", 30]]):
        in_memory([{"interface": "i", "constraints": constraints}]).save(tmp_path / "table.h5")
        job.compile_events([str(path)], tmp_path / "table.h5", tmp_path / "events.h5")
        assert_same_events(
            tmp_path / "events.h5", tmp_path / "table.h5", Events.of([event_of_row({"temp": 25, "city": "Milan"})])
        )


@pytest.mark.parametrize("name", ["in.csv", "in.CSV.gz", "in.arrow", "dir/in.feather"])
def test_forms_that_spark_does_not_read_are_refused_before_it_starts(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(job, "session", None)
    (tmp_path / "dir").mkdir()
    (tmp_path / name).write_text("temp\n3\n")
    given = tmp_path / name.split("/")[0]
    with pytest.raises(SparkPrepError, match=rf"{name}: is (CSV|Arrow), which `compile events --local` reads"):
        job.compile_events([str(given)], table, tmp_path / "events.h5")


def test_events_strict_and_bad_options(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"a": 1}\nnull\n')
    with pytest.raises(SparkPrepError, match=r"1 of 2 rows are bad(.|\n)*in\.jsonl, line 2: an event must be an object"):
        job.compile_events([str(tmp_path / "in.jsonl")], table, tmp_path / "events.h5", options=CompileOptions(strict=True))
    assert names_in(tmp_path / "any") == {"in.jsonl"}
    with pytest.raises(ModelError, match="two attribute names"):
        job.compile_events([str(tmp_path / "in.jsonl")], table, tmp_path / "events.h5", EventForm.of("x", None))


def test_an_error_inside_a_task_is_one_line(
    spark: SparkSession, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(rows[0]))
    replaced = "0" * 64
    in_memory(rows[:3]).save(tmp_path / "table.h5")
    monkeypatch.setattr(spark_events, "table_digest", lambda _: replaced)
    with pytest.raises(SparkPrepError, match=r"^a task failed: RuntimeError: .*table\.h5: was replaced while") as caught:
        job.compile_events([str(tmp_path / "in.jsonl")], tmp_path / "table.h5", tmp_path / "events.h5")
    assert "\n" not in str(caught.value)
    assert names_in(tmp_path / "any") == {"in.jsonl", "table.h5"}
