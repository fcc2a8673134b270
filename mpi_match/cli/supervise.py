"""The command `supervise`: restarts a run until it is complete."""

from __future__ import annotations

import sys
from typing import Any

import click

from mpi_match.cli.errors import CliCommand
from mpi_match.cli.options import FILE
from mpi_match.cli.terminal import say
from mpi_match.cluster.supervise.hostfile import PROBE
from mpi_match.cluster.supervise.restart_policy import START_LIMIT_S


@click.command(cls=CliCommand, short_help="Start a run, and start it again if it is cut short.")
@click.argument("command", type=click.UNPROCESSED, nargs=-1, required=True)
@click.option("--max-restarts", type=click.IntRange(0), default=3, help="Number of times that the run may be started again.")
@click.option("--hostfile", type=FILE, help="The hostfile that COMMAND names; hosts that do not answer are left out of it.")
@click.option("--probe", default=PROBE, help="Command that succeeds when host {} answers.")
@click.option(
    "--start-limit",
    "start_limit_s",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    default=START_LIMIT_S,
    help="End a start that has not opened its files after S seconds.",
)
@click.option(
    "--stalled",
    "stalled_s",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="End a run that answers nothing for S seconds.",
)
def supervise(command: tuple[str, ...], max_restarts: int, **how: Any) -> None:
    r"""Start a run by COMMAND, and start it again with --resume if it is cut short, such as by a dead master or a lost host.

    COMMAND is the whole command, launcher and all, and ends with the options of `run`:

        mpi-match supervise --hostfile hosts -- mpirun --hostfile hosts -n 9 \
            python -m mpi4py -m mpi_match run --table table.h5 --events events.h5 -o matches.h5

    OUTPUT.run.json says whether the run is complete; the launcher's exit code does not.  Exit code 0 if it is complete; 4 if
    it is not and there is something to go on from; that of the run if starting again would not help.
    """
    from mpi_match.cluster.supervise.supervisor import Supervisor

    sys.exit(Supervisor(command, max_restarts, say=say, **how).run())
