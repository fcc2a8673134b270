"""Followed directories: their files in the order in which they were committed, each once.

A producer writes a file under a hidden name or with another ending and renames it when it is complete.  The rename is the
commit, and the system notes its time in the file (`st_ctime`).

A listing is not a snapshot: if two files are renamed one after the other during a listing, it may have only the second.  So
two listings are made: the second listing has every file that was renamed before a file of the first.

    listing 1    b           the last of these is b
    listing 2    a b c       a, b are taken; c is for the next time

Nearly all looks are one `stat`: a directory whose own time is old and has not changed has no new files.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mpi_match.cluster.follow.rows import RENAME_WHOLE
from mpi_match.environment.addresses import address_of, no_local_file
from mpi_match.ingest.rows.formats import endings_of
from mpi_match.ingest.rows.row_files import holds_rows, is_hidden
from mpi_match.storage import FileChanged, StorageError

log = logging.getLogger(__name__)

LIST_S = 1.0
"""Longest interval, in seconds, between two listings of a directory: clocks of file servers differ, and their clients cache
times."""
LOOKED_AT = 256
"""Most taken files of a directory that are looked at in LIST_S, to find out whether they have changed."""
SETTLED_S = 0.5
"""A directory that changed within this time is listed again: times in it have ticks of some milliseconds."""
UNFINISHED = (".writing", ".tmp", ".temp", ".part", ".partial", ".crc", ".swp", "~")
"""Endings of the names of files that are not committed yet; such files are left out without a warning."""


class FileKey(NamedTuple):
    """A committed file as it was when it was found: the number of its directory, its name, its size in bytes, the time of
    its last write in ns, and its inode."""

    directory: int
    name: str
    n_bytes: int
    written_ns: int
    inode: int

    @classmethod
    def of(cls, directory: int, name: str, found: os.stat_result) -> FileKey:
        """The key of a file with this status."""
        return cls(directory, name, found.st_size, found.st_mtime_ns, found.st_ino)

    @property
    def content(self) -> tuple[int, int]:
        """Size and time of the last write, by which contents are told apart; a copy or a restored file keeps both."""
        return self.n_bytes, self.written_ns


class Commit(NamedTuple):
    """A file to be taken, in the order of commits: time of its rename in ns, its key, and when it arrived, on the clock of
    `time.monotonic`: the time of the rename, or of the listing before the one that found it where the clocks disagree."""

    at_ns: int
    key: FileKey
    arrived_at: float


class FollowedDirectory:
    """The directory `path` with the given `number` among those of a run, whose files have one of `endings`.

    `taken` are the files that this run, or the run that it continues, has taken before.  Raises StorageError for a missing
    directory.
    """

    def __init__(
        self, path: Path, number: int, taken: Collection[FileKey] = (), endings: tuple[str, ...] = endings_of()
    ) -> None:
        self.path, self.number = path, number
        self.taken = {key.name: key for key in taken}
        self._endings = endings
        self._told: set[str] = set()
        self._changed_ns = -1
        self._listed_at = self._began_at = time.monotonic()
        self._looked_at, self._to_look_at = self._began_at - LIST_S, list[str]()
        self._status()

    def _status(self) -> os.stat_result:
        try:
            found = self.path.stat()
        except OSError as error:
            if (address := address_of(self.path)) is not None:
                raise StorageError(no_local_file(address)) from None
            raise StorageError(f"{self.path}: cannot be followed: {error.strerror}; create the directory first") from error
        if not stat.S_ISDIR(found.st_mode):
            raise StorageError(f"{self.path}: is not a directory; --follow takes the files of a directory")
        return found

    def may_have_changed(self, now: float) -> bool:
        """Tells whether the directory has to be listed at the time `now` of `time.monotonic`."""
        changed_ns = self._status().st_mtime_ns
        is_old = changed_ns == self._changed_ns and abs(time.time() - changed_ns / 1e9) > SETTLED_S
        self._changed_ns = changed_ns
        return not is_old or now - self._listed_at > LIST_S

    def check_taken(self, now: float) -> None:
        """Look at some taken files, others every time, at most once in LIST_S.  Raises FileChanged for one that was written
        after its commit, also after it was answered: rows added to it would be lost."""
        if now - self._looked_at < LIST_S:
            return
        self._looked_at = now
        self._to_look_at = self._to_look_at or list(self.taken)
        names, self._to_look_at = self._to_look_at[:LOOKED_AT], self._to_look_at[LOOKED_AT:]
        for name in names:
            with suppress(FileNotFoundError):
                key = FileKey.of(self.number, name, (self.path / name).stat())
                known = self.taken.get(name, key)
                if key.inode == known.inode and key.content != known.content:
                    raise FileChanged(
                        f"{self.path / name}: changed after it was committed and read; {RENAME_WHOLE}; "
                        "give what it holds now another name"
                    )

    def listed(self) -> list[Commit]:
        """The files that are not taken yet, in any order; also one that has replaced a taken one under its name.  Raises
        StorageError when the directory is gone."""
        before, self._listed_at = self._listed_at, time.monotonic()
        found, names = [], set()
        offset = time.time() - self._listed_at
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    names.add(entry.name)
                    known = self.taken.get(entry.name)
                    if (known is None or entry.inode() != known.inode) and self._counts(entry):
                        try:
                            seen = entry.stat()
                        except FileNotFoundError:  # renamed or removed meanwhile
                            continue
                        if known is not None and FileKey.of(self.number, entry.name, seen).content == known.content:
                            continue
                        arrived_at = min(max(seen.st_ctime_ns / 1e9 - offset, before), self._listed_at)
                        found.append(Commit(seen.st_ctime_ns, FileKey.of(self.number, entry.name, seen), arrived_at))
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be listed: {error.strerror}") from error
        for name in self.taken.keys() - names:  # removed by its owner: the name may come again
            del self.taken[name]
        return found

    def _counts(self, entry: os.DirEntry[str]) -> bool:
        """Tells whether a name is that of a file of rows.  The first file of every other kind is reported in one line."""
        name = entry.name
        if is_hidden(name) or name.endswith(UNFINISHED):
            return False
        if not entry.is_file():
            if entry.is_dir():
                self._tell(
                    "directory", f"{self.path / name}: is a directory; only files directly in {self.path} are followed"
                )
            return False
        if holds_rows(name, self._endings):
            return True
        ending = Path(name).suffix
        self._tell(ending, f"{self.path / name}: is left out: its name does not end in {', '.join(self._endings)}")
        return False

    def _tell(self, kind: str, text: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            log.warning("%s", text)


def committed(directories: Sequence[FollowedDirectory]) -> list[Commit]:
    """The new files of all directories in the order of their commits; these are taken.

    Files of one time are in the order of the directories' numbers and of their names.  Raises StorageError, FileChanged.
    """
    now = time.monotonic()
    for each in directories:
        each.check_taken(now)
    if not any([each.may_have_changed(now) for each in directories]):
        return []
    seen = [commit for each in directories for commit in each.listed()]
    if not seen:
        return []
    last = max(seen)[:2]
    again = [commit for each in directories for commit in each.listed()]
    found = sorted(commit for commit in again if commit[:2] <= last)
    of_number = {each.number: each for each in directories}
    for key in {commit.key for commit in seen} - {commit.key for commit in again}:
        log.warning("%s: vanished before it was read", of_number[key.directory].path / key.name)
    for commit in found:
        of_number[commit.key.directory].taken[commit.key.name] = commit.key
    return found
