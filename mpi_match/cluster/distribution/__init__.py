"""Placement: the shards of the table and their copies, and the sources of events."""
