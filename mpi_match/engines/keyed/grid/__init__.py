"""The mutable part of the keyed index: a hash grid of areas and keys, and the live filters."""
