"""The index of a fixed table: features, keys, tries, posting lists."""
