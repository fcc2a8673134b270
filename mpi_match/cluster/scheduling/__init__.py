"""Decides which batch goes to which worker, and when; it has neither MPI nor a clock."""
