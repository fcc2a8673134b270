"""Compiled CPU code: its cache on disk, parallel sorting, tables of array pointers."""
