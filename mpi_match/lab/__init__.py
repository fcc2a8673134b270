"""The laboratory: workloads, throughput experiments, the papers' tables and figures, baselines, and their commands."""
