"""The machine, the MPI launcher and the digest of the sources."""
