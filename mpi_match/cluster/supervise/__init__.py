"""Runs that are started again until they are complete."""
