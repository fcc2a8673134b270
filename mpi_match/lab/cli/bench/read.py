"""`bench read`: compiled readers beside Python's; `bench false-positives`: chance matches of signatures."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from mpi_match.cli.errors import CliCommand
from mpi_match.cli.options import FILE, MAX_FILTERS, NameOf
from mpi_match.lab.cli.bench.options import Workers, checked_output, give, output_option
from mpi_match.model import Json

_LINES, _COLUMNS, _SUBSCRIPTIONS, _ROWS, _GPU = "lines", "columns", "subscriptions", "rows", "gpu"
_EVENTS = {_LINES: 1_000_000, _COLUMNS: 1_000_000, _ROWS: 20_000, _GPU: 2**19}
_FILTERS = {_SUBSCRIPTIONS: 1_000_000, _ROWS: 20_000}
_ONLY = {
    "n_events": tuple(_EVENTS),
    "threads": (_LINES, _COLUMNS),
    "reference_rows": (_LINES, _COLUMNS, _SUBSCRIPTIONS),
    "predicates": (_SUBSCRIPTIONS,),
    "times": (_GPU,),
    "on_disk": (_GPU,),
    "corpora": (_LINES, _GPU),
}
"""Options that apply only to some kinds of input."""
_SPELLED = {"n_events": "events"}


@click.command("read", cls=CliCommand, short_help="Measure how fast events and subscriptions are read.")
@click.argument(
    "what",
    metavar="[lines|columns|subscriptions|rows|gpu]",
    type=click.Choice([_LINES, _COLUMNS, _SUBSCRIPTIONS, _ROWS, _GPU]),
)
@click.argument(
    "scenario",
    metavar="SCENARIO",
    type=NameOf(
        "mpi_match.lab.workloads.scenarios",
        "SCENARIOS",
        *("contains", "logs", "log-texts", "wide", "log-rules", "patterns", "urls"),
        *("otrf", "easylist", "citylots"),
    ),
)
@click.option(
    "--events",
    "n_events",
    type=click.IntRange(1),
    help="Number of events; for gpu, all in one block.  [default: 1000000; rows: 20000; gpu: 524288]",
)
@click.option(
    "--filters",
    "n_filters",
    type=click.IntRange(1, MAX_FILTERS),
    help="Number of filters.  [default: the scenario's; subscriptions: 1000000; rows: 20000]",
)
@click.option(
    "--threads", type=Workers(), default="1,2", metavar="N,N,...", help="Measure with each of these numbers of threads."
)
@click.option(
    "--repetitions", type=click.IntRange(1), default=5, show_default=True, help="Timed repetitions of each reader."
)
@click.option("--reference-rows", type=click.IntRange(1), default=2**15, help="Rows that Python reads for comparison.")
@click.option("--predicates", is_flag=True, help="Write each predicate as a text, as in `a > 3 and b in (1, 2)`.")
@click.option(
    "--times", type=click.IntRange(1), default=32, show_default=True, help="Times that the block of lines is repeated."
)
@click.option("--on-disk", is_flag=True, help="Also time `match` and `run`, from a file of lines to a file of answers.")
@click.option("--corpora", type=FILE, default=Path("corpora"), help="Folder with the data of otrf, easylist and citylots.")
@click.option("--directory", type=FILE, help="Directory for the files, which are reused.  [default: a temporary one]")
@output_option
@click.pass_context
def read(
    ctx: click.Context, /, what: str, scenario: str, directory: Path | None, output: Path | None, **options: Any
) -> None:
    """Read the input of a SCENARIO with compiled code and with Python's reader of single rows, and compare the results.

    lines, columns: events of JSON lines, or of Arrow tables, to codes and to answers.  subscriptions: JSON lines to a table.
    rows: the latency of matching one event as bytes and as an object.  gpu: JSON lines to answers on a GPU, and each step.

    Besides scenarios there are: contains (words that a string may contain); logs, log-texts, wide (long log lines);
    log-rules, patterns, urls (rules like those of Sigma, EventBridge and ad blockers); and real data of --corpora: otrf,
    easylist, citylots.

        mpi-match bench read lines ccm --events 4000000 --threads 1,2 -o lines.jsonl

    JSON lines on standard output.  Different results are a failure: exit code 1.
    """
    given = {name for name in options if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if wrong := [name for name in sorted(given) if what not in _ONLY.get(name, (what,))]:
        raise click.UsageError(f"--{_SPELLED.get(wrong[0], wrong[0]).replace('_', '-')} cannot be used with {what}")
    from mpi_match.lab.bench.read.events import ReadPlan
    from mpi_match.lab.workloads.scenarios import SCENARIOS

    if what not in (_LINES, _GPU) and scenario not in SCENARIOS:
        raise click.UsageError(f"{scenario} has lines only: it can be used with {_LINES} and {_GPU}")
    output = checked_output(output)
    plan = ReadPlan(
        scenario,
        options["n_events"] or _EVENTS.get(what, 1),
        options["n_filters"] or _FILTERS.get(what),
        *(options[name] for name in ("threads", "repetitions", "reference_rows", "corpora")),
    )
    with nullcontext(directory) if directory else tempfile.TemporaryDirectory(prefix="mpi-match-") as place:
        Path(place).mkdir(parents=True, exist_ok=True)
        for record in _records(what, plan, Path(place), options):
            give([record], output)


def _records(what: str, plan: Any, directory: Path, options: Json) -> Iterable[Json]:
    """Measure one kind of input."""
    from mpi_match.lab.bench.read import events, on_gpu, rows, subscriptions

    if what == _LINES:
        return events.measure_lines(plan, directory)
    if what == _COLUMNS:
        return events.measure_columns(plan)
    if what == _ROWS:
        return [rows.measure_rows(plan, directory)]
    if what == _SUBSCRIPTIONS:
        return [subscriptions.measure_subscriptions(plan, directory, predicates=options["predicates"])]
    return [on_gpu.measure_on_gpu(plan, directory, options["times"], on_disk=options["on_disk"])]


@click.command("false-positives", cls=CliCommand, short_help="Count signatures that match by chance, in `tagmatch`.")
@click.option(
    "--filters", "n_filters", type=click.IntRange(1, MAX_FILTERS), default=100_000, show_default=True, help="Tag sets."
)
@click.option("--events", "n_events", type=click.IntRange(1), default=2000, show_default=True, help="Queries.")
@output_option
def false_positives(n_filters: int, n_events: int, output: Path | None) -> None:
    """Count pairs of query and tag set whose signatures match although the sets do not, beside the paper's formula.

        mpi-match bench false-positives --filters 10000

    One JSON line on standard output.  A wrong answer is a failure: exit code 1.
    """
    from mpi_match.lab.bench.false_positives import measure_false_positives

    output = checked_output(output)
    give([measure_false_positives(n_filters, n_events)], output)
