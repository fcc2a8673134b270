"""Errors of Spark's Java or of a task, as one line.

Such an error is a traceback of a hundred lines, in which one cause is wrapped into another.  The useful parts are what Spark
was doing (the first message) and why it failed (the last one).
"""

from __future__ import annotations

import logging
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PythonException

from mpi_match.environment.memory import limit_bytes
from mpi_match.humanize import byte_size
from spark_prep import SparkFailure, SparkPrepError, SparkUnavailableError

READING = "FAILED_READ_FILE"
"""Spark's error class for a file that is damaged or of another format."""
_OF_INPUT = (".ModelError", ".FileChanged")
"""Errors of a task that say what is wrong with the input."""
_FRAME = re.compile(r"^\s*\[[A-Z_.]+\]\s*|\s*SQLSTATE: \w+")


_NO_PACKAGE = re.compile(r"No module named '(mpi_match|spark_prep)")
_CURES = (
    (
        re.compile("Java heap space|GC overhead limit|OutOfMemoryError"),
        "; give Java more memory: SPARK_DRIVER_MEMORY=4g in the environment, or spark.executor.memory on a cluster",
    ),
    (
        re.compile(r"Python worker exited unexpectedly|Python worker failed to connect|Failed to connect to Python"),
        "; was a Python worker killed at the memory limit of its container or job? raise the limit, or use fewer cores: "
        "--master local[1]",
    ),
)
"""Texts of Spark's errors, each with its cure."""
_LOG_OF_DEATH = "Exception while sending command."
"""The messages that py4j logs, with a traceback, for every call of a Java that has died."""
_DEATH_S = 5.0
"""Seconds within which a Java that has dropped its connections ends."""


@contextmanager
def in_one_line(doing: str = "") -> Iterator[None]:
    """Errors of Spark in the block become SparkPrepError, or SparkFailure when no input is to blame, or when Java has died.

    `doing` begins the line; with it the block reads the input, so that all of its errors are the input's.
    """
    root = logging.getLogger()

    def said_here(record: logging.LogRecord) -> bool:
        return record.getMessage() != _LOG_OF_DEATH

    root.addFilter(said_here)
    try:
        yield
    except PythonException as error:  # the traceback of a task's Python; its last line is the error
        lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(("\t", " SQLSTATE"))]
        text = lines[-1].strip() if lines else "without a text"
        kind, _, said = text.partition(": ")
        if kind.endswith(".WriteError"):
            raise SparkFailure(f"{doing}{said}") from error
        if lacking := _NO_PACKAGE.search(str(error)):
            raise SparkUnavailableError(_no_package(lacking[1])) from error
        raise SparkPrepError(f"{doing}{said if kind.endswith(_OF_INPUT) else f'a task failed: {text}'}") from error
    except Py4JJavaError as error:
        messages = messages_of(error)
        wrong_input = bool(doing) or any(READING in text for text in messages)
        if lacking := next(filter(None, map(_NO_PACKAGE.search, messages)), None):
            raise SparkUnavailableError(_no_package(lacking[1])) from error
        first, last = _plain(messages[0]), _plain(messages[-1])
        text = first if last in first else f"{first} {last}"
        cure = next((cure for pattern, cure in _CURES if any(map(pattern.search, messages))), "")
        raise (SparkPrepError if wrong_input and not cure else SparkFailure)(f"{doing}{text}{cure}") from error
    except PySparkException as error:
        raise SparkPrepError(f"{doing}{_plain(str(error))}") from error
    except (Py4JNetworkError, ConnectionError, EOFError) as error:
        raise SparkFailure(_of_death()) from error
    except Exception as error:
        if _exit_of_java(0.0) is not None:
            raise SparkFailure(_of_death()) from error
        raise
    finally:
        root.removeFilter(said_here)


def _of_death() -> str:
    code = _exit_of_java(_DEATH_S)
    if code is None:
        return "the connection to Spark's Java is lost; did it end, or does something close connections on this machine?"
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return (
            "Spark's Java was killed, as the kernel does when memory runs out (this job may have "
            f"{byte_size(limit_bytes())} in all); raise the limit (of the container, Slurm's --mem), or have Spark take "
            "less: --master local[1] runs one Python worker, SPARK_DRIVER_MEMORY=512m sets the heap of Java"
        )
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"Spark's Java {how} in the middle of the job; what it wrote about that is in hs_err_pid*.log, if anything"


def _exit_of_java(wait_s: float) -> int | None:
    """The exit code of the Java that this process has started, or minus the signal that ended it; None while it runs."""
    java = getattr(SparkContext._gateway, "proc", None)
    if java is None:  # there is none, or spark-submit has started it
        return None
    try:
        return int(java.wait(wait_s))
    except subprocess.TimeoutExpired:
        return None


def _no_package(name: str) -> str:
    root = Path(__file__).resolve().parents[1]
    return (
        f"the executors have no package {name!r}; pass both of ours, made by `python -m zipfile -c mpi_match.zip "
        f"{root}/mpi_match {root}/spark_prep`: `spark-submit --py-files mpi_match.zip ...`, or "
        "spark.sparkContext.addPyFile('mpi_match.zip')"
    )


def messages_of(error: Exception) -> list[str]:
    """The message of an exception, of Java also those of its causes."""
    if not isinstance(error, Py4JJavaError):
        return [str(error) or type(error).__name__]
    found, cause = [], error.java_exception
    while cause is not None:
        found.append(str(cause.getMessage() or cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return found


def _plain(text: str) -> str:
    return _FRAME.sub("", text.strip().splitlines()[0]) if text.strip() else "without a text"
