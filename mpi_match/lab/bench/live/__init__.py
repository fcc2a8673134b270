"""An engine whose table changes without end, with its pauses, its memory and its answers watched."""
