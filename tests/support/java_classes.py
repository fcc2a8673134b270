"""Keeps the classes that Java loads for Spark in an archive (class data sharing), with which Java starts and plans its first
job in half of the processor time.

Java compares the archive with itself and the files that the classes came from, and does without one that does not fit.

    python tests/support/java_classes.py        prints the options of Java for `SPARK_SUBMIT_OPTS`
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
"""Java's second compiler takes longer for a job of seconds than the job: see `spark_prep.session`."""
_SAYS_NOTHING = "-Xlog:disable"
"""Java warns of each class that an archive cannot hold, and of an archive that does not fit."""


def options() -> str:
    """Java's options for short jobs."""
    return f"{_FIRST_COMPILER} {_SAYS_NOTHING} -XX:SharedArchiveFile={ARCHIVE}"


def archive_classes() -> None:
    """Make the archive, unless there is one of this Spark, or no Spark or Java."""
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None or shutil.which("java") is None:
        return
    if ARCHIVE.exists() and ARCHIVE.stat().st_mtime > Path(spark.origin).stat().st_mtime:
        return
    with TemporaryDirectory(dir=ARCHIVE.parent) as place:
        made = Path(place) / ARCHIVE.name
        java = f"{_FIRST_COMPILER} {_SAYS_NOTHING} -XX:ArchiveClassesAtExit={made}"
        paths = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": java, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": paths}
        subprocess.run([sys.executable, __file__, place], env=environment, check=False, stdout=subprocess.DEVNULL)
        if made.exists():
            made.replace(ARCHIVE)


def _use_spark(place: Path) -> None:
    """Compile a few subscriptions and events, and wait for the end of Java."""
    from pyspark import SparkContext

    from spark_prep import job

    rows: dict[str, list[dict[str, object]]] = {
        "subscriptions": [{"interface": f"i{i % 7}", "constraints": [["temp", ">", i]]} for i in range(200)],
        "events": [{"temp": i} for i in range(200)],
    }
    for name, each in rows.items():
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in each))
    job.compile_subscriptions([str(place / "subscriptions.jsonl")], place / "table.h5")
    job.compile_events([str(place / "events.jsonl")], place / "table.h5", place / "events.h5")
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(options())  # noqa: T201
    else:
        _use_spark(Path(sys.argv[1]))
