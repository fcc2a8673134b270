"""Rows, columns and predicates in; the model's values out, or a reject with its reason."""
