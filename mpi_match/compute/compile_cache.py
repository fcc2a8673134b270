"""Compiled code on disk: found again by every process of the same sources, never by others.

Numba compiles a cached function again only when the function's own file changes.  Machine code contains more than one file:
a function of `cpu_search` has those of `cpu_verify` inlined, and after an upgrade that changes only `cpu_verify` Numba
would load the old checks.  Therefore each state of the sources has a cache directory of its own:

    ~/.cache/mpi-match/                       $XDG_CACHE_HOME/mpi-match where set; NUMBA_CACHE_DIR as it is where set
      3f0c…91-znver4-py3.11-numba0.68.1-…/    digest of all sources (`source_digest`), processor, compiler and its libraries
        mpi_match.engines.keyed/              Numba's, named after the folder in the package
        keyed.lock                            held by the process that compiles any `keyed-...`
        keyed-uint32.compiled                 marks what a process has compiled to the end

The processor is part of the name because hosts of several kinds may share a home directory. Folders are named by their
place in the package (`PackageLocator`), not on the disk, so installations of the same sources compile once for all of them;
but CUDA kernels, which have Numba's own names, once for each. Where the directory cannot be written (read-only, at its
quota, of another user, or others may write there: they could run code as this user), nothing is kept and every process
compiles; Numba itself would fall back to `__pycache__`, which may hold code of other sources. Making a new
directory removes those that no process began to use for a month; a process that still uses one compiles what it misses and
makes the directory again.

With `compile_once` one process compiles the code of an engine while the others, such as the ranks of a host, wait and then
load it.  Code compiled outside it is kept as well, but processes may compile it at the same time.

Numba reads its cache settings when a function is decorated, and they belong to the whole process.  They are changed for that
moment only: functions of the program that imports this package are cached as before.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import logging
import os
import platform
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast

import llvmlite
import llvmlite.binding
import numba
import numpy
from numba.core.caching import UserProvidedCacheLocator
from numba.core.compiler_lock import global_compiler_lock
from numba.core.types import unliteral

import mpi_match
from mpi_match.compute import compile_notice
from mpi_match.environment import source_digest

log = logging.getLogger(__name__)
_config: Any = numba.config

KEPT_S = 30 * 24 * 3600
"""A directory is removed when no process began to use it for so long."""
STAMPED_S = 24 * 3600
"""A use renews the directory's time stamp at most this often: many ranks begin at once, perhaps on a remote file system."""

COMPILE_WAIT_S = 300.0
"""A process waits so long for another that compiles, then compiles for itself."""
NESTED_VERSION = "0.68."
"""Versions of Numba that `nested_compiler` was written for."""
POLL_S = 0.02

_PACKAGE = Path(mpi_match.__file__).absolute().parent
_NAME = re.compile(r"[0-9a-f]{64}-[^/]+")
_settings = threading.Lock()
_compiling = threading.RLock()


@cache
def directory() -> Path | None:
    """Where the compiled code of these sources is kept, made if need be, for its owner alone; None where it cannot be
    written, or others can write.
    """
    python = ".".join(platform.python_version_tuple()[:2])
    compiler = "-".join(f"{each.__name__}{each.__version__}" for each in (numba, llvmlite, numpy))
    name = f"{source_digest.digest()}-{llvmlite.binding.get_host_cpu_name()}-py{python}-{compiler}"
    try:
        place = _made_parent() / name
        if not place.exists():
            _remove_old(place.parent)
        _make_private(place)
        _refuse_shared(place)
        tempfile.TemporaryFile(dir=place).close()
        if time.time() - place.stat().st_mtime > STAMPED_S:
            os.utime(place)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home directory
        _not_kept(f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error))
        return None
    return place


@cache
def _made_parent() -> Path:
    """The directory that contains those of all sources, made if need be.  Raises OSError where others can write."""
    parent = _parent()
    _make_private(parent)
    found = parent.stat()
    if not _config.CACHE_DIR and found.st_uid == os.geteuid() and found.st_mode & _OTHERS_WRITE:
        parent.chmod(0o700)  # made by an earlier version
    _refuse_shared(parent, sticky=True)
    return parent


