"""An R*-tree of areas (libspatialindex) on one thread of a CPU."""
