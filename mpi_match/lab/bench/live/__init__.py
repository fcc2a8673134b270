"""Long runs of an engine whose table changes; pauses, memory and answers are watched."""
