"""BE-Tree (Sadoghi and Jacobsen, SIGMOD 2011) on one thread of a CPU."""
