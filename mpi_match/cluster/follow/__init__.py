"""A run that follows its input: events come while it runs, and it ends when it is told to (`run --follow`)."""