_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def _make_private(directory: Path) -> None:
    """Make a directory that only its owner can enter, unless it is there."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)


def _refuse_shared(directory: Path, *, sticky: bool = False) -> None:
    """Raise OSError for a directory in which another user could place code; `sticky`: also if only to be added to."""
    found, refusal = directory.stat() if sticky else directory.lstat(), ""
    if not stat.S_ISDIR(found.st_mode):
        refusal = "it is a link; remove it"
    elif found.st_uid not in (0, os.geteuid()):
        refusal = "it belongs to another user; set NUMBA_CACHE_DIR to a directory of your own"
    elif found.st_mode & _OTHERS_WRITE and not (sticky and found.st_mode & stat.S_ISVTX):
        refusal = "other users can write there; take that permission away, or remove it"
    if refusal:
        raise OSError(errno.EPERM, refusal, str(directory))


_reasons: list[str] = []
"""Why compiled code is not kept, in this process."""


def _not_kept(reason: str) -> None:
    if not _reasons:
        log.info("compiled code is not kept, and every process compiles: %s", reason)
    _reasons.append(reason)


def why_not_kept() -> str:
    """Why this process keeps no compiled code, or not all; "" if it does."""
    directory()
    return _reasons[0] if _reasons else ""


class PackageLocator(UserProvidedCacheLocator):
    """Numba's for a directory, with folders named by a file's place in this package; those of other files are its own."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Such as `mpi_match.engines.keyed` for a file of that folder."""
        try:
            folder = Path(py_file).absolute().parent.relative_to(_PACKAGE)
        except ValueError:  # a function of another program
            return str(super().get_suitable_cache_subpath(py_file))  # type: ignore[no-untyped-call]
        return ".".join((_PACKAGE.name, *folder.parts))


Function = TypeVar("Function", bound=Callable[..., Any])


