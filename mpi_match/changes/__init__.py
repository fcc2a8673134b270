"""Changes of a table: areas moved, filters added and removed."""
