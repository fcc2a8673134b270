"""The readings of texts that operators ask for: folded case, wildcards, regular expressions, addresses, instants.

These functions are plain Python and define the meaning; compiled code (`ingest.codes`) agrees with them.
"""