def cached(compiler: Callable[..., Any], **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: `compiler(**options)`, one of Numba's, with what it compiles kept in `directory()`."""

    def decorate(function: Callable[..., Any]) -> Any:
        place = directory()
        if place is not None:
            try:
                with _settings, _cache_in(place):
                    return _kept_if_possible(compiler(cache=True, **options)(function))
            except RuntimeError as error:  # Numba's own directory in it cannot be written
                log.debug("compiled code of %s is not kept: %s", function.__name__, error)
        return compiler(**options)(function)

    return decorate


def _kept_if_possible(compiled: Any) -> Any:
    """A function of Numba's that is used also when its code cannot be saved, as in a directory at its quota."""
    save = compiled._cache.save_overload

    def save_overload(*arguments: Any) -> None:
        try:
            save(*arguments)
        except OSError as error:
            _not_kept(f"{error.filename or directory()}: {error.strerror}")

    compiled._cache.save_overload = save_overload
    return compiled


@contextmanager
def compile_once(what: str, functions: int = 10) -> Iterator[bool]:
    """Whether `what` has still to be compiled, which the caller then does in the body.

    True in the first process that asks; the others wait for the end of its body and get False: they load what it compiled.
    Where code cannot be kept, all get True.  An error in the body leaves `what` to the next process.  Calls may be nested.
    What has the same name up to a hyphen is compiled by one process at a time, and other code by others meanwhile.
    `functions` is about how many functions these are, for a progress bar.
    """
    if is_compiled(what):
        yield False
        return
    mark = _mark_of(what)
    with _compiling, _timed():
        if mark is None:
            yield True
            return
        with _locked(mark.parent / f"{what.partition('-')[0]}.lock"):
            missing, n_reasons = not mark.exists(), len(_reasons)
            with _shown(functions) if missing else nullcontext(), _uncollected() if missing else nullcontext():
                yield missing
            if missing and len(_reasons) == n_reasons:
                with suppress(OSError):
                    mark.touch()


def is_compiled(what: str) -> bool:
    """Has a process compiled `what` to the end?"""
    mark = _mark_of(what)
    return mark is not None and mark.exists()


def _mark_of(what: str) -> Path | None:
    place = directory()
    return None if place is None else place / f"{what}.compiled"


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage in the body: compiling makes much that stays, which would be gone through again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_shows = False


@contextmanager
def _shown(functions: int) -> Iterator[None]:
    """Say that compiling takes place in the body; nested, the outer one has said it."""
    global _shows
    place = directory()
    if _shows or place is None:
        yield
        return
    before, show = _n_kept(place), compile_notice.show
    if show is None:
        _log_compiling()
    _shows = True
    try:
        with nullcontext() if show is None else show(lambda: _n_kept(place) - before, functions):
            yield
    finally:
        _shows = False


def _n_kept(place: Path) -> int:
    """Functions of which compiled code is kept."""
    return sum(1 for _ in place.glob("*/*.nbc"))


def compile_s() -> float:
    """Seconds that this process has spent so far on `compile_once`: compiling, or waiting for another that did."""
    return _spent_s


_spent_s = 0.0
_timing = False


@contextmanager
def _timed() -> Iterator[None]:
    """Add the time of the body, which holds `_compiling`, to `compile_s`; nested, it is in that of the outer one."""
    global _spent_s, _timing
    if _timing:
        yield
        return
    _timing, began = True, time.perf_counter()
    try:
        yield
    finally:
        _timing, _spent_s = False, _spent_s + time.perf_counter() - began


def _parent() -> Path:
    """The directory that contains those of all sources."""
    if chosen := _config.CACHE_DIR:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "mpi-match"


def _remove_old(parent: Path) -> None:
    """Remove the directories of other sources that are long unused, as far as possible."""
    for place in parent.glob("*-*"):
        if _NAME.fullmatch(place.name) and time.time() - place.stat().st_mtime > KEPT_S:
            shutil.rmtree(place, ignore_errors=True)


_held: dict[Path, TextIO] = {}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock on a file, which the operating system frees if this process dies.

    Without it after `COMPILE_WAIT_S` (the holder may be stopped), where files cannot be locked, and in the process that
    holds it already.
    """
    if path in _held:
        yield
        return
    with suppress(OSError):
        _held[path] = path.open("a")
        _wait_for(_held[path])
    try:
        yield
    finally:
        if path in _held:
            _held.pop(path).close()


def _wait_for(file: TextIO) -> None:
    deadline = time.monotonic() + COMPILE_WAIT_S
    is_logged = False
    while time.monotonic() < deadline:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not is_logged:
                log.info("waiting for another process, which compiles for this machine")
                is_logged = True
            time.sleep(POLL_S)
        else:
            return


@cache
def _log_compiling() -> None:
    """Log, once in a process, why it takes so long."""
    log.info("compiling for this machine, which takes some seconds, once: it is kept in %s", directory())


@contextmanager
def _cache_in(place: Path) -> Iterator[None]:
    """Let Numba cache functions decorated in the body below `place` and nowhere else."""
    before = _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES
    _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = str(place), f"{__name__}.{PackageLocator.__name__}"
    try:
        yield
    finally:
        _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = before


def nested_pipeline() -> dict[str, Any]:
    """What makes Numba leave nested functions unfinished, of the versions whose pipeline is known; others compile them more
    often."""
    if not numba.__version__.startswith(NESTED_VERSION):
        return {}
    from mpi_match.compute.nested_compiler import NestedCompiler

    return {"pipeline_class": NestedCompiler}


def partly(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator of functions that are only parts of others, with options of Numba.

    They are compiled for the types of their arguments, where Numba would compile them again for each literal number that
    they are called with; LLVM passes these on.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        compiled = cast(Any, numba.njit)(**wrappers, **nested_pipeline(), **options)(function)
        template_of = compiled.get_call_template

        def of_types(args: Any, kws: Any) -> Any:
            return template_of([unliteral(each) for each in args], {name: unliteral(each) for name, each in kws.items()})

        compiled.get_call_template = of_types
        return compiled

    return decorate


def _forked() -> None:
    """Begin anew in a child process, whose parent's other threads may have been compiling."""
    global _settings, _compiling, _shows, _timing
    _settings, _compiling, _shows, _timing = threading.Lock(), threading.RLock(), False, False
    while _held:
        _held.popitem()[1].close()  # the parent keeps it locked
    locks: list[Any] = [global_compiler_lock, getattr(llvmlite.binding.ffi.lib, "_lock", None)]
    for lock in locks:
        if hasattr(lock, "_lock"):
            lock._lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)

jit = cached(numba.njit, nogil=True, no_cfunc_wrapper=True)
nested: Callable[[Function], Function] = cast(Any, partly())
"""Compiled into the functions that call it and kept with them alone, which is quicker; it cannot be called from Python."""
inlined = partly(forceinline=True)
"""The same, and LLVM puts it into the functions that call it, however long it is."""
