"""Atomic files: a file has its final name only when it is complete.

A file is written beside its destination as `.NAME.RANDOM.writing` and renamed at the end: a reader finds all of it, and the
previous file stays until then.  Only regular files can be outputs: renaming replaces whatever has the name, for root also a
device, so `-o /dev/null` is refused.
"""

from __future__ import annotations

import errno
import glob
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mpi_match.storage.integrity import StorageError


def check_output(path: Path, inputs: Iterable[Path] = (), *, others: Iterable[Path] = (), streamed: bool = False) -> None:
    """Refuse an output path that cannot be written, before any work is done.

    `inputs` are files that must not be overwritten; they need not exist.  `others` are other outputs.  `streamed`: the
    output is written as it is produced, so it may also be a device or a pipe.  Raises StorageError.
    """
    if not path.parent.is_dir():
        what = "is not a directory" if path.parent.exists() else "does not exist; create it first"
        raise StorageError(f"{path}: the directory {path.parent} {what}")
    if path.is_dir():
        raise StorageError(f"{path}: cannot be written: it is a directory; give the name of a file in it")
    if not streamed and ((path.exists() and not path.is_file()) or _is_open_file(path)):
        raise StorageError(f"{path}: cannot be written: it is a device or a pipe, and a file would take its place")
    if not os.access(path if streamed and path.exists() else path.parent, os.W_OK):
        raise StorageError(f"{path}: cannot be written: {os.strerror(errno.EACCES)}")
    if any(_is_one_place(path, each) for each in others):
        raise StorageError(f"{path}: is another output of this command too; give each its own name")
    if any(_is_one_place(path, each) for each in inputs):
        raise StorageError(f"{path}: is an input and would be overwritten; give the output another name")


def _is_open_file(path: Path) -> bool:
    """Does the path lead to an open file of a process, such as /dev/stdout?  Renaming would not write to that."""
    names = [path, path.parent / path.readlink()] if path.is_symlink() else [path]
    return any(name.parent.resolve().is_relative_to("/proc") for name in names)


def _is_one_place(path: Path, other: Path) -> bool:
    """True for two paths of one file, such as hard links, or of one that is not there yet; a device holds no file."""
    if path.exists() and not path.is_file():
        return False
    return path.resolve() == other.resolve() or (path.exists() and other.exists() and path.samefile(other))


def temporary_of(path: Path) -> Path:
    """A temporary name for `path`, random each time, so that no other user can place a link under it beforehand."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.writing")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """The temporary path to write to; it is renamed to `path` at the end of the `with` block, unless an exception
    leaves it.
    """
    temporary = temporary_of(path)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Fsync a directory, because a host that loses power may lose a rename.

    Raises StorageError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from error


def remove_half_written(path: Path) -> None:
    """Remove what killed writers of `path` have left; no other process may be writing it."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.writing"):
        left.unlink(missing_ok=True)


def descriptor_of(path: Path) -> int:
    """A descriptor for reading a regular file; opening a pipe would block.  Raises StorageError, OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(f"{path}: is no file; it is a directory, a device or a pipe")
    return descriptor
