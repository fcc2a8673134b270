"""Variables, files and limits that Spark obeys: a wrong one is named in one line, and a Java that dies is explained."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command_line import mpi_match, only_line
from lasting import lasting
from mpirun import TIMEOUT_S
from spark_inputs import in_memory, names_in, write_lines

from spark_prep import SparkPrepError, SparkUnavailableError

pyspark = pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytestmark = pytest.mark.spark

from spark_prep import environment, job  # noqa: E402
from spark_prep import session as sessions  # noqa: E402
from spark_prep.java_errors import in_one_line  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 2**20


@pytest.fixture
def files(tmp_path: Path) -> list[Any]:
    """The arguments of a compile of events."""
    in_memory([{"interface": "i", "constraints": [["temp", ">", 3]]}]).save(tmp_path / "t.h5")
    events = write_lines(tmp_path / "e.jsonl", [{"temp": i} for i in range(9)])
    return ["compile", "events", events, "--table", tmp_path / "t.h5", "-o", tmp_path / "e.h5"]


def spark_home(place: Path, version: str) -> Path:
    for name in ("bin/spark-submit", f"jars/spark-core_2.12-{version}.jar"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    return place


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SPARK_HOME", "{}", "SPARK_HOME={}: holds no Spark (bin/spark-submit is missing); PySpark here is "),
        ("SPARK_HOME", "{}/old", "SPARK_HOME={}/old: is Spark 3.5.5; PySpark here is "),
        (
            "SPARK_REMOTE",
            "sc://localhost:15002",
            "SPARK_REMOTE asks for Spark Connect, which this stage cannot use; unset",
        ),
        ("PYSPARK_PYTHON", "{}/absent", "PYSPARK_PYTHON={}/absent: there is no such program; unset PYSPARK_PYTHON"),
        ("PYSPARK_PYTHON", "{}/broken", "PYSPARK_PYTHON={}/broken: does not run as a Python (ends with code 7); unset"),
        ("PYSPARK_PYTHON", "{}/another", "PYSPARK_PYTHON={}/another: is Python 2.7, and this is Python "),
        ("PYSPARK_PYTHON", "{}/bare", "PYSPARK_PYTHON={}/bare: lacks numpy, numba, h5py, pyarrow; unset PYSPARK_PYTHON"),
    ],
)
def test_a_wrong_variable_is_named_before_spark_starts(
    files: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    spark_home(tmp_path / "old", "3.5.5")
    script(tmp_path / "broken", "exit 7")
    script(tmp_path / "another", "echo 2 7")
    script(tmp_path / "bare", f'exec {sys.executable} -S "$@"')
    monkeypatch.setenv(name, value.format(tmp_path))
    assert only_line(mpi_match(*files, code=5)).startswith(f"mpi-match: {said.format(tmp_path)}")
    assert "e.h5" not in names_in(tmp_path / "any")


def test_a_spark_and_a_python_that_fit_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(spark_home(tmp_path, pyspark.__version__)))
    monkeypatch.setenv("PYSPARK_PYTHON", str(script(tmp_path / "python", f'exec {sys.executable} "$@"')))
    environment.check(local=True)
    monkeypatch.setenv("PYSPARK_PYTHON", "of the executors' machines")
    environment.check(local=False)


@pytest.mark.parametrize(
    ("limit", "heap"), [(64 * 2**10 * MIB, 4096), (8192 * MIB, 2048), (1200 * MIB, 512), (400 * MIB, 512)]
)
def test_the_heap_is_a_quarter_of_the_memory_of_the_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: int, heap: int
) -> None:
    monkeypatch.setattr(environment, "limit_bytes", lambda: limit)
    options: dict[str, str] = sessions._builder("local[1]", tmp_path, "")._options
    assert options["spark.driver.memory"] == f"{heap}m"


def test_the_settings_of_the_user_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\nspark.driver.memory   3g\nspark.ui.enabled=true\nspark.driver.extraJavaOptions -Dx=1 -Dy=2\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    options: dict[str, str] = sessions._builder("local[1]", tmp_path, "-Dours")._options
    assert not {"spark.driver.memory", "spark.ui.enabled"} & options.keys()
    words = options["spark.driver.extraJavaOptions"].split()
    assert (words[0], words[-2:]) == ("-Dours", ["-Dx=1", "-Dy=2"])
    monkeypatch.delenv("SPARK_CONF_DIR")
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "3g")
    assert "spark.driver.memory" not in sessions._builder("local[1]", tmp_path, "")._options


def run(files: list[Any], before: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, with `before` run in it and other variables."""
    code = f"{before}\nfrom mpi_match.cli.main import main\nmain()\n"
    words = [sys.executable, "-c", code, *map(str, files)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
    return subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment)


