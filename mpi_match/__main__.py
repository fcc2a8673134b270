"""`python -m mpi_match` is the command `mpi-match`; under MPI, `python -m mpi4py -m mpi_match`."""

from mpi_match.cli.main import main

main()
