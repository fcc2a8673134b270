"""Reads events from columns: Arrow, pandas, polars, NumPy and Python lists."""
