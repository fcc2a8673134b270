"""CCM: one GPU thread for each constraint on the event's names (Margara & Cugola, DEBS 2011)."""
