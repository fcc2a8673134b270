"""Changes of a table: areas that move, filters that come and go."""
