"""A cache of compiled code on disk, shared by all processes that run the same sources, and by no others.

Numba recompiles a cached function only when the function's own file changes.  But machine code depends on more than one
file: a function of `cpu_search` has functions of `cpu_verify` inlined, and after an upgrade that changes only `cpu_verify`
Numba would load the old checks.  Therefore each state of the sources has its own cache directory:

    ~/.cache/mpi-match/                       or $XDG_CACHE_HOME/mpi-match; NUMBA_CACHE_DIR, if set, is used as it is
      3f0c…91-znver4-py3.11-numba0.68.1-…/    digest of all sources (`source_digest`), processor, compiler and its libraries
        mpi_match.engines.keyed/              files of `code_files`, named after the folder in the package
        keyed.lock                            held by the process that compiles any `keyed-...`
        keyed-uint32.compiled                 marks code that a process has finished compiling

The processor is part of the name because hosts of several kinds may share a home directory.  Folders are named after their
position in the package (`PackageLocator`), not on the disk, so several installations of the same sources compile once.  If
the directory cannot be used (it is read-only, at its quota, owned by another user, or writable by others, who could run code
as this user), nothing is kept and every process compiles; Numba itself would fall back to `__pycache__`, which may hold code
of other sources.  Making a new directory removes those that no process has started to use for a month; a process that still
uses one compiles the missing code and makes the directory again.

A wheel has such directories in `mpi_match/compiled`, for `SHIPPED`, processors whose code nearly all others run
(`shipped_directory`; `make wheel` compiles it).  Their names have the same digest and versions, so code of other sources or
of another compiler is never loaded.  Code that is missing in the user's directory is looked for there, and compiled only if
it is missing there too.

With `compile_once` one process compiles the code of an engine while the others, such as the ranks of a host, wait and then
load it.  Code compiled outside it is kept as well, but several processes may compile it at the same time.

Numba reads its cache settings when a function is decorated, and they belong to the whole process.  They are changed only for
that moment: other functions of the program that imports this package are cached as before.
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
from numba.core import serialize
from numba.core.caching import FunctionCache, UserProvidedCacheLocator
from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime.nrt import rtsys
from numba.core.types import unliteral

import mpi_match
from mpi_match.compute import compile_notice
from mpi_match.compute.code_files import SUFFIX, CodeFiles
from mpi_match.environment import source_digest

log = logging.getLogger(__name__)
_config: Any = numba.config

KEPT_S = 30 * 24 * 3600
"""Seconds for which no process has started to use a directory before it is removed."""
STAMPED_S = 24 * 3600
"""Least interval, in seconds, at which a use renews the directory's time stamp: many ranks start at once, perhaps on a
remote file system."""

COMPILE_WAIT_S = 300.0
"""Most seconds for which a process waits for another that compiles, before it compiles for itself."""
NESTED_VERSION = "0.68."
"""Prefix of the Numba versions whose internals `nested_compiler`, `code_files` and `_quickly_loaded` use."""
POLL_S = 0.02

_AVX2 = (
    *("sse3", "sse4.1", "sse4.2", "ssse3", "avx", "avx2", "fma", "f16c"),
    *("bmi", "bmi2", "lzcnt", "popcnt", "movbe", "cx16", "sahf", "xsave"),
)
SHIPPED = {"x86-64-v4": (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"), "x86-64-v3": _AVX2}
"""The processors that the code in a wheel is compiled for, the best one first, and LLVM's names of their features: those
with AVX-512, and nearly all others, which have AVX2."""

_PACKAGE = Path(mpi_match.__file__).absolute().parent
SHIPPED_CODE = _PACKAGE / "compiled"
"""The directory of the code that comes with the package."""
_NAME = re.compile(r"[0-9a-f]{64}-[^/]+")
_settings = threading.Lock()
_compiling = threading.RLock()


@cache
def directory() -> Path | None:
    """The directory for the compiled code of these sources, which is made for its owner alone if necessary; None if it
    cannot be written or others can write to it."""
    try:
        place = _made_parent() / _named(_config.CPU_NAME or llvmlite.binding.get_host_cpu_name())
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


def _named(processor: str) -> str:
    """The name of the directory of these sources' code for a processor.  Code depends on the features of NumPy, which
    releases with the same first two numbers share."""
    python, arrays = (".".join(each.split(".")[:2]) for each in (platform.python_version(), numpy.__version__))
    compiler = "-".join(f"{each.__name__}{each.__version__}" for each in (numba, llvmlite))
    return f"{source_digest.digest()}-{processor}-py{python}-{compiler}-numpy{arrays}"


def shipped_directory() -> Path | None:
    """The directory of the code that came with the package; None if there is none that these sources, this compiler and
    this processor can use, or if Numba was told what processor to compile for."""
    processor = shipped_processor()
    return None if processor is None else _shipped_for(processor)


@cache
def shipped_processor() -> str | None:
    """The processor of `shipped_directory`."""
    if _config.CPU_NAME or not _config.ENABLE_AVX or not is_known_numba():
        return None
    return next((each for each in SHIPPED if runs_here(each) and _shipped_for(each).is_dir()), None)


def runs_here(processor: str) -> bool:
    """Tells whether this machine runs code that was compiled for a processor of `SHIPPED`."""
    return all(map(llvmlite.binding.get_host_cpu_features().get, SHIPPED[processor]))


def _shipped_for(processor: str) -> Path:
    return SHIPPED_CODE / _named(processor)


shipped_marks: set[Path] = set()
"""Further directories of the package with marks of compiled code: those of this machine's GPUs (`gpu.kernel_code`)."""


