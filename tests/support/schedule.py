"""Which process of a parallel test run does which tests.

A file's tests share what they are prepared with, so a file goes to one process as a whole, and all that need Spark go to the
same one, since a session takes 6 to 13 s to start.

Needs pytest-xdist, which only a parallel run does.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from order import SPARK
from xdist.scheduler import LoadFileScheduling


class Schedule(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """xdist's distribution by files, with those of Spark as one, in the order in which tests were collected."""

    def __init__(self, config: Any, log: Any) -> None:
        config.option.loadscopereorder = False  # by number of tests, which is unrelated to their time
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return SPARK if PurePath(file).is_relative_to(SPARK) else file
