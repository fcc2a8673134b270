"""The end of a command: exit codes, errors in one line, and the end of all ranks.

An expected error (StorageError, ModelError, ...) is one line on standard error.  Any other is a bug, and keeps its
traceback.  Under MPI a rank that ends with an error aborts the others, as `python -m mpi4py` does: they would wait for its
messages for ever.
"""

from __future__ import annotations

import errno
import importlib
import inspect
import io
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from mpi_match.cluster.exit_report import write_exit_report
from mpi_match.cluster.signals import terminate_as_interrupt
from mpi_match.cluster.transport.launcher import found_in
from mpi_match.errors import MpiMatchError
from mpi_match.exit_codes import ExitCode
from mpi_match.humanize import visible

EPILOG = (
    "\b\nExit codes: 0 done, 1 failure, 2 wrong usage, 3 bad input or nothing usable in it,\n"
    "4 incomplete, 5 environment (no MPI, GPU or Java), 130 interrupted."
)

ENVIRONMENT_PREFIX = "MPI_MATCH"
"""Prefix of the environment variables that hold values of options."""

QUIET_S = 0.5


class CliFailure(click.ClickException):
    """The end of a command: one line on standard error, and an exit code."""

    def __init__(self, text: str, exit_code: int = ExitCode.FAILURE, quiet: bool = False) -> None:
        super().__init__(text)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance
        self.quiet = quiet

    def show(self, file: object = None) -> None:
        """Print the line, unless another rank prints it (`quiet`); then wait QUIET_S for that rank, because the launcher
        ends all ranks as soon as the first one exits with an error.
        """
        if self.quiet:
            time.sleep(QUIET_S)
        else:
            click.echo(f"mpi-match: {visible(self.message)}", err=True)


def exit_code_of(error: BaseException) -> int | None:
    """The exit code of an expected error; None for a bug."""
    if isinstance(error, MpiMatchError):
        return int(error.exit_code)
    if isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)):
        return ExitCode.BAD_INPUT
    return ExitCode.FAILURE if isinstance(error, (OSError, MemoryError)) else None


def end_all_ranks(code: int, mistake: BaseException | None = None) -> None:
    """If MPI runs in this process and `code` is not 0, MPI will be aborted with `code` when the process ends.

    After a run in which ranks may have died the process ends at once, with the traceback of a bug (`mistake`): see
    `cluster.transport.finalize`.
    """
    if "mpi4py.MPI" not in sys.modules:
        return
    finalize = sys.modules.get("mpi_match.cluster.transport.finalize")
    if finalize is not None:
        finalize.leave(code, mistake)
    if code:
        from mpi4py.run import set_abort_status

        set_abort_status(code)


class CliCommand(click.Command):
    """A command with `-v`, the exit codes in its help, and expected errors in one line.

    An indented paragraph of its docstring is not rewrapped.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("epilog", EPILOG)
        context = kwargs.setdefault("context_settings", {})
        context.update(show_default=True, help_option_names=["-h", "--help"], max_content_width=110)
        super().__init__(*args, **kwargs)
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        self.help = "\n\n".join(f"\b\n{each}" if each.startswith(" ") else each for each in paragraphs)
        self.params.append(
            click.Option(
                ["-v", "--verbose"],
                count=True,
                expose_value=False,
                show_default=False,
                callback=_set_verbosity,
                help="Log decisions on standard error; twice for more.",
            )
        )

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the arguments; one rank reports wrong usage."""
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            launch = found_in(os.environ)
            said = visible(error.format_message().replace("\n\t", " "))  # click writes each choice on a line of its own
            if launch is not None and launch.rank:
                raise CliFailure(said, ExitCode.USAGE, quiet=True) from error
            if said != error.format_message():
                raise click.UsageError(said, error.ctx) from error
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; options that are not given are taken from the environment, by their names."""
        for option in self.params if ctx.auto_envvar_prefix else ():
            if isinstance(option, click.Option) and option.expose_value:
                name = max(option.opts, key=len).removeprefix("--").replace("-", "_").upper()
                option.envvar = f"{ctx.auto_envvar_prefix}_{name}"
                option.show_envvar = option.envvar in os.environ  # an error then names the variable
        with _said_whose(ctx, ctx.parent.command if ctx.parent is not None else self):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an expected error becomes a `CliFailure`; SIGTERM is handled like Ctrl-C."""
        try:
            with terminate_as_interrupt():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            raise CliFailure("interrupted", ExitCode.INTERRUPTED) from None
        except Exception as error:
            if isinstance(ctx.obj, _Ending):
                ctx.obj.error = error
            code = exit_code_of(error)
            if code is None:
                raise
            raise CliFailure(_line_of(error), code, quiet=getattr(error, "quiet", False)) from error


@contextmanager
def _said_whose(ctx: click.Context, group: click.Command) -> Iterator[None]:
    """The error for an option that a command does not have names the commands of its group that have it."""
    try:
        yield
    except click.NoSuchOption as error:
        if isinstance(group, click.Group):
            path = ctx.command_path.split()
            before = path if ctx.command is group else path[:-1]
            have = [
                f"`{' '.join([*before, name])}`"
                for name, command in sorted(group.commands.items())
                if any(error.option_name in (*each.opts, *each.secondary_opts) for each in command.params)
            ]
            if have:
                where = "is an option of" if ctx.command is group else "is not an option here, but of"
                behind = ", behind that name" if ctx.command is group else ""
                text = f"{error.option_name} {where} {', '.join(have)}{behind}."
                raise click.NoSuchOption(error.option_name, text, ctx=error.ctx) from None
        raise


