"""External matchers, measured on the same workload through the protocol of `docs/other-matchers.md`.

    we                              the matcher
    {"subscriptions": n}, n lines ─►            ─► "read"
    "build"                       ─►            ─► "built"       build_s; its memory
    {"events": m}, m lines        ─►            ─► "read"
    "match"                       ─►            ─► "matched"     match_s, as often as there are repetitions
    "answers"                     ─►            ─► m lines       judged: all of them

The result of a matcher that hangs, dies, reports an error, breaks the protocol or answers wrongly says so, without a rate.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from mpi_match.ingest.rows.to_json import subscription_rows
from mpi_match.lab.bench.workload import Workload
from mpi_match.matches.matches import Matches
from mpi_match.model import Event, Json
from mpi_match.table.subscriptions import Subscriptions

HANGS, DIES, ERRS, ANSWERS_WRONG = "hangs", "dies", "errs", "wrong"
"""The ways in which a matcher can fail."""
_SHOWN = 200


class Beside(NamedTuple):
    """An external matcher: its name in results, its command, and the seconds allowed for each step."""

    name: str
    command: str
    limit_s: float = 60.0

    @classmethod
    def of(cls, text: str, limit_s: float) -> Beside:
        """Read `NAME=COMMAND`.  Raises ValueError."""
        name, equals, command = text.partition("=")
        if not name or not equals or not shlex.split(command):
            raise ValueError(f"{text!r} is not of the form NAME=COMMAND")
        return cls(name, command, limit_s)


class MatcherFailed(Exception):
    """A matcher failed: `how` is one of HANGS, DIES, ERRS, ANSWERS_WRONG; `step` says when, the text why."""

    def __init__(self, how: str, step: str, why: str) -> None:
        super().__init__(why)
        self.how, self.step = how, step


class _Process:
    """The matcher's process, and the lines that it writes."""

    def __init__(self, beside: Beside, errors: IO[bytes]) -> None:
        self._limit_s, self._errors = beside.limit_s, errors
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        try:
            self._process = subprocess.Popen(
                shlex.split(beside.command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise MatcherFailed(DIES, "start", f"cannot be started: {error.strerror}") from None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._writer: threading.Thread | None = None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def ask(self, step: str, lines: Iterable[object], n_answers: int = 1) -> tuple[float, list[object]]:
        """Send lines; returns the seconds from the last line to the last answer, and the answers.  Raises MatcherFailed."""
        ends, sent = time.monotonic() + self._limit_s, _Sent()
        self._writer = threading.Thread(target=self._write, args=(lines, sent), daemon=True)
        self._writer.start()
        found = [self._answer(step, ends) for _ in range(n_answers)]
        ended = time.perf_counter()
        self._writer.join(max(ends - time.monotonic(), 0))
        if not sent.at:
            raise MatcherFailed(ERRS, step, f"answered {step!r} before it had read all lines")
        return ended - sent.at, found

    def _write(self, lines: Iterable[object], sent: _Sent) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it died: so do its lines
            for line in lines:
                self._process.stdin.write(json.dumps(line).encode() + b"\n")
            sent.at = time.perf_counter()
            self._process.stdin.flush()

    def _answer(self, step: str, ends: float) -> object:
        try:
            line = self._lines.get(timeout=max(ends - time.monotonic(), 0))
        except queue.Empty:
            raise MatcherFailed(HANGS, step, f"no answer to {step!r} within {self._limit_s:g} s") from None
        if line is None:
            code = self._process.wait()
            raise MatcherFailed(DIES, step, f"ended at {step!r} with exit code {code}{self._last_words()}")
        try:
            answer = json.loads(line)
        except ValueError:
            raise MatcherFailed(
                ERRS, step, f"wrote a line that is not JSON: {line[:_SHOWN].decode(errors='replace')!r}"
            ) from None
        if isinstance(answer, dict) and "error" in answer:
            raise MatcherFailed(ERRS, step, str(answer["error"])[:_SHOWN])
        return answer

    def _last_words(self) -> str:
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return f": {said[-1][:_SHOWN]}" if said else ""

    @property
    def resident_bytes(self) -> int:
        """Resident memory of the process and of those that it started."""
        pages = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has just ended
                fields = path.read_text().rpartition(")")[2].split()
                pages += int(fields[21]) if int(fields[3]) == self._process.pid else 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        """Kill the process and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        if self._writer is not None:
            self._writer.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


class _Sent:
    """The time at which the last line was sent."""

    at = 0.0


def measure_beside(beside: Beside, workload: Workload, right: Matches, repetitions: int) -> Json:
    """The fields of one matcher's result: times, memory and rate, or `failure` with `how`, `step` and `why`.

    `right` are the expected answers.
    """
    head = {"engine": beside.name, "beside": beside.command, "engine_options": {}, "device": "a process of its own"}
    with tempfile.TemporaryFile() as errors:
        try:
            process = _Process(beside, errors)
        except MatcherFailed as failed:
            return {**head, "failure": {"how": failed.how, "step": failed.step, "why": str(failed)}}
        try:
            return {**head, **_measured(process, workload, right, repetitions)}
        except MatcherFailed as failed:
            return {**head, "failure": {"how": failed.how, "step": failed.step, "why": str(failed)}}
        finally:
            process.end()


def _measured(process: _Process, workload: Workload, right: Matches, repetitions: int) -> Json:
    before = process.resident_bytes
    rows = subscription_rows(Subscriptions.of(workload.filters))
    read_s = _told(process, "subscriptions", _counted("subscriptions", workload.table.n_filters, rows), "read")
    build_s = _told(process, "build", ["build"], "built")
    memory = process.resident_bytes
    n_events = len(workload.events)
    events = (_event_line(event) for event in workload.raw(range(n_events)))
    _told(process, "events", _counted("events", n_events, events), "read")
    runs_s = [_told(process, "match", ["match"], "matched") for _ in range(repetitions)]
    _, answers = process.ask("answers", ["answers"], n_events)
    _judge(answers, workload, right)
    match_s = statistics.median(runs_s)
    return {
        "read_s": read_s,
        "build_s": build_s,
        "match_s": {"median": match_s, "min": min(runs_s), "max": max(runs_s)},
        "events_per_s": n_events / match_s,
        "us_per_event": match_s / n_events * 1e6,
        "matches": right.n_matches,
        "matches_per_event": right.n_matches / n_events,
        "engine_bytes": max(memory - before, 0),
        "checked": {"equal": n_events},
    }


def _told(process: _Process, step: str, lines: Iterable[object], expected: str) -> float:
    """Seconds until the matcher wrote the reply that this step requires."""
    seconds, (answer,) = process.ask(step, lines)
    if answer != expected:
        raise MatcherFailed(ERRS, step, f"said {str(answer)[:_SHOWN]!r} at {step!r}, expected {expected!r}")
    return seconds


def _counted(key: str, n: int, lines: Iterable[object]) -> Iterator[object]:
    yield {key: n}
    yield from lines


def _event_line(event: Event | None) -> Json | None:
    if event is None:
        return None
    location = {} if event.location is None else {"location": list(event.location)}
    return {"attributes": dict(event.attributes), **location}


def _judge(answers: Sequence[object], workload: Workload, right: Matches) -> None:
    """Raise MatcherFailed for the first event whose answer does not list each of its interfaces once."""
    for i, (answer, expected) in enumerate(zip(answers, right.labels(workload.table.labels), strict=True)):
        if not isinstance(answer, list) or not all(isinstance(label, str) for label in answer):
            raise MatcherFailed(
                ERRS, "answers", f"said {str(answer)[:_SHOWN]!r} of event {i}, expected a list of interfaces"
            )
        if sorted(answer, key=str.encode) != expected:
            found = str(sorted(answer))[:_SHOWN]
            raise MatcherFailed(ANSWERS_WRONG, "answers", f"event {i}: found {found}, expected {str(expected)[:_SHOWN]}")
