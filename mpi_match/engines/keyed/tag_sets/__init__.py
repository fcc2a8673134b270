"""The index of tables whose filters only ask for presence."""
