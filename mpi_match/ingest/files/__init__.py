"""Finds the rows of files and streams: blocks of lines, ranges of bytes, CSV records."""
