"""Events as published, encoded in batches, and in event tables."""
