"""The commands, without their command line."""
