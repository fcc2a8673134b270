"""Compiled code on disk, and never that of other sources.

Numba keeps what it compiled, so that only the first process pays for it, and compiles a function again when the file that it
stands in has changed.  But machine code is made of more than one file: a function of `cpu_search` has those of
`cpu_verify` and `filter_rows` inside.  After an upgrade in place of which only those are new,

    keyed_walk.py     as it was      Numba loads its code, which has
    keyed_verify.py   changed        the old checks inside: wrong answers, and nobody is told

Therefore the code of each state of the package has a directory of its own:

    ~/.cache/mpi-match/            $XDG_CACHE_HOME/mpi-match where that is set; or NUMBA_CACHE_DIR as it is
      3f0c…91-znver4/              digest of all sources (`source_digest`) - processor
        engines_5b…/               Numba's: its path in the file system, so two installations do not meet

Any change of a source is another digest, and everything is compiled anew; a checkout of what was there before finds its code
again.  The processor is in the name because hosts of several kinds may share a home directory: Numba knows their code apart
in its index, but processes that write at the same time may give two kinds' code the same file.

Where the directory cannot be written nothing is kept, and every process compiles: Numba itself would go on to `__pycache__`,
where code of other sources lies.  Directories that nobody began to use for a month are removed when a new one is made.  A
process that has used one for so long does not mind: what it misses it compiles, and makes the directory again.

Processes that begin at once, as the ranks of a host do, would each compile the same functions for half a minute.  They take
turns at a function: whoever waited loads what was compiled meanwhile (`_Turn`).  That also keeps two of them from adding a
signature at the same moment, and giving its code the same file.

Numba takes the directory from its configuration when a function is decorated, and the configuration is the whole process's.
It is changed only for that moment: functions of the program that imports this package are cached where they always were.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import llvmlite.binding
import numba

from mpi_match.environment import source_digest

log = logging.getLogger(__name__)
_config: Any = numba.config

KEPT_S = 30 * 24 * 3600
"""A directory is removed when nobody began to use it for so long."""
STAMPED_S = 24 * 3600
"""Beginning to use a directory is noted once in this time: many ranks begin at once, and a file system may be far away."""

PATIENCE_S = 300.0
"""So long a process waits for what another one compiles."""
LOOK_S = 0.02

_NAME = re.compile(r"[0-9a-f]{64}-[^/]+")
_decorating = threading.Lock()


@cache
def directory() -> Path | None:
    """Where the compiled code of these sources is kept, made if need be; None where nothing can be."""
    try:
        place = _parent() / f"{source_digest.digest()}-{llvmlite.binding.get_host_cpu_name()}"
        if not place.exists():
            _remove_old(place.parent)
            place.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place).close()
        if time.time() - place.stat().st_mtime > STAMPED_S:
            os.utime(place)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home directory
        log.debug("compiled code is not kept: %s", error)
        return None
    return place


def cached(compiler: Callable[..., Any], **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: `compiler(**options)`, one of Numba's, with what it compiles kept in `directory()`."""

    def decorate(function: Callable[..., Any]) -> Any:
        place = directory()
        if place is not None:
            try:
                with _decorating, _cache_in(place):
                    compiled = compiler(cache=True, **options)(function)
                _take_turns(compiled, place / f"{function.__module__}.{function.__qualname__}.lock")
                return compiled
            except RuntimeError as error:  # Numba's own directory in it cannot be written
                log.debug("compiled code of %s is not kept: %s", function.__name__, error)
        return compiler(**options)(function)

    return decorate


def _parent() -> Path:
    """What holds the directories of all sources."""
    if said := _config.CACHE_DIR:
        return Path(said)
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "mpi-match"


def _remove_old(parent: Path) -> None:
    """Remove the directories of other sources that nobody began to use for long; what cannot be removed stays."""
    for place in parent.glob("*-*"):
        if _NAME.fullmatch(place.name) and time.time() - place.stat().st_mtime > KEPT_S:
            shutil.rmtree(place, ignore_errors=True)


class _Turn:
    """A process's turn at a function: a lock on a file, which ends with the process if not before.

    A process that stands still keeps its turn.  After `PATIENCE_S` the others compile for themselves, and keep nothing.
    """

    def __init__(self, lock: Path) -> None:
        self._path = lock
        self._file: TextIO | None = None

    @property
    def taken(self) -> bool:
        return self._file is not None

    def wait(self) -> bool:
        """Take the turn, unless patience ends before."""
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._path.open("a")
            if _locked(file, time.monotonic() + PATIENCE_S):
                self._file = file
            else:
                file.close()
        return self.taken

    def end(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _locked(file: TextIO, deadline: float) -> bool:
    """Was the lock to be had before the deadline?  Also where files cannot be locked at all."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
        except OSError:
            return True
        else:
            return True


def _take_turns(compiled: Any, lock: Path) -> None:
    """Let one process at a time compile a function and save it; whoever waited loads what was saved."""
    kept = getattr(compiled, "_cache", None)  # the simulator's kernels have none
    if kept is None:
        return
    load, save, compile_ = kept.load_overload, kept.save_overload, compiled.compile
    turn = _Turn(lock)

    def load_or_wait(*of: Any) -> Any:
        found = load(*of)
        if found is None and not turn.taken and turn.wait():
            found = load(*of)
        if found is None:
            _tell()
        return found

    def save_in_turn(*of: Any) -> None:
        if turn.taken:
            save(*of)

    def compile_in_turn(*of: Any) -> Any:
        nested = turn.taken  # for another signature of the same function
        try:
            return compile_(*of)
        finally:
            if not nested:
                turn.end()

    kept.load_overload, kept.save_overload, compiled.compile = load_or_wait, save_in_turn, compile_in_turn


@cache
def _tell() -> None:
    """Say, once in a process, what takes so long now."""
    log.info("compiling for this machine, which takes some seconds, once: it is kept in %s", directory())


@contextmanager
def _cache_in(place: Path) -> Iterator[None]:
    """Let Numba cache what is decorated meanwhile below `place` and nowhere else."""
    before = _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES
    _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = str(place), "UserProvidedCacheLocator"
    try:
        yield
    finally:
        _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = before


jit = cached(numba.njit, nogil=True)
parallel_jit = cached(numba.njit, nogil=True, parallel=True)
inlined = numba.njit(inline="always")
"""Becomes a part of the functions that call it, and is kept with them."""
