"""`spark_prep.matched` under Spark Connect: a server and a client, which has no Java of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mpirun import TIMEOUT_S

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
pytestmark = pytest.mark.spark

CLIENT = """
import json, os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import mpi_match, spark_prep

spark = SparkSession.builder.remote("local[2]").config("spark.ui.showConsoleProgress", "false").getOrCreate()
table = mpi_match.make_table([{"interface": "hot", "constraints": [["temp", ">", 30]]}])
table.save("table.h5")
events = spark.createDataFrame([("a", 31.0), ("b", 25.0), (None, 40.0)], "uuid string, temp double")
found = spark_prep.matched(events, "table.h5", id="uuid", keep=["temp"], rejects="rows").collect()
events.write.parquet("events")
stream = spark_prep.matched(spark.readStream.schema(events.schema).parquet("events"), table, how="semi")
query = stream.writeStream.format("memory").queryName("answers").trigger(availableNow=True).start()
query.awaitTermination()
try:
    spark_prep.compile_events(events, "table.h5", "events.h5")
    said = None
except spark_prep.SparkPrepError as error:
    said = str(error)
spark_prep.register(spark)
source = spark.createDataFrame([("cold", "temp < 0", "r1")], "rule string, condition string, id string")
here = os.getcwd()
source.write.format("mpi-match").mode("append").options(interface="rule", where="condition").save(f"{here}/written.h5")
append = events.na.drop().write.format("mpi-match").mode("append")
append.options(table=f"{here}/table.h5", id="uuid").save(f"{here}/events.h5")
try:
    _ = spark.read.format("mpi-match").load("written.h5").schema
    relative = None
except Exception as error:
    relative = str(error)
written = [list(spark.read.format("mpi-match").load(f"{here}/written.h5").first())[:2]]
written += map(list, spark.read.format("mpi-match").option("id", "uuid").load(f"{here}/events.h5").collect())
batch = sorted(map(list, found), key=str)
print(json.dumps([type(spark).__module__, batch, sorted(row.temp for row in spark.table("answers").collect()), said,
    sorted(written), relative]))
"""


def test_batches_and_streams_of_spark_connect(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SPARK_LOCAL_IP": "127.0.0.1"}
    client = [sys.executable, "-c", CLIENT]
    done = subprocess.run(
        client, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    module, batch, stream, said, written, relative = json.loads(done.stdout.splitlines()[-1])
    assert module == "pyspark.sql.connect.session"
    assert batch == [["a", 31.0, "hot", None], [None, 40.0, None, "column 'uuid' of the ids is null"]]
    assert stream == [31.0, 40.0]
    assert said.startswith("a DataFrame of Spark Connect cannot be compiled")
    assert written == [["a", 31.0], ["b", 25.0], ["cold", '[["temp", "<", 0]]']]
    assert "written.h5: under Spark Connect a path has to be absolute" in relative
