"""The keyed engine: filters indexed by their rarest features, on CPU threads and on a GPU."""
