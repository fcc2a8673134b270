"""What went wrong in Spark's Java or in a task, as one line.

An error on that side comes as a traceback of a hundred lines, in which one cause is wrapped into another.  What helps is
what Spark was doing (the first message) and why it failed (the last one).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException

from spark_prep import SparkFailure, SparkPrepError

READING = "FAILED_READ_FILE"
"""What Spark calls it when a file is not what it was taken for, or damaged."""
_FRAME = re.compile(r"^\s*\[[A-Z_.]+\]\s*|\s*SQLSTATE: \w+")


@contextmanager
def in_one_line(doing: str = "") -> Iterator[None]:
    """Errors of Spark in the block become SparkPrepError, or SparkFailure when no input is to blame.

    `doing` begins the line; with it the block reads what was given, so that all of its errors are the input's.
    """
    try:
        yield
    except PythonException as error:  # the traceback of a task's Python, of which the last line says what went wrong
        lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(("\t", " SQLSTATE"))]
        raise SparkPrepError(f"{doing}a task failed: {lines[-1].strip() if lines else 'without a text'}") from error
    except Py4JJavaError as error:
        messages = _messages(error)
        wrong_input = bool(doing) or any(READING in text for text in messages)
        first, last = _plain(messages[0]), _plain(messages[-1])
        text = first if last in first else f"{first} {last}"
        raise (SparkPrepError if wrong_input else SparkFailure)(f"{doing}{text}") from error
    except PySparkException as error:
        raise SparkPrepError(f"{doing}{_plain(str(error))}") from error


def _messages(error: Py4JJavaError) -> list[str]:
    """What an exception of Java says, then what each says that it was caused by."""
    found, cause = [], error.java_exception
    while cause is not None:
        found.append(str(cause.getMessage() or cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return found


def _plain(text: str) -> str:
    return _FRAME.sub("", text.strip().splitlines()[0]) if text.strip() else "without a text"
