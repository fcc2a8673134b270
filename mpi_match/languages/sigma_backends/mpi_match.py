"""`sigma.backends.mpi_match` of an installed package: where pySigma looks for the backend."""

from mpi_match.languages.sigma import MpiMatchBackend as MpiMatchBackend

backends = {"mpi_match": MpiMatchBackend}