def is_known_numba() -> bool:
    """Tells whether the internals of the installed Numba are those that `nested_compiler` and `CodeFiles` need."""
    return numba.__version__.startswith(NESTED_VERSION)


@cache
def _made_parent() -> Path:
    """The parent of the directories of all sources, made if necessary.  Raises OSError if others can write to it."""
    parent = _parent()
    _make_private(parent)
    found = parent.stat()
    if not _config.CACHE_DIR and found.st_uid == os.geteuid() and found.st_mode & _OTHERS_WRITE:
        parent.chmod(0o700)  # made by an earlier version
    _refuse_shared(parent, sticky=True)
    return parent


_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def _make_private(directory: Path) -> None:
    """Make a directory that only its owner can enter, unless it exists."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)


def _refuse_shared(directory: Path, *, sticky: bool = False) -> None:
    """Raise OSError for a directory in which another user could place code; with `sticky`, accept one with the sticky
    bit."""
    found, refusal = directory.stat() if sticky else directory.lstat(), ""
    if not stat.S_ISDIR(found.st_mode):
        refusal = "it is a link; remove it"
    elif found.st_uid not in (0, os.geteuid()):
        refusal = "it belongs to another user; set NUMBA_CACHE_DIR to a directory of your own"
    elif found.st_mode & _OTHERS_WRITE and not (sticky and found.st_mode & stat.S_ISVTX):
        refusal = "other users can write to it; revoke that permission, or remove it"
    if refusal:
        raise OSError(errno.EPERM, refusal, str(directory))


_reasons: list[str] = []
"""Reasons why this process does not keep compiled code."""


def _not_kept(reason: str) -> None:
    if not _reasons:
        log.info("compiled code is not kept, so every process compiles: %s", reason)
    _reasons.append(reason)


def why_not_kept() -> str:
    """The reason why this process keeps no compiled code, or not all of it; "" if it keeps all."""
    directory()
    return _reasons[0] if _reasons else ""


class PackageLocator(UserProvidedCacheLocator):
    """Numba's locator for a user-provided directory.  The folders of this package's files are named after their position in
    the package, their sources are known from the directory's name, and nothing is made before code is kept."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> PackageLocator | None:
        """The locator of a function; None for one of another program that has no file."""
        if _folder_of(py_file) is None:
            return cast("PackageLocator | None", super().from_function(py_func, py_file))  # type: ignore[no-untyped-call]
        return cls(py_func, py_file)

    def get_source_stamp(self) -> str:
        """The digest of a file of another program; "" for one of the package."""
        if _folder_of(self._py_file) is None:
            return str(super().get_source_stamp())  # type: ignore[no-untyped-call]
        return ""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """The folder name, such as `mpi_match.engines.keyed`, for a file."""
        return _folder_of(py_file) or str(super().get_suitable_cache_subpath(py_file))  # type: ignore[no-untyped-call]


def _folder_of(py_file: str) -> str | None:
    """The name of the folder for the code of a file; None for a file of another program."""
    try:
        folder = Path(py_file).absolute().parent.relative_to(_PACKAGE)
    except ValueError:
        return None
    return ".".join((_PACKAGE.name, *folder.parts))


Function = TypeVar("Function", bound=Callable[..., Any])


