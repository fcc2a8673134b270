"""Verification of answers by the naive matcher."""
