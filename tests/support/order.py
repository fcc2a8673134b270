"""What begins first: what takes long, for begun last it would be waited for by processes that have nothing left to do.

Among the first is the file that has most of the kernels compiled, while the others do what needs none.
"""

from __future__ import annotations

from pathlib import PurePath

SPARK = "tests/spark"
FIRST = (
    "tests/engines/test_engines.py",
    SPARK,
    "tests/test_docs.py",
    "tests/cluster/test_failures.py",
    "tests/cluster/test_same_bytes.py",
    "tests/cluster/test_changing_runs.py",
    "tests/cluster/test_restarts.py",
    "tests/cluster/test_placement_runs.py",
    "tests/cluster",
    "tests/engines/test_live.py",
)
"""Files and directories, the longest first; what is not named follows."""


def place_of(nodeid: str) -> int:
    """A test's place among `FIRST`."""
    file = PurePath(nodeid.split("::", 1)[0])
    return next((place for place, name in enumerate(FIRST) if file.is_relative_to(name)), len(FIRST))
