"""The command `mpi-match`.

    generate ──► subscriptions, events (rows) ──► compile ──► table, events (HDF5) ──► run ──► matches ──► verify, export
                                └───────────────────────── match ────────────────────────────────┘

Commands parse options and print results; the work is in other modules, imported when a command runs: `mpi-match --help`
loads neither numba nor MPI nor Spark.  Messages and progress go to standard error, data to standard output; `errors` has the
exit codes.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import mpi_match
from mpi_match import cluster
from mpi_match.cli.compile import compile_
from mpi_match.cli.engines import engines
from mpi_match.cli.errors import CliFailure, CliGroup, run_as_program
from mpi_match.cli.explain import explain
from mpi_match.cli.launch import launch
from mpi_match.cli.monitor import ObserverOptions, live_option, metrics_option, report_option, watching
from mpi_match.cli.options import (
    EVENTS_OR_STREAM,
    EXPORT_OUT,
    FILE,
    MATCHES_OUT,
    RUN_OUT,
    ByteSize,
    credits_option,
    csv_options,
    engine_option,
    feed_option,
    filters_option,
    follow_options,
    form_of,
    gpu_map_option,
    groups_option,
    id_option,
    is_device,
    journal_option,
    json_option,
    language_option,
    limit_options,
    limits_of,
    location_option,
    pipeline_option,
    placement_option,
    rejects_option,
    results_option,
    route_option,
    says_formats,
    schedule_option,
    set_option,
    share_gpus_option,
    stats_option,
    strict_option,
    threads_option,
    with_rows_option,
)
from mpi_match.cli.supervise import supervise
from mpi_match.cli.terminal import Progress, compiling, print_json, say, standard_output_to
from mpi_match.cli.translate import as_rows, translate
from mpi_match.compute import compile_notice
from mpi_match.exit_codes import ExitCode
from mpi_match.humanize import plural, rate, seconds, visible
from mpi_match.ingest.rows.formats import format_list
from mpi_match.ingest.rows.judge import advice_for
from mpi_match.ingest.rows.row_files import STDIN, STDOUT

if TYPE_CHECKING:
    from mpi_match.commands.match import Prepared

WORTH_SAYING_S = 0.5
"""The shortest compile time that is reported."""


def _print_version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"mpi-match {mpi_match.__version__}")
        ctx.exit()


LABORATORY = {
    "bench": "mpi_match.lab.cli.bench.command:bench",
    "compare": "mpi_match.lab.cli.compare:compare",
    "experiment": "mpi_match.lab.cli.experiment:experiment",
    "generate": "mpi_match.lab.cli.generate:generate",
    "plot": "mpi_match.lab.cli.plot:plot",
    "report": "mpi_match.lab.cli.report:report",
}
"""Commands of the laboratory, each imported when it is asked for."""


@click.group(cls=CliGroup, elsewhere=LABORATORY)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version and exit."
)
def commands() -> None:
    """Content-based publish/subscribe matching: which interfaces must an event be delivered to?"""
    compile_notice.show = compiling


commands.add_command(compile_)
commands.add_command(launch)
commands.add_command(supervise)
commands.add_command(engines)
commands.add_command(translate)
commands.add_command(explain)


@commands.command(short_help="Match compiled files, alone or under mpirun.")
@click.option("--table", type=FILE, required=True, help="Constraint table; only rank 0 reads it.")
@click.option(
    "--events",
    type=EVENTS_OR_STREAM,
    required=True,
    help=f"Event table; {format_list()}, or a directory of these; or - for JSON lines from standard input; with --follow "
    "also tcp://HOST:PORT or unix://PATH.  Only rank 0 reads them, unless --feed says otherwise.",
)
@location_option
@id_option
@csv_options
@click.option(
    "--changes",
    type=FILE,
    help="File of changes that take effect between events (`compile changes`).  With --follow: directory into which files "
    "of changes are renamed.",
)
@click.option(
    "-o",
    "--output",
    type=RUN_OUT,
    help="File of matches to write.  With --follow a directory; or - for a stream of events.  [default for sockets: the "
    "connection that an event came from]",
)
@engine_option
@set_option
@click.option("--batch", type=click.IntRange(1), default=cluster.RunOptions.batch, help="Events in a batch.")
@schedule_option
@placement_option
@groups_option
@route_option
@click.option(
    "--memory-limit",
    type=ByteSize(),
    metavar="BYTES",
    help="Most memory of a worker that the table may take, such as 64M or 2G.",
)
@feed_option
@results_option
@follow_options
@limit_options
@credits_option
@click.option(
    "--setup-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    default=cluster.RunOptions.setup_limit,
    help="Time after which a silent rank ends the run, before the first batch; large tables may take longer.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Time after which a batch without an answer is sent to another worker too.  [default: ten times the usual time of "
    "a batch, at least 30]",
)
@gpu_map_option
@share_gpus_option
@click.option("--resume", is_flag=True, help="Go on from the journal of a run that did not end, if there is one.")
@journal_option
@filters_option
@threads_option
@strict_option
@rejects_option
@stats_option
@live_option
@report_option
@metrics_option
@json_option
def run(stats: bool, as_json: bool, live: bool, report: Path | None, metrics: Path | None, **options: Any) -> None:
    r"""Match events against a constraint table: an event table, or files of rows as `match` takes them.

    Alone it runs in this process.  Under MPI, rank 0 is the master and every other rank a worker:

        mpirun -n 3 --host localhost:3 --bind-to none \
            python -m mpi4py -m mpi_match run --table table.h5 --events events.h5 -o matches.h5

    The answers are the same bytes whatever the ranks, the batch size, the placement and the schedule.  Large batches pass
    the most events a second; with --batch 1 --credits 1 an event is answered before the next is sent, as soon as can be.

    However a run ends, its answers are in OUTPUT.journal until all of them are in OUTPUT.  The same command with --resume
    goes on from there, with any ranks, batch size and schedule, to the same bytes.  OUTPUT.run.json says how a run ended.

    With --follow it does not end: it matches the files that are renamed into EVENTS, in that order, each event once, however
    often it is killed and started again.
    """
    options["form"] = form_of(options)
    _find_streams(options)
    with watching(ObserverOptions(live, report, metrics), options) as watched:
        summary = cluster.run(cluster.RunOptions(progress=watched.progress, watch=watched.watch, **options))
        if summary is not None:
            watched.finish(summary)
    if summary is not None:  # rank 0
        if summary.round_trip_us is not None and options["credits"] == 1:  # else a batch has waited behind others
            trip = summary.round_trip_us
            say(f"a batch to a worker and back: {seconds(trip['p50'] / 1e6)} (p50), {seconds(trip['p99'] / 1e6)} (p99)")
        if summary.routed_share is not None:
            say(f"an event was sent to {summary.routed_share:.1%} of the shards, on average (--route)")
        if summary.latency_us is not None:
            p50, p99, p999 = (seconds(each / 1e6) for each in summary.latency_us.values())
            say(f"from the arrival of an event to its answer: {p50} (p50), {p99} (p99), {p999} (p99.9)")
        _say_rows(summary, options["rejects"], stats)
        _say_matched(summary, None if options["output"] == cluster.CONNECTIONS else options["output"], as_json)
        if summary.cut_off:
            raise CliFailure(
                f"{plural(summary.cut_off, 'event')} without answer: connections had not taken these "
                f"{options['limits'].drain_s:g} s after the end (--drain)",
                ExitCode.INCOMPLETE,
            )


def _find_streams(options: dict[str, Any]) -> None:
    """Complete the options of a run that follows a stream.  Raises UsageError."""
    events, output, follows = options["events"], options["output"], options["follow"]
    options["limits"] = limits_of(options, are_connections=isinstance(events, str))
    if isinstance(events, str):
        if not follows:
            raise click.UsageError(f"{events}: a run that ends has no events from sockets; add --follow")
        options["events"], options["listen"] = STDIN, events
        output = cluster.CONNECTIONS if output is None else output
    elif output is None and follows and events == STDIN:
        output = STDOUT
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'.")
    if output == STDOUT and not follows:
        raise click.UsageError("answers go to standard output with --follow only; name a file")
    options["output"] = output


def _say_rows(summary: cluster.Summary, rejects: Path | None, stats: bool) -> None:
    """Report bad rows and their reasons."""
    most_are_bad = 2 * summary.rejected > summary.events
    for i, reject in enumerate(summary.first_rejects):
        say(f"rejected: {reject.place}: {reject.reason}{advice_for(reject) if most_are_bad and not i else ''}")
    if summary.rejected > len(summary.first_rejects):
        more = summary.rejected - len(summary.first_rejects)
        say(f"rejected: {more:,} more" + (f", all in {rejects}" if rejects else " (--rejects FILE keeps them)"))
    if summary.never_seen:
        say(f"no event has {' or '.join(map(repr, summary.never_seen))}, which --location or --id names")
    for doubt in summary.doubts:
        say(doubt)
    if stats:
        events, on_gpu = plural(summary.events, "event"), summary.scanned_on_gpu
        say(f"the scanner flagged {plural(summary.flagged, 'line')} of {events}; a GPU scanned {on_gpu:,}")


def _say_ready(prepared: Prepared, address: str) -> None:
    """Report that the command waits for events."""
    table = prepared.table
    say(
        f"{plural(table.n_visible_filters, 'filter')} with {plural(table.n_visible_constraints, 'constraint')} on "
        f"{plural(table.n_visible, 'interface')}, ready in {seconds(prepared.build_s)}"
        + (f"; listening on {address}" if address else "")
    )


def _say_table(counts: Any, build_s: float) -> None:
    say(
        f"{plural(counts.filters, 'filter')} with {plural(counts.constraints, 'constraint')} on "
        f"{plural(counts.interfaces, 'interface')}, ready in {seconds(build_s)}"
    )


def _say_matched(summary: cluster.Summary, output: Path | None, as_json: bool) -> None:
    if summary.compile_s > WORTH_SAYING_S:
        say(f"compiled for this machine in {seconds(summary.compile_s)} (once, not included in these times)")
    say(
        f"{plural(summary.events, 'event')}, {plural(summary.matches, 'match', 'matches')} in {seconds(summary.wall_s)}: "
        f"{rate(summary.events_per_s)}; {summary.engine} on {summary.device}, {plural(summary.workers, 'worker')}"
    )
    if isinstance(summary, cluster.RunSummary) and summary.resumed:
        say(f"{plural(summary.resumed, 'event')} of these from the journal of an earlier run")
    where = "answers written to standard output" if output == STDOUT else f"{output} written"
    say(
        (_answers_sent(summary) if output is None else where)
        + (f"; {plural(summary.rejected, 'row')} rejected" if summary.rejected else "")
    )
    if as_json:
        print_json(summary.kept())


def _answers_sent(summary: Any) -> str:
    """The numbers of answers that the connections took and did not take, as text."""
    lost = summary.untaken + summary.cut_off
    if not lost:
        return "answers sent"
    ended = f", of which {summary.untaken:,} on connections that ended or were closed" if summary.untaken else ""
    return f"{plural(summary.events - lost, 'answer')} sent, {lost:,} not{ended}"


def _place_of_answers(events: Path | str, output: Path | None, as_json: bool) -> Path | None:
    """The output of `match`; None if answers go to the connections that events come from.  Raises UsageError."""
    if isinstance(events, str):
        if output is not None:
            raise click.UsageError("answers go to the connection that an event came from; leave out -o")
        return None
    output = STDOUT if output is None and events == STDIN else output
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'.")
    if as_json and output == STDOUT:
        raise click.UsageError("--json and -o - would both be written to standard output")
    return output


def _check_has_rows(output: Path) -> None:
    """Refuse, with UsageError, an output in a form without rows beside answers."""
    from mpi_match.commands.export import has_rows

    if output != STDOUT and not is_device(output) and not has_rows(output):
        raise click.UsageError(f"{output}: rows are written beside answers in JSON lines only: -o - or -o OUT.jsonl")


def _matched(
    subscriptions: Path,
    events: Path | str,
    output: Path | None,
    how: Any,
    *,
    changes: Path | None,
    rejects: Path | None,
    limits: Any,
) -> Any:
    """Match, and write to an output in the form of its name; None stands for the connections of events.  Returns the
    summary."""
    from mpi_match.commands.export import check_export, says_form
    from mpi_match.commands.export import export as write
    from mpi_match.commands.match import match_rows
    from mpi_match.ingest.rows.row_files import event_files, row_files

    if how.with_rows and output is not None:
        _check_has_rows(output)
    progress = Progress if sys.stderr.isatty() else None
    if isinstance(events, str) or output is None or (events == STDIN and output == STDOUT):
        from mpi_match.commands.match_streams import match_stream

        source = events if isinstance(events, str) else "-"
        ways = {"changes": changes, "rejects": rejects, "limits": limits}
        return match_stream(subscriptions, source, how, **ways, say=say, ready=_say_ready)
    if output == STDOUT:
        sys.stdout.flush()
        summary = match_rows(subscriptions, events, None, how, changes=changes, rejects=rejects, progress=progress)
        sys.stdout.buffer.flush()  # before what is said on standard error
    elif says_form(output):
        others = (file for each in (subscriptions, changes) if each for file in row_files(each))
        check_export(output, [*event_files(events, how.form), *others], [rejects] if rejects else [])
        with tempfile.TemporaryDirectory(prefix="mpi-match-") as directory:
            found = Path(directory) / "matches.h5"
            summary = match_rows(subscriptions, events, found, how, changes=changes, rejects=rejects, progress=progress)
            write(found, output, events if how.with_rows else None, how.form, with_rows=how.with_rows)
    else:
        summary = match_rows(subscriptions, events, output, how, changes=changes, rejects=rejects, progress=progress)
    _say_table(summary, summary.build_s)
    return summary


@commands.command(short_help="Match rows on this machine, without Spark and MPI.")
@click.argument("subscriptions", type=FILE)
@click.argument("events", type=EVENTS_OR_STREAM)
@click.option(
    "-o",
    "--output",
    type=MATCHES_OUT,
    help="File of matches to write; .jsonl, .csv, .parquet and .arrow as `export` does, - for JSON lines on standard "
    "output, as they are found.  "
    "[default for standard input and sockets: -]",
)
@click.option("--changes", type=FILE, help="Changes that take effect between events: JSON lines, as for `compile changes`.")
@language_option()
@pipeline_option
@location_option
@id_option
@csv_options
@engine_option
@set_option
@filters_option
@with_rows_option
@threads_option
@strict_option
@rejects_option
@limit_options
@stats_option
@json_option
@says_formats
def match(
    subscriptions: Path,
    events: Path | str,
    output: Path | None,
    changes: Path | None,
    rejects: Path | None,
    stats: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Match EVENTS against SUBSCRIPTIONS, without Spark and MPI.

    Subscriptions are JSON lines, or rules of a --language; events are FORMATS.  Both are files, or directories of them.

    Bad rows are set aside, counted and shown with their reasons; an input without a good row is an error.  A subscription
    is one filter, or a predicate of several:

        {"interface": "mobile-7", "constraints": [["city", "=", "Milan"], ["temp", ">", 30]], "area": [x, y, r]}
        {"interface": "mobile-8", "filters": [{"constraints": [["temp", "<", 0]]}, {"area": [x, y, r]}]}

    An event is a plain object:

        {"city": "Milan", "temp": 31, "position": {"x": 9.1, "y": 45.4}}

    EVENTS may be -, standard input, or the address of a socket to listen on, tcp://HOST:PORT (without HOST only for this
    machine) or unix://PATH.  Then each event is answered as soon as its line arrives, on standard output or on the
    connection that it came from, until the input ends; SIGTERM or Ctrl-C ends it cleanly.  Exit code 4 when connections had
    not taken all answers within --drain.
    """
    from mpi_match.commands.match import MatchOptions

    output = _place_of_answers(events, output, as_json)
    limits = limits_of(options, are_connections=isinstance(events, str))
    language, pipelines = options.pop("language"), options.pop("pipelines")
    how = MatchOptions(form_of(options), **options)
    to_device = output is not None and output != STDOUT and is_device(output)
    with (
        as_rows([subscriptions], language, pipelines, strict=how.strict) as files,
        standard_output_to(output) if output is not None and to_device else nullcontext(),
    ):
        place = STDOUT if to_device else output
        summary = _matched(files[0], events, place, how, changes=changes, rejects=rejects, limits=limits)
    _say_rows(summary, rejects, stats)
    if summary.unlocated:
        say(f"{plural(summary.unlocated, 'filter')} with an area: without --location no event is in it")
    _say_matched(summary, output, as_json)
    if summary.cut_off:
        raise CliFailure(
            f"{plural(summary.cut_off, 'event')} without answer: connections had not taken these {limits.drain_s:g} s after "
            "the end (--drain)",
            ExitCode.INCOMPLETE,
        )


