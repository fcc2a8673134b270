"""Turns a value into its code, in compiled code: one function a type."""
