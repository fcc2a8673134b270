"""Atomic files: a file has its final name only when it is complete.

A file is written beside its destination as `.NAME.RANDOM.writing` and renamed at the end: a reader finds all of it, and the
previous file stays until then.  Only regular files can be outputs: renaming replaces whatever has the name, for root also a
device, so `-o /dev/null` is refused.

An output that others may read while it grows has its name from the beginning (`streamed_write`); one that is added to must
not be a link (`append_to`).  So no output is ever written through a link that another user has placed.
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

from mpi_match.environment.addresses import address_of, no_local_file
from mpi_match.exit_codes import ExitCode
from mpi_match.storage.integrity import DISK_FULL, StorageError, WriteError


def check_output(path: Path, inputs: Iterable[Path] = (), *, others: Iterable[Path] = (), streamed: bool = False) -> None:
    """Refuse an output path that cannot be written, before any work is done.

    `inputs` are files that must not be overwritten; they need not exist.  `others` are other outputs.  `streamed`: the
    output is written as it is produced, so it may also be a device or a pipe.  Raises StorageError.
    """
    if (address := address_of(path)) is not None:
        raise StorageError(no_local_file(address))
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
    """Tells whether the path leads to an open file of a process, such as /dev/stdout, to which renaming would not write."""
    names = [path, path.parent / path.readlink()] if path.is_symlink() else [path]
    return any(name.parent.resolve().is_relative_to("/proc") for name in names)


def _is_one_place(path: Path, other: Path) -> bool:
    """Tells whether two paths lead to one file, such as hard links do; the file need not exist.  A device holds no file."""
    if path.exists() and not path.is_file():
        return False
    return path.resolve() == other.resolve() or (path.exists() and other.exists() and path.samefile(other))


def temporary_of(path: Path) -> Path:
    """A temporary name for `path`, random each time, so that no other user can place a link under it beforehand."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.writing")


_NO_PLACE = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG),
    *(errno.EACCES, errno.EPERM, errno.EROFS),
)
"""Errors of a name that can never be written; `check_output` refuses it too."""


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Within the block an error of the file system becomes a WriteError, which names the file `path`."""
    try:
        yield
    except OSError as error:
        raise _refusal(path, error) from error


def _refusal(path: Path, error: OSError) -> WriteError:
    reason = os.strerror(error.errno) if error.errno else error  # pyarrow adds words of its own to the former
    found = WriteError.of(path, error, reason)
    if error.errno in _NO_PLACE:
        found.exit_code = ExitCode.BAD_INPUT
    return found


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """The temporary path to write to; it is renamed to `path` at the end of the `with` block, unless an exception
    leaves it.

    Raises WriteError, also for an error of the block that says that a disk is full, or is about the temporary path.
    """
    temporary, is_ours = temporary_of(path), True
    try:
        with reported(path):
            try:
                os.close(_created(temporary))
            except FileExistsError:
                is_ours = False
                raise
        yield temporary
        with reported(path):
            temporary.replace(path)
    except OSError as error:
        if error.errno in DISK_FULL or error.filename in (str(temporary), temporary):
            raise _refusal(path, error) from error
        raise
    finally:
        if is_ours:
            temporary.unlink(missing_ok=True)


def _created(path: Path) -> int:
    """A descriptor for writing a new file.  Raises OSError when anything has the name."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def streamed_write(path: Path) -> int:
    """A descriptor for an output that is written as it is produced.  A new file replaces whatever has the name, also a link.

    Devices, pipes and open files of a process (`/dev/stderr`) are opened as they are.  Raises WriteError.
    """
    with reported(path):
        if (path.exists() and not path.is_file()) or _is_open_file(path):
            return os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        temporary = temporary_of(path)
        descriptor = _created(temporary)
        try:
            temporary.replace(path)
        except BaseException:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        return descriptor


def append_to(path: Path) -> int:
    """A descriptor for reading an output and adding to its end; it is created if need be.

    Raises WriteError, also for a link.
    """
    with reported(path):
        link = 0 if _is_open_file(path) else os.O_NOFOLLOW
        try:
            return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | link, 0o666)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
    raise WriteError(f"{path}: cannot be written: it is a link, which is not followed; give the name of the file itself")


def sync_directory(path: Path) -> None:
    """Fsync a directory, because a host that loses power may lose a rename.

    Raises WriteError.
    """
    with reported(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_half_written(path: Path) -> None:
    """Remove what killed writers of `path` have left; no other process may be writing it."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.writing"):
        left.unlink(missing_ok=True)


def descriptor_of(path: Path) -> int:
    """A descriptor for reading a regular file; opening a pipe would block.  Raises StorageError, OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(f"{path}: is not a file, but a directory, a device or a pipe")
    return descriptor
