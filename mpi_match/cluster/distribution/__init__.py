"""Who holds what: the table's shards, their copies, and where events come from."""
