"""Speculative execution on a cluster of two workers: a slow task runs twice at once, and no row is there twice."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.lasting]
HOME = Path(pyspark.__file__).parent
HOSTS = ("127.0.0.2", "127.0.0.3")
"""Spark runs the second attempt of a task on another host."""
WAIT_S = 120.0
JOB = r"""
import json, os, sys
from pathlib import Path
import mpi_match, spark_prep
from pyspark import TaskContext
from pyspark.sql import SparkSession
from spark_prep import events
from mpi_match.ingest.rows.judge import EventForm

MARKS = os.getcwd() + "/marks"

def slow(job):
    # The first attempt of partition 0 stays behind with a part of its output written.
    import time
    task = TaskContext.get()
    Path(MARKS, f"{job}-{task.partitionId()}-{task.attemptNumber()}").touch()
    if task.partitionId() == 0 and task.attemptNumber() == 0:
        time.sleep(600)

def slow_rows(batches):
    for batch in batches:
        yield batch.slice(0, 1)
        slow("answers")
        yield batch.slice(1)

def main():
    session = SparkSession.builder.master(sys.argv[1])
    settings = {"enabled": "true", "interval": "100ms", "multiplier": "1.1", "quantile": "0.5", "minTaskRuntime": "300ms"}
    for name, value in settings.items():
        session = session.config("spark.speculation" + ("" if name == "enabled" else f".{name}"), value)
    spark = session.config("spark.executor.memory", "512m").config("spark.driver.host", "127.0.0.1").getOrCreate()
    rules = [{"interface": f"i{i}", "constraints": [["n", "=", i]], "id": f"f{i}"} for i in range(20)]
    mpi_match.make_table(rules).save("table.h5")
    frame = spark.range(0, 400, 1, 4).selectExpr("cast(id as string) as uuid", "id % 20 as n")
    answers = spark_prep.matched(frame, "table.h5", id="uuid")
    found = sorted(map(list, answers.mapInArrow(slow_rows, answers.schema).collect()))

    class Slow(events.EventPartWriter):
        def end(self):
            yield from super().end()
            slow("events")

    events.EventPartWriter = Slow
    spark_prep.compile_events(frame, "table.h5", "events.h5", EventForm(None, "uuid"))
    table = mpi_match.load_table("table.h5")
    from mpi_match.events.event_table import EventTable
    with EventTable(Path("events.h5"), table.vocabulary) as made:
        ids = sorted(made.ids(), key=int)
    print(json.dumps([found, ids, sorted(os.listdir(MARKS))]))

if __name__ == "__main__":
    main()
"""


@contextmanager
def cluster(directory: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address of a master with two workers of one core, each with a host of its own."""
    started: list[subprocess.Popen[bytes]] = []
    log = directory / "cluster.log"

    def start(*arguments: str) -> None:
        command = [str(HOME / "bin" / "spark-class"), *arguments]
        with log.open("ab") as out:
            started.append(subprocess.Popen(command, cwd=directory, env=environment, stdout=out, stderr=out))

    def waited(pattern: str, times: int = 1) -> str:
        end = time.monotonic() + WAIT_S
        while len(found := re.findall(pattern, log.read_text(errors="replace"))) < times:
            assert time.monotonic() < end, log.read_text(errors="replace")[-3000:]
            assert all(each.poll() is None for each in started), log.read_text(errors="replace")[-3000:]
            time.sleep(0.1)
        return str(found[0])

    try:
        start("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        address = waited(r"Starting Spark master at (spark://\S+)")
        for host in HOSTS:
            own = ("--host", host, "--cores", "1", "--memory", "600m", "--webui-port", "0")
            start("org.apache.spark.deploy.worker.Worker", *own, address)
        waited(r"Successfully registered with master", len(HOSTS))
        yield address
    finally:
        for each in started:
            each.terminate()
        for each in started:
            each.wait(30)


def test_a_slow_task_that_runs_twice_gives_its_rows_once(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    (tmp_path / "job.py").write_text(JOB)
    path = os.pathsep.join(filter(None, [str(tmp_path), *sys.path]))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(tmp_path / "w"),
    }
    environment |= {"SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("SPARK_REMOTE", None)
    with cluster(tmp_path, environment) as address:
        job = [sys.executable, str(tmp_path / "job.py"), address]
        done = subprocess.run(
            job, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=2 * WAIT_S, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found, ids, marks = json.loads(done.stdout.splitlines()[-1])
    assert found == sorted([str(i), f"i{i % 20}"] for i in range(400))
    assert ids == [str(i) for i in range(400)]
    assert {"answers-0-0", "answers-0-1", "events-0-0", "events-0-1"} <= set(marks)
