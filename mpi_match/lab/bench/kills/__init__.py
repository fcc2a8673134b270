"""Runs whose ranks are killed, and checks of their answers."""
