"""CLCB: location first, then CCM's rows (Cugola & Margara, Middleware 2012)."""
