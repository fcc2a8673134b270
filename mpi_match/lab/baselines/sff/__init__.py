"""Siena Fast Forwarding (Carzaniga and Wolf, SIGCOMM 2003) on one thread of a CPU."""
