"""Compiles in several processes in parallel: this process compiles the code that it needs first, others the code needed
later.

Numba compiles one function at a time in a process.  Code that one process compiles, the others load from the cache on disk
(`compile_cache`), where a lock for each part decides which of them compiles it.  So nothing depends on other processes: if
they do not start, or fail, this one compiles everything.  Another process runs `main`, which reads lines
MODULE:FUNCTION=ARGUMENT.
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
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import mpi_match
from mpi_match.environment.memory import limit_bytes

IDLE_S = 10.0
"""Seconds without a request after which another process ends."""
MOST_PROCESSES, MEMORY_EACH = 6, 2**31
"""Most other processes; least memory of the job for each, in bytes: a process takes some 300 MB, and tables are read
meanwhile."""


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
    """Have other processes compile those of the parts that are not compiled yet; in such a process, do nothing.

    Processes take parts in turn; as many are started as there are parts, memory, and cores besides one for this process.
    """
    if not parts:
        return
    from mpi_match.compute.compile_cache import is_compiled  # loads Numba, which takes a third of a small run

    missing = [part for part in parts if part not in _asked and not is_compiled(part.what)]
    if not missing or not sys.executable or _is_other:
        return
    most = min(len(os.sched_getaffinity(0)) - 1, limit_bytes() // MEMORY_EACH, MOST_PROCESSES)
    for part in missing if most > 0 else ():
        _asked.add(part)
        with suppress(OSError):  # out of memory or processes, or the process has ended
            number = next(_turns) % most
            if number == len(_others):
                _others.append(_started())
            elif _others[number].poll() is not None:
                _others[number] = _started()
            asked: Any = _others[number].stdin
            asked.write(f"{part.function}={part.argument}\n".encode())


_others: list[subprocess.Popen[bytes]] = []
_turns = count()
_asked: set[Part] = set()
_is_other = False


def _started() -> subprocess.Popen[bytes]:
    """Start a process that compiles the parts written to it, one line each."""
    paths = [path for path in sys.path if path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, str(Path(mpi_match.__file__).parent.parent)])}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {__name__} import main; main()"],
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
    with process:  # closes the pipe, and waits
        pass


def _forked() -> None:
    """Leave the parent's other processes to the parent."""
    atexit.unregister(_end)
    _others.clear()


os.register_at_fork(after_in_child=_forked)


def main() -> None:
    """Compile the parts that lines of standard input name, until it ends or no line arrives for `IDLE_S`."""
    global _is_other
    _is_other = True
    asked = sys.stdin.fileno()
    while select.select([asked], [], [], IDLE_S)[0] and (lines := os.read(asked, 2**16)):
        for line in lines.decode().splitlines():
            function, _, argument = line.partition("=")
            Part("", function, argument).compile()
