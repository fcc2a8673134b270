"""A Spark session with settings for the machine.

An existing session (under spark-submit, in a notebook) is used unchanged: the number and size of its executors are its
owner's choice.  Only if there is none is one started, on the cores of this machine, with settings for a short job there:

* Python workers run this very interpreter (Spark would take PATH's `python3`) and find this package where this process does.
* `local[n,4]`: a task that fails is tried again, as on a cluster; plain `local[n]` gives up at once.
* The address is 127.0.0.1, so neither a host name that does not resolve nor a firewall can stop it.
* No web page, no progress bar, no log: only the job's own output is printed, and an error is an exception.
* Adaptive execution off: partitions are sized by the job, which knows the number of filters, and tiny stages dominate.
* Java's heap is a part of the memory that this job may have, which may be less than the machine has (containers, Slurm).

Settings in the user's `spark-defaults.conf` come before these.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_prep import SparkUnavailableError, environment
from spark_prep.java_errors import messages_of

_NAME = "mpi-match"
LOCAL_ATTEMPTS = 4
ARROW_ROWS = 10_000
"""Rows of the Arrow batches between Spark and Python: enough for NumPy to be efficient, few enough to stay in cache."""
SPLIT_BYTES = 32 * 2**20
"""Largest input of one reading task; Spark's own 128 MB would leave cores idle at the end of a small job."""
_CASE_SENSITIVE = "spark.sql.caseSensitive"
_OPTIONS_OF_JAVA = "spark.driver.extraJavaOptions"
_JAVA_OPTIONS = "-XX:+UseSerialGC"
"""G1's threads would compete with the tasks for few cores."""
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
"""Java's code is made once, not again when it runs often.  That takes a third from the processor time of a session and its
first job where Java only plans, but a job in which Java sorts millions of rows takes longer."""
_LOG_NOTHING = """\
status = off
appender.console.type = Console
appender.console.name = console
rootLogger.level = off
rootLogger.appenderRef.console.ref = console
"""
_JAVA_HINT = "Spark needs Java 17 or later: `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME to one that is there"


def session(master: str | None = None, *, java_only_plans: bool = False) -> SparkSession:
    """The running session, or a new one on `master` (default: every core of this machine).

    `java_only_plans`: rows are read and written by Python workers alone, or few pass through Java.

    Raises SparkUnavailableError when Spark cannot start.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if "PYSPARK_GATEWAY_PORT" in os.environ and master is None:  # spark-submit has already chosen master and settings
        return SparkSession.builder.appName(_NAME).getOrCreate()
    java_options = f"{_JAVA_OPTIONS} {_FIRST_COMPILER}" if java_only_plans else _JAVA_OPTIONS
    return _start(master or f"local[{_cores()},{LOCAL_ATTEMPTS}]", java_options)


@contextmanager
def exact_names(spark: SparkSession) -> Iterator[None]:
    """Distinguish the columns `Temp` and `temp` in the block, because they are two attributes.  Afterwards the session has
    its own setting again."""
    before = spark.conf.get(_CASE_SENSITIVE)
    spark.conf.set(_CASE_SENSITIVE, "true")
    try:
        yield
    finally:
        spark.conf.set(_CASE_SENSITIVE, str(before))


def _start(master: str, java_options: str = _JAVA_OPTIONS) -> SparkSession:
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise SparkUnavailableError(f"no Java found. {_JAVA_HINT}")
    environment.check(local=master.startswith("local"))
    scratch = Path(tempfile.mkdtemp(prefix="mpi-match-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    said = scratch / "stderr"
    try:
        with _stderr_into(said):
            found = _builder(master, scratch, java_options).getOrCreate()
    except (PySparkException, Py4JError, TypeError) as error:  # TypeError: of a class that its Java does not have
        reason = _reason(said.read_text(errors="replace"), error)
        hint = f". {_JAVA_HINT}" if "UnsupportedClassVersion" in reason else environment.suspects()
        raise SparkUnavailableError(f"Spark does not start: {reason}{hint}") from error
    server = getattr(found.sparkContext, "_accumulatorServer", None)
    if server is not None:  # it prints a traceback when Java dies, which `in_one_line` explains
        server.handle_error = lambda *_: None
    return found


_NOISE = ("WARNING", "Picked up", "Setting default log level", "To adjust logging level", "Using Spark's default")
"""Beginnings of the lines of Java and Spark that do not describe an error."""


def _reason(printed: str, error: Exception) -> str:
    """The reason why Java or the session failed to start: the last cause of Java's exception, else the first lines that it
    printed."""
    if isinstance(error, Py4JJavaError):
        return messages_of(error)[-1].strip().splitlines()[0].rstrip(".")
    lines = [line.strip("# ") for line in printed.splitlines() if not line.startswith(_NOISE)]
    said = [line.rstrip(".:") for line in lines if line][:2] or str(error).splitlines()[:1]
    return ": ".join(said)


@contextmanager
def _stderr_into(file: Path) -> Iterator[None]:
    """Redirect the standard error of Java, started in this block, to `file`: start-up messages, or why it ends."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with file.open("wb") as handle:
            os.dup2(handle.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _builder(master: str, scratch: Path, java_options: str) -> SparkSession.Builder:
    logging = scratch / "log4j2.properties"  # for the time before `spark.log.level` is read
    logging.write_text(_LOG_NOTHING)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(max(2, _cores())),
        "spark.sql.files.maxPartitionBytes": str(SPLIT_BYTES),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    }
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": f"{environment.heap_mib()}m",
            _OPTIONS_OF_JAVA: f"{java_options} -Dlog4j2.configurationFile={logging.as_uri()}",
            "spark.executorEnv.PYTHONPATH": str(environment.PACKAGES),
        }
    builder = SparkSession.builder.appName(_NAME).master(master)
    users = environment.user_settings()
    for key, value in settings.items():
        if key not in users:
            builder = builder.config(key, value)
        elif key == _OPTIONS_OF_JAVA:
            builder = builder.config(key, f"{value} {users[key]}")
    return builder


def _cores() -> int:
    return len(os.sched_getaffinity(0))
