"""The command `launch`: prints files for launchers for hosts without a checkout of the project."""

from __future__ import annotations

import click

from mpi_match.cli.errors import CliCommand
from mpi_match.commands.launch import FILES, launch_file, launch_files


@click.command(cls=CliCommand, short_help="Print a job script, a hostfile or a container's recipe.")
@click.argument("name", type=click.Choice(list(FILES)), required=False)
def launch(name: str | None) -> None:
    """Print the file NAME, or a list of all names:

        mpi-match launch slurm > job.sbatch
        sbatch --ntasks=9 job.sbatch --table table.h5 --events events.h5 -o matches.h5

    A script is complete in itself.  Its ranks run the Python that printed it, which every host needs at the same path;
    MPI_MATCH_PYTHON in the environment names another.
    """
    if name is not None:
        click.echo(launch_file(name), nl=False)
        return
    found = launch_files()
    width = max(len(each.name) for each in found)
    click.echo("\n".join(f"{each.name:<{width}}  {each.about}" for each in found))
