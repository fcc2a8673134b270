"""Two-phase matching on CPU threads: predicates, then clusters of filters (Farroukh et al., DEBS 2009)."""
