"""The expected errors: each class derives from `MpiMatchError` and has the exit code of a command that it ends."""

from __future__ import annotations

from mpi_match.exit_codes import ExitCode


class MpiMatchError(Exception):
    """An error that a user can cause or cure; its text is one line that says what is wrong, where, and what to do.

    A class or an instance sets `exit_code`, with which the command ends.  `disk_full`: nothing can be written until there is
    room.
    """

    exit_code: int = ExitCode.FAILURE
    disk_full: bool = False


class EngineError(MpiMatchError):
    """An engine cannot serve a table or run on this machine; the text says why and which engine can."""

    exit_code = ExitCode.ENVIRONMENT


class OptionError(EngineError):
    """An unknown option of an engine or parameter of a scenario, or an invalid value; the text lists the valid ones."""

    exit_code = ExitCode.USAGE
