"""A run that follows its input: events arrive while it runs, and it ends on a signal (`run --follow`)."""