def cached(compiler: Callable[..., Any], **options: object) -> Callable[[Callable[..., Any]], Any]:
    """Decorator that applies one of Numba's compilers, `compiler(**options)`, and keeps the compiled code in
    `directory()`."""

    def decorate(function: Callable[..., Any]) -> Any:
        folder = _folder_of(function.__code__.co_filename)
        place = directory() or (shipped_directory() if folder else None)
        if place is not None:
            try:
                with _settings, _cache_in(place):
                    return _quickly_loaded(_kept_if_possible(compiler(cache=True, **options)(function)), folder)
            except RuntimeError as error:  # a function of another program, for which Numba makes no folder
                log.debug("compiled code of %s is not kept: %s", function.__name__, error)
        return compiler(**options)(function)

    return decorate


def _kept_if_possible(compiled: Any) -> Any:
    """Make a compiled function usable even if its code cannot be saved, as in a directory at its quota."""
    save = compiled._cache.save_overload

    def save_overload(*arguments: object) -> None:
        try:
            save(*arguments)
        except OSError as error:
            _not_kept(f"{error.filename or directory()}: {error.strerror}")

    compiled._cache.save_overload = save_overload
    return compiled


def _quickly_loaded(compiled: Any, folder: str | None) -> Any:
    """Make a compiled function load its kept code without all that only compiling needs, and from `CodeFiles` if it is one
    of the package, with this `folder`; for versions of Numba that are known.

    Before every function Numba imports the modules that implement its library and looks through them for what is new, which
    takes longer than loading the function; compiling does so again.  Loading makes some 150 calls of LLVM, and Numba reports
    each of them to a timer for each function.
    """
    if type(compiled._cache) is not FunctionCache or not is_known_numba():
        return compiled
    stored: Any = compiled._cache
    if folder is not None:
        own, shipped = (None if place is None else place / folder for place in (directory(), shipped_directory()))
        stored._cache_file = CodeFiles(own, shipped, shipped_processor(), stored._impl.filename_base)
        stored._impl.locator.ensure_cache_path = lambda: None  # `CodeFiles` makes it
        save = stored.save_overload
        # without the text of its types, which is as long as its code and has paths of this machine
        stored.save_overload = lambda types, result: save(types, result._replace(type_annotation=""))

    def load_overload(signature: Any, context: Any) -> Any:
        rtsys.initialize(context)
        with _unreported(), stored._guard_against_spurious_io_errors():
            return stored._load_overload(signature, context)

    stored.load_overload = load_overload
    return compiled


@contextmanager
def _unreported() -> Iterator[None]:
    """Report no call of LLVM in the body, which runs with Numba's lock: nothing else is compiled or loaded meanwhile."""
    hooks = getattr(getattr(llvmlite.binding.ffi.lib, "_lock", None), "_cblist", [])
    kept = hooks.copy()
    hooks.clear()
    try:
        yield
    finally:
        hooks.extend(kept)


@contextmanager
def compile_once(what: str, functions: int = 10) -> Iterator[bool]:
    """Yield True if the caller still has to compile `what`, in the body.

    The first process that asks gets True; the others wait for the end of its body, get False, and load the code that it
    compiled.  If code cannot be kept, all get True.  After an error in the body the next process compiles `what`.  Calls may
    be nested.  Code whose name has the same prefix, up to a hyphen, is compiled by one process at a time; other code may be
    compiled in parallel.  `functions` is the approximate number of functions, for a progress bar.
    """
    if is_compiled(what):
        yield False
        return
    place = directory()
    with _compiling, _timed():
        if place is None:
            yield True
            return
        mark = _mark(place, what)
        with _locked(mark.parent / f"{what.partition('-')[0]}.lock"):
            missing, n_reasons = not mark.exists(), len(_reasons)
            with _shown(functions) if missing else nullcontext(), _uncollected() if missing else nullcontext():
                yield missing
            if missing and len(_reasons) == n_reasons:
                with suppress(OSError):
                    mark.touch()


def is_compiled(what: str) -> bool:
    """Tells whether a process has finished compiling `what`."""
    places = directory(), shipped_directory(), *shipped_marks
    return any(place is not None and _mark(place, what).exists() for place in places)


