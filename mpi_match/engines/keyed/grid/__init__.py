"""The part of the index that changes: a hash grid of areas and keys, and the live filters."""
