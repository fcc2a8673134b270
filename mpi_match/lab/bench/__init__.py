"""Throughput experiments on engines and on runs, answers checked."""
