"""A run's report: JSON lines with its options, progress, incidents and summary, for plots and for programs.

    {"what": "run", ...}         first: options, workers, machine, versions, commit, command
    {"what": "tick", ...}        periodically: events written, rate, each worker's events, batches in flight, memory
    {"what": "incident", ...}    a worker is lost, an answer late, ... : when, which worker, which batch
    {"what": "summary", ...}     last: the summary of the run, or why it failed

A report without a summary is of a run that was killed.  A file may hold the reports of several runs: each run appends its
own, so the attempts of a resumed run stay together.  The interval of ticks grows with the run's duration (`gap_s`), so the
report of a day has some thousands of lines too.  docs/format.md has every key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from mpi_match.environment.machine import command, commit, machine, resident_bytes, versions
from mpi_match.monitor.status import RunStatus
from mpi_match.storage import StorageError, append_to, reported

REPORT_VERSION = 1
TICKS = 400
"""Number of ticks in the first 100 s, and again each time the duration grows by a factor of e."""
_FIRST = '{"what": "run",'
Line = dict[str, Any]


def gap_s(at_s: float) -> float:
    """Seconds from a tick at `at_s` to the next."""
    return at_s / TICKS


class RunReport:
    """An observer that appends lines to `path`; `options` are those of the run, for the first line.

    Used in a `with` block around the run, which ends with `finish`.  Raises StorageError, before the run begins, when the
    file is not a report, and OSError.
    """

    def __init__(self, path: Path, options: Mapping[str, object]) -> None:
        self._path, self._options = path, options
        self._file: TextIO | None = None
        self._n_incidents = 0
        self._last_at_s, self._last_written = 0.0, 0

    def __enter__(self) -> RunReport:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._file is not None:
            self._close(complete=False, why=str(error))

    def check(self) -> None:
        """Raise StorageError when the file is not a report."""
        _ends_within_a_line(self._path)

    def begin(self, status: RunStatus) -> None:
        """Write the first line, and a tick."""
        torn = _ends_within_a_line(self._path)
        self._file = os.fdopen(append_to(self._path), "a", encoding="utf-8")
        if torn:
            self._file.write("\n")
        workers = [{"rank": r, "engine": s.engine, "device": s.device, "host": s.host} for r, s in status.shares.items()]
        self._write(
            "run",
            format_version=REPORT_VERSION,
            date=datetime.now(UTC).isoformat(timespec="milliseconds"),
            options={key: _as_json(value) for key, value in self._options.items()},
            n_events=status.n_events,
            workers=workers,
            machine=machine(),
            versions=versions(),
            commit=commit(),
            command=command(),
        )
        self._tick(status)

    def look(self, status: RunStatus) -> None:
        """Write the incidents since the last call, and a tick if it is due."""
        self._write_incidents(status)
        if status.at_s - self._last_at_s >= gap_s(status.at_s):
            self._tick(status)

    def end(self, status: RunStatus, error: BaseException | None) -> None:
        """Write the last tick; when the run failed, the summary with the reason."""
        self._write_incidents(status)
        self._tick(status)
        if error is not None:
            self._close(complete=False, why=str(error) or type(error).__name__)

    def finish(self, summary: Mapping[str, object]) -> None:
        """Write the run's summary; does nothing on ranks without observers."""
        if self._file is not None:
            self._close(complete=True, **summary)

    def _tick(self, status: RunStatus) -> None:
        at_s, written, shares = status.at_s, status.written, status.shares.values()
        passed_s = at_s - self._last_at_s
        self._write(
            "tick",
            at_s=round(at_s, 6),
            written=written,
            events_per_s=round((written - self._last_written) / passed_s) if passed_s else 0,
            answered=[share.events for share in shares],
            held=[share.held for share in shares],
            in_flight_bytes=sum(share.held_bytes for share in shares),
            memory_bytes=resident_bytes(),
        )
        self._last_at_s, self._last_written = at_s, written

    def _write_incidents(self, status: RunStatus) -> None:
        for each in status.incidents.copy():
            if each.number < self._n_incidents:
                continue
            if each.number > self._n_incidents:
                self._write("left out", incidents=each.number - self._n_incidents)
            self._write("incident", **{**each._asdict(), "at_s": round(each.at_s, 6)}, text=str(each))
            self._n_incidents = each.number + 1

    def _write(self, what: str, **words: object) -> None:
        assert self._file is not None, "a report is written between `begin` and its last line"
        with reported(self._path):
            self._file.write(json.dumps({"what": what, **words}, ensure_ascii=False) + "\n")
            self._file.flush()  # so the report of a killed run is complete up to here

    def _close(self, **summary: object) -> None:
        self._write("summary", **summary)
        assert self._file is not None
        self._file.close()
        self._file = None


@dataclass(frozen=True)
class Recorded:
    """The report of one run, its lines by kind; `summary` is None when the run was killed."""

    run: Line
    ticks: list[Line]
    incidents: list[Line]
    summary: Line | None


def read_report(path: Path) -> list[Recorded]:
    """The reports in a file, in order.  Raises StorageError for another file, naming the line; FileNotFoundError."""
    found: list[Recorded] = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
            what = line["what"]
        except (ValueError, TypeError, KeyError):
            if found and (number == len(lines) or lines[number].startswith(_FIRST)):
                continue  # the run was killed while it wrote this line
            raise StorageError(f"{path}, line {number}: not a line of a run's report") from None
        if what == "run":
            if line.get("format_version") != REPORT_VERSION:
                raise StorageError(
                    f"{path}, line {number}: format version {line.get('format_version')}, expected {REPORT_VERSION}"
                )
            found.append(Recorded(line, [], [], None))
        elif not found:
            raise StorageError(f"{path}, line {number}: not the first line of a run's report")
        elif what == "summary":
            found[-1] = replace(found[-1], summary=line)
        elif what in ("tick", "incident"):
            (found[-1].ticks if what == "tick" else found[-1].incidents).append(line)
    if not found:
        raise StorageError(f"{path}: holds no run's report")
    return found


def _as_json(value: object) -> object:
    """The value of an option as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value) if isinstance(value, Path) else value


def _ends_within_a_line(path: Path) -> bool:
    """Tells whether the file ends within a line, because its run was killed.  Raises StorageError for a file that is not a
    report."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    with path.open("rb") as handle:
        if not handle.readline().startswith(_FIRST.encode()):
            raise StorageError(f"{path}: exists and is not a run's report; give the report another name")
        handle.seek(-1, os.SEEK_END)
        return handle.read() != b"\n"
