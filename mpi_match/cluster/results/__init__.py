"""Output of answers: the master's file, the journal, the parts of workers."""
