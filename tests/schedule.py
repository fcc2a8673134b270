"""Which process of a parallel test run does which tests, and what begins first.

A file's tests share what they are prepared with, so a file goes to one process as a whole, and all that need Spark go to the
same one, since a session takes 6 to 13 s to start.  What takes long begins first: begun last, it would be waited for by
processes that have nothing left to do.  Among the first is the file that has most of the kernels compiled, while the others
do what needs none.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from xdist.scheduler import LoadFileScheduling

SPARK = "tests/spark"
FIRST = (
    "tests/test_engines.py",
    SPARK,
    "tests/test_docs.py",
    "tests/cluster/test_failures.py",
    "tests/cluster/test_same_bytes.py",
    "tests/cluster/test_changing_runs.py",
    "tests/cluster/test_restarts.py",
    "tests/cluster/test_placement_runs.py",
    "tests/cluster",
    "tests/test_live.py",
)
"""Files and directories, the longest first; what is not named follows."""


class Schedule(LoadFileScheduling):
    """xdist's distribution by files, with those of Spark as one, in the order in which tests were collected."""

    def __init__(self, config: Any, log: Any) -> None:
        config.option.loadscopereorder = False  # by number of tests, which says nothing of how long they take
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return SPARK if PurePath(file).is_relative_to(SPARK) else file


def place_of(nodeid: str) -> int:
    """A test's place among `FIRST`."""
    file = PurePath(nodeid.split("::", 1)[0])
    return next((place for place, name in enumerate(FIRST) if file.is_relative_to(name)), len(FIRST))
