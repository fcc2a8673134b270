"""Compiling in two processes at once: while this one compiles what it needs first, another compiles what it needs later.

Numba compiles one function at a time in a process.  What one process compiles the other loads from the cache on disk
(`compile_cache`), where a lock for each part decides which of them compiles it: so nothing depends on the other process, and
where it does not start, or fails, this one compiles everything.

    python -m mpi_match.compute.compile_parts MODULE:FUNCTION=ARGUMENT...      what the other process runs
"""

from __future__ import annotations

import atexit
import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import mpi_match


class Part(NamedTuple):
    """What a function compiles.

    what       its name for `compile_cache.compile_once`, which the function calls
    function   "module:name"
    argument   what it is called with
    """

    what: str
    function: str
    argument: str = ""

    def compile(self) -> None:
        """Compile it in this process, or wait for another that does."""
        module, _, name = self.function.partition(":")
        function = getattr(importlib.import_module(module), name)
        function(self.argument) if self.argument else function()


def compile_ahead(parts: Sequence[Part]) -> None:
    """Have another process compile those of the parts that are not compiled; where there is only one core, do nothing."""
    from mpi_match.compute.compile_cache import is_compiled  # loads Numba

    missing = [part for part in parts if not is_compiled(part.what)]
    if not missing or not sys.executable or len(os.sched_getaffinity(0)) < 2:
        return
    paths = [path for path in sys.path if path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, str(Path(mpi_match.__file__).parent.parent)])}
    named = [f"{part.function}={part.argument}" for part in missing]
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *named],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:  # no memory, no more processes
        return
    atexit.register(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def main(named: Sequence[str]) -> None:
    """Compile the parts that a command line names."""
    for each in named:
        function, _, argument = each.partition("=")
        Part("", function, argument).compile()


if __name__ == "__main__":
    main(sys.argv[1:])
