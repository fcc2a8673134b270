"""The order of tests: the longest first, because other processes would wait for those begun last.

Among the first is the file that compiles most of the kernels, while other processes run tests that need none.
"""

from __future__ import annotations

from functools import cache
from pathlib import PurePath

SPARK = "tests/spark"
FIRST = (
    "tests/engines/test_engines.py",
    SPARK,
    "tests/test_docs.py",
    "tests/cluster/test_failures.py",
    "tests/test_hostile_files.py",
    "tests/engines/test_ptx.py",
    "tests/engines/test_twophase.py",
    "tests/cluster/test_same_bytes.py",
    "tests/cluster/test_runs_of_lines.py",
    "tests/cluster/test_published_mode.py",
    "tests/cluster/test_changing_runs.py",
    "tests/cluster/test_restarts.py",
    "tests/cluster/test_placement_runs.py",
    "tests/engines/test_keyed_bitmap.py",
    "tests/cli/test_streams.py",
    "tests/unit/compute/test_compile_cache.py",
    "tests/unit/lab/bench/test_sweep.py",
    "tests/cluster",
    "tests/engines",
)
"""Files and directories, the longest first; all others follow."""


def place_of(nodeid: str) -> int:
    """A test's position in `FIRST`."""
    return _place_of_file(nodeid.split("::", 1)[0])


@cache
def _place_of_file(file: str) -> int:
    return next((place for place, name in enumerate(FIRST) if PurePath(file).is_relative_to(name)), len(FIRST))
