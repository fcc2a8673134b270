"""Turns rows and columns into checked values of the model, or into a reject with its reason."""
