"""The journal of a run and the manifest of its outcome."""
