"""Answers held against the naive matcher."""