class CommandWithSubcommands(CliCommand, click.Group):
    """A command with arguments of its own, whose first word may instead be the name of a subcommand.

    Options follow the name, as in the other commands.
    """

    allow_extra_args = False
    allow_interspersed_args = True
    command_class = CliCommand

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, invoke_without_command=True, subcommand_metavar="", **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; a subcommand's are left to it."""
        if args and args[0] in self.commands:
            ctx.args = args
            return args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command, or the subcommand that is named."""
        if not ctx.args:
            return super().invoke(ctx)
        name, *rest = ctx.args
        command = self.commands[name]
        prefix = f"{ctx.auto_envvar_prefix}_{name.upper().replace('-', '_')}" if ctx.auto_envvar_prefix else None
        path = f"{ctx.info_name} {name}"  # as a child of this context it would have this command's arguments in its usage
        with command.make_context(path, rest, parent=ctx.parent, auto_envvar_prefix=prefix) as of_command:
            return command.invoke(of_command)


class CliGroup(click.Group):
    """A group of such commands.  An option that is not given is taken from the environment, as MPI_MATCH_RUN_BATCH.

    `elsewhere` names commands of other packages, as `module:function`; each is imported when it is asked for.
    """

    command_class = CliCommand
    group_class = type

    def __init__(self, *args: Any, elsewhere: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        self._elsewhere = dict(elsewhere or {})
        kwargs.setdefault("epilog", EPILOG)
        context = kwargs.setdefault("context_settings", {})
        context.update(help_option_names=["-h", "--help"], max_content_width=110, auto_envvar_prefix=ENVIRONMENT_PREFIX)
        super().__init__(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments.  If an option of a command stands before the command's name, the error says so."""
        with _said_whose(ctx, self):
            return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, sorted."""
        return sorted({*super().list_commands(ctx), *self._elsewhere})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, imported now if it belongs to another package, or None."""
        if cmd_name in self._elsewhere and cmd_name not in self.commands:
            module, _, name = self._elsewhere[cmd_name].partition(":")
            self.add_command(getattr(importlib.import_module(module), name), cmd_name)
        return super().get_command(ctx, cmd_name)


def _line_of(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {error}" if str(error) else "there is not enough memory"
    return " ".join(str(error).split("\n")) or type(error).__name__


class _StandardOutput(io.FileIO):
    """Standard output.  The first failed write raises an error that names it; later writes are dropped."""

    _NAME = "standard output"

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._lost = False

    def write(self, data: Any) -> int:
        """Write bytes; returns their number."""
        if self._lost:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self._lost = True
            text = "is closed" if error.errno == errno.EBADF else error.strerror
            raise OSError(error.errno, text, self._NAME) from None

    @classmethod
    def is_to_blame(cls, error: OSError) -> bool:
        """Tells whether an error is one of standard output."""
        return bool(error.filename == cls._NAME)


def _prepare_streams() -> None:
    """Replace standard output by a stream that its errors name.

    A closed standard stream (`>&-`) is opened on /dev/null, else the next file would get its descriptor; standard output is
    opened for reading, so that writing fails.
    """
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, closefd=False))
    old = sys.stdout
    if isinstance(old, io.TextIOWrapper):
        buffer = io.BufferedWriter(_StandardOutput(old.fileno()))
        at_once = old.line_buffering or old.write_through
        sys.stdout = io.TextIOWrapper(buffer, old.encoding, old.errors, line_buffering=at_once)


class _VisibleFormatter(logging.Formatter):
    """Formats log lines and escapes control characters, because names and values in them may come from strangers."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return visible(super().format(record))


def _set_verbosity(ctx: click.Context, option: click.Parameter, count: int) -> None:
    launch = found_in(os.environ)  # asking MPI for the rank would start it
    where = socket.gethostname() + ("" if launch is None else f" rank {launch.rank}")
    handler = logging.StreamHandler()
    line = f"%(asctime)s.%(msecs)03d {where} %(levelname)s %(name)s: %(message)s"
    handler.setFormatter(_VisibleFormatter(line, "%Y-%m-%d %H:%M:%S"))
    for name in ("mpi_match", "spark_prep"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(count, 2)])
    watched = not count and sys.stderr.isatty()  # on a terminal, report compiling
    logging.getLogger("mpi_match.compute.compile_cache").setLevel(logging.INFO if watched else logging.NOTSET)


@dataclass
class _Ending:
    """The error that a command has ended with; click keeps its exit code alone."""

    error: Exception | None = None


def run_as_program(commands: click.Command, name: str = "mpi-match") -> None:
    """Run the command line of this process and exit, with its code, on every rank; `name` is the program's in usage."""
    _prepare_streams()
    ending = _Ending()
    try:
        code = _code_of(commands, name, ending)
    except BaseException as mistake:
        write_exit_report(ExitCode.FAILURE, mistake)
        end_all_ranks(ExitCode.FAILURE, mistake)
        raise
    write_exit_report(code, ending.error)
    end_all_ranks(code)
    sys.exit(code)


def _code_of(commands: click.Command, name: str, ending: _Ending) -> int:
    """Run a command line.  Returns its exit code, after flushing standard output."""
    try:
        try:
            commands(prog_name=name, obj=ending)
        except SystemExit as done:
            sys.stdout.flush()
            return done.code if isinstance(done.code, int) else ExitCode.FAILURE if done.code else ExitCode.OK
        return ExitCode.OK
    except OSError as error:
        if not _StandardOutput.is_to_blame(error):
            raise
        if not isinstance(error, BrokenPipeError):  # the reader of the pipe has ended, as `head` does
            click.echo(f"mpi-match: {visible(_line_of(error))}", err=True)
        return ExitCode.FAILURE
