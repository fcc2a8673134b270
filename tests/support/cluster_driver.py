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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tuned_engine
from altering import overwriting
from faulty_engines import FAULTY_ENGINES
from interrupting import terminated_before, waiting_at

from mpi_match.cli.errors import end_all_ranks, exit_code_of
from mpi_match.cluster import ClusterError, RunOptions, run
from mpi_match.cluster.transport.launcher import found_in
from mpi_match.engines import EngineError
from mpi_match.engines.registry import REGISTRY, Entry
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


def main(arguments: list[str]) -> int:
    for engine in FAULTY_ENGINES:
        REGISTRY[engine.name] = Entry(f"faulty_engines:{engine.__name__}", "for tests")
    REGISTRY["tuned"] = tuned_engine.ENTRY
    table, events, output, *rest = arguments
    given: dict[str, Any] = dict(each.split("=", 1) for each in rest)
    given["engine_options"] = {key[4:]: given.pop(key) for key in list(given) if key.startswith("set.")}
    lists = {key: tuple(map(int, given.pop(key).split(","))) for key in ("gpu_map",) if key in given}
    numbers = {key: int(value) for key, value in given.items() if str(value).isdecimal()}
    if "piece_bytes" in numbers:
        from mpi_match.cluster.transport import channel

        del given["piece_bytes"]
        channel.PIECE_BYTES = numbers.pop("piece_bytes")
    if "left_bytes" in numbers:
        from mpi_match.cluster.distribution import shared_memory

        del given["left_bytes"]
        left = numbers.pop("left_bytes")
        shared_memory.left_bytes = lambda: left  # type: ignore[assignment]
    if "silence" in numbers:
        from mpi_match.cluster import worker

        del given["silence"]
        worker.SILENCE_S = float(numbers.pop("silence"))
    if "meeting" in numbers:
        from mpi_match.cluster import worker
        from mpi_match.cluster.transport import liveness

        del given["meeting"]
        liveness.MEETING_S = float(numbers.pop("meeting"))
        launch = found_in(os.environ)
        if launch is not None and launch.rank == 1:
            worker.Worker.serve = _late_by(3 * liveness.MEETING_S, worker.Worker.serve)  # type: ignore[method-assign]
    if "master_stops" in given:
        del given["master_stops"], numbers["master_stops"]
        given["watch"] = lambda _: os.kill(os.getpid(), signal.SIGSTOP)
    if "interrupted_in" in given:
        _interrupt_master(given.pop("interrupted_in"))
    if "interrupted_at" in numbers:
        del given["interrupted_at"]
        line = numbers.pop("interrupted_at")
        given["watch"] = lambda _: terminated_before(waiting_at(line))
    if "overwritten_by" in given:
        given["progress"] = overwriting(Path(events), Path(given.pop("overwritten_by")))
    if "changes" in given:
        given["changes"] = Path(given["changes"])
    try:
        summary = run(RunOptions(Path(table), Path(events), Path(output), **{**given, **numbers, **lists}))
    except ClusterError as error:
        if not error.quiet:
            sys.stderr.write(f"{error}\n")
        return error.exit_code
    except (StorageError, EngineError) as error:
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
