"""Outcomes of hostile files: one process reads mutants (`hostile_files`), and another supervises it.

    python tests/support/hostile_run.py 0 5000          mutants 0 to 5,000, and a summary
    python tests/support/hostile_run.py 0 5000 --all    and a line for each fault

A mutant may be refused in one line, if `format_judge` objects to it; otherwise it may be read, and then all readers have to
agree.  Everything else is a fault, and its name begins with one of `FAULTS`.  A reader that needs too much memory fails, one
that takes longer than LIMIT_S is killed.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

LIMIT_S = 20.0
MEMORY = 2**31
"""Bytes that a process may allocate beyond its initial memory."""
FAULTS = ("traceback", "hang", "crash", "accepted", "disagree", "refused a valid file")


class Reading:
    """Reads mutants of some originals with all readers of such files."""

    def __init__(self, directory: Path, every: int = 1) -> None:
        """One in `every` files is read in all ways."""
        import format_judge
        from hostile_files import Originals, all_events, probes

        from mpi_match.engines import open_engine

        self.every, self._n_read = every, 0
        self.judge, self.open_engine = format_judge, open_engine
        directory.mkdir()
        self.originals = Originals(directory)
        self.probes, self.published = probes(), all_events()
        self.engines = {name: open_engine(name, self.originals.table) for name in ("counting", "keyed")}
        self.content = format_judge.table(directory / "table.h5")
        self.filters = list(self.originals.table.iter_filters())

    def compile(self) -> None:
        """Read the originals in all ways, so that what is compiled for it is no part of the time that a mutant may take."""
        every, self.every = self.every, 1
        for kind in ("table", "events", "changes", "matches"):
            outcome = self.outcome(kind, self.originals.directory / f"{kind}.h5")
            assert outcome == "read", (kind, outcome)
        self.every, self._n_read = every, 0

    def read(self, seed: int, directory: Path) -> tuple[str, str]:
        """The outcome of a mutant, and its description."""
        from hostile_files import mutant

        case = mutant(seed, self.originals, directory)
        return self.outcome(case.kind, case.path), f"{case.path.name}: {case.what}"

    def outcome(self, kind: str, path: Path) -> str:
        """The outcome of a file."""
        from mpi_match.storage import StorageError

        removed = self._objection(kind, path) if kind == "journal" else None  # the last of the readers removes it
        try:
            wrong = getattr(self, f"_{kind}")(path)
        except StorageError as error:
            if "\n" in str(error) or path.name.split(".")[0] not in str(error):
                return f"traceback: a text that does not name the file or has several lines: {error}"
            if self._thorough():
                if self._objection(kind, path) is None:
                    return "refused a valid file"
                return self._read_all_the_same(kind, path) or "refused"
            return "refused"
        except BaseException as error:
            return f"traceback: {place_of(error)}"
        if wrong is not None:
            return str(wrong)
        objection = removed if kind == "journal" else self._objection(kind, path)
        return "read" if objection is None else f"accepted: {objection}"

    def _thorough(self) -> bool:
        """Is this one of the files that all readers read?"""
        self._n_read += 1
        return self._n_read % self.every == 0

    def _read_all_the_same(self, kind: str, path: Path) -> str | None:
        """What is wrong with what else reads a file that was refused; it may be content with what it looks at."""
        from mpi_match.commands.inspect import inspect_file
        from mpi_match.storage import StorageError
        from mpi_match.table.range_reader import RangeReader
        from mpi_match.table.table import load_vocabulary

        def in_ranges() -> None:
            with RangeReader(path) as large:
                large.part(0, large.n_filters)

        readers: list[Callable[[], object]] = [
            lambda: inspect_file(path),
            *([in_ranges, lambda: load_vocabulary(path)] if kind == "table" else []),
        ]
        for reader in readers:
            try:
                reader()
            except StorageError:
                pass
            except BaseException as error:
                return f"traceback: {place_of(error)}"
        return None

    def _objection(self, kind: str, path: Path) -> str | None:
        judge = self.judge
        try:
            if kind == "events":
                judge.events(path, self.content.vocabulary)
            elif kind == "changes":
                judge.changes(path, self.content)
            elif kind == "journal":
                return self._journal_objection(path)
            elif kind != "manifest":
                getattr(judge, kind)(path)
        except judge.Objection as error:
            return str(error)
        return None

    def _journal_objection(self, path: Path) -> str | None:
        """A journal of another run, or one that is none, is refused; but for what is no more than a beginning of a head."""
        from dataclasses import asdict

        from mpi_match.journal.reader import is_bare

        with suppress(OSError):
            if is_bare(path, self.originals.identity):
                return None
        found = self.judge.journal(path)
        if not found.answers:
            return None
        return None if found.identity == asdict(self.originals.identity) else "another identity"

    def _inspect(self, path: Path) -> dict[str, Any]:
        from mpi_match.commands.inspect import inspect_file, inspect_lines

        found = inspect_file(path)
        assert all("\n" not in line for line in inspect_lines(found))
        json.dumps(found)
        return found

    def _table(self, path: Path) -> str | None:
        from mpi_match.events.events import Events
        from mpi_match.model import matches
        from mpi_match.table.range_reader import RangeReader
        from mpi_match.table.table import Table

        def in_ranges() -> list[Any]:
            with RangeReader(path) as large:
                half = large.n_filters // 2
                parts = [large.part(0, half), large.part(half, large.n_filters)]
                return [large.digest, *(item for part in parts for item in part.iter_filters())]

        table, thorough = Table.load(path), self._thorough()
        filters = list(table.iter_filters())
        if thorough:
            self._inspect(path)
            if in_ranges() != [table.digest, *(item._replace(id=None) for item in filters)]:
                return "disagree: ranges of the table are not the table"
        elif table == self.originals.table:
            return None
        batch = Events.of(self.probes).encode(table.vocabulary)
        right = [[i for i, item in enumerate(filters) if matches(item, event)] for event in self.probes]
        for name in ("keyed", "counting")[: 1 + thorough]:
            found = self.open_engine(name, table).match(batch, filters=True)
            if [found[i].tolist() for i in range(len(self.probes))] != right:
                return f"disagree: {name} and the naive matcher"
        return None

    def _events(self, path: Path) -> str | None:
        from mpi_match.events.event_table import EventTable
        from mpi_match.model import matches
        from mpi_match.table.table import Table

        def answers(table: EventTable, stop: int) -> list[Any]:
            batch = table.batch(0, stop)
            return [engine.match(batch, filters=True) for engine in self.engines.values()]

        with EventTable(path, self.originals.table.vocabulary) as table:
            found = answers(table, table.n_events)
            events = [table.event(i) for i in range(table.n_events)]
            ids = list(table.ids())
            for part in range(table.n_parts):
                table.raw_part(part)
        if [(event.id if event is not None else None) or None for event in events] != ids:
            return "disagree: ids"
        if self._thorough():
            self._inspect(path)
            with EventTable(path, Table.from_filters(self.filters[:3]).vocabulary) as table:
                table.batch(0, table.n_events)
        right = [[i for i, item in enumerate(self.filters) if matches(item, event)] for event in events]
        for name, answer in zip(self.engines, found, strict=True):
            if [answer[i].tolist() for i in range(len(events))] != right:
                return f"disagree: {name} and the naive matcher"
        return None

    def _changes(self, path: Path) -> str | None:
        from mpi_match.changes.log import ChangeLog
        from mpi_match.storage import StorageError

        log = ChangeLog.load(path)
        if self._thorough():
            self._inspect(path)
        if log.table_digest != self.originals.table.digest:
            return None
        try:
            stream = log.stream(self.originals.table)
        except StorageError as error:
            raise StorageError(f"{path}: {error}") from error
        from mpi_match.events.events import Events

        batch = Events.of(self.probes).encode(stream.table.vocabulary)
        engines = [self.open_engine(name, stream.table, live=True) for name in ("reference", "keyed")]
        for _, changes in stream.changes.runs():
            found = []
            for engine in engines:
                engine.update(changes)
                answer = engine.match(batch, filters=True)
                found.append([answer[i].tolist() for i in range(len(self.probes))])
            if found[0] != found[1]:
                return "disagree: keyed and the reference"
        return None

    def _matches(self, path: Path) -> str | None:
        from mpi_match.matches.file import MatchesFile

        file = MatchesFile.load(path)
        list(file.rows())
        self._inspect(path)
        return None

    def _journal(self, path: Path) -> str | None:
        """Looked at, and gone on with: all answers must be there in the end, and be answers."""
        from mpi_match.arrays.strings import Strings
        from mpi_match.cluster.results.output import Output
        from mpi_match.matches.file import MatchesFile
        from mpi_match.storage import StorageError

        with suppress(StorageError):
            self._inspect(path)
        output, answers = path.with_name(path.name.removesuffix(".journal")), self.originals.answers
        with Output(output, self.originals.identity, Strings.of(()), resume=True, journalled=True) as run:
            for events in run.unanswered:
                first, last = answers.offsets[events.start], answers.offsets[events.stop]
                run.write(events.start, answers.counts[events.start : events.stop], answers.ids[first:last])
            run.finish()
            run.write_manifest({})
        MatchesFile.load(output)
        try:
            self.judge.matches(output)
        except self.judge.Objection as error:
            return f"accepted: a journal that resumes to {error}"
        return None

    def _manifest(self, path: Path) -> str | None:
        from mpi_match.journal.manifest import read_manifest

        read_manifest(path.with_name(path.name.removesuffix(".run.json")))
        return None


def place_of(error: BaseException) -> str:
    """The type of an exception, and its position in the package."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "mpi_match" in f.filename]
    where = f"{frames[-1].filename.rpartition('mpi_match/')[2]}:{frames[-1].lineno}" if frames else "elsewhere"
    return f"{type(error).__name__} at {where}: {str(error)[:120]!r}"


