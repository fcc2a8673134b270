"""Answers on their way to disk: the master's output, the journal, the workers' parts."""
