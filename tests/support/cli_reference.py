"""The page of commands, `mpi_match/docs/cli.md`: what `--help` says.  As a script (`make cli-reference`) this writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from mpi_match.cli.main import commands  # noqa: E402
from mpi_match.exit_codes import ExitCode  # noqa: E402

PAGE = REPOSITORY / "mpi_match" / "docs" / "cli.md"
WIDTH = 100


def reference() -> str:
    """The page: what there is, how it ends, then the help of every command."""
    found = list(every_command(commands, ("mpi-match",)))
    lines = [
        "# Commands",
        "",
        "What `--help` says, written by `make cli-reference`; a test holds that it is current.",
        "",
        "| command | |",
        "|---|---|",
        *(f"| [`{' '.join(path[1:])}`](#{'-'.join(path)}) | {command.short_help} |" for path, command in found),
        "",
        "Data goes to standard output, everything for people to standard error. An error that is foreseen is one line.",
        "",
        "| exit code | |",
        "|---|---|",
        *(f"| {code.value} | {code.meaning} |" for code in ExitCode),
    ]
    for path, _ in found:
        lines += ["", f"## {' '.join(path)}", "", "```text", *help_of(path), "```"]
    return "\n".join(lines) + "\n"


def every_command(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Commands in the order of their help, with the words that call them; those of a command come behind it."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield (*path, name), command
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))


def help_of(path: tuple[str, ...]) -> list[str]:
    """The lines of a command's help, without what is the same for all: the exit codes."""
    done = CliRunner().invoke(commands, [*path[1:], "--help"], prog_name=path[0], terminal_width=WIDTH)
    assert done.exit_code == 0, done.output
    return done.stdout.partition("\n  Exit codes:")[0].rstrip().splitlines()


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