def work(start: int, stop: int, every: int) -> None:
    """Read the mutants `start` to `stop`; a JSON line for each on standard output."""
    warnings.simplefilter("ignore")
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        reading = Reading(Path(directory) / "originals", every)
        reading.compile()
        _limit_memory()
        _say({"ready": True})
        for seed in range(start, stop):
            place = Path(directory) / "mutant"
            place.mkdir()
            outcome, what = reading.read(seed, place)
            _say({"seed": seed, "outcome": outcome, "what": what})
            shutil.rmtree(place)


def _say(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)


def outcomes(start: int, stop: int, every: int = 1) -> Iterator[dict[str, Any]]:
    """The outcomes of the mutants `start` to `stop`, each {"seed", "outcome", "what"}: read in another process, which is
    started again when it crashes or hangs.
    """
    at = start
    while at < stop:
        command = [sys.executable, __file__, str(at), str(stop), "--work", str(every)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            limit_s, ready = [300.0], False
            try:
                for line in _lines(process, limit_s):
                    limit_s[0], ready = LIMIT_S, True
                    found = json.loads(line)
                    if "seed" in found:
                        at = found["seed"] + 1
                        yield found
                process.wait()
                how = f"crash: exit code {process.returncode}"
            except TimeoutError:
                how = "hang"
            finally:
                process.kill()
            if not ready:
                raise RuntimeError("the process that reads mutants did not get ready")
        if at < stop:
            yield {"seed": at, "outcome": how, "what": "?"}
            at += 1


def _lines(process: subprocess.Popen[bytes], limit_s: list[float]) -> Iterator[bytes]:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        rest = b""
        while True:
            if not selector.select(limit_s[0]):
                raise TimeoutError
            some = os.read(process.stdout.fileno(), 2**16)
            if not some:
                return
            *lines, rest = (rest + some).split(b"\n")
            yield from lines


def is_fault(outcome: str) -> bool:
    """Is this outcome wrong?"""
    return outcome.startswith(FAULTS)


def summary(found: Iterable[dict[str, Any]], say: Callable[[dict[str, Any]], None] | None = None) -> dict[str, int]:
    """The number of each outcome, and of positions with tracebacks; `say` is called for each fault."""
    counts: Counter[str] = Counter()
    places: set[str] = set()
    for each in found:
        outcome = each["outcome"]
        counts[next((fault for fault in FAULTS if outcome.startswith(fault)), outcome)] += 1
        if outcome.startswith("traceback"):
            places.add(outcome.split(": ")[1])
        if say is not None and is_fault(outcome):
            say(each)
    return {**dict(counts.most_common()), "places": len(places)}


if __name__ == "__main__":
    first, last = int(sys.argv[1]), int(sys.argv[2])
    if "--work" in sys.argv:
        work(first, last, int(sys.argv[-1]))
    else:
        _say(summary(outcomes(first, last), _say if "--all" in sys.argv else None))