def _mark(place: Path, what: str) -> Path:
    return place / f"{what}.compiled"


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable garbage collection in the body: compiling makes many long-lived objects, which would be scanned again and
    again."""
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
    """Announce that the body compiles, unless an outer call has done so."""
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
    """Number of functions whose compiled code is kept."""
    return sum(1 for _ in place.glob(f"*/*{SUFFIX}"))


def n_compiled() -> int:
    """Number of functions and kernels whose compiled code is kept, by any process; 0 where none can be kept."""
    place = directory()
    return 0 if place is None else _n_kept(place) + sum(1 for _ in place.glob("*/*.cubin"))


def compile_s() -> float:
    """Seconds that this process has spent so far in `compile_once`: compiling, or waiting for another process that
    compiled."""
    return _spent_s


_spent_s = 0.0
_timing = False


@contextmanager
def _timed() -> Iterator[None]:
    """Add the time of the body, which holds `_compiling`, to `compile_s`; a nested call adds nothing."""
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
    """The parent of the directories of all sources."""
    if chosen := _config.CACHE_DIR:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "mpi-match"


def _remove_old(parent: Path) -> None:
    """Remove the long-unused directories of other sources, as far as possible."""
    for place in parent.glob("*-*"):
        if _NAME.fullmatch(place.name) and time.time() - place.stat().st_mtime > KEPT_S:
            shutil.rmtree(place, ignore_errors=True)


_held: dict[Path, TextIO] = {}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock on a file, which the operating system releases if this process dies.

    Continue without the lock after `COMPILE_WAIT_S` (the holder may be stopped), if files cannot be locked, and if this
    process already holds it.
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
                log.info("waiting for another process that is compiling for this machine")
                is_logged = True
            time.sleep(POLL_S)
        else:
            return


@cache
def _log_compiling() -> None:
    """Log, once in a process, the reason for the delay."""
    log.info("compiling for this machine, which takes some seconds; the code is kept in %s", directory())


@contextmanager
def _cache_in(place: Path) -> Iterator[None]:
    """Let Numba cache functions that are decorated in the body below `place` and nowhere else."""
    before = _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES
    _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = str(place), f"{__name__}.{PackageLocator.__name__}"
    try:
        yield
    finally:
        _config.CACHE_DIR, _config.CACHE_LOCATOR_CLASSES = before


def nested_pipeline() -> dict[str, Any]:
    """Options that make Numba leave nested functions unfinished, for versions whose pipeline is known; empty for other
    versions, which compile such functions more often."""
    if not is_known_numba():
        return {}
    from mpi_match.compute.nested_compiler import NestedCompiler

    return {"pipeline_class": NestedCompiler}


def partly(**options: object) -> Callable[[Callable[..., Any]], Any]:
    """Decorator for functions that only other compiled functions call; takes Numba's options.

    They are compiled for the types of their arguments; Numba would otherwise compile them again for each literal number that
    is passed to them.  LLVM propagates these constants.
    """

    def decorate(function: Callable[..., object]) -> Any:
        wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        compiled = cast(Any, numba.njit)(**wrappers, **nested_pipeline(), **options)(function)
        template_of = compiled.get_call_template

        def of_types(args: Any, kws: Any) -> Any:
            return template_of([unliteral(each) for each in args], {name: unliteral(each) for name, each in kws.items()})

        compiled.get_call_template = of_types
        return compiled

    return decorate


def _forked() -> None:
    """Reset the state in a forked child, whose parent's other threads may have been compiling."""
    global _settings, _compiling, _shows, _timing
    _settings, _compiling, _shows, _timing = threading.Lock(), threading.RLock(), False, False
    while _held:
        _held.popitem()[1].close()  # the parent keeps it locked
    locks: list[Any] = [global_compiler_lock, getattr(llvmlite.binding.ffi.lib, "_lock", None)]
    for lock in locks:
        if hasattr(lock, "_lock"):
            lock._lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)

# Compiled code that returns arrays calls this function of Numba for their dtypes, and does not notice its exceptions: an
# interrupt there is a SystemError or a null pointer.  With a cache no Python code runs there, where an interrupt could come.
cast(Any, serialize)._numba_unpickle = cache(cast(Any, serialize)._numba_unpickle)

jit = cached(numba.njit, nogil=True, no_cfunc_wrapper=True)
locked_jit = cached(numba.njit, no_cfunc_wrapper=True)
"""Decorator: the compiled function keeps Python's lock, so that no thread changes the objects that it reads."""
nested: Callable[[Function], Function] = cast(Any, partly())
"""Decorator: the function is compiled into its callers and cached only with them, which is faster; it cannot be called from
Python."""
inlined = partly(forceinline=True)
"""Like `nested`, and LLVM always inlines the function into its callers, regardless of its length."""
