"""Answers: for each event its matched interfaces or filters, in memory and in HDF5."""
