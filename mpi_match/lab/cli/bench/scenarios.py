"""`bench SCENARIO...`: engines compared in this process, or runs with increasing numbers of workers."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import click
from click.core import ParameterSource

from mpi_match.cli.errors import CommandWithSubcommands
from mpi_match.cli.options import (
    ENGINES,
    FIGURE_OUT,
    FILE,
    MAX_FILTERS,
    STDOUT,
    flat_engines,
    id_option,
    language_option,
    location_option,
    param_option,
    pipeline_option,
    set_option,
    threads_option,
)
from mpi_match.cli.terminal import say
from mpi_match.humanize import plural
from mpi_match.lab.cli.bench.options import (
    Workers,
    checked_output,
    give,
    launch_options,
    output_option,
    words_of,
)
from mpi_match.lab.cli.options import SCENARIO, axes_of
from mpi_match.lab.cli.plot import need_matplotlib
from mpi_match.model import Json

if TYPE_CHECKING:
    from mpi_match.lab.bench.beside import Beside
    from mpi_match.lab.bench.workload import WorkloadFiles

ENGINE_EVENTS, SCALING_EVENTS = 100_000, 2**22
_OF_RUNS = (
    "schedule",
    "placement",
    "groups",
    "route",
    "feed",
    "results",
    "credits",
    "journal",
    "share_gpus",
    "mpirun_flags",
    "under",
    "directory",
)
"""Options that apply only to runs with workers."""
_OF_ENGINES = (
    *("device", "steps", "rate", "moves", "operation", "beside", "beside_limit", "parameters", "axes", "seeds", "resume"),
)
"""Options that apply only to engines in this process."""
_OF_FILES = ("location", "id_")
"""Options that apply only to files of the user."""
_OF_SCENARIOS = ("n_filters", "seeds", "moves")
_SPELLED = {"parameters": "param", "axes": "vary", "n_filters": "filters", "id_": "id"}
"""Options with another name on the command line."""


class EventsOf(click.ParamType[int | Path]):
    """A number of events, or a file of them."""

    name = "events"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | Path:
        """The number, at least 1; or the file's name."""
        if isinstance(value, (int, Path)):
            return value
        if not value.isdecimal():
            return FILE.convert(value, param, ctx)
        if not int(value):
            self.fail("0 is not in the range x>=1", param, ctx)
        return int(value)


_RulesOptions: TypeAlias = tuple[tuple[Path, ...], str | None, tuple[str, ...]]


class _Rules(NamedTuple):
    """The rules to measure, their language and pipelines."""

    rules: tuple[Path, ...]
    language: str | None
    pipelines: tuple[str, ...]

    def check(self, table: Path | None) -> bool:
        """Tells whether rules are given.  Refuses options that do not go with them."""
        if not self.rules and (self.language or self.pipelines):
            raise click.UsageError(f"--{'language' if self.language else 'pipeline'} is for --rules")
        if self.rules and table is not None:
            raise click.UsageError("--table takes the place of --rules: leave out one of them")
        return bool(self.rules)

    @contextmanager
    def compiled(self, files: WorkloadFiles | None) -> Iterator[WorkloadFiles | None]:
        """The files, with a table of the rules that exists while the context lasts; without rules, the files unchanged."""
        if files is None or not self.rules:
            yield files
            return
        from mpi_match.cli.translate import as_rows
        from mpi_match.commands.compile_locally import compile_locally

        with (
            tempfile.TemporaryDirectory(prefix="mpi-match-") as place,
            as_rows(self.rules, self.language, self.pipelines, strict=False) as rows,
        ):
            table = Path(place) / f"{self.rules[0].name or 'rules'}.h5"
            found = compile_locally(list(map(str, rows)), table, rejects=Path(place) / "rejects")
            counts = f"{plural(found.filters, 'filter')} compiled in {found.wall_s:.2f} s"
            say(f"{counts}; {plural(found.rejected, 'row')} rejected")
            yield files._replace(table=table)


