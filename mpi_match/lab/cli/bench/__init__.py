"""`bench`: engines in this process; and runs of ranks, one after the other, under changes, and while ranks are killed."""
