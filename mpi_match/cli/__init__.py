"""The command line `mpi-match`."""