@commands.command(short_help="Look into a table, an event table or answers.")
@click.argument("file", type=FILE)
@click.option("--rows", type=click.IntRange(0), default=3, help="Number of first rows to show.")
@click.option(
    "--filter", "filter_id", type=click.IntRange(0), metavar="N", help="Show filter N of a table and nothing else."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def inspect(file: Path, rows: int, filter_id: int | None, as_json: bool) -> None:
    """Look into FILE: a constraint table, an event table, a file of matches or changes, or the journal of a run."""
    from mpi_match.commands.inspect import filter_row, inspect_file, inspect_lines
    from mpi_match.table.table import Table

    if filter_id is not None:
        table = Table.load(file)
        if filter_id >= table.n_visible_filters:
            raise CliFailure(
                f"{file}: has no filter {filter_id}; it has {table.n_visible_filters:,}, counted from 0", ExitCode.BAD_INPUT
            )
        print_json(filter_row(table, filter_id))
        return
    found = inspect_file(file, rows)
    if as_json:
        print_json(found)
    else:
        click.echo("\n".join(visible(line) for line in inspect_lines(found)))


@commands.command(short_help="Check answers against the naive matcher.")
@click.option("--table", type=FILE, required=True, help="The constraint table of the run.")
@click.option("--events", type=FILE, required=True, help="The events of the run; of an event table the raw columns.")
@location_option
@id_option
@csv_options
@click.option("--changes", type=FILE, help="The changes of the run, if its table changed.")
@click.option("--matches", type=FILE, required=True, help="The answers to check.")
@click.option(
    "--sample", type=click.IntRange(0), default=100, help="Events to check, half of them with answers; 0 checks all."
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of the sample.")
@click.option(
    "--judge",
    type=click.Choice(["auto", "naive", "counting"]),
    default="auto",
    help="naive: every filter of the table for every event; counting: see above; auto: naive where that takes seconds.",
)
@json_option
def verify(sample: int, seed: int, judge: str, as_json: bool, **given: Any) -> None:
    """Check answers against the naive matcher on a random sample of events.

    On a large table the counting engine answers in full, and the naive matcher looks at every filter it matched and at
    filters drawn at random among the others.  The judges are printed.  If there is a wrong answer, the first one is printed
    and the exit code is 1.
    """
    from mpi_match.verify.verify import VerifiedFiles
    from mpi_match.verify.verify import verify as judged

    form = form_of(given)
    files = VerifiedFiles(**given, form=form)
    with Progress("events") as progress:
        verdict = judged(files, sample, seed, judge, progress)
    say(f"looked at {verdict.checked:,} of {plural(verdict.events, 'event')} (seed {seed}): {verdict.judge}")
    if as_json:
        shown = dataclasses.asdict(verdict)
        print_json(
            {
                **shown,
                "verified": verdict.difference is None,
                "difference": None if verdict.difference is None else str(verdict.difference),
            }
        )
    if verdict.difference is not None:
        say(str(verdict.difference))
        raise CliFailure(f"{files.matches}: event {verdict.difference.number} is answered wrongly")
    say(f"all right: {plural(verdict.matches, 'match', 'matches')} in {plural(verdict.with_matches, 'event')}")


@commands.command(short_help="Answers as JSON lines, CSV, Parquet or Arrow.")
@click.argument("matches", type=FILE)
@click.option("--events", type=FILE, help="The events of the run, for their ids (`match --id` keeps them) or rows.")
@with_rows_option
@id_option
@csv_options
@click.option(
    "-o",
    "--output",
    type=EXPORT_OUT,
    default="-",
    help="OUT.jsonl, OUT.jsonl.gz, OUT.csv, OUT.parquet or OUT.arrow; - is standard output.",
)
def export(matches: Path, events: Path | None, with_rows: bool, output: Path, **of_rows: object) -> None:
    """Write MATCHES as JSON lines, Parquet or Arrow: one row for every event, with the labels of its interfaces.

    CSV has a row for every event and interface, and one without interface for an event without matches.
    """
    from mpi_match.commands.export import export as write

    if with_rows:
        if events is None:
            raise click.UsageError("--with-rows: the rows of which events? Name them with --events")
        _check_has_rows(output)
    to_device = output != STDOUT and is_device(output)
    place = None if to_device or output == STDOUT else output
    with standard_output_to(output) if to_device else nullcontext():
        done = write(matches, place, events, form_of(of_rows), with_rows=with_rows)
    say(f"{plural(done['events'], 'event')}, {plural(done['matches'], 'match', 'matches')}")


@commands.command(short_help="Check the requirements on this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def doctor(as_json: bool) -> None:
    """Check the requirements on this machine, with the commands that install the missing ones.

    Exit code 5 when something is missing that every run needs.
    """
    from mpi_match.commands.doctor import examine, finding_lines

    findings = examine()
    well = all(f.ok for f in findings if f.required)
    if as_json:
        print_json({"ok": well, "findings": [f._asdict() for f in findings]})
    else:
        click.echo("\n".join(finding_lines(findings)))
    if not well:
        raise CliFailure("something is missing that every run needs; see above", ExitCode.ENVIRONMENT)


def main() -> None:
    """Entry point of `mpi-match` and of `python -m mpi_match`."""
    # NumPy's BLAS starts a thread for each core as it is loaded, which spin for a while; nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    run_as_program(commands)
