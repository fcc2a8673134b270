"""Events as they were published, encoded in batches, and in event tables."""
