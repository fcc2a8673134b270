"""Pulls the plug of one host of a cluster after the other while a run is supervised: are the answers the same bytes?

    python tests/hosts/host_kills.py [--kills 20] [--hosts 4] [--seed 1] [--limit 300] [--flags '']
                                       [-o records.jsonl]

Hosts are made of namespaces, with an sshd in each (tests/hosts); a SIGKILL to the first process of one ends all of it
without a message.  On the first host `mpi-match supervise --hostfile` starts `launch/mpirun.sh`, a rank on each host.  The
first blow falls within seconds of the first answers, each other one within seconds of the one before, so that some meet a
run that is just being started again.  Any host may be hit; with its own, the supervisor goes too, and then the same command
is typed on the next one, with `--resume` and a file of the hosts that are left.  A run loses from one host to all but one.
Ctrl-C ends it early, with the record of what was done until then: one JSON line.  The script ends with 1 if anything in it
is not as it should be:

    kills, runs    hosts lost while the run was not complete; how many runs that took
    typed          how often the command had to be typed, beside once for each run
    restarts       how often the supervisors started a run again; `stalled`, how often because nothing had come for a while
    digests        of the answers: one, that of an undisturbed run of one process, if all is `right`
    hangs, failed  runs that had not ended `--limit` seconds after the last blow; those given up, and their last messages
    outcomes       of each run: resumes, or lost

Needs root, as the tests on hosts do (`make test-hosts` installs what is needed).
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "support")]

from hosts.beowulf import Beowulf
from hosts.inputs import SLOWLY, Inputs, wait_for_answers
from hosts.namespaces import fresh_environment
from mpirun import OPEN_MPI

from mpi_match.lab.bench.kills.disturbed_run import is_complete, record
from mpi_match.lab.bench.report import append_json, json_line

N_EVENTS, BATCH = 600, 4
"""A fifth of a second for each batch: half a minute for one worker."""
FIRST_S, NEXT_S = 3.0, 15.0
"""The last moments for a blow, in seconds: for the first after the first answers, for others after the one before."""
STALLED_S = 30
AGAIN = ("--max-restarts", "20", "--stalled", str(STALLED_S))


def shell(flags: str) -> dict[str, str]:
    """The environment of people on these hosts: this Python, this tree, an engine that takes its time; mpirun's flags."""
    tree = {"MPI_MATCH_PYTHON": sys.executable, "PYTHONPATH": f"{SLOWLY}:{TESTS.parent}", "MPIRUN_FLAGS": flags}
    return {**fresh_environment(), **tree, "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "vader,tcp,self"}


@dataclass
class Supervised:
    """A run on the hosts of a cluster, started on the first host that is left."""

    cluster: Beowulf
    inputs: Inputs
    directory: Path
    environment: dict[str, str]
    typed: int = 0

    def __post_init__(self) -> None:
        self.output, self.log = self.directory / "matches.h5", self.directory / "log"
        self.left = list(self.cluster.names)
        self.type()

    def type(self, *more: str) -> None:
        """Type the command on the first of the hosts that are left."""
        self.at, self.typed = self.left[0], self.typed + 1
        hosts = self.directory / f"hosts-{self.typed}"
        hosts.write_text("".join(f"{name} slots=1\n" if OPEN_MPI else f"{name}:1\n" for name in self.left))
        files = ("--table", self.inputs.table, "--events", self.inputs.events, "-o", self.output)
        run = (TESTS.parent / "launch" / "mpirun.sh", hosts, *files, "--engine", "counting", "--batch", BATCH, *more)
        supervise = (sys.executable, "-m", "mpi_match", "supervise", *AGAIN, "--hostfile", hosts, "--")
        self.process = self.cluster[self.at].start(*supervise, *run, log=self.log, environment=self.environment)

    def lose(self, name: str) -> None:
        """Pull the plug of a host; when the supervisor is lost with it, the command is typed on another host."""
        self.left.remove(name)
        self.cluster[name].kill()
        if name == self.at:
            self.type("--resume")

    def said(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines()


@dataclass
class Tally:
    """What came out, over all runs."""

    counts: Counter[str] = field(default_factory=Counter)
    digests: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)

    def judge(self, run: Supervised, expected: bytes, *, ended: bool) -> None:
        """Count what a run has come to."""
        said = run.said()
        self.counts["runs"] += 1
        self.counts["kills"] += len(run.cluster.names) - len(run.left)
        self.counts["hangs"] += not ended
        self.counts["typed"] += run.typed - 1
        self.counts["restarts"] += sum("; started again (" in line for line in said)
        self.counts["stalled"] += sum(line.endswith("the run is ended") for line in said)
        if ended and not is_complete(run.output):
            self.failed.append(f"exit code {run.process.returncode}: {said[-1] if said else 'nothing said'}")
        answers = run.output.read_bytes() if is_complete(run.output) else b""
        self.digests |= {hashlib.sha256(answers).hexdigest()} if answers else set()
        self.outcomes.append("resumes" if answers == expected else "lost")

    def record(self, expected: bytes) -> dict[str, Any]:
        names = ("kills", "runs", "typed", "restarts", "stalled", "hangs")
        right = self.digests == {hashlib.sha256(expected).hexdigest()} and set(self.outcomes) == {"resumes"}
        counts = {name: self.counts[name] for name in names}
        return {**counts, "failed": self.failed, "digests": sorted(self.digests), "right": right, "outcomes": self.outcomes}


def one_run(
    inputs: Inputs, tally: Tally, environment: dict[str, str], n_hosts: int, n_kills: int, rng: random.Random, limit_s: float
) -> None:
    """A run that loses so many hosts, or fewer when it is complete before."""
    with tempfile.TemporaryDirectory(prefix="hosts-") as temporary:
        directory = Path(temporary)
        (directory / "cluster").mkdir()
        with Beowulf(n_hosts, directory / "cluster", environment) as cluster:
            run = Supervised(cluster, inputs, directory, environment)
            wait_for_answers(run.output)
            for within_s in (FIRST_S, *[NEXT_S] * (n_kills - 1)):
                time.sleep(rng.uniform(0, within_s))
                if is_complete(run.output):
                    break
                run.lose(rng.choice(run.left))
            try:
                run.process.wait(limit_s)
                ended = True
            except subprocess.TimeoutExpired:
                ended = False
            tally.judge(run, inputs.expected, ended=ended)


def kill_hosts(
    n_kills: int, n_hosts: int, directory: Path, *, flags: str = "", seed: int = 1, limit_s: float = 300.0
) -> dict[str, Any]:
    """Runs until so many hosts are lost; what came of it."""
    rng, tally, inputs = random.Random(seed), Tally(), Inputs.made_in(directory, N_EVENTS)
    with suppress(KeyboardInterrupt):
        while tally.counts["kills"] < n_kills:
            most = min(n_hosts - 1, n_kills - tally.counts["kills"])
            one_run(inputs, tally, shell(flags), n_hosts, rng.randint(1, most), rng, limit_s)
            sys.stderr.write(f"{tally.record(inputs.expected)}\n")
    return {"flags": flags, "hosts": n_hosts, "seed": seed, **tally.record(inputs.expected)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that a run may take after the last blow")
    parser.add_argument("--flags", default="", help="more flags for mpirun")
    parser.add_argument("-o", "--output", type=Path, help="append the record to this file too")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="host-kills-") as directory:
        how = {"flags": options.flags, "seed": options.seed, "limit_s": options.limit}
        found = kill_hosts(options.kills, options.hosts, Path(directory), **how)
    made = record("hosts killed", began, **found)
    sys.stdout.write(json_line(made) + "\n")
    if options.output is not None:
        append_json(options.output, [made])
    sys.exit(not found["right"] or found["hangs"] > 0 or bool(found["failed"]))


if __name__ == "__main__":
    main()