def _list_parameters(names: Sequence[str]) -> None:
    """Print the parameters of scenarios."""
    from mpi_match.lab.workloads.parameters import listed
    from mpi_match.lab.workloads.scenarios import SCENARIOS

    for name in names or SCENARIOS:
        click.echo(f"# {name}: {SCENARIOS[name].source}")
        for key, value, says in listed(SCENARIOS[name]):
            click.echo(f"{key:<21}  {value:<18}  {says}")


@click.command("bench", cls=CommandWithSubcommands, short_help="Measure engines, or scaling, on the published workloads.")
@click.argument("scenarios", metavar="SCENARIO...", type=SCENARIO, nargs=-1)
@click.option(
    "--engine",
    "engines",
    type=ENGINES,
    multiple=True,
    default=["auto"],
    callback=flat_engines,
    metavar="NAME[,NAME...]",
    help="Engine to measure; several (with commas, or repeat the option) are compared.",
)
@set_option
@param_option
@click.option(
    "--vary",
    "axes",
    multiple=True,
    metavar="KEY=VALUE,...",
    callback=axes_of,
    help="Measure each of these values (names=10,20,50 or constraints=1..9) of a parameter of the scenario, of events, "
    "batch or threads, or of an engine's option; repeat the option for all combinations.",
)
@click.option(
    "--parameters", "listing", is_flag=True, help="Show the parameters of the scenarios, with their values, and exit."
)
@click.option("--seeds", type=click.IntRange(1), default=1, help="Number of seeds for each point, from --seed on.")
@click.option("--resume", is_flag=True, help="Skip points that the --output file already has for this commit and machine.")
@click.option(
    "--filters", "n_filters", type=click.IntRange(1, MAX_FILTERS), help="Number of filters.  [default: the scenario's own]"
)
@click.option(
    "--events",
    type=EventsOf(),
    metavar="N|FILE",
    help="Number of events; with --table or --rules their file.  "
    f"[default: {ENGINE_EVENTS:,}; with --scaling {SCALING_EVENTS:,}]",
)
@click.option("--table", type=FILE, help="Measure with this table and the events in --events, instead of a SCENARIO.")
@click.option(
    "--rules",
    type=FILE,
    multiple=True,
    help="Measure with these subscriptions (files or directories; rows, or rules of --language) and the events in --events.",
)
@language_option()
@pipeline_option
@location_option
@id_option
@click.option(
    "--batch", type=click.IntRange(1), default=65_536, help="Events in a batch; 1 also measures the latency of an event."
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="EVENTS/S",
    help="Events arrive at this rate, independent of the engine, up to --batch at a time; measures latencies.",
)
@click.option(
    "--moves",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Then move this many interfaces with their areas and measure the time per filter; engines are opened for changes.",
)
@click.option(
    "--operation",
    type=click.Choice(["match-unique", "match"]),
    default="match-unique",
    help="Ask for the interfaces of an event, each once, or for all its filters.",
)
@click.option(
    "--beside",
    multiple=True,
    metavar="NAME=COMMAND",
    help="Then measure an external matcher: a program that speaks the protocol of docs/other-matchers.md.  Repeatable.",
)
@click.option(
    "--beside-limit",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    help="Time limit in seconds for each step of an external matcher.",
)
@click.option("--repetitions", type=click.IntRange(1), default=5, help="Timed runs over all events; the median is reported.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of filters and events.")
@click.option("--device", type=click.IntRange(0), metavar="N", help="Number of the GPU.  [default: by local rank]")
@threads_option
@click.option("--check", type=click.IntRange(0), default=10, help="Events whose answers are judged by another engine.")
@click.option("--steps", is_flag=True, help="Also measure the phases of the engine, which may slow it down.")
@click.option(
    "--scaling", type=Workers(), metavar="W,W,...", help="Measure strong and weak scaling with these numbers of workers."
)
@launch_options
@output_option
@click.option(
    "--plot",
    type=FIGURE_OUT,
    help="Draw events per second into this file (.png, .svg, .pdf), with --vary over the first key.",
)
@click.pass_context
def bench(
    ctx: click.Context,
    /,
    scenarios: tuple[str, ...],
    engines: tuple[str, ...],
    scaling: tuple[int, ...] | None,
    listing: bool,
    table: Path | None,
    output: Path | None,
    plot: Path | None,
    **options: object,
) -> None:
    """Measure engines on each SCENARIO (see `generate`), and check their answers.

    Table, index and matching are timed separately; shown are medians and spread over the repetitions.

    With --vary, all combinations of the values are measured, each with every engine:

        mpi-match bench ccm --vary names=10,20,50 --vary constraints=1..9 --engine keyed,counting -o names.jsonl --resume

    With --table, measure your own files: a table that `compile` made, and events, compiled or JSON lines:

        mpi-match bench --table table.h5 --events events.jsonl --engine keyed,counting --vary batch=1,1000

    Rows/s is from rows in memory to answers.  With --rules, measure your own rules, which are
    compiled first:

        mpi-match bench --rules sigma/rules --language sigma --events events.jsonl --threads 1

    With --scaling, runs of a master and workers are launched and measured, from events on disk to answers on disk: strong
    (the same events in total) and weak (the same number for each worker).  --schedule, --placement, --groups, --route,
    --feed, --results, --credits, --journal and --share-gpus are as in `run`; a worker has the same number of threads in
    every run.

    One JSON line for each result on standard output, with machine, commit and command; a table for people on standard error.
    A wrong answer ends the measurement with exit code 1.

    Other measurements are commands, named in place of the SCENARIO.
    """
    if listing:
        return _list_parameters(scenarios)
    rules = _Rules(*cast("_RulesOptions", tuple(options.pop(name) for name in _Rules._fields)))
    if rules.check(table):
        table = Path("rules")  # until all options are known to be good
    given = {name for name in options if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    files = _files(ctx, scenarios, table, options, given)
    wrong = set(_OF_ENGINES) & given if scaling else set(_OF_RUNS) & given
    if options["resume"] and output in (None, STDOUT):
        raise click.UsageError("--resume needs the file of earlier results: -o FILE")
    if wrong:
        raise click.UsageError(f"{_names(wrong)} cannot be used {'with' if scaling else 'without'} --scaling")
    if files and scaling:
        raise click.UsageError("--scaling needs a SCENARIO, not files")
    if plot is not None:
        need_matplotlib("--plot")
    output = checked_output(output)
    checked_output(plot)
    of_runs = {name: options.pop(name) for name in _OF_RUNS}
    for name in _OF_FILES:
        del options[name]
    options["n_events"] = options.pop("events") or (SCALING_EVENTS if scaling else ENGINE_EVENTS)
    if scaling:
        for name in _OF_ENGINES:
            del options[name]
        of_runs["engine_options"] = options.pop("engine_options")
        _scale(scenarios, engines, scaling, of_runs, options, output, plot)
    else:
        with rules.compiled(files) as files:
            _compare([files] if files else scenarios, engines, options, output, plot)


def _names(options: set[str]) -> str:
    return ", ".join(f"--{_SPELLED.get(name, name).replace('_', '-')}" for name in sorted(options))


def _files(
    ctx: click.Context, scenarios: Sequence[str], table: Path | None, options: Json, given: set[str]
) -> WorkloadFiles | None:
    """The files to measure, if any, with all of their events.  Refuses options that do not go with them."""
    events = options["events"]
    if table is None:
        if wrong := set(_OF_FILES) & given:
            raise click.UsageError(f"{_names(wrong)} cannot be used without --table or --rules")
        if isinstance(events, Path):
            raise click.BadParameter(
                f"{str(events)!r} is not a number of events; a file of events needs --table or --rules",
                ctx,
                param_hint="--events",
            )
        if not scenarios:
            raise click.MissingParameter(ctx=ctx, param=ctx.command.params[0])
        return None
    from mpi_match.ingest.rows.judge import EventForm
    from mpi_match.lab.bench.workload import WorkloadFiles

    if scenarios:
        raise click.UsageError(f"--table takes the place of a SCENARIO: leave out {', '.join(scenarios)}")
    if wrong := set(_OF_SCENARIOS) & given:
        raise click.UsageError(f"{_names(wrong)} cannot be used with --table or --rules")
    if not isinstance(events, Path):
        raise click.UsageError(
            "--table and --rules need the file of events: --events FILE; --param events=N takes the first N of them"
        )
    options["events"] = sys.maxsize
    return WorkloadFiles(table, events, EventForm.of(options["location"], options["id_"]))


def _compare(
    workloads: Sequence[str | WorkloadFiles],
    engines: tuple[str, ...],
    options: Json,
    output: Path | None,
    plot: Path | None,
) -> None:
    from mpi_match.lab.bench import report, sweep_report
    from mpi_match.lab.bench.engines import BenchOptions
    from mpi_match.lab.bench.sweep import Sweep

    axes, fixed, seeds = (options.pop(name) for name in ("axes", "parameters", "seeds"))
    options["beside"] = _beside(options["beside"], options.pop("beside_limit"), engines)
    have = report.read_json(output) if options.pop("resume") and output is not None and output.exists() else []
    sweeps = [Sweep(name, engines, axes, fixed, BenchOptions(**options), seeds) for name in workloads]
    for sweep in sweeps:
        sweep.points()  # refuses impossible points before the first is measured
    results = []
    several = bool(axes) or seeds > 1
    for sweep in sweeps:
        measured = []
        for found in sweep.run(have, say if several else lambda text: None):
            measured += report.measured_ones(found)
            give(found, output)
            for failure in report.failures(found):
                say(failure)
        measured = report.measured_ones(sweep.earlier(have)) + measured
        results += measured
        if several and measured:
            say(sweep_report.sweep_table(measured))
    if not several:
        say(report.text_table(results).rstrip())
    if plot is not None:
        if axes:
            x = axes[0].key
            sweep_report.draw(results, plot, x, sweep_report.told_apart_by(results, x))
        else:
            report.plot(results, plot)
        say(f"{plot} written")


def _beside(given: Sequence[str], limit_s: float, engines: Sequence[str]) -> tuple[Beside, ...]:
    """The external matchers; refuses two of one name."""
    from mpi_match.lab.bench.beside import Beside

    try:
        found = tuple(Beside.of(each, limit_s) for each in given)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--beside") from None
    names = [*engines, *(each.name for each in found)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise click.BadParameter(f"{min(twice)!r} names two matchers", param_hint="--beside")
    return found


def _scale(
    scenarios: Sequence[str],
    engines: Sequence[str],
    workers: tuple[int, ...],
    of_runs: Json,
    options: Json,
    output: Path | None,
    plot: Path | None,
) -> None:
    from mpi_match.engines.registry import check_options, of_engine
    from mpi_match.lab.bench.scaling import ScalingPlan, scale
    from mpi_match.lab.bench.scaling_report import plot_scaling, scaling_table

    flags, directory, given, under = (of_runs.pop(name) for name in ("mpirun_flags", "directory", "engine_options", "under"))
    check_options(engines, given)
    same = [word for name, value in of_runs.items() for word in words_of(name, value)]
    results = []
    for scenario in scenarios:
        for engine in engines:
            sets = [word for key, value in of_engine(engine, given).items() for word in ("--set", f"{key}={value}")]
            how = ("--engine", engine, *sets, *same)
            plan = ScalingPlan(scenario, workers, how=how, flags=tuple(shlex.split(flags)), under=under, **options)
            with nullcontext(directory) if directory else tempfile.TemporaryDirectory(prefix="mpi-match-") as place:
                found = scale(plan, Path(place) / scenario)
            results += found
            give(found, output)
            say(scaling_table(found))
    if plot is not None:
        plot_scaling(results, plot)
        say(f"{plot} written")
