"""A rank of the tests in `tests/cluster`: calls `cluster.run` as the command line does, also with `faulty_engines`.

    python -m mpi4py cluster_driver.py TABLE EVENTS OUTPUT key=value ...

Prints one JSON line on rank 0; an expected error is one line on standard error, and its exit code.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import quick_numba  # noqa: F401
import tuned_engine
from altering import overwriting
from faulty_engines import FAULTY_ENGINES
from interrupting import terminated_before, waiting_at

from mpi_match.cli.errors import end_all_ranks, exit_code_of
from mpi_match.cluster import ClusterError, RunOptions, run
from mpi_match.cluster.results.journal import SYNC_S
from mpi_match.cluster.transport.launcher import found_in
from mpi_match.engines import EngineError
from mpi_match.engines.registry import REGISTRY, Entry
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.model import ModelError
from mpi_match.storage import StorageError


def _late_by(seconds: float, method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def later(self: Any) -> Any:
        time.sleep(seconds)
        return method(self)

    return later


def _interrupt_master(place: str) -> None:
    """Have rank 0 get SIGTERM at a place of the way to its first batch."""
    from mpi_match.cluster import mpi_run, set_up

    launch = found_in(os.environ)
    module, name = {"set-up": (set_up, "_refuse_shared_gpu"), "greeting": (mpi_run, "_log_engines")}[place]
    before = getattr(module, name)

    def interrupted(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        before(*arguments)

    if launch is not None and launch.rank == 0:
        setattr(module, name, interrupted)


def _set_piece_bytes(n_bytes: str) -> None:
    from mpi_match.cluster.transport import channel

    channel.PIECE_BYTES = int(n_bytes)


def _set_left_bytes(n_bytes: str) -> None:
    from mpi_match.cluster.distribution import shared_memory

    def left_bytes(root: Path = Path("/")) -> int:
        return int(n_bytes)

    vars(shared_memory)["left_bytes"] = left_bytes


def _set_silence(seconds: str) -> None:
    from mpi_match.cluster import worker

    worker.SILENCE_S = float(seconds)


def _set_kept_bytes(n: str) -> None:
    from mpi_match.cluster import answers

    answers.KEPT_BYTES = int(n)


def _delay_rank_1(meeting_s: str) -> None:
    """Have rank 1 come to its loop three times as late as the master waits for it."""
    from mpi_match.cluster import worker
    from mpi_match.cluster.transport import liveness

    liveness.MEETING_S = float(meeting_s)
    launch = found_in(os.environ)
    if launch is not None and launch.rank == 1:
        late: Any = _late_by(3 * liveness.MEETING_S, worker.Worker.serve)
        worker.Worker.serve = late  # type: ignore[method-assign]


def _killed_at(n: int) -> Callable[[int, int], None]:
    """A `RunOptions.progress` that kills its process when so many answers are written, and safe."""

    def progress(n_answered: int, n_events: int) -> None:
        if n_answered >= n:
            time.sleep(3 * SYNC_S)
            os.kill(os.getpid(), signal.SIGKILL)

    return progress


def _truncating(path: Path, n_bytes: int) -> Callable[[int, int], None]:
    """A `RunOptions.progress` that truncates a file when the first answers are written."""
    return lambda n_answered, n_events: os.truncate(path, n_bytes)


@contextmanager
def _stopped() -> Iterator[None]:
    """This process is stopped when the block is entered."""
    os.kill(os.getpid(), signal.SIGSTOP)
    yield


PATCHES: dict[str, Callable[[str], None]] = {
    "piece_bytes": _set_piece_bytes,
    "left_bytes": _set_left_bytes,
    "silence": _set_silence,
    "kept_bytes": _set_kept_bytes,
    "meeting": _delay_rank_1,
    "interrupted_in": _interrupt_master,
}
"""What is changed of the program, by the key that asks for it."""


def _options(arguments: list[str]) -> RunOptions:
    table, events, output, *rest = arguments
    given: dict[str, Any] = dict(each.split("=", 1) for each in rest)
    for key in [key for key in given if key in PATCHES]:
        PATCHES[key](given.pop(key))
    conversions: dict[str, Callable[[str], tuple[str, Any]]] = {
        "gpu_map": lambda value: ("gpu_map", tuple(map(int, value.split(",")))),
        "filters": lambda value: ("filters", value == "1"),  # a number would have engines compiled for numbers
        "changes": lambda value: ("changes", Path(value)),
        "master_stops": lambda _: ("watch", lambda _: _stopped()),
        "interrupted_at": lambda line: ("watch", lambda _: terminated_before(waiting_at(int(line)))),
        "form": lambda names: ("form", EventForm(tuple(names.split(",")[:2]), names.split(",")[2])),  # type: ignore[arg-type]
        "rejects": lambda value: ("rejects", Path(value)),
        "killed_at": lambda n: ("progress", _killed_at(int(n))),
        "truncated_to": lambda n: ("progress", _truncating(Path(events), int(n))),
        "overwritten_by": lambda other: ("progress", overwriting(Path(events), Path(other))),
    }
    engine_options = {key[4:]: given.pop(key) for key in list(given) if key.startswith("set.")}
    converted = dict(conversions[key](given.pop(key)) for key in list(given) if key in conversions)
    plain: dict[str, Any] = {key: int(value) if value.isdecimal() else value for key, value in given.items()}
    return RunOptions(Path(table), Path(events), Path(output), engine_options=engine_options, **plain, **converted)


def main(arguments: list[str]) -> int:
    for engine in FAULTY_ENGINES:
        REGISTRY[engine.name] = Entry(f"faulty_engines:{engine.__name__}", "for tests")
    REGISTRY["tuned"] = tuned_engine.ENTRY
    try:
        summary = run(_options(arguments))
    except ClusterError as error:
        if not error.quiet:
            sys.stderr.write(f"{error}\n")
        return error.exit_code
    except (StorageError, EngineError, ModelError) as error:
        sys.stderr.write(f"{error}\n")
        return exit_code_of(error) or 1
    if summary is not None:
        sys.stdout.write(json.dumps(dataclasses.asdict(summary)) + "\n")
    return 0


if __name__ == "__main__":
    if "BEGAN" in os.environ:
        with Path(os.environ["BEGAN"]).open("a") as file:
            file.write(f"{time.time()}\n")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    code = main(sys.argv[1:])
    end_all_ranks(code)
    sys.exit(code)
