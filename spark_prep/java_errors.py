"""Errors of Spark's Java or of a task, as one line.

Such an error is a traceback of a hundred lines, in which one cause is wrapped into another.  The useful parts are what Spark
was doing (the first message) and why it failed (the last one).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException

from spark_prep import SparkFailure, SparkPrepError

READING = "FAILED_READ_FILE"
"""Spark's error class for a file that is damaged or of another format."""
_OF_INPUT = (".ModelError", ".FileChanged")
"""Errors of a task that say what is wrong with the input."""
_FRAME = re.compile(r"^\s*\[[A-Z_.]+\]\s*|\s*SQLSTATE: \w+")


@contextmanager
def in_one_line(doing: str = "") -> Iterator[None]:
    """Errors of Spark in the block become SparkPrepError, or SparkFailure when no input is to blame.

    `doing` begins the line; with it the block reads the input, so that all of its errors are the input's.
    """
    try:
        yield
    except PythonException as error:  # the traceback of a task's Python; its last line is the error
        lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(("\t", " SQLSTATE"))]
        text = lines[-1].strip() if lines else "without a text"
        kind, _, said = text.partition(": ")
        if kind.endswith(".WriteError"):
            raise SparkFailure(f"{doing}{said}") from error
        raise SparkPrepError(f"{doing}{said if kind.endswith(_OF_INPUT) else f'a task failed: {text}'}") from error
    except Py4JJavaError as error:
        messages = _messages(error)
        wrong_input = bool(doing) or any(READING in text for text in messages)
        first, last = _plain(messages[0]), _plain(messages[-1])
        text = first if last in first else f"{first} {last}"
        raise (SparkPrepError if wrong_input else SparkFailure)(f"{doing}{text}") from error
    except PySparkException as error:
        raise SparkPrepError(f"{doing}{_plain(str(error))}") from error


def _messages(error: Py4JJavaError) -> list[str]:
    """The message of a Java exception, then those of its causes."""
    found, cause = [], error.java_exception
    while cause is not None:
        found.append(str(cause.getMessage() or cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return found


def _plain(text: str) -> str:
    return _FRAME.sub("", text.strip().splitlines()[0]) if text.strip() else "without a text"