@pytest.mark.parametrize(
    ("before", "variables", "said"),
    [
        (
            "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))",
            {},
            r"mpi-match: Java: it does not run: \S.* needs it: Java reserves more .* `ulimit -v unlimited`$",
        ),
        (
            "",
            {"JAVA_TOOL_OPTIONS": "-XX:NoSuch"},
            r"mpi-match: Java: it does not run: Unrecognized VM option 'NoSuch'.*: mend or unset JAVA_TOOL_OPTIONS, whose",
        ),
        (
            "",
            {"SPARK_CONF_DIR": "{}"},
            r"mpi-match: Spark does not start: com\.nope\.Listener; it obeys .*/spark-defaults\.conf \(SPARK_CONF_DIR\): ",
        ),
        (
            "",
            {"PYSPARK_SUBMIT_ARGS": "--conf spark.driver.memory=lots pyspark-shell"},
            "mpi-match: Spark does not start: Invalid maximum heap size: -Xmxlots.*; it obeys PYSPARK_SUBMIT_ARGS",
        ),
    ],
    ids=["address space", "Java's options", "spark-defaults.conf", "Spark's options"],
)
def test_a_java_that_does_not_start_is_one_line(
    files: list[Any], tmp_path: Path, before: str, variables: dict[str, str], said: str
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.extraListeners com.nope.Listener\n")
    done = run(files, before, **{name: value.format(tmp_path) for name, value in variables.items()})
    assert done.returncode == 5, done.stderr
    (line,) = done.stderr.splitlines()
    assert re.match(said, line), line
    assert "apt-get" not in line


KILL = """
import os
from pyspark import SparkContext
from spark_prep import events
write = events.write_splits
def killed(*arguments):
    os.kill(SparkContext._gateway.proc.pid, 9)
    return write(*arguments)
events.write_splits = killed
"""


def test_a_java_that_is_killed_is_one_line(files: list[Any], tmp_path: Path) -> None:
    done = run(files, KILL)
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("mpi-match: Spark's Java was killed, as the kernel does when memory runs out (this job may have ")
    assert "SPARK_DRIVER_MEMORY=" in line
    assert names_in(tmp_path / "any") == {"t.h5", "e.jsonl"}


@pytest.mark.parametrize("package", ["mpi_match", *lasting("spark_prep")])
def test_executors_without_the_package_are_one_line(package: str, spark: SparkSession) -> None:
    def run(batches: Any) -> Any:
        raise ModuleNotFoundError(f"No module named '{package}.ingest'")
        yield from batches

    with (
        pytest.raises(SparkUnavailableError, match=rf"no package '{package}'; .*--py-files mpi_match\.zip") as found,
        in_one_line(),
    ):
        spark.range(1).mapInArrow(run, "id bigint").collect()
    assert "\n" not in str(found.value)


def test_a_frame_of_a_stream_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    in_memory([{"interface": "i", "constraints": [["value", ">", 3]]}]).save(tmp_path / "t.h5")
    stream = spark.readStream.format("rate").load()
    with pytest.raises(SparkPrepError, match=r"^a DataFrame of a stream has no end, .*foreachBatch[^\n]*$"):
        job.compile_events(stream, tmp_path / "t.h5", tmp_path / "e.h5")
    with pytest.raises(SparkPrepError, match=r"^a DataFrame of a stream has no end"):
        job.compile_subscriptions(stream, tmp_path / "t2.h5")
