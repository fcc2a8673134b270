"""The meaning of a row, in Python: the reference that compiled readers agree with."""
