"""Which batch goes to which worker, and when: pure state, no MPI, no clock."""
