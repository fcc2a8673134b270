"""The published scenarios, generated."""
