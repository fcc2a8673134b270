"""Runs whose ranks are killed: what becomes of their answers."""
