"""`mpi-match compile`: rows to the files that `run` reads, by Spark (see the package `spark_prep`).

spark-submit ... spark_prep/job.py subscriptions IN... -o table.h5        the same, in the session of spark-submit
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import click

from mpi_match.cli.errors import CliFailure, CliGroup, run_as_program
from mpi_match.cli.options import (
    FILE,
    HDF5_OUT,
    Function,
    InputName,
    csv_options,
    form_of,
    id_option,
    json_option,
    language_option,
    location_option,
    pipeline_option,
    strict_option,
)
from mpi_match.cli.terminal import print_json, say
from mpi_match.cli.translate import as_rows
from mpi_match.exit_codes import ExitCode
from mpi_match.humanize import plural, seconds
from mpi_match.ingest.rows.formats import format_names
from mpi_match.model import Json

ROW_FORMATS = ("json", "parquet")
"""Forms of rows that the Spark stage reads."""


class _CompileGroup(CliGroup):
    """`compile --update` is the command `compile update`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments of the group."""
        return super().parse_args(ctx, ["update", *args[1:]] if args[:1] == ["--update"] else args)


@click.group("compile", cls=_CompileGroup, short_help="Compile rows into table and events, with Spark.")
def compile_() -> None:
    """Compile rows with Spark into the files that `run` reads (needs Java 17 and PySpark)."""


def spark_options(function: Function) -> Function:
    """Add the options of all compile commands."""
    for option in reversed(
        (
            click.option(
                "--rejects", type=FILE, help="File for bad rows, with reason, file and line.  [default: OUTPUT.rejects]"
            ),
            strict_option,
            click.option(
                "--master",
                help="Spark master, such as local[4] or spark://host:7077.  [default: the running session, else all cores]",
            ),
            json_option,
        )
    ):
        function = option(function)
    return function


def input_options(function: Function) -> Function:
    """Add the options of commands that read several forms and write several parts."""
    form = click.option("--format", type=click.Choice(ROW_FORMATS), help="Form of the input.  [default: by file name]")
    parts = click.option("--partitions", type=click.IntRange(1), help="Parts to write.  [default: by the size of the input]")
    return form(parts(function))


@compile_.command("subscriptions", short_help="Subscriptions to a table.")
@click.argument("inputs", metavar="IN...", type=InputName(), nargs=-1, required=True)
@click.option(
    "-o", "--output", type=HDF5_OUT, required=True, help="The table to write; its parts lie beside it in OUTPUT.parts."
)
@click.option(
    "--local",
    is_flag=True,
    help="Compile JSON lines in this process, without Spark: the same table, in one file; it has to fit into memory.",
)
@language_option()
@pipeline_option
@input_options
@spark_options
def compile_subscriptions(inputs: tuple[str, ...], output: Path, local: bool, as_json: bool, **options: Any) -> None:
    """Compile subscriptions IN... (files, directories, globs, gzip; JSON lines or Parquet) into a constraint table."""
    from spark_prep import CompileOptions

    language, pipelines = options.pop("language"), options.pop("pipelines")
    if language and not local:
        raise click.UsageError("rules are compiled with --local; for Spark, `mpi-match translate` makes JSON lines of them")
    if local:
        _refuse_options_of_spark(options)
        from mpi_match.commands.compile_locally import compile_locally

        with as_rows([Path(each) for each in inputs], language, pipelines, strict=options["strict"]) as files:
            done: Any = compile_locally(list(map(str, files)) if language else list(inputs), output, **options)
    else:
        done = _spark_job().compile_subscriptions(list(inputs), output, CompileOptions(**options))
    held = f"{plural(done.filters, 'filter')} with {plural(done.constraints, 'constraint')}"
    say(f"{held} on {plural(done.interfaces, 'interface')}")
    _say_compiled(done, output, as_json)


@compile_.command("events", short_help="Events to an event table, for one table.")
@click.argument("inputs", metavar="IN...", type=InputName(), nargs=-1, required=True)
@click.option("--table", type=FILE, required=True, help="Table that the events will be matched against.")
@click.option(
    "-o", "--output", type=HDF5_OUT, required=True, help="The event table to write; its parts lie beside it in OUTPUT.parts."
)
@click.option(
    "--local",
    is_flag=True,
    help=f"Compile {format_names()} in this process, without Spark: the same events, in one file; they have to fit into "
    "memory.",
)
@location_option
@id_option
@csv_options
@input_options
@spark_options
def compile_events(
    inputs: tuple[str, ...],
    table: Path,
    output: Path,
    local: bool,
    **options: Any,
) -> None:
    """Compile events IN... (files, directories, globs, gzip; JSON lines or Parquet) into an event table for one table."""
    from spark_prep import CompileOptions

    as_json = options.pop("as_json")
    form = form_of(options)
    if local:
        _refuse_options_of_spark(options)
        from mpi_match.commands.compile_locally import compile_events_locally

        done: Any = compile_events_locally(list(inputs), table, output, form, **options)
    elif form.csv_options:
        raise click.UsageError(f"{form.csv_options[0]} is of CSV, which --local reads; Spark does not")
    else:
        done = _spark_job().compile_events(list(inputs), table, output, form, CompileOptions(**options))
    say(plural(done.events, "event"))
    _say_compiled(done, output, as_json)


@compile_.command("changes", short_help="Changes of a table, for `run --changes`.")
@click.argument("inputs", metavar="IN...", type=InputName(), nargs=-1, required=True)
@click.option("--table", type=FILE, required=True, help="The table that changes; ids in the changes are of its filters.")
@click.option("-o", "--output", type=HDF5_OUT, required=True, help="The file of changes to write.")
@spark_options
def compile_changes(inputs: tuple[str, ...], table: Path, output: Path, as_json: bool, **options: object) -> None:
    """Compile changes IN... (JSON lines: files, directories, globs, gzip) into a file of changes for one table.

    A row says "before_event", the number of the first event that sees it (the first event is 0), and one of "move" (an id,
    with the new "area"), "add" (a subscription), "remove" (an id), "remove_interface" (a label) and "consolidate" (true: an
    engine that stages changes, which is tagmatch, takes them into its structures now).
    """
    done = _spark_job().compile_changes(list(inputs), table, output, **options)
    say(f"{plural(done.changes, 'change')}; {plural(done.filters, 'filter')} added")
    _say_compiled(done, output, as_json)


@compile_.command("update", short_help="Changes to the next version of a table.")
@click.argument("table", type=FILE)
@click.argument("changes", metavar="CHANGES...", type=InputName(), nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=HDF5_OUT,
    help="Directory for the new version, or its name.  [default: the directory of the table]",
)
@click.option("--rejects", type=FILE, help="File for bad rows, with reason, file and line.  [default: OUTPUT.rejects]")
@strict_option
@json_option
def compile_update(
    table: Path, changes: tuple[str, ...], output: Path | None, rejects: Path | None, strict: bool, as_json: bool
) -> None:
    """Write the next version of TABLE, with CHANGES (JSON lines: files, directories, globs, gzip) applied to it.

    TABLE is a table, or a directory of versions (*.h5), whose newest is meant: the last by name, 10 after 9.  The new
    version has the name of the old one with the next number (table-2.h5 after table.h5); it appears whole and replaces no
    file.  `spark_prep.matched` takes such a directory as its table.

    A row is one of "move" (an id, with the new "area"), "add" (a subscription), "remove" (an id) and "remove_interface" (a
    label).  Works in this process, without Spark.
    """
    from mpi_match.commands.compile_locally import update_table

    version, done = update_table(table, list(changes), output, rejects=rejects, strict=strict)
    held = f"{plural(done.filters, 'filter')} with {plural(done.constraints, 'constraint')}"
    say(f"{held} on {plural(done.interfaces, 'interface')}")
    _say_compiled(done, version, as_json, table=version)


def _refuse_options_of_spark(options: Json) -> None:
    """Remove the options that --local does not have.  Raises UsageError if one of them is given."""
    given = [name for name in ("format", "partitions", "master") if options.pop(name) not in (None, "json")]
    if given:
        raise click.UsageError(f"--local is without Spark, and --{given[0]} is for Spark")


def _spark_job() -> Any:
    """The module of the Spark jobs.  Raises CliFailure with the command that installs what it lacks."""
    from mpi_match.commands import doctor

    by_spark_submit = "PYSPARK_GATEWAY_PORT" in os.environ  # so there is a Java, wherever it may be
    for check in () if by_spark_submit else doctor.SPARK_CHECKS:
        found = check()
        if not found.ok:
            raise CliFailure(f"{found.name}: {found.found}; `mpi-match compile` needs it: {found.fix}", ExitCode.ENVIRONMENT)
    return importlib.import_module("spark_prep.job")


def _say_compiled(done: Any, output: Path, as_json: bool, **more: object) -> None:
    say(f"{output} written in {seconds(done.wall_s)} from {plural(done.rows, 'row')}")
    if done.rejected:
        say(f"{plural(done.rejected, 'row')} rejected, with reasons in {done.rejects}")
    if getattr(done, "never_seen", ()):
        say(f"no event has {' or '.join(map(repr, done.never_seen))}, which --location or --id names")
    for doubt in getattr(done, "doubts", ()):
        say(doubt)
    if getattr(done, "left_out", ()):
        each = (f"{name} ({plural(n, 'event')})" for name, n in sorted(done.left_out.items()) if not name.endswith("."))
        say(f"left out, because no filter names them and attributes cannot have their values: {', '.join(each)}")
    if as_json:
        found = done._asdict()
        print_json(more | {key: dict(value) if key == "left_out" else value for key, value in found.items()})


def main() -> None:
    """Entry point of the script `spark_prep/job.py`."""
    run_as_program(compile_, "job.py")
