"""Compiles in two processes in parallel: this process compiles the code that it needs first, another the code needed later.

Numba compiles one function at a time in a process.  Code that one process compiles, the other loads from the cache on disk
(`compile_cache`), where a lock for each part decides which of them compiles it.  So nothing depends on the other process: if
it does not start, or fails, this one compiles everything.

    python -m mpi_match.compute.compile_parts      the other process, which reads lines MODULE:FUNCTION=ARGUMENT
"""

from __future__ import annotations

import atexit
import importlib
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mpi_match

IDLE_S = 10.0
"""Seconds without a request after which the other process ends."""


class Part(NamedTuple):
    """Code that a function compiles.

    what       its name for `compile_cache.compile_once`, which the function calls
    function   "module:name"
    argument   the function's argument; "" for none
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
    """Have another process compile those of the parts that are not compiled yet; on a single core, do nothing.

    There is one such process, which also compiles the parts of later calls; this process compiles too, so it needs a core.
    """
    from mpi_match.compute.compile_cache import is_compiled  # loads Numba

    missing = [part for part in parts if not is_compiled(part.what)]
    if not missing or not sys.executable or len(os.sched_getaffinity(0)) < 2:
        return
    with suppress(OSError):  # out of memory or processes, or the process has ended
        asked: Any = _other_process().stdin
        asked.write("".join(f"{part.function}={part.argument}\n" for part in missing).encode())


@cache
def _other_process() -> subprocess.Popen[bytes]:
    """The process that compiles the parts written to it, one line each."""
    paths = [path for path in sys.path if path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, str(Path(mpi_match.__file__).parent.parent)])}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _forked() -> None:
    """Leave the parent's other process to the parent."""
    atexit.unregister(_end)
    _other_process.cache_clear()


os.register_at_fork(after_in_child=_forked)


def main() -> None:
    """Compile the parts that lines of standard input name, until it ends or no line arrives for `IDLE_S`."""
    asked = sys.stdin.fileno()
    while select.select([asked], [], [], IDLE_S)[0] and (lines := os.read(asked, 2**16)):
        for line in lines.decode().splitlines():
            function, _, argument = line.partition("=")
            Part("", function, argument).compile()


if __name__ == "__main__":
    main()
