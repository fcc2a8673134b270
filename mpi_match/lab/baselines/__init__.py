"""Baseline engines: published matchers and libraries that the laboratory compares with."""
