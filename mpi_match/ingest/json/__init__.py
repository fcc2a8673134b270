"""Reads events and subscriptions from JSON lines in compiled code, on CPU threads and on a GPU."""
