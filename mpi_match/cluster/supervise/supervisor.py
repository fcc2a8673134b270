"""Starts a run, and restarts it when it ends incomplete.

The supervisor runs outside of mpirun: a dead master ends mpirun, a lost host may, and mpirun ends all ranks.  A restart goes
on from the journal; the manifest says whether the run is complete.

    supervisor ──► mpirun ──► rank 0, 1, 2 ...       ends, or makes no progress for too long and is killed
        │  ▲                       │
        │  └── manifest, journal ──┘
        └────► mpirun --resume ──► ...               on the hosts that still answer
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from mpi_match.cluster.exit_report import EXIT_REPORT, ExitReport, read_exit_report
from mpi_match.cluster.follow.answer_files import answered_in, commits_of
from mpi_match.cluster.options import ClusterError
from mpi_match.cluster.signals import terminate_as_interrupt
from mpi_match.cluster.supervise.hostfile import PROBE, hosts_of, n_ranks, read_hostfile, without
from mpi_match.cluster.supervise.restart_policy import START_LIMIT_S, Again, Done, Restarts, RunOutcome, StopRestarting
from mpi_match.exit_codes import ExitCode
from mpi_match.journal.manifest import COMPLETE, STARTING, manifest_of, read_manifest, write_manifest
from mpi_match.journal.reader import JournalFile, journal_of
from mpi_match.matches.part_index import PART_SUFFIX
from mpi_match.storage import StorageError, parts_directory

SUPERVISOR_POLL_S = 0.2
STOP_S = 30.0
"""Time limit for the launcher to exit after the run is complete, or after SIGTERM."""
PROBE_S = 15.0
_LOCAL = {"localhost", "127.0.0.1", "::1"}
_RANKS = ("-n", "-np", "--np")


class Supervisor:
    """One run under supervision.

    command        the whole command with its launcher; ends with the options of `mpi-match run`
    most           the most restarts
    hostfile       the hostfile in the command, or None; hosts that do not answer are left out of it
    probe          command that succeeds when a host answers, with {} for its name
    start_limit_s  time limit for the master of a start to open its files
    stalled_s      a run whose journal does not grow for this time is ended and restarted; None: never
    say            called with lines that report restarts
    """

    def __init__(
        self,
        command: Sequence[str],
        most: int,
        *,
        hostfile: Path | None = None,
        probe: str = PROBE,
        start_limit_s: float = START_LIMIT_S,
        stalled_s: float | None = None,
        say: Callable[[str], None],
    ) -> None:
        self._command, self._say = list(command), say
        self._output = output_of(command)
        self._restarts = Restarts(most)
        self._hostfile, self._probe = hostfile, probe
        self._start_limit_s, self._stalled_s = start_limit_s, stalled_s
        if hostfile is not None and str(hostfile) not in self._command:
            raise ClusterError(
                f"the command does not name the hostfile {hostfile}: it could not leave out hosts", ExitCode.USAGE
            )
        if hostfile is not None:
            read_hostfile(hostfile)

    def run(self) -> int:
        """Start and restart the run.  Returns the exit code: 0 only when the manifest says that the run is complete.

        Raises ClusterError and StorageError.
        """
        try:
            return self._run()
        finally:
            if not self._has_begun():
                manifest_of(self._output).unlink(missing_ok=True)

    def _run(self) -> int:
        command = self._command
        with terminate_as_interrupt(), tempfile.TemporaryDirectory(prefix="mpi-match-hosts-") as directory:
            while True:
                code, disk_full = self._start(command, Path(directory) / "exit_report")
                end = RunOutcome(self._is_complete(), code, self._answered(), disk_full)
                command, gone, left = self._without_lost_hosts(Path(directory)) if not end.complete else (command, [], True)
                match self._restarts.after(end, hosts_left=left):
                    case Done():
                        return ExitCode.OK
                    case StopRestarting(why, exit_code):
                        self._say(f"the run ended with code {end.code}; {self._state()}; not started again: {why}")
                        return exit_code
                    case Again(wait_s):
                        hosts = f", without {', '.join(gone)}" if gone else ""
                        again = f"started again ({self._restarts.made} of {self._restarts.most}){hosts}"
                        self._say(f"the run ended with code {end.code}; {self._state()}; {again}")
                        time.sleep(wait_s)
                        command = [*command, "--resume"]

    def _start(self, command: Sequence[str], exit_report: Path) -> ExitReport:
        """One start, to its end.  Returns the exit report of rank 0, else the launcher's code, as a shell would."""
        exit_report.unlink(missing_ok=True)
        environment = {**os.environ, EXIT_REPORT: str(exit_report)}
        write_manifest(self._output, {"state": STARTING})  # replaces the manifest of an earlier run; the next one removes it
        try:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            raise ClusterError(f"{command[0]}: cannot be started: {error.strerror}", ExitCode.ENVIRONMENT) from error
        with _ended_with_us(process):
            began = changed_at = time.monotonic()
            begun, seen, complete_at = False, self._traces(), None
            while process.poll() is None:
                time.sleep(SUPERVISOR_POLL_S)
                now, found = time.monotonic(), self._traces()
                if found != seen:
                    changed_at, seen = now, found
                if complete_at is None and self._is_complete():
                    complete_at = now
                if complete_at is not None and now - complete_at > STOP_S:
                    self._say("the run is complete, but its launcher does not end: it is ended")
                    break
                begun = begun or self._has_begun()
                if not begun and now - began > self._start_limit_s:
                    self._say(
                        f"the run has not begun within {self._start_limit_s:g} s (its launcher, or a rank, has stalled): "
                        "it is ended; if starting takes so long, raise --start-limit"
                    )
                    break
                if self._stalled_s is not None and complete_at is None and now - changed_at > self._stalled_s:
                    self._say(f"no answers for {self._stalled_s:.0f} s: the run is ended")
                    break
        code = process.wait()
        return read_exit_report(exit_report) or ExitReport(code if code >= 0 else 128 - code, full=False)

    def _traces(self) -> tuple[int | None, ...]:
        """The sizes of the files that a run writes, which change while it makes progress."""
        found: list[int | None] = []
        for path in (*self._files_of_answers(), commits_of(self._output), manifest_of(self._output)):
            try:
                found.append(path.stat().st_size)
            except OSError:
                found.append(None)
        return tuple(found)

    def _files_of_answers(self) -> list[Path]:
        """The journal, and the parts of workers."""
        return [journal_of(self._output), *sorted(parts_directory(self._output).glob(f"*{PART_SUFFIX}"))]

    def _has_begun(self) -> bool:
        """Tells whether the master has opened its files, which removes the manifest of the start."""
        manifest = read_manifest(self._output)
        return manifest is None or manifest.get("state") != STARTING

    def _is_complete(self) -> bool:
        manifest = read_manifest(self._output)
        return manifest is not None and manifest.get("state") == COMPLETE

    def _answered(self) -> int:
        answered = answered_in(self._output)
        for path in self._files_of_answers():
            with suppress(StorageError):
                answered += JournalFile.look(path).n_answered
        return answered

    def _state(self) -> str:
        answered = self._answered()
        return f"{answered:,} events are answered" if answered else "nothing is answered"

    def _without_lost_hosts(self, directory: Path) -> tuple[list[str], list[str], bool]:
        """The command for the hosts that answer, the hosts that do not, and whether any host answers."""
        if self._hostfile is None:
            return self._command, [], True
        text = read_hostfile(self._hostfile)
        names = list(dict.fromkeys(host.name for host in hosts_of(text)))
        with ThreadPoolExecutor(max(len(names), 1)) as executor:
            answers = dict(zip(names, executor.map(self._answers, names), strict=True))
        gone = [name for name in names if not answers[name]]
        if not gone:
            return self._command, [], True
        left = directory / self._hostfile.name
        left.write_text(without(text, gone), encoding="utf-8")
        command = [str(left) if word == str(self._hostfile) else word for word in self._command]
        return with_at_most(command, n_ranks(left.read_text(encoding="utf-8"))), gone, len(gone) < len(names)

    def _answers(self, host: str) -> bool:
        if host in _LOCAL or host == socket.gethostname():
            return True
        words = [word.replace("{}", host) for word in shlex.split(self._probe)]
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=False)
            return done.returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False


@contextmanager
def _ended_with_us(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends the process after the block, by SIGTERM and then SIGKILL, with the processes that it started on this host."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def output_of(command: Sequence[str]) -> Path:
    """The output that a command for `mpi-match run` names.  Raises ClusterError when it names none."""
    found = None
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word in ("-o", "--output"):
            found = following
        elif word.startswith("--output="):
            found = word.removeprefix("--output=")
    if not found:
        raise ClusterError(
            "the command has no -o OUTPUT; give the whole command that starts the run, after --", ExitCode.USAGE
        )
    return Path(found)


def with_at_most(command: Sequence[str], ranks: int | None) -> list[str]:
    """A launcher's command with at most `ranks` ranks; None: unknown, the command stays."""
    found = list(command)
    for at, word in enumerate(found[1:], 1):
        if found[at - 1] in _RANKS and word.isdecimal():
            found[at] = str(min(int(word), ranks)) if ranks is not None else word
            break  # later arguments are the program's
    return found
