"""Observers of a run: `run --live`, `run --report` and `run --metrics`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpi_match.cli.options import JSON_LINES_OUT, PROMETHEUS_OUT
from mpi_match.cli.terminal import Progress
from mpi_match.cluster import RunSummary
from mpi_match.cluster.transport.launcher import found_in

if TYPE_CHECKING:
    from mpi_match.monitor.observer import Observer, Watch
    from mpi_match.monitor.report import RunReport

live_option = click.option(
    "--live",
    is_flag=True,
    help="Draw a dashboard on standard error, if that is a terminal: rate, workers, batches in flight, failures.",
)
report_option = click.option(
    "--report", type=JSON_LINES_OUT, help="Add a report of the run to this file: JSON lines, for `plot`."
)
metrics_option = click.option(
    "--metrics",
    type=PROMETHEUS_OUT,
    help="Keep the run's metrics in this file, in Prometheus' text format; replaced four times a second.",
)


@dataclass(frozen=True)
class ObserverOptions:
    """The options `run --live`, `--report` and `--metrics`."""

    live: bool
    report: Path | None
    metrics: Path | None


@dataclass(frozen=True)
class Watched:
    """The observers of a run (`RunOptions.progress` and `watch`), and its report."""

    progress: Progress | None
    watch: Watch | None
    report: RunReport | None

    def finish(self, summary: RunSummary) -> None:
        """Complete the report with the run's summary."""
        if self.report is not None:
            self.report.finish(summary.kept())


@contextmanager
def watching(asked: ObserverOptions, options: Mapping[str, Any]) -> Iterator[Watched]:
    """The observers for a run with these options; `Watch` calls them on rank 0 alone."""
    from mpi_match.monitor.metrics import MetricsFile
    from mpi_match.monitor.observer import Watch
    from mpi_match.monitor.report import RunReport

    observers = _live() if asked.live else []
    drawn = bool(observers)
    with ExitStack() as stack:
        kept = None if asked.report is None else stack.enter_context(RunReport(asked.report, options))
        if kept is not None:
            observers.append(kept)
        if asked.metrics is not None:
            others = (options["table"], options["events"], options["changes"], options["output"], asked.report)
            observers.append(MetricsFile(asked.metrics, [path for path in others if path is not None]))
        progress = None if drawn else stack.enter_context(Progress("events"))
        yield Watched(progress, Watch(observers) if observers else None, kept)


def _live() -> list[Observer]:
    """The dashboard, if standard error is a terminal; only here is rich loaded, which takes a tenth of a rank's start."""
    from mpi_match.monitor.dashboard import Dashboard
    from mpi_match.monitor.screen import Screen, terminal

    drawn = terminal(launched=found_in(os.environ) is not None)
    return [] if drawn is None else [Dashboard(Screen(drawn))]
