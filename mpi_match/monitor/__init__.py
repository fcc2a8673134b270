"""The reports of a run: its status, a dashboard, JSON lines, a plot."""
