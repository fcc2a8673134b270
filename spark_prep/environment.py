"""Environment variables and files that Spark obeys, checked before it starts: an error names the one to change.

Started with a wrong one, Spark's Java or its Python workers fail much later, with a traceback that names none of them.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

from mpi_match.environment.memory import limit_bytes
from spark_prep import SparkUnavailableError

_CONNECT = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
_SHOWN = ("SPARK_HOME", "JAVA_HOME", "SPARK_DRIVER_MEMORY")
_OF_JAVA = ("PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Variables with options of Java or Spark; their values may hold secrets and are not shown."""
_NEEDED = ("numpy", "numba", "h5py", "pyarrow")
"""Packages that tasks import; this package itself is found where this process has it."""
_ASK_PYTHON = f"""\
import importlib.util, sys
print(*sys.version_info[:2], *(name for name in {_NEEDED} if importlib.util.find_spec(name) is None))
"""
_ASK_S = 30
"""Longest time in which a Python answers, seconds."""
PACKAGES = Path(__file__).resolve().parents[1]
"""The directory in which this process has this package."""
LEAST_HEAP_MIB, MOST_HEAP_MIB = 512, 4096
"""Bounds of the heap that a session of ours gets; Spark itself does not start with less than 450 MiB."""


def check(*, local: bool) -> None:
    """Refuse variables with which no session of ours can start, or no task can run on this machine (`local`).

    Raises SparkUnavailableError.
    """
    for name in _CONNECT:
        if name in os.environ:
            raise SparkUnavailableError(
                f"{name} asks for Spark Connect, which this stage cannot use; unset {name}, and name a cluster "
                "by --master, or by spark-submit"
            )
    if home := os.environ.get("SPARK_HOME"):
        _check_home(Path(home))
    if local and (python := os.environ.get("PYSPARK_PYTHON")) is not None:
        _check_python(python)


def user_settings() -> dict[str, str]:
    """The user's own settings of Spark, which are kept: those of `spark-defaults.conf` and SPARK_DRIVER_MEMORY."""
    file, found = defaults_file(), {}
    if file is not None:
        for line in file.read_text(errors="replace").splitlines():
            if setting := re.match(r"\s*(spark\.[^\s=:]+)\s*[\s=:]\s*(.*?)\s*$", line):
                found[setting[1]] = setting[2]
    if memory := os.environ.get("SPARK_DRIVER_MEMORY"):
        found.setdefault("spark.driver.memory", memory)
    return found


def defaults_file() -> Path | None:
    """The `spark-defaults.conf` that Spark will read; None if there is none."""
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    file = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf") / "spark-defaults.conf"
    return file if file.is_file() else None


def heap_mib() -> int:
    """A quarter of the memory that this job may have; the rest is for Python workers and the page cache."""
    return max(LEAST_HEAP_MIB, min(MOST_HEAP_MIB, limit_bytes() // 2**20 // 4))


def suspects() -> str:
    """The end of an error line: the variables and files that may keep Java or Spark from starting, and the cure; or ""."""
    given = [f"{name}={os.environ[name]}" for name in _SHOWN if name in os.environ]
    given += [name for name in _OF_JAVA if name in os.environ]
    if (file := defaults_file()) is not None:
        given.append(f"{file}{' (SPARK_CONF_DIR)' if 'SPARK_CONF_DIR' in os.environ else ''}")
    given += limited_address_space()
    return f"; it obeys {', '.join(given)}: mend or unset what is wrong there" if given else ""


def limited_address_space() -> list[str]:
    """The limit of address space of this process in words, if it has one: Java reserves more than it uses."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return (
        [] if limit == resource.RLIM_INFINITY else [f"`ulimit -v` ({limit // 1024:,} KiB; `unlimited` is what Java needs)"]
    )


def _check_home(home: Path) -> None:
    cure = f"PySpark here is {pyspark.__version__}; unset SPARK_HOME to use the Spark that came with it"
    if not (home / "bin" / "spark-submit").is_file():
        raise SparkUnavailableError(f"SPARK_HOME={home}: holds no Spark (bin/spark-submit is missing); {cure}")
    found = {
        match[1] for jar in (home / "jars").glob("spark-core_*.jar") if (match := re.search(r"-(\d+(\.\d+)+)", jar.name))
    }
    if found and not any(_is_compatible(each) for each in found):
        raise SparkUnavailableError(f"SPARK_HOME={home}: is Spark {min(found)}; {cure}")


def _of_workers() -> dict[str, str]:
    """The environment in which a session of ours runs Python workers."""
    paths = [str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _is_compatible(version: str) -> bool:
    """PySpark talks to a Spark of the same major and minor version."""
    return version.split(".")[:2] == pyspark.__version__.split(".")[:2]


def _check_python(python: str) -> None:
    cure = f"unset PYSPARK_PYTHON to use {sys.executable}"
    found = shutil.which(python)
    if found is None:
        raise SparkUnavailableError(f"PYSPARK_PYTHON={python}: there is no such program; {cure}")
    if Path(found).absolute() == Path(sys.executable).absolute():
        return
    try:
        said = subprocess.run(
            [found, "-c", _ASK_PYTHON], capture_output=True, text=True, timeout=_ASK_S, check=True, env=_of_workers()
        ).stdout.split()
        version, missing = tuple(map(int, said[:2])), said[2:]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        why = f"ends with code {error.returncode}" if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise SparkUnavailableError(f"PYSPARK_PYTHON={python}: does not run as a Python ({why}); {cure}") from error
    if version != sys.version_info[:2]:
        ours = ".".join(map(str, sys.version_info[:2]))
        raise SparkUnavailableError(
            f"PYSPARK_PYTHON={python}: is Python {'.'.join(map(str, version))}, and this is Python {ours}; {cure}"
        )
    if missing:
        raise SparkUnavailableError(f"PYSPARK_PYTHON={python}: lacks {', '.join(missing)}; {cure}")
