"""Answers: the matched interfaces or filters of each event, in memory and in HDF5."""
