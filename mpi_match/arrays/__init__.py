"""Flat NumPy arrays: lists of lists, byte strings, linked lists, chunked growth."""
