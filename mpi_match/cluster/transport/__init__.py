"""Messages between master and workers over MPI, and whether ranks are alive."""
