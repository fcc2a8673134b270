"""The constraint table: subscriptions encoded and sorted by name, in memory and in HDF5."""
