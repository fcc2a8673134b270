"""Arguments of another type than wanted: one line that says what was expected, and what was found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mpi_match
from mpi_match import api
from mpi_match.errors import MpiMatchError

TABLE = api.make_table([{"interface": "i", "constraints": [["x", "=", 1]]}])
ENGINE = api.open_engine("counting", TABLE)
ANY: Any = api

WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a table by its path": (lambda: ANY.make_batch("t.h5", []), "a table is one of make_table .*found str 't.h5'"),
    "a table by its rows": (lambda: ANY.match([{"interface": 1}], []), "a table is one of make_table .*found list"),
    "RowMatcher": (lambda: ANY.RowMatcher(5, ENGINE), "a table is one of make_table .*found int 5"),
    "the name of an engine": (lambda: ANY.RowMatcher(TABLE, "keyed"), "an engine is one of open_engine, found str 'keyed'"),
    "open_engine": (
        lambda: ANY.open_engine(TABLE, "keyed"),
        "open_engine takes an engine's name and a table .* found Table and str",
    ),
    "no threads": (
        lambda: ANY.open_engine("counting", TABLE, threads=0),
        "threads must be an integer of at least 1, or None",
    ),
    "a text of threads": (lambda: ANY.open_engine("counting", TABLE, threads="2"), "threads must be .*found str '2'"),
    "a device": (lambda: ANY.open_engine("counting", TABLE, device=True), "device must be .*found bool True"),
    "options": (lambda: ANY.open_engine("counting", TABLE, options=5), "options are a dict, .*found int 5"),
    "load_table": (lambda: ANY.load_table(5), "a table is loaded from the path of its file, found int 5"),
    "make_table of a number": (lambda: ANY.make_table(5), "subscriptions are .*found int 5"),
    "make_table of a row": (lambda: ANY.make_table({"interface": 1}), "subscriptions are .*one row is a list of one"),
    "LiveMatcher": (lambda: mpi_match.LiveMatcher(ANY and 5), "subscriptions are .*found int 5"),  # type: ignore[arg-type]
    "events": (lambda: ANY.make_events(5), "events are rows, columns, a frame, .*found int 5"),
    "no events": (lambda: ANY.match(TABLE, None), "events are rows, columns, a frame, .*found null"),
    "location": (lambda: ANY.make_events([], location=5), r"location is the names .*found int 5"),
    "half a location": (lambda: ANY.make_events([], location=("x",)), r"location is the names .*found tuple"),
    "a point": (lambda: ANY.make_batch(TABLE, [], location=(1, 2)), r"location is the names .*found tuple"),
    "id": (lambda: ANY.make_events([], id=5), "id is the name of an attribute, found int 5"),
}


@pytest.mark.parametrize("of", WRONG)
def test_an_argument_of_another_type_is_one_line(of: str) -> None:
    use, said = WRONG[of]
    with pytest.raises((MpiMatchError, mpi_match.ModelError), match=f"^{said}") as error:
        use()
    assert "\n" not in str(error.value)


def test_spark_takes_paths_and_its_own_frames(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    pandas = pytest.importorskip("pandas")
    from spark_prep import CompileOptions, SparkPrepError, job

    compile_: Any = job
    for inputs, output, said in (
        ([{"interface": 1}], "x.h5", "inputs are paths of files, or a DataFrame of Spark, found list"),
        (5, "x.h5", "inputs are paths of files, or a DataFrame of Spark, found int 5"),
        (["s.jsonl"], 5, "output is the path of a file, found int 5"),
        (["s.jsonl"], "s3a://b/x.h5", "output s3a://b/x.h5: is an address of another file system, and a local file"),
        (["s.jsonl"], Path("hdfs://b/x.h5"), "output hdfs://b/x.h5: is an address of another file system"),
        (
            pandas.DataFrame({"temp": [1.0]}),
            "x.h5",
            r"found DataFrame temp 0 1\.0; spark\.createDataFrame makes one [^\n]*pandas$",
        ),
    ):
        with pytest.raises(SparkPrepError, match=said):
            compile_.compile_subscriptions(inputs, output)
        with pytest.raises(SparkPrepError, match=said):
            compile_.compile_events(inputs, tmp_path / "t.h5", output)
        with pytest.raises(SparkPrepError, match=said):
            compile_.compile_changes(inputs, tmp_path / "t.h5", output)
    with pytest.raises(SparkPrepError, match=r"^kafka://broker/topic: topics of Kafka are matched by Spark"):
        compile_.compile_events(["kafka://broker/topic"], tmp_path / "t.h5", "x.h5")
    with pytest.raises(SparkPrepError, match=r"^form is an EventForm, found CompileOptions.*; give options by name"):
        compile_.compile_events(["e.jsonl"], tmp_path / "t.h5", "x.h5", CompileOptions(number="n"))
    with pytest.raises(SparkPrepError, match=r"^options are spark_prep\.CompileOptions\(\.\.\.\), found dict"):
        compile_.compile_subscriptions(["s.jsonl"], "x.h5", {"strict": True})
    with pytest.raises(mpi_match.ModelError, match=r"^id is the name of an attribute, found int 5"):
        compile_.compile_events(["e.jsonl"], tmp_path / "t.h5", "x.h5", id=5)
    with pytest.raises(SparkPrepError, match="table is the path of a file, found null"):
        compile_.compile_events(["e.jsonl"], None, "x.h5")
