"""What a run reports: its status, a dashboard, a report as JSON lines, a plot."""
